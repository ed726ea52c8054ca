"""``margin export``: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest
import torch

import margin
from margin.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "r"]) == 0
    return tmp_path


def test_a_run_becomes_a_file_and_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    capsys.readouterr()
    assert main(["export", "r", "--format", "onnx", "--out", "iris.onnx"]) == 0
    said = capsys.readouterr()
    first, takes, returns, checked = said.out.splitlines()
    size = (here / "iris.onnx").stat().st_size / 1024
    assert first == f"iris.onnx: onnx, {size:.1f} KiB, best weights"
    assert takes.startswith(
        "takes    float32 (N, 4), in the units of iris, not standardized: sepal length (cm), "
    )
    assert returns == (
        "returns  float32 (N, 3), a score (logit) for each class: setosa, versicolor, virginica"
    )
    assert checked.startswith("checked  at most ")
    assert checked.endswith("on 16 examples of iris (test part)")
    assert said.err == ""


def test_an_export_of_weights_is_the_same_each_time(here: Path) -> None:
    contents = set()
    for number in range(4):  # a dozen names of metadata stand in one order by chance in less than 1e-8
        assert main(["export", "r", "--format", "state", "--out", f"{number}.safetensors"]) == 0
        contents.add((here / f"{number}.safetensors").read_bytes())
    assert len(contents) == 1


def test_json_holds_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["export", "r", "--weights", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == "r/model.safetensors"
    assert found["format"] == "state"
    assert found["weights"] == "last"
    assert found["bytes"] == (here / "r" / "model.safetensors").stat().st_size
    assert found["classes"] == ["setosa", "versicolor", "virginica"]
    assert "difference" not in found


def test_the_program_predicts_what_the_command_does(here: Path) -> None:
    assert main(["export", "r", "--format", "torch"]) == 0
    x = margin.open_source("iris", {}).splits["test"].inputs[0]
    program = torch.export.load(here / "r" / "model.pt2").module()
    assert torch.equal(program(x), margin.load("r")(x))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone"], "gone is no run"),
        (["r", "--format", "onyx"], "--format takes one of state, torch, onnx: got onyx"),
        (["r", "--weights", "first"], "--weights takes one of best, last, initial: got first"),
        (["r", "--out", "m.onnx"], "a file of format state must end in .safetensors: got m.onnx"),
        (["r", "--out", "r/initial.safetensors"], "r/initial.safetensors exists: choose another --out"),
        (["r", "--out", "gone/m.safetensors"], "no such directory: gone"),
        (["r", "--frmat", "onnx"], "unknown option --frmat; nearest: --format"),
    ],
)
def test_a_mistake_gets_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["export", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert message in said.err


def test_a_file_that_exists_is_kept(here: Path) -> None:
    assert main(["export", "r"]) == 0
    before = (here / "r" / "model.safetensors").read_bytes()
    assert main(["export", "r", "--weights", "initial"]) == 2
    assert (here / "r" / "model.safetensors").read_bytes() == before


def test_help_says_that_outputs_are_the_models_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Its outputs are the model's own: class scores before the softmax" in said
