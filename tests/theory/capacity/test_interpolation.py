"""Interpolation: limits by quadrature, decompositions by enumeration, regressions one by one."""

import math

import pytest
import torch
from scipy.integrate import quad
from sklearn.linear_model import Ridge
from torch import Generator

from margin.core.findings import Verdict
from margin.theory.capacity import interpolation
from margin.theory.capacity.interpolation import (
    bias_variance,
    decomposed,
    double_descent,
    exact_risk,
    random_features_risk,
    ridge_risk,
    ridgeless_risk,
)
from margin.theory.capacity.rademacher import demo


def test_the_ridgeless_limit_by_hand() -> None:
    """gamma 1/2, noise 1/2: 1/4 * 1; gamma 2: 1/2 + 1/4; a peak without bound at 1, none without noise."""
    assert float(ridgeless_risk(0.5, noise=0.5).total) == pytest.approx(0.25)
    beyond = ridgeless_risk(2.0, noise=0.5)
    assert (float(beyond.bias), float(beyond.variance)) == pytest.approx((0.5, 0.25))
    assert float(ridgeless_risk(1.0).total) == math.inf
    assert float(ridgeless_risk(1.0, noise=0.0).total) == 0.0
    assert float(ridgeless_risk(4.0, signal=2.0, noise=0.0).total) == pytest.approx(3.0)


def spectral(gamma: float, f) -> float:
    """The mean of f over the law of Marchenko and Pastur, its atom at 0 included."""
    low, high = (1 - math.sqrt(gamma)) ** 2, (1 + math.sqrt(gamma)) ** 2
    inner = quad(lambda s: f(s) * math.sqrt((high - s) * (s - low)) / (2 * math.pi * gamma * s), low, high)[0]
    return inner + max(0.0, 1 - 1 / gamma) * f(0.0)


@pytest.mark.parametrize("gamma", [0.3, 0.9, 1.0, 1.7, 5.0])
@pytest.mark.parametrize("penalty", [0.05, 0.8])
def test_the_ridge_limit_is_a_mean_over_the_spectrum(gamma: float, penalty: float) -> None:
    """Bias l^2 / (s + l)^2, variance sigma^2 gamma s / (s + l)^2, over the eigenvalues s of X^T X / n."""
    found = ridge_risk(gamma, penalty, signal=1.5, noise=0.7)
    bias = 1.5**2 * spectral(gamma, lambda s: (penalty / (s + penalty)) ** 2)
    variance = 0.7**2 * gamma * spectral(gamma, lambda s: s / (s + penalty) ** 2)
    assert float(found.bias) == pytest.approx(bias, rel=1e-5)
    assert float(found.variance) == pytest.approx(variance, rel=1e-5)


def test_a_ridge_that_vanishes_is_none_and_the_best_is_noise_over_signal() -> None:
    gammas = torch.tensor([0.4, 3.0], dtype=torch.float64)
    torch.testing.assert_close(
        ridge_risk(gammas, 1e-9).total, ridgeless_risk(gammas).total, rtol=1e-6, atol=0
    )
    best = 0.5**2 * 2.0
    risks = [float(ridge_risk(2.0, best * k, noise=0.5).total) for k in (0.8, 1.0, 1.25)]
    assert risks[1] == min(risks)
    assert float(ridge_risk(1.0, 0.5).total) < math.inf  # the peak is gone
    lighter, heavier = ridge_risk(2.0, 0.1), ridge_risk(2.0, 1.0)
    assert lighter.bias < heavier.bias and lighter.variance > heavier.variance


def test_bias_and_variance_of_a_learner_whose_draws_are_all_known() -> None:
    """f is 1 or 3 with equal chance, truth 1.5: bias^2 .25, variance 1; over all samples of 3 draws."""
    totals = torch.zeros(2, dtype=torch.float64)
    for code in range(8):
        draws = torch.tensor([[1.0 + 2 * (code >> i & 1)] for i in range(3)], dtype=torch.float64)
        found = decomposed(draws, torch.tensor([1.5], dtype=torch.float64))
        totals += torch.stack((found.bias, found.variance)) / 8
    assert totals.tolist() == pytest.approx([0.25, 1.0])
    with pytest.raises(ValueError, match="two draws of the data: got 1"):
        decomposed(torch.ones(1, 4), torch.ones(4))


@pytest.mark.parametrize("width", [3, 40])
def test_random_features_are_regressed_as_one_by_one(width: int) -> None:
    g = Generator().manual_seed(0)
    x, new = (
        torch.randn(4, 10, 3, generator=g, dtype=torch.float64),
        torch.randn(20, 3, generator=g, dtype=torch.float64),
    )
    y, mean = x.sum(2) + torch.randn(4, 10, generator=g, dtype=torch.float64), new.sum(1)
    for penalty in (0.0, 0.1):
        found = random_features_risk(x, y, new, mean, width, penalty, Generator().manual_seed(1))
        W = torch.randn(4, 3, width, generator=Generator().manual_seed(1), dtype=torch.float64) / math.sqrt(3)
        for k in range(4):
            phi, others = (x[k] @ W[k]).relu(), (new @ W[k]).relu()
            if penalty:
                strength = penalty * 10 * float(phi.square().mean())
                w = torch.from_numpy(
                    Ridge(strength, fit_intercept=False).fit(phi.numpy(), y[k].numpy()).coef_
                )
            else:
                w = torch.linalg.pinv(phi) @ y[k]
            assert float(found[k]) == pytest.approx(float((others @ w - mean).square().mean()), rel=1e-6)


def test_the_claims_hold_and_another_law_is_not_held(monkeypatch) -> None:
    assert double_descent(demo()).verdict is Verdict.HOLDS
    assert exact_risk(demo()).verdict is Verdict.HOLDS
    assert bias_variance(demo()).verdict is Verdict.HOLDS
    real = interpolation.ridgeless_risk
    monkeypatch.setattr(interpolation, "ridgeless_risk", lambda gamma, noise: real(gamma, noise=2 * noise))
    assert exact_risk(demo()).verdict is not Verdict.HOLDS
    taken = interpolation.decomposed
    monkeypatch.setattr(
        interpolation,
        "decomposed",
        lambda f, mean, noise: taken(f, mean)._replace(bias=(f.mean() - mean).square().mean()),
    )
    assert bias_variance(demo()).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("ask", "match"),
    [(lambda: ridgeless_risk(0.0), "gamma must be above 0"), (lambda: ridgeless_risk(math.nan), "gamma"),
     (lambda: ridgeless_risk(1.0, noise=-1.0), "at least"), (lambda: ridge_risk(1.0, 0.0), "ridgeless_risk")],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(ask, match) -> None:
    with pytest.raises(ValueError, match=match):
        ask()
