"""The rate that falls on a plateau: torch's own, driven by the history, with and without a rise."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import margin
from margin import Run, Training
from margin.data.sets.tiny.tables import moons
from margin.engine.loop import State, fit, on_plateau, scheduled
from margin.optim.schedules import schedule_of
from margin.testing import check_same_run

LOSSES = [1.0, 0.9, 0.95, 0.93, 0.91, 0.92, 0.5, 0.6, 0.7, 0.8, 0.9, float("nan"), 1.0]


def rates(warmup: int = 0) -> list[float]:
    """The rate of each step where step t sees t rows of the history."""
    model = nn.Linear(1, 1)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.5)})
    seen = []

    def step(state: State, batch: int) -> dict[str, float]:
        seen.append(state.optimizers[""].param_groups[0]["lr"])
        state.history = [*state.history, {"step": batch, "val_loss": LOSSES[batch]}]
        return {}

    wrapped = scheduled(
        on_plateau(step, {"patience": 1, "factor": 0.5}), schedule_of("constant", total=13, warmup=warmup)
    )
    fit(state, lambda k: k, wrapped, max_steps=len(LOSSES))
    return seen


def test_it_is_torchs_reduction_on_a_plateau() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.0)
    expected = []
    for loss in LOSSES:
        expected.append(optimizer.param_groups[0]["lr"])
        theirs.step(loss)
    assert rates() == expected
    assert expected[0] > expected[-1]


def test_a_rise_and_the_drops_multiply() -> None:
    plain, risen = rates(), rates(warmup=4)
    assert risen == [rate * min(1.0, (t + 1) / 4) for t, rate in enumerate(plain)]


def test_a_resumed_training_falls_on(tmp_path: Path) -> None:
    training = Training(
        epochs=6, schedule="plateau", schedule_options={"patience": 0.0, "factor": 0.5}, lr=0.3, batch_size=8
    )
    whole = margin.train("mlp", moons(), training=training, out=tmp_path / "a")
    half = margin.train("mlp", moons(), training=replace(training, epochs=3), out=tmp_path / "b")
    margin.resume(half, moons(), Training(epochs=6))
    check_same_run(whole, Run(half.path))
    assert whole.history[-1]["lr"] < 0.3


def test_what_it_cannot_do_is_said_before_the_first_step(tmp_path: Path) -> None:
    def trained(**options: float) -> None:
        training = Training(epochs=1, schedule="plateau", schedule_options=options)
        margin.train("mlp", moons(), training=training, out=tmp_path / "r")

    with pytest.raises(
        ValueError, match="the schedule plateau has no option 'every'; it has: patience, factor"
    ):
        trained(every=3.0)
    with pytest.raises(ValueError, match=r"factor must be in \(0, 1\]: got 2"):
        trained(factor=2.0)
    assert not (tmp_path / "r").exists()
    nothing = margin.open_source((torch.randn(20, 2), torch.arange(20) % 2), {"val": 0.0, "test": 0.0})
    with pytest.raises(ValueError, match="watches the validation loss: nothing is held out"):
        margin.train("mlp", nothing, training=Training(epochs=1, schedule="plateau"), out=tmp_path / "n")
    assert not (tmp_path / "n").exists()
