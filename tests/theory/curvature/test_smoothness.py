"""The smoothness constant from below: quadratics, logistic regression, the descent inequality, history."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import BINARY
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.smoothness import Cosine, demo, smoothness
from margin.theory.curvature.trained_weights import Quadratic
from margin.theory.curvature.trained_weights import demo as indefinite


def test_of_a_quadratic_it_is_the_largest_magnitude_of_either_sign():
    # 001 prints lambda_max <= L: of the spectrum {3, -3, 0.1} shifted down by 1 that would be 2.
    assert smoothness(indefinite()).value.item() == pytest.approx(3, rel=1e-9)
    zeros = torch.zeros(2, dtype=torch.float64)
    batch = [Batch((zeros,), zeros)]
    subject = dataclasses.replace(
        indefinite(), model=Quadratic(torch.diag(torch.tensor([2.0, -4.0]).double())), test=batch, train=batch
    )
    assert smoothness(subject).value.item() == pytest.approx(4, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_descent_inequality_holds_with_it_and_fails_with_half(seed):
    generator = Generator().manual_seed(seed)
    A = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    A = A @ A.T
    zeros = torch.zeros(2, dtype=torch.float64)
    batch = [Batch((zeros,), zeros)]
    subject = dataclasses.replace(indefinite(), model=Quadratic(A), test=batch, train=batch)
    L = smoothness(subject, tol=1e-9).value.item()

    def gap(x, y, L):
        h = lambda w: w @ A @ w / 2
        return (h(x) + (A @ x) @ (y - x) + L / 2 * (y - x) @ (y - x) - h(y)).item()

    for _ in range(50):
        x, y = torch.randn(2, 5, generator=generator, dtype=torch.float64)
        assert gap(x, y, L) >= -1e-9
    top = torch.linalg.eigh(A).eigenvectors[:, -1]
    assert gap(torch.zeros(5).double(), top, L) == pytest.approx(0, abs=1e-8)  # tight
    assert gap(torch.zeros(5).double(), top, L / 2) < 0


def test_of_logistic_regression_it_is_at_most_a_quarter_of_the_covariance():
    generator = Generator().manual_seed(6)
    X = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    batch = [Batch((X,), torch.randint(2, (60,), generator=generator))]
    model = nn.Sequential(nn.Linear(5, 1, bias=False), nn.Flatten(0)).double()
    subject = Subject(model=model, test=batch, train=batch, task=BINARY, objective=risk(BINARY))
    L = torch.linalg.eigvalsh(X.T @ X)[-1].item() / (4 * 60)
    for scale in (0.0, 1.0, 5.0):
        with torch.no_grad():
            model[0].weight.copy_(scale * torch.randn(1, 5, generator=generator, dtype=torch.float64))
        value = smoothness(subject, tol=1e-9).value.item()
        assert value <= L * (1 + 1e-9)
        if scale == 0:
            assert value == pytest.approx(L, rel=1e-8)  # tight at weights of 0
        else:
            assert value < L / 1.05


def test_the_largest_of_what_was_visited_counts():
    assert smoothness(demo()).value.item() == pytest.approx(math.cos(0.1), rel=1e-12)
    assert smoothness(demo()).kind == "lower"
    later = dataclasses.replace(demo(), initial=Cosine(0.0))
    assert smoothness(later).value.item() == pytest.approx(1, rel=1e-12)
    rows = [
        {"step": 0, "smoothness": 0.2},
        {"step": 5, "smoothness": 2.5},
        {"step": 9},
        {"smoothness": math.nan},
    ]
    found = smoothness(dataclasses.replace(demo(), history=rows))
    assert found.value.item() == 2.5
    assert found.curves["step"].tolist() == [0, 5] and "at 2 evaluations" in found.statement
    bare = smoothness(dataclasses.replace(demo(), initial=None, history=()))
    assert bare.value.item() == pytest.approx(math.cos(0.1)) and not bare.curves


def test_what_is_not_finite_or_does_not_settle_fails():
    assert smoothness(dataclasses.replace(demo(), initial=Cosine(math.nan))).verdict == Verdict.FAILED
    found = smoothness(indefinite(), tol=1e-15, max_iterations=1)
    assert found.verdict == Verdict.FAILED and "after 1 Lanczos steps" in found.failure
