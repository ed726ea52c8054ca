"""Early stopping: what the hook does from its history, and how near stopped descent is to a penalty."""

import math

import pytest
import torch
from torch import nn

import margin
from margin.core.findings import Subject, Verdict
from margin.core.options import Training
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.examples import Arrays, Data, InOrder
from margin.data.sets.synthetic import blobs
from margin.engine.evaluation import evaluate
from margin.engine.hooks import patience
from margin.engine.loop import State, risk
from margin.engine.runs import Run
from margin.theory.dynamics import early_stopping
from margin.theory.dynamics.early_stopping import (
    against_ridge,
    descend,
    descent_factor,
    flow_factor,
    ridge_ratio,
    ridge_ratio_bound,
)
from margin.theory.dynamics.shrinkage import penalized_minimizer, shrinkage
from margin.theory.dynamics.shrinkage_claims import demo
from margin.theory.signal.last_layer import last_design


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# the hook


def stopped_at(path, values, rows):
    """At which evaluation the hook stops, counted from 0; None where it never does."""
    run = Run.create(path, {"recipe": {}})
    hook = patience(run, "val_loss", rows)
    for i, value in enumerate(values):
        run.append({"step": i, "val_loss": value})
        if hook(State({}, step=i), {}):
            return i
    return None


@pytest.mark.parametrize(
    ("values", "rows", "stop"),
    [
        ([5, 4, 3, 4, 4, 4, 4], 3, 5),
        ([5, 4, 3, 4, 4, 2.9, 4, 4, 4, 4], 3, 8),
        ([1, 2, 3], 1, 1),
        ([3, 3, 3, 3], 2, 2),  # an equal value is no better
        ([5, 4, 3, 2, 1], 1, None),
        ([math.nan, 5, 4, 3], 2, None),  # what is no number is never the best
        ([math.nan, 5, 4, 5, math.nan], 2, 4),
    ],
)
def test_it_stops_exactly_p_evaluations_after_the_best(values, rows, stop, tmp_path):
    assert stopped_at(tmp_path / "run", values, rows) == stop


def noisy_classes():
    """Blobs with random labels: the held-out loss soon rises."""
    data = blobs(examples=60, classes=3)
    g = torch.Generator().manual_seed(0)
    splits = {
        name: Arrays(part.inputs, part.targets[torch.randperm(len(part.targets), generator=g)])
        for name, part in data.splits.items()
    }
    return Data(
        name="noise",
        splits=splits,
        spec=data.spec,
        encoding=data.encoding,
        preprocess=data.preprocess,
        domain=data.domain,
    )


def test_a_training_stops_p_evaluations_after_the_best_and_gives_back_the_best_weights(tmp_path):
    data = noisy_classes()
    run = margin.train(
        "mlp",
        data,
        training=Training(epochs=200, batch_size=60, patience=4, lr=0.2, seed=0),
        out=tmp_path / "run",
    )
    losses = [row["val_loss"] for row in run.history]
    best = losses.index(min(losses))
    assert len(losses) - 1 - best == 4
    held = InOrder(data.splits["val"], 64)
    means = [
        evaluate(margin.load(run, which), held, CLASSES, risk(CLASSES))["loss"] for which in ("best", "last")
    ]
    assert means == pytest.approx([min(losses), losses[-1]], rel=1e-5)
    assert means[1] > means[0]


# the penalty it amounts to


def test_factors_are_those_of_descent_and_of_many_small_steps():
    H = f64(6, 4)
    H = H.T @ H / 6
    eigenvalues, basis = torch.linalg.eigh(H)
    theta, lr, steps = f64(4, seed=1), 0.3, 7
    w = torch.zeros(4).double()
    for _ in range(steps):
        w = w - lr * H @ (w - theta)
    torch.testing.assert_close(basis.T @ w, descent_factor(eigenvalues, lr, steps) * (basis.T @ theta))
    small = descent_factor(eigenvalues, 1e-6, 2_100_000)
    torch.testing.assert_close(flow_factor(eigenvalues, 2.1), small, rtol=1e-5, atol=0)


def test_the_bound_of_gradient_flow_is_1_2985_at_1_793():
    x = torch.logspace(-6, 4, 2_000_001, dtype=torch.float64)
    ratio = ridge_ratio(x)
    assert bool((ratio >= 1 - 1e-12).all())
    assert float(ratio.max()) <= 1.2985
    assert float(ratio.max()) == pytest.approx(ridge_ratio_bound(), abs=1e-9)
    assert 1.2984 < ridge_ratio_bound() < 1.2985
    assert float(x[ratio.argmax()]) == pytest.approx(1.793, abs=1e-3)
    assert ridge_ratio_bound() ** 2 == pytest.approx(1.686, abs=5e-4)  # of the risks, as printed: 1.69


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 40])
def test_the_bound_of_so_many_steps_is_that_of_a_fine_grid(steps):
    ratio = ridge_ratio(torch.linspace(1e-4, steps, 400_001).double(), steps)
    assert bool((ratio >= 1).all())
    assert float(ratio.max()) == pytest.approx(ridge_ratio_bound(steps), abs=1e-8)
    assert ridge_ratio_bound(steps) > ridge_ratio_bound(steps + 1) > ridge_ratio_bound()


def test_agreement_is_within_a_percent_only_for_small_eigenvalues():
    assert float(ridge_ratio(torch.tensor([0.02]).double())[0]) <= 1.01
    assert float(ridge_ratio(torch.tensor([0.021]).double())[0]) > 1.01
    lr, mu = 1e-3, 2.0
    eigenvalues = torch.linspace(1e-4, 0.02, 50).double() * mu
    steps = round(1 / (lr * mu))
    ratio = descent_factor(eigenvalues, lr, steps) / shrinkage(eigenvalues, mu)
    assert float((ratio - 1).abs().max()) < 0.0101
    # T = eta / mu, as printed, is short of it by the factor eta^2: not one step
    assert lr / mu == pytest.approx(lr**2 * steps)
    assert round(lr / mu) == 0


def test_stopped_descent_lies_between_ridge_and_its_bound_in_every_direction():
    X, y = f64(30, 5) * torch.tensor([3.0, 1.0, 0.3, 0.1, 0.03]).double(), f64(30, 1, seed=1)
    H = X.T @ X
    eigenvalues, basis = torch.linalg.eigh(H)
    lr = 1 / float(eigenvalues.max())
    free = torch.linalg.solve(H, X.T @ y)[:, 0]
    for steps in (1, 5, 50):
        stopped = basis.T @ descend(early_stopping.Design(X, y), lr, steps)[:, 0]
        ridge = basis.T @ penalized_minimizer(H, free, 1 / (lr * steps))
        ratio = stopped / ridge
        assert bool((ratio >= 1 - 1e-9).all()) and bool((ratio <= ridge_ratio_bound(steps) + 1e-9).all())


# the claim


def subject_of(x, targets):
    batches = [Batch((x,), targets)]
    model = nn.Sequential(nn.Linear(x.shape[1], int(targets.max()) + 1)).double()
    return Subject(model=model, test=batches, train=batches, task=CLASSES, objective=risk(CLASSES))


@pytest.mark.parametrize("shape", [(80, 6), (15, 40)])
def test_the_claim_holds_on_random_features(shape):
    scales = torch.logspace(0, -2, shape[1], dtype=torch.float64)
    found = against_ridge(subject_of(f64(*shape) * scales, torch.arange(shape[0]) % 3))
    assert found.verdict == Verdict.HOLDS


def test_the_claim_is_tight_after_one_step_in_the_largest_direction():
    found = against_ridge(demo())
    values = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert values["T = 1: largest"] == pytest.approx(2, abs=1e-9)  # x = 1: the bound of one step
    assert found.high[1] == 2
    assert values["T = 100: least"] < 1.01


def test_another_calibration_violates_the_claim(monkeypatch):
    design = last_design(demo())
    lr = 1 / float(torch.linalg.eigvalsh(design.X.T @ design.X).max())
    monkeypatch.setattr(early_stopping, "descend", lambda d, rate, T: descend(d, rate, 3 * T))
    assert against_ridge(demo()).verdict == Verdict.VIOLATED
    assert lr > 0


def test_features_that_are_no_numbers_or_constant_fail():
    x, labels = f64(20, 4), torch.arange(20) % 2
    assert against_ridge(subject_of(torch.ones(20, 4).double(), labels)).verdict == Verdict.FAILED
    x[0, 0] = math.inf
    found = against_ridge(subject_of(x, labels))
    assert found.verdict == Verdict.FAILED
    assert found.failure == "the features or the targets are not finite"


def test_less_than_one_step_is_refused():
    with pytest.raises(ValueError, match="steps must be at least 1: got 0"):
        ridge_ratio_bound(0)
    with pytest.raises(ValueError, match="steps must be at least 1: got nan"):
        ridge_ratio_bound(math.nan)
