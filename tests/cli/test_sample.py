"""``margin sample``: what is drawn, where it goes, and what is refused."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

import margin
from margin.cli import main
from margin.data.sets.tiny.tables import classes
from margin.engine.runs import Run
from margin.runs.sampling import options_of, sample, sampler_of

TEXT = "abcabcabc\n" * 60


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of the next character that has learned abcabcabc."""
    directory = tmp_path_factory.mktemp("song")
    (directory / "song.txt").write_text(TEXT)
    words = ["--data.time", "16", "--epochs", "60", "--lr", "0.02", "--model.hidden", "16"]
    source, out = f"text:{directory / 'song.txt'}", str(directory / "r")
    assert main(["train", "sequence/gru:tokens", source, *words, "--out", out]) == 0
    return Run(out)


def test_a_text_goes_on_as_it_was_learned(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = [
        "sample",
        str(run.path),
        "-n",
        "2",
        "--prefix",
        "ab",
        "--sample.length",
        "12",
        "--sample.temperature",
        "0",
    ]
    assert main([*words, "--json"]) == 0
    # after "ab" comes "c" and the song from there; temperature 0 draws nothing, so both are the same
    one, two = json.loads(capsys.readouterr().out)
    assert one == two
    assert len(one) == 2 + 12
    assert one[:3] == "abc"
    assert one in "abcabcabc\n" * 4
    assert main(words) == 0
    shown = f"--- 1 of 2 ---\n{one}\n--- 2 of 2 ---\n{two}\n"
    assert capsys.readouterr().out == shown
    assert main([*words, "--out", "two.txt"]) == 0
    assert Path("two.txt").read_text() == shown
    capsys.readouterr()
    words[3] = "1"
    assert main(words) == 0
    assert capsys.readouterr().out == f"{one}\n"
    drawn = sample(run, 1, prefix="ab", options={"length": 12, "temperature": 0.0})
    assert drawn.values.shape == (1, 14)
    assert drawn.texts == (one,)


def test_the_same_seed_draws_the_same(run: Run) -> None:
    drawn = [sample(run, 3, seed=seed, options={"length": 30, "temperature": 2.0}) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0].values, drawn[1].values)
    assert not torch.equal(drawn[0].values, drawn[2].values)
    assert drawn[0].values.shape == (3, 30)
    assert len(drawn[0].texts) == 3
    assert set("".join(drawn[0].texts)) <= set("abc\n")


def test_samples_go_to_a_file(run: Run, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", str(run.path), "-n", "2", "--out", "s.txt"]) == 0
    assert main(["sample", str(run.path), "-n", "2", "--out", "s.npy"]) == 0
    assert np.load(here / "s.npy").shape == (2, 200)
    for words, message in (
        (["--out", "s.txt"], "s.txt exists"),
        (["--out", "s.wav"], "must end in .npy, .txt for these samples"),
        (["-n", "0"], "at least 1: got 0"),
        (["--prefix", "xyz"], "got 'x'"),
        (["--sample.temperature", "-1"], "temperature"),
        (["--sample.heat", "1"], "unknown option --sample.heat"),
    ):
        capsys.readouterr()
        assert main(["sample", str(run.path), *words]) == 2
        assert message in capsys.readouterr().err


def test_what_cannot_be_sampled_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    margin.train("feedforward/mlp", classes(), training=margin.Training(max_steps=1), out=here / "m")
    assert main(["sample", "m"]) == 2
    assert "feedforward/mlp cannot be sampled" in capsys.readouterr().err
    assert main(["sample"]) == 2
    assert "needs a run" in capsys.readouterr().err


def test_sounds_are_written_as_they_play(here: Path) -> None:
    rate, time = 8000, np.arange(4000) / 8000
    with wave.open(str(here / "tone.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((8000 * np.sin(2 * np.pi * 440 * time)).astype("<i2").tobytes())
    (here / "clips").mkdir()
    for k in range(4):
        (here / "clips" / f"{k}.wav").write_bytes((here / "tone.wav").read_bytes())
    words = ["--data.task", "tokens", "--data.time", "64", "--max-steps", "2", "--model.width", "4"]
    assert main(["train", "sequence/wavenet", "audio:clips", *words, "--out", "w"]) == 0
    assert main(["sample", "w", "--sample.length", "100", "--out", "s.wav"]) == 0
    with wave.open(str(here / "s.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (rate, 100)


def test_options_of_a_sampler_are_its_own(run: Run) -> None:
    assert options_of(sampler_of(run)) == ("length", "temperature", "top_k", "top_p")
