"""The hooks by hand: rows of the history, the best row, when to save, when to stop."""

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from margin.core.types import TERMS, Batch
from margin.engine.hooks import Evaluating, is_best, patience, saving, until
from margin.engine.loop import State, fit
from margin.engine.runs import Run

NAN = math.nan


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "r", {"recipe": {}})


def state_of(lr: float = 0.25) -> State:
    model = nn.Linear(1, 1)
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=lr)})


def reporting(state: State, batch: int) -> dict[str, float | torch.Tensor]:
    return {"loss": float(batch), "mistakes": torch.tensor(2.0 * batch)}


def test_a_row_holds_the_means_of_the_steps_since_the_last(run: Run) -> None:
    state = state_of()
    evaluating = Evaluating(run, 3, lambda s: {"loss": 10.0 * s.step}, per_epoch=4, batch_size=5)
    fit(state, lambda step: step, reporting, max_steps=7, hooks=[evaluating])
    first, second = Run(run.path).history
    assert (first["step"], second["step"]) == (3, 6)
    assert (first["train_loss"], second["train_loss"]) == (1.0, 4.0)  # of 0, 1, 2 and of 3, 4, 5
    assert (first["train_mistakes"], second["train_mistakes"]) == (2.0, 8.0)
    assert (first["epoch"], second["epoch"]) == (0.75, 1.5)
    assert (first["val_loss"], second["val_loss"]) == (30.0, 60.0)
    assert first["lr"] == 0.25
    assert first["examples_per_second"] * first["seconds"] == pytest.approx(15, rel=1e-9)
    assert state.tally == {"loss": 6.0, "mistakes": 12.0, "terms": 1.0, "steps": 1.0}


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([3.0], True),
        ([3.0, 2.0], True),
        ([2.0, 3.0], False),
        ([2.0, 2.0], False),  # a tie keeps the earlier weights
        ([None, 2.0], True),
        ([NAN, 2.0], True),
        ([2.0, NAN], False),
        ([math.inf], False),
        ([None], False),
    ],
)
def test_the_best_row_is_the_first_of_the_smallest(values: list[float | None], best: bool) -> None:
    assert is_best([{"val_loss": value} for value in values], "val_loss") is best
    assert not is_best([{"step": 1}], "val_loss")


@pytest.mark.parametrize(
    ("values", "stops"),
    [
        ([3.0, 2.0, 2.5], False),
        ([3.0, 2.0, 2.5, 2.1], True),
        ([2.0, 2.0, 2.0], True),  # a tie is no better
        ([3.0, 2.5, 2.0], False),
        ([None, 3.0, 3.5], False),  # a loss that was not finite is no best
        ([None, 3.0, 3.5, None], True),
    ],
)
def test_patience_counts_the_rows_since_the_best(run: Run, values: list[float | None], stops: bool) -> None:
    for step, value in enumerate(values, 1):
        run.append({"step": step, "val_loss": value})
    state = state_of()
    state.step = len(values)
    reason = patience(run, "val_loss", 2)(state, {})
    assert reason == ("no better val_loss in 2 evaluations" if stops else None)
    state.step += 1  # between two rows nothing is decided
    assert patience(run, "val_loss", 2)(state, {}) is None


def test_while_a_model_is_warming_nothing_is_best_and_no_patience_runs_out(run: Run) -> None:
    """Its loss may be least while a part of it has not begun to learn what it is judged by."""
    state = state_of()
    rows = [(1.0, 1.0), (2.0, 0.5), (3.0, 0.0), (2.5, 0.0), (2.6, 0.0), (2.7, 0.0)]
    seen = []
    for step, (value, warming) in enumerate(rows, 1):
        run.append({"step": step, "val_loss": value, "train_warming": warming})
        state.step = step
        seen.append((is_best(run.history, "val_loss"), patience(run, "val_loss", 2)(state, {})))
    assert [best for best, _ in seen] == [False, False, True, True, False, False]
    assert [bool(reason) for _, reason in seen] == [False] * 5 + [True]


def test_patience_without_a_row_waits(run: Run) -> None:
    assert patience(run, "val_loss", 1)(state_of(), {}) is None


@pytest.mark.parametrize(("value", "stops"), [(0.5, True), (0.5 - 1e-9, True), (0.5 + 1e-9, False)])
def test_until_stops_at_the_bound(value: float, stops: bool) -> None:
    for given in (value, torch.tensor(value, dtype=torch.float64)):
        assert until("gap", 0.5)(state_of(), {"gap": given}) == ("gap <= 0.5" if stops else None)


def test_until_names_what_the_step_reports() -> None:
    with pytest.raises(ValueError, match="got 'gap', it has loss, grad_norm"):
        until("gap", 0.5)(state_of(), {"loss": 1.0, "grad_norm": 2.0})


def test_a_checkpoint_is_written_when_due_and_at_every_row(run: Run) -> None:
    losses = {3: 0.5, 6: 0.9, 9: 0.4}
    evaluating = Evaluating(run, 3, lambda s: {"loss": losses[s.step]}, per_epoch=1, batch_size=1)
    marks = []

    def look(state: State, metrics: dict) -> None:
        marks.append((run.checkpoints.get("last"), run.checkpoints.get("best")))

    hooks = [evaluating, saving(run, 4, "val_loss"), look]
    fit(state_of(), lambda step: step, reporting, max_steps=9, hooks=hooks)
    assert marks == [
        (None, None),
        (None, None),
        (3, 3),
        (4, 3),
        (4, 3),
        (6, 3),
        (6, 3),
        (8, 3),
        (9, 9),
    ]


def test_a_loss_is_the_mean_over_the_terms_of_all_steps(run: Run) -> None:
    """97 rows of known squares in batches of 90 and 7, under weights that do not move: 3824 as a whole."""
    values = torch.full((97,), 4096.0, dtype=torch.float64)
    values[90:] = (97 * 3824 - 90 * 4096) / 7
    assert values.mean().item() == pytest.approx(3824, rel=1e-12)

    def step(state: State, batch: Batch) -> dict[str, float]:
        return {"loss": batch.inputs[0].mean().item(), "grad_norm": float(len(batch.inputs[0]))}

    batches = [Batch((values[:90],)), Batch((values[90:],))]
    evaluating = Evaluating(run, 2, lambda s: {}, per_epoch=2, batch_size=90)
    fit(state_of(), lambda k: batches[k % 2], step, max_steps=4, hooks=[evaluating])
    for row in Run(run.path).history:
        assert row["train_loss"] == pytest.approx(3824, rel=1e-12)  # of batch means: 2211.4
        assert row["train_grad_norm"] == (90 + 7) / 2  # a step's own quantity counts once a step
        assert row["examples_per_second"] * row["seconds"] == pytest.approx(97, rel=1e-9)


def test_padding_counts_neither_as_a_term_nor_as_an_example(run: Run) -> None:
    weight = torch.tensor([[1.0, 1, 1], [1, 0, 0], [0, 0, 0]])
    batches = [Batch((torch.zeros(w.shape),), weight=w) for w in (weight, torch.ones(2, 3))]

    def step(state: State, batch: Batch) -> dict[str, float]:
        return {"loss": 10.0 if len(batch.inputs[0]) == 3 else 20.0}

    evaluating = Evaluating(run, 2, lambda s: {}, per_epoch=2, batch_size=3)
    fit(state_of(), lambda k: batches[k], step, max_steps=2, hooks=[evaluating])
    (row,) = Run(run.path).history
    assert row["train_loss"] == (4 * 10 + 6 * 20) / 10
    assert row["examples_per_second"] * row["seconds"] == pytest.approx(4, rel=1e-9)


def test_the_terms_that_a_step_states_are_the_ones_that_count(run: Run) -> None:
    def step(state: State, batch: int) -> dict[str, float]:
        return {"loss": float(batch), TERMS: 1.0 + 2 * batch}

    seen: list[dict] = []
    evaluating = Evaluating(run, 2, lambda s: {}, per_epoch=2, batch_size=1)
    hooks = [lambda state, metrics: seen.append(dict(metrics)), evaluating]
    fit(state_of(), lambda k: k, step, max_steps=2, hooks=hooks)
    assert Run(run.path).history[0]["train_loss"] == (0 * 1 + 1 * 3) / 4
    assert seen == [{"loss": 0.0}, {"loss": 1.0}]  # no metric that a user could name


def test_without_the_module_of_the_system_a_row_has_no_memory(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    evaluating = Evaluating(run, 1, lambda s: {"loss": 1.0}, per_epoch=1, batch_size=1)
    fit(state_of(), lambda k: k, reporting, max_steps=1, hooks=[evaluating])
    row = Run(run.path).history[0]
    assert "peak_memory_mib" not in row
    assert (row["train_loss"], row["val_loss"]) == (0.0, 1.0)
