"""One step of gradient descent: closed forms of least squares in numpy, no signal in noise, no trace."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from torch import Generator, nn

from margin.core.catalog import claims
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.figures.svg import drawing
from margin.theory.dynamics.figures import step_gain
from margin.theory.dynamics.line_search import (
    FOLDS,
    MOST,
    SEED,
    demo,
    gradient,
    line_search,
    loss_of_a_constant,
    step_of,
)


def regression(n=40, *, seed=0, w=(0.0, 0.0, 0.0), noise=0.5):
    """Least squares on inputs of unequal scale at the weights ``w``; the population's are (1, -2, 0.5)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * (1.0, 0.5, 2.0)
    y = x @ (1.0, -2.0, 0.5) + noise * rng.normal(size=n)
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([w], dtype=torch.float64))
    batch = Batch((torch.tensor(x),), torch.tensor(y)[:, None])
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES)), x, y


@pytest.mark.parametrize("start", [1e-4, 0.3, 1.0, 50.0, 1e9])
def test_of_a_quadratic_the_search_ends_at_its_minimizer(start):
    tried = line_search(lambda t: 3 - 2 * t + 5 * t * t, 3.0, 2.0, start)
    best = min(tried, key=tried.__getitem__)
    assert best == pytest.approx(1 / 5) and tried[0.0] == 3.0


@pytest.mark.parametrize(
    "loss",
    [
        lambda t: 1 - t if t < 1e-3 else math.nan,
        lambda t: 1 - t if t < 1e-3 else math.inf,
        lambda t: math.exp(-t),  # no minimizer
        lambda t: 1.0,  # below the rounding of the weights nothing falls
    ],
)
def test_the_search_ends_whatever_the_loss(loss):
    tried = line_search(loss, 1.0, 1.0, 1.0)
    assert len(tried) <= MOST + 1
    low = min(v for v in tried.values() if math.isfinite(v))
    assert low < 1 or loss(1e-6) == 1


@pytest.mark.parametrize("w", [(0.0, 0.0, 0.0), (0.9, -1.9, 0.6), (1.0, -2.0, 0.5)])
def test_both_gains_are_those_of_least_squares_by_formula(w):
    subject, x, y = regression(w=w)
    found = step_of(subject.model, subject.train, subject.objective)
    w, n = np.array(w), len(y)

    def slope(rows):
        return 2 * x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)

    def losses(v, rows):
        return (x[rows] @ v - y[rows]) ** 2

    g = slope(np.arange(n))
    assert found.best == pytest.approx((g @ g) ** 2 / (2 * g @ (2 * x.T @ x / n) @ g), rel=1e-9)
    part = (torch.randperm(n, generator=Generator().manual_seed(SEED)) % FOLDS).numpy()
    rates = found.judged[0].numpy()
    after = np.zeros((len(rates), n))
    for k in range(FOLDS):
        own, rest = np.flatnonzero(part == k), np.flatnonzero(part != k)
        for i, rate in enumerate(rates):
            after[i, own] = losses(w - rate * slope(rest), own)
    np.testing.assert_allclose(found.judged[1].numpy(), after.mean(1))
    gained = np.zeros(n)
    for k in range(FOLDS):
        own = part == k
        chosen = min(after[:, ~own].sum(1).argmin(), after.sum(1).argmin())
        gained[own] = losses(w, np.flatnonzero(own)) - after[chosen, own]
    assert gradient(subject).value.item() == pytest.approx(gained.mean(), rel=1e-9)
    assert sorted(found.gained.example.tolist()) == list(range(n))  # each is a draw of its own


def test_batches_that_cannot_be_cut_give_the_same():
    subject, _, _ = regression()
    cut = step_of(subject.model, subject.train, subject.objective)
    whole = step_of(subject.model, subject.train, subject.objective, independent=False)
    torch.testing.assert_close(cut.judged, whole.judged)
    (batch,) = subject.train
    for independent, filler in ((True, math.nan), (False, 9.0)):
        padded = Batch(
            (torch.cat((batch.inputs[0], torch.full((2, 3), filler).double())),),
            torch.cat((batch.targets, torch.zeros(2, 1).double())),
            torch.cat((torch.ones(40), torch.zeros(2)))[:, None],
        )
        again = step_of(subject.model, [padded], subject.objective, independent=independent)
        torch.testing.assert_close(again.judged, cut.judged)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_few_examples_of_a_class_in_one_part_choose_no_long_step_for_it(seed):
    """Rare labels without a signal, at their own odds: by the others alone steps would lose .005 to .02."""
    rng = np.random.default_rng(seed)
    x, y = torch.tensor(rng.normal(size=(24, 3))), torch.tensor(rng.random(24) < 0.08).long()
    model = nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([0.0, math.log(0.08 / 0.92)]))
    found = step_of(model, [Batch((x,), y)], risk(CLASSES))
    least = found.height - found.judged[1].min().item()
    assert -5e-4 < least < 0
    assert found.gained.values.mean().item() == pytest.approx(least, rel=1e-6)


def test_an_example_of_which_one_term_counts_is_an_example():
    subject, _, _ = regression(8)
    x = subject.train[0].inputs[0]
    weight = torch.eye(2).repeat(4, 1).double()  # one of two values is missing
    batch = Batch((x,), torch.ones(8, 2).double(), weight)
    found = step_of(nn.Linear(3, 2).double(), [batch], subject.objective)
    assert found.gained.example.unique().numel() == found.gained.weight.sum() == 8


def test_noise_is_not_taken_for_a_gain_and_a_gain_is_seen():
    # At the population's weights each gain is noise: of 120 intervals of 95 % more than 11 lie above 0 with
    # probability 1e-4. A step of the same examples gains there in every one.
    above, own = 0, []
    for seed in range(120):
        subject, _, _ = regression(seed=seed, w=(1.0, -2.0, 0.5))
        found = gradient(subject)
        above += int(found.shown[0].item() > 0)
        own.append(
            float(found.curves["loss: the same examples"][0] - found.curves["loss: the same examples"].min())
        )
    assert above <= 11 and min(own) > 0
    far = gradient(regression(w=(0.0, 0.0, 0.0))[0])
    assert far.shown[0].item() > 0 and far.verdict is Verdict.MEASURED


def test_the_demonstration_and_what_has_no_answer():
    found = gradient(demo())
    assert [x.item() for x in (found.value, *found.shown)] == pytest.approx([4, 4, 4])
    assert "lowers it by 4." in found.statement and "that of the best constant: 0" in found.statement
    fitted = demo()
    with torch.no_grad():
        fitted.model.weight.fill_(2.0)
    assert [x.item() for x in (gradient(fitted).value, *gradient(fitted).shown)] == [0, 0, 0]
    with torch.no_grad():
        fitted.model.weight.fill_(math.nan)
    assert gradient(fitted).verdict is Verdict.FAILED
    with pytest.raises(NotAsked, match="needs 8 of them: got 7"):
        gradient(regression(7)[0])
    assert "needs the training examples" in claims()["theory/finished.gradient"].refusal(
        dataclasses.replace(demo(), train=())
    )


def classifier(dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))
    x, y = torch.randn(30, 3), torch.arange(30) % 3
    batch = Batch((x.to(dtype),), y)
    return Subject(
        model=model.to(dtype).train(), test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_network_in_training_mode_is_asked_in_evaluation_mode_and_left_as_it_was(dtype):
    subject = classifier(dtype)
    before = {name: x.clone() for name, x in subject.model.state_dict().items()}
    state = torch.get_rng_state()
    found = gradient(subject)
    assert found.value.item() == gradient(subject).value.item() and found.value.isfinite()
    assert torch.equal(state, torch.get_rng_state()) and subject.model[3].training
    assert all(torch.equal(x, before[name]) for name, x in subject.model.state_dict().items())
    assert all(p.grad is None for p in subject.model.parameters())


def test_the_loss_of_the_best_constant():
    subject = classifier()
    labels = torch.tensor([0] * 5 + [1] * 10 + [2] * 15)
    weight = torch.cat((torch.ones(20), torch.full((10,), 0.5)))
    share = np.array([5, 10, 10]) / 25
    expected = log_loss(labels, np.tile(share, (30, 1)), sample_weight=weight)
    batch = Batch(subject.train[0].inputs, labels, weight)
    assert loss_of_a_constant(subject, [batch]) == pytest.approx(expected)
    other, _, y = regression()
    assert loss_of_a_constant(other, other.train) == pytest.approx(np.var(y))
    # a loss of its own has no closed form
    own = dataclasses.replace(subject, objective=lambda m, b, g: CLASSES.loss(m(*b.inputs), b.targets))
    assert loss_of_a_constant(own, own.train) is None
    assert "loss: a constant" not in gradient(own).curves


def test_the_figure_shows_both_losses_beside_the_one_before_the_step():
    found = gradient(regression()[0])
    with drawing() as (_, axes):
        words = step_gain(axes, found)
        lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert set(lines) == {"the same examples", "examples left out", "before the step", "a constant answer"}
    height = float(found.curves["loss: the same examples"][0])
    assert lines["before the step"][0, 1] == height
    assert lines["the same examples"][:, 1].min() == float(found.curves["loss: the same examples"].min())
    assert (lines["examples left out"][:, 0] > 0).all() and "of examples left out" in words
    with drawing() as (_, axes):
        assert step_gain(axes, dataclasses.replace(found, curves={})) == ""
