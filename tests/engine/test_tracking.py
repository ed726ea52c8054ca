"""Tracks: their columns join every row of the history, they see the training part, and leave no trace."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import margin
from margin import Run, Training
from margin.core import catalog
from margin.core.catalog import Part
from margin.core.types import Batch, Objective
from margin.data.sets.tiny.tables import moons
from margin.engine.loop import State
from margin.engine.plan import tracks, tracks_of
from margin.testing import check_same_run


def norm(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    squares = sum(float(p.detach().double().square().sum()) for p in state.model.parameters())
    with torch.no_grad():
        losses = [objective(state.model, batch, state.generator) for batch in batches]
    return {"weights": squares**0.5, "seen": float(sum(map(len, losses))), "step_seen": float(state.step)}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Part(
        name="test/norm", summary="s", kind="track", target=f"{__name__}:norm", reference="Nobody 2000"
    )
    monkeypatch.setattr("margin.engine.plan.parts", lambda: {**catalog.parts(), row.name: row})


SHORT = Training(epochs=3, batch_size=16)


def test_columns_of_a_track_join_every_row(known: None, tmp_path: Path) -> None:
    data = moons()
    run = margin.train("mlp", data, training=replace(SHORT, track=["norm"]), out=tmp_path / "r")
    assert [row["step_seen"] for row in run.history] == [row["step"] for row in run.history]
    assert all(row["seen"] == len(data.splits["train"]) for row in run.history)
    model = margin.load(run, "last")
    last = sum(float(p.detach().double().square().sum()) for p in model.parameters()) ** 0.5
    assert run.history[-1]["weights"] == pytest.approx(last, rel=1e-6)


def test_a_track_does_not_change_what_is_trained(known: None, tmp_path: Path) -> None:
    with_it = margin.train("mlp", moons(), training=replace(SHORT, track=["norm"]), out=tmp_path / "a")
    without = margin.train("mlp", moons(), training=SHORT, out=tmp_path / "b")
    a, b = (margin.load(run, "last").state_dict() for run in (with_it, without))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_resumed_run_is_tracked_on(known: None, tmp_path: Path) -> None:
    training = replace(SHORT, track=["norm"])
    whole = margin.train("mlp", moons(), training=training, out=tmp_path / "a")
    half = margin.train("mlp", moons(), training=replace(training, epochs=1), out=tmp_path / "b")
    margin.resume(half, moons(), Training(epochs=3))
    check_same_run(whole, Run(half.path))


def test_a_name_that_is_no_track_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown track 'nothing'"):
        tracks_of(Training(track=["nothing"]), list)
    assert all(part.kind == "track" for part in tracks().values())
    with pytest.raises(ValueError, match="leave out --track, or set --strategy ddp"):
        tracks_of(Training(track=["norm"], strategy="fsdp", processes=2), list)
