"""Pictures of samples over a training: one a row of the history, no trace, some models refused."""

import json
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
import torch

from margin import audit
from margin.auditing.report.plots import drawn_texts
from margin.auditing.report.report import page
from margin.core.options import Training
from margin.data.formats.text.sources import read_text
from margin.data.sets.tiny.tables import classes, images, moons, values
from margin.runs.training import load
from margin.runs.verbs import resume, train

THREE = Training(max_steps=6, evaluate_every=2, log=["samples"])


@pytest.mark.parametrize(("model", "data"), [("generative/vae", images), ("generative/realnvp", moons)])
def test_every_row_has_its_picture(model: str, data, tmp_path: Path) -> None:
    run = train(model, data(), training=THREE, out=tmp_path / "r")
    names = sorted(path.name for path in (run.path / "samples").iterdir())
    assert names == [f"step-{row['step']:08d}.png" for row in run.history]
    first, *_, last = [(run.path / "samples" / name).read_bytes() for name in names]
    assert first[:4] == b"\x89PNG"
    assert first != last


def test_every_row_has_its_texts_and_the_report_shows_them(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("abcab " * 100)
    data = read_text(tmp_path / "t.txt", time=8)
    small = {"width": 8, "depth": 1, "heads": 2}
    run = train("text/gpt", data, small, THREE, out=tmp_path / "r")
    files = sorted((run.path / "samples").iterdir())
    assert [file.stem for file in files] == [f"step-{row['step']:08d}" for row in run.history]
    texts = [json.loads(file.read_text()) for file in files]
    assert all(
        len(row) == 3 and all(len(text) == 8 and set(text) <= set("abc ") for text in row) for row in texts
    )
    plain = train("text/gpt", data, small, replace(THREE, log=None), out=tmp_path / "p")
    for a, b in zip(load(run).parameters(), load(plain).parameters(), strict=True):
        assert torch.equal(a, b)
    found = audit(run, data, claims=["theory/risk.loss"])
    assert [row["texts"] for row in found.history] == texts
    shown = page(found)
    for k, row in enumerate(run.history):
        assert f"<dt>step {row['step']}</dt><dd>{escape(texts[k][0])}</dd>" in shown
    assert "Generated text" not in page(audit(plain, data, claims=["theory/risk.loss"]))


def test_texts_of_the_first_and_the_last_row_are_shown_and_some_between() -> None:
    rows = [{"step": k, "texts": [f"text {k}", "other"]} for k in range(41)] + [{"step": 99}]
    assert [step for step, _ in drawn_texts(rows)] == [0, 8, 16, 24, 32, 40]
    assert drawn_texts(rows[:2]) == [(0, "text 0"), (1, "text 1")] and drawn_texts([{"step": 1}]) == []


def test_pictures_leave_no_trace_in_the_training(tmp_path: Path) -> None:
    plain = Training(max_steps=6, evaluate_every=2)
    one = train("generative/realnvp", moons(), training=THREE, out=tmp_path / "a")
    other = train("generative/realnvp", moons(), training=plain, out=tmp_path / "b")
    for a, b in zip(load(one).parameters(), load(other).parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_resumed_training_goes_on_with_its_pictures(tmp_path: Path) -> None:
    run = train("generative/realnvp", moons(), training=THREE, out=tmp_path / "r")
    resume(run, moons(), Training(max_steps=8))
    assert len(list((run.path / "samples").iterdir())) == 4


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("feedforward/mlp", classes, "^log samples needs a model that can be sampled: got MLP"),
        ("generative/realnvp", values, r"needs texts, images of 1 or 3 channels, .* got the shape \[3\]"),
    ],
)
def test_what_has_no_pictures_is_refused_before_a_run_is_made(
    model: str, data, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train(model, data(), training=THREE, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
