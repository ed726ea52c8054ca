"""The kind of a critical point: by hand on functions, by the dense spectrum on networks."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.critical_points import Ends, demo, kind, kind_of


class Function(nn.Module):
    """f(w), whatever the input."""

    def __init__(self, f, w):
        super().__init__()
        self.f = f
        self.w = nn.Parameter(torch.tensor(w, dtype=torch.float64))

    def forward(self, x):
        return self.f(self.w).expand(len(x))


def at(f, w):
    return dataclasses.replace(demo(), model=Function(f, w))


@pytest.mark.parametrize(
    ("f", "w", "says"),
    [
        (lambda w: w[0] ** 2, [0.0], "a strict local minimum"),
        (lambda w: -(w[0] ** 2), [0.0], "a strict local maximum"),
        (lambda w: w[0] ** 2 - w[1] ** 2, [0.0, 0.0], "a saddle point"),
        (lambda w: w[0] ** 4, [0.0], "of undecided kind"),  # a minimum
        (lambda w: w[0] ** 3, [0.0], "of undecided kind"),  # none; H = 0 is semidefinite, as 001 asks
        (lambda w: w[0] ** 2 + 0 * w[1], [0.0, 1.0], "of undecided kind"),
        (lambda w: w[0] ** 2 + w[1] ** 3, [0.0, 0.0], "of undecided kind"),
        (lambda w: w[0] ** 3, [1.0], "not a critical point"),
        (lambda w: w[0] ** 2, [0.02], "not a critical point"),
        (lambda w: w[0] ** 2, [0.009], "a strict local minimum"),  # within 1 % of max(1, |w|)
        (lambda w: 3 * w[0], [1.0], "not a critical point"),
        (lambda w: 0 * w[0], [1.0], "of undecided kind"),
    ],
)
def test_functions(f, w, says):
    found = kind(at(f, w))
    assert says in found.statement
    assert found.verdict == Verdict.MEASURED
    assert found.premises[1].status == "proved"


def test_weak_negative_curvature_makes_no_saddle_of_a_slope():
    # |g| = 0.1 is little beside the largest curvature, 100, and much beside the other, -0.1.
    f = lambda w: 50 * w[0] ** 2 - 0.05 * w[1] ** 2 + 0.1 * w[1]
    assert "not a critical point" in kind(at(f, [0.0, 0.0])).statement
    assert kind(at(f, [0.0, 0.0])).value.tolist() == pytest.approx([1, -0.001, 1])
    assert "a saddle point" in kind(at(f, [0.0, 1.0])).statement


def test_values_are_shares_of_the_largest_magnitude():
    found = kind(demo())
    assert "a saddle point" in found.statement
    assert found.value.tolist() == pytest.approx([0, -1, 0.5])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (Ends(-0.01, 1.0, 0.02, True), "undecided"),
        (Ends(-0.03, 1.0, 0.02, True), "a saddle"),
        (Ends(0.01, 1.0, 0.02, True), "undecided"),
        (Ends(0.03, 1.0, 0.02, True), "a minimum"),
        (Ends(0.03, 1.0, 0.02, False), "undecided"),  # a smaller one may have been missed
        (Ends(-1.0, -0.03, 0.02, False), "undecided"),
        (Ends(-0.03, 1.0, 0.02, False), "a saddle"),  # two Rayleigh quotients suffice
    ],
)
def test_signs_count_beyond_their_errors_only(ends, expected):
    assert kind_of(0.0, 1.0, ends, 1e-2) == expected
    assert kind_of(math.nan, 1.0, ends, 1e-2) == "not critical"


def classifier(width):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).double()
    generator = Generator().manual_seed(1)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    batches = [Batch((x,), torch.randint(3, (50,), generator=generator))]
    return Subject(model=model, test=batches, train=batches, task=CLASSES, objective=risk(CLASSES))


@pytest.mark.parametrize("width", [6, 60])
def test_a_network_in_training_is_at_no_critical_point(width):
    found = kind(classifier(width))
    assert "not a critical point" in found.statement


@pytest.mark.parametrize("width", [6, 60])
def test_a_dead_network_is_at_a_saddle(width):
    # All weights 0, the last bias at the log frequencies: no gradient, and both signs of curvature.
    subject = classifier(width)
    (batch,) = subject.train
    with torch.no_grad():
        for p in subject.model.parameters():
            p.zero_()
        subject.model[2].bias.copy_(batch.targets.bincount(minlength=3).double().log())
    found = kind(subject)
    assert "a saddle point" in found.statement
    assert found.value[0] < 1e-12 and found.value[1] < -0.01


def test_ridge_regression_at_its_solution_is_at_a_minimum():
    X = torch.randn(40, 6, generator=Generator().manual_seed(5), dtype=torch.float64)
    y = torch.randn(40, 1, generator=Generator().manual_seed(6), dtype=torch.float64)
    model = nn.Linear(6, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(X, y).solution.T)
    batch = [Batch((X,), y)]
    subject = Subject(model=model, test=batch, train=batch, task=VALUES, objective=risk(VALUES))
    assert "a strict local minimum" in kind(subject).statement
    twice = [Batch((torch.cat((X, X), 1),), y)]  # the same column twice: a valley
    wide = nn.Linear(12, 1, bias=False).double()
    with torch.no_grad():
        wide.weight.copy_(torch.linalg.pinv(twice[0].inputs[0]).mm(y).T)
    subject = dataclasses.replace(subject, model=wide, test=twice, train=twice)
    assert "of undecided kind" in kind(subject).statement


def test_nan_fails_and_a_bad_tolerance_is_refused():
    assert kind(at(lambda w: w[0] ** 2, [math.nan])).verdict == Verdict.FAILED
    with pytest.raises(ValueError, match=r"tol must lie in \(0, 1\): got 1.5"):
        kind(demo(), tol=1.5)
