"""Bayesian linear regression: scikit-learn's BayesianRidge, integrals by brute force, bad input."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import BayesianRidge

from margin.bayes.linear.regression import (
    BayesianLinearRegression,
    conjugate,
    most_evident,
    posterior,
    reduced,
)
from margin.core.types import Batch
from margin.engine.loop import State


def rows(count: int = 40, features: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator, dtype=torch.float64) + 2
    w = torch.tensor([1.0, -0.5, 0.0, 2.0]).double()[:features]
    return x, x @ w + 3 + 0.7 * torch.randn(count, generator=generator, dtype=torch.float64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def trained(x, y, weight=None, **options):
    model = BayesianLinearRegression(x.shape[1], **options).double()
    return model, conjugate()(State({"model": model}), Batch((x,), y, weight))


@pytest.mark.parametrize("shape", [(40, 4), (3, 4)])
def test_the_posterior_is_bayesian_ridges_at_its_variances(shape: tuple[int, int]) -> None:
    """Of fewer rows than coefficients too, where the prior stays along what no row has."""
    x, y = rows(*shape)
    peer = BayesianRidge(
        alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, alpha_init=1 / 0.49, lambda_init=1 / 1.5
    )
    peer.set_params(max_iter=1).fit(x.numpy(), y.numpy())
    found = posterior(
        reduced(x, y, torch.ones(len(y)).double()), number(1 / peer.alpha_), number(1 / peer.lambda_)
    )
    np.testing.assert_allclose(found.mean, peer.coef_, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, peer.sigma_, rtol=1e-8, atol=1e-12)
    new = rows(6, seed=1)[0][:, : x.shape[1]]
    off = new - found.center
    spread = ((off @ found.covariance) * off).sum(1) + 1 / peer.alpha_
    np.testing.assert_allclose(spread.sqrt(), peer.predict(new.numpy(), return_std=True)[1], rtol=1e-8)


def test_variances_by_evidence_are_at_its_maximum() -> None:
    """The form without the intercept's one, n - gamma, is no maximum of this evidence."""
    x, y = rows()
    r = reduced(x, y, torch.ones(40).double())
    noise, prior = most_evident(r, number(1.0), number(1.0))
    log = torch.stack((noise, prior)).log().requires_grad_()
    slope = torch.autograd.grad(posterior(r, *log.exp()).evidence, log)[0]
    assert slope.abs().max() < 1e-6
    found = posterior(r, noise, prior)
    other = noise * (39 - found.determined) / (40 - found.determined)
    log = torch.stack((other, prior)).log().requires_grad_()
    assert torch.autograd.grad(posterior(r, *log.exp()).evidence, log)[0].abs().max() > 0.1


def test_the_evidence_is_the_integral_over_the_coefficients() -> None:
    x, y = rows(5, 1)
    weight = torch.tensor([1.0, 2.0, 1.0, 0.5, 1.0]).double()
    found = posterior(reduced(x, y, weight), number(0.6), number(1.4))
    deviation = (0.6 / weight).sqrt().numpy()

    # the joint density vanishes at the ends: a sum over a grid is its integral to rounding
    (w, dw), (b, db) = (np.linspace(low, high, 1201, retstep=True) for low, high in ((-6, 6), (-10, 20)))
    columns = zip(x[:, 0].numpy(), y.numpy(), deviation, strict=True)
    terms = (norm.logpdf(yi, w[:, None] * xi + b, s) for xi, yi, s in columns)
    joint = np.exp(sum(terms) + norm.logpdf(w, 0, 1.4**0.5)[:, None]) * dw * db
    assert joint[[0, -1]].max() < 1e-12 * joint.max() > joint[:, [0, -1]].max()
    assert float(found.evidence) == pytest.approx(math.log(joint.sum()), abs=1e-8)
    assert float(found.mean) == pytest.approx((w @ joint).sum() / joint.sum(), rel=1e-8)


def test_a_new_values_law_is_the_integral_too() -> None:
    """By draws of (w, b) from the joint Gaussian: the intercept moves against the coefficients."""
    x, y = rows()
    model, _ = trained(x, y, learn="none", noise=0.1, prior=0.3)
    precision = torch.zeros(5, 5).double()
    X = torch.cat((x, torch.ones(40, 1).double()), 1)
    precision += X.T @ X / model.noise
    precision[:4, :4] += torch.eye(4) / model.prior
    V = torch.linalg.inv(precision)
    new = rows(6, seed=1)[0]
    X = torch.cat((new, torch.ones(6, 1).double()), 1)
    law = model.predictive(new)
    np.testing.assert_allclose(law.variance, ((X @ V) * X).sum(1) + model.noise, rtol=1e-9)
    mean = V @ (torch.cat((x, torch.ones(40, 1).double()), 1).T @ y) / model.noise
    np.testing.assert_allclose(law.mean, X @ mean, rtol=1e-9)
    assert torch.allclose(model(new), law.mean)


def test_a_weight_of_two_is_two_rows() -> None:
    x, y = rows(12)
    weight = torch.tensor([2.0] * 3 + [1.0] * 7 + [0.0] * 2).double()
    index = torch.cat((torch.arange(3), torch.arange(10)))
    one, _ = trained(x, y, weight, learn="none")
    other, _ = trained(x[index], y[index], learn="none")
    for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9)


def test_constant_targets_duplicate_columns_and_exact_planes_are_solved() -> None:
    x, y = rows()
    model, _ = trained(x, torch.full((40,), 2.5, dtype=torch.float64))
    assert not model.weight.any() and float(model.predictive(x).mean[0]) == 2.5
    model, _ = trained(torch.cat((x, x), 1), y)
    assert torch.allclose(model.weight[:4], model.weight[4:], atol=1e-9)
    model, metrics = trained(x, x @ torch.tensor([1.0, 2.0, 3.0, 4.0]).double())
    assert metrics["noise"] < 1e-4 and bool((model.predictive(x).variance > 0).all())


@pytest.mark.parametrize("options", [{"noise": 0.0}, {"prior": -1.0}])
def test_variances_that_are_not_positive_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="noise and prior must be positive and finite"):
        BayesianLinearRegression(2, **options)


def test_an_untrained_model_predicts_no_law() -> None:
    with pytest.raises(ValueError, match="predicts once it is trained"):
        BayesianLinearRegression(3).predictive(torch.zeros(2, 3))
