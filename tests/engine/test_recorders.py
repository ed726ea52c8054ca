"""Copies of the history say what the history says, after a resumption too."""

import csv
import sys
from pathlib import Path

import pytest

from margin.core.options import Training
from margin.engine.hooks import recording
from margin.engine.runs import Run
from margin.runs.verbs import resume, train

QUICK = {"batch_size": 64, "evaluate_every": 3}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Seven steps with a row at 3, 6 and 7, then up to eleven: rows at 9 and 11."""
    training = Training(max_steps=7, log=["csv", "tensorboard"], **QUICK)
    train("mlp", "two-moons", training=training, out=tmp_path / "run")
    return resume(tmp_path / "run", training=Training(max_steps=11))


def test_the_csv_file_has_the_rows_of_the_history(run: Run) -> None:
    with (run.path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [3, 6, 7, 9, 11]
    for row, recorded in zip(rows, run.history, strict=True):
        assert {name: float(value) for name, value in row.items()} == recorded


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_history_each_step_once(run: Run) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert "val/loss" in events.Tags()["scalars"]
    told = {event.step: event.value for event in events.Scalars("val/loss")}
    assert told == pytest.approx({row["step"]: row["val_loss"] for row in run.history}, rel=1e-6)
    assert len(events.Scalars("train/loss")) == 5


def test_rows_told_after_the_last_checkpoint_are_told_anew(tmp_path: Path) -> None:
    """A csv file that a killed training left ahead of its checkpoint is written from the history."""
    run = train(
        "mlp", "two-moons", training=Training(max_steps=3, log=["csv"], **QUICK), out=tmp_path / "run"
    )
    (run.path / "history.csv").write_text("step,nonsense\n3,1\n99,1\n")
    again = resume(run, training=Training(max_steps=6))
    lines = (again.path / "history.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["step", "3", "6"]


def test_a_missing_tensorboard_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train("mlp", "two-moons", training=Training(max_steps=1), out=tmp_path / "run")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with (
        pytest.raises(ValueError, match=r"pip install 'margin\[tensorboard\]'"),
        recording(run, ["tensorboard"]),
    ):
        pass
