"""Probabilistic PCA and factor analysis: densities, posteriors, the most likely model, EM."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn import decomposition
from sklearn.datasets import load_wine
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal

from margin.classic.factors.factor_analysis import FactorAnalysis, factors, fit_factors, log_density
from margin.classic.factors.pca import principal_axes
from margin.classic.factors.ppca import PPCA, closed_form, em_iteration, mean_log_likelihood, most_likely
from margin.classic.factors.ppca_learning import expectation_maximization, maximum_likelihood
from margin.classic.linear.rows import covariance
from margin.core.types import Batch
from margin.engine.loop import State
from margin.engine.objectives import negative_log_density


def problem(rows: int = 60, features: int = 5, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    W = torch.randn(2, features, generator=generator, dtype=torch.float64)
    return 3 * z @ W + torch.randn(rows, features, generator=generator, dtype=torch.float64) + 4


def fitted(x: torch.Tensor, components: int = 2, weight: torch.Tensor | None = None) -> PPCA:
    state = State({"model": PPCA(x.shape[1], components=components).double()})
    maximum_likelihood()(state, Batch((x,), None, weight))
    return state.model


# the density


@pytest.mark.parametrize("noise", [1.0, 1e-3, 1e-8])
def test_the_density_is_torchs(noise: float) -> None:
    x = problem()
    W = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    psi = noise * torch.arange(1, 6).double()
    law = MultivariateNormal(torch.zeros(5).double(), W @ W.T + psi.diag())
    found = log_density(x, W, psi)
    assert torch.allclose(found, law.log_prob(x), rtol=1e-5)
    low_rank = LowRankMultivariateNormal(torch.zeros(5).double(), W, psi)
    assert torch.allclose(found, low_rank.log_prob(x), rtol=1e-5)


def test_a_small_noise_does_not_cancel_in_float32() -> None:
    generator = torch.Generator().manual_seed(1)
    W = torch.randn(50, 3, generator=generator, dtype=torch.float64) * 10
    z = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    psi = torch.full((50,), 1e-4).double()
    x = z @ W.T + 1e-2 * torch.randn(20, 50, generator=generator, dtype=torch.float64)
    x, W, psi = (t.float().double() for t in (x, W, psi))
    right = log_density(x, W, psi)
    ours = log_density(x.float(), W.float(), psi.float()).double()
    theirs = LowRankMultivariateNormal(torch.zeros(50), W.float(), psi.float(), validate_args=False)
    assert (ours - right).abs().max() < 0.1
    assert (theirs.log_prob(x.float()).double() - right).abs().max() > 1  # the difference of Woodbury's form


def test_the_posterior_is_the_conditional_of_the_joint_gaussian() -> None:
    x = problem()
    model = fitted(x)
    W, noise, mean = (p.detach() for p in (model.loadings, model.noise_variance, model.mean))
    C = W @ W.T + noise * torch.eye(5).double()
    gain = W.T @ torch.linalg.inv(C)
    center, spread = (part.detach() for part in model.posterior(x))
    assert torch.allclose(center, (x - mean) @ gain.T, atol=1e-10)
    assert torch.allclose(spread, torch.eye(2).double() - gain @ W, atol=1e-10)
    M = W.T @ W + noise * torch.eye(2).double()
    assert torch.allclose(spread, noise * torch.linalg.inv(M), atol=1e-10)


def test_samples_have_the_models_mean_and_covariance() -> None:
    # 100,000 draws: each entry of mean and covariance is within 6 standard errors, probability > 1 - 1e-7
    x = problem()
    model = fitted(x)
    rows = model.sample(100_000, torch.Generator().manual_seed(0)).detach()
    W, noise = model.loadings.detach(), model.noise_variance.detach()
    C = W @ W.T + noise * torch.eye(5).double()
    sizes = C.diagonal().sqrt()
    assert ((rows.mean(0) - model.mean.detach()).abs() / sizes).max() < 6 / math.sqrt(100_000)
    gap = (rows.T.cov() - C).abs() / torch.outer(sizes, sizes)
    assert gap.max() < 6 * math.sqrt(2 / 100_000)
    again = model.sample(3, torch.Generator().manual_seed(0))
    assert torch.equal(again, model.sample(3, torch.Generator().manual_seed(0)))
    with pytest.raises(ValueError, match="a sample needs a row: got count=0"):
        model.sample(0, torch.Generator())


# the most likely model


def test_the_score_is_scikit_learns_after_the_same_normalizer() -> None:
    x = problem()
    n = len(x)
    model = fitted(x)
    score = float(-negative_log_density(model, Batch((x,)), torch.Generator()).mean().detach())
    peer = decomposition.PCA(2, svd_solver="full").fit(x.numpy())
    assert score >= peer.score(x.numpy())
    # theirs divides the covariance by n - 1: scale our covariance likewise
    _, axes, spectrum = principal_axes(x, 2)
    W, noise = closed_form(axes, spectrum * n / (n - 1))
    theirs = float(log_density(x - x.mean(0), W, noise.expand(5)).mean())
    assert theirs == pytest.approx(peer.score(x.numpy()), rel=1e-10)


def test_it_is_stationary_and_no_other_is_more_likely() -> None:
    x = problem()
    model = fitted(x)
    _, S = covariance(x, torch.ones(60).double())
    W, noise = model.loadings.detach(), model.noise_variance.detach()
    C = W @ W.T + noise * torch.eye(5).double()
    assert torch.allclose(S @ torch.linalg.solve(C, W), W, atol=1e-9)
    free = [p.clone().requires_grad_() for p in (W, noise)]
    for slope in torch.autograd.grad(mean_log_likelihood(S, *free), free):
        assert slope.abs().max() < 1e-9
    best = float(mean_log_likelihood(S, W, noise))
    spectrum = torch.linalg.eigvalsh(S).flip(0)
    assert torch.allclose(S @ W, W * spectrum[:2], atol=1e-9)  # not diag(lambda) W: the columns are scaled
    turn = torch.linalg.qr(torch.tensor([[1.0, 2], [3, 5]]).double()).Q
    assert float(mean_log_likelihood(S, W @ turn, noise)) == pytest.approx(best, rel=1e-12)
    assert best == pytest.approx(float(most_likely(spectrum, 2)), rel=1e-12)
    generator = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.3, 3.0):
        for _ in range(50):
            other = W + scale * torch.randn(5, 2, generator=generator, dtype=torch.float64)
            factor = (scale * torch.randn((), generator=generator, dtype=torch.float64)).exp()
            assert float(mean_log_likelihood(S, other, noise * factor)) < best


def test_for_a_given_noise_the_columns_are_eigenvectors_shrunk_or_zero() -> None:
    """w_i = rho_i u_i with rho_i^2 = max(0, lambda_i - s^2), here with s^2 above the second eigenvalue."""
    _, axes, spectrum = principal_axes(problem(), 2)
    S = covariance(problem())[1]
    noise = spectrum[:2].mean()
    W = (axes.T * (spectrum[:2] - noise).clamp(min=0).sqrt()).requires_grad_()
    assert not W[:, 1].any()
    best = mean_log_likelihood(S, W, noise)
    assert torch.autograd.grad(best, W)[0].abs().max() < 1e-9
    generator = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.3, 3.0):
        for _ in range(30):
            other = W.detach() + scale * torch.randn(5, 2, generator=generator, dtype=torch.float64)
            assert float(mean_log_likelihood(S, other, noise)) < float(best.detach())


def test_the_gradient_through_w_w_transposed_is_twice_the_gradient_times_w() -> None:
    S = covariance(problem())[1]
    W = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    C = (W @ W.T + torch.eye(5).double()).detach().requires_grad_()
    (G,) = torch.autograd.grad(-(C.logdet() + torch.linalg.solve(C, S).trace()) / 2, C)
    (slope,) = torch.autograd.grad(mean_log_likelihood(S, W, torch.tensor(1.0).double()), W)
    assert torch.allclose(slope, 2 * G @ W.detach(), atol=1e-10)


def test_the_noise_is_the_mean_of_the_variances_left_over() -> None:
    x = problem()
    spectrum = torch.linalg.eigvalsh(x.T.cov(correction=0)).flip(0)
    assert float(fitted(x).noise_variance.detach()) == pytest.approx(float(spectrum[2:].mean()), rel=1e-10)


def test_as_the_noise_goes_to_zero_the_codes_are_pcas_projection() -> None:
    x = problem()
    model = fitted(x)
    _, axes, _ = principal_axes(x, 2)
    model.noise_variance.data.fill_(1e-12)
    back = model.decode(model.encode(x)).detach()
    centered = x - x.mean(0)
    assert torch.allclose(back, centered @ axes.T @ axes + x.mean(0), atol=1e-6)


def test_of_weights_two_is_two_examples_and_zero_none() -> None:
    x = problem(12)
    weight = torch.tensor([0.0, 2, 1] * 4).double()
    one, two = fitted(x, 2, weight), fitted(x.repeat_interleave(weight.long(), 0), 2)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("step", [maximum_likelihood(), expectation_maximization(iterations=300)])
def test_rows_in_a_subspace_leave_no_noise_and_are_refused(step: object) -> None:
    flat = problem(30, 2) @ torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.manual_seed(0)
    state = State({"model": PPCA(5, components=2).double()})
    with pytest.raises(ValueError, match=r"variance outside of its components.*none beyond 2; take fewer"):
        step(state, Batch((flat,)))
    assert state.model.noise_variance.tolist() == 1


@pytest.mark.parametrize("components", [0, 5, 6])
def test_a_number_of_components_out_of_range_is_refused(components: int) -> None:
    for model in (PPCA, FactorAnalysis):
        with pytest.raises(ValueError, match=f"one less than the 5 features: got {components}"):
            model(5, components=components)


# EM


def test_em_never_falls_and_ends_at_the_closed_form() -> None:
    x = problem()
    _, S = covariance(x, torch.ones(60).double())
    generator = torch.Generator().manual_seed(0)
    W, noise = torch.randn(5, 2, generator=generator, dtype=torch.float64), torch.tensor(1.0).double()
    values = [float(mean_log_likelihood(S, W, noise))]
    for _ in range(500):
        W, noise = em_iteration(S, W, noise)
        values.append(float(mean_log_likelihood(S, W, noise)))
    assert all(after >= before - 1e-12 for before, after in pairwise(values))
    assert values[-1] == pytest.approx(float(most_likely(torch.linalg.eigvalsh(S).flip(0), 2)), abs=1e-8)


def test_an_iteration_is_the_expectations_then_the_regression() -> None:
    """By Tipping and Bishop's equations 26 to 28, from the expectations of each row."""
    x = problem()
    centered, S = x - x.mean(0), x.T.cov(correction=0)
    W, noise = torch.eye(5, 2).double(), torch.tensor(0.7).double()
    inverse = torch.linalg.inv(W.T @ W + noise * torch.eye(2).double())
    z = centered @ W @ inverse
    zz = len(x) * noise * inverse + z.T @ z
    new = centered.T @ z @ torch.linalg.inv(zz)
    squares = centered.square().sum() - 2 * (z * (centered @ new)).sum() + (zz * (new.T @ new)).sum()
    found, variance = em_iteration(S, W, noise)
    assert torch.allclose(found, new, atol=1e-10)
    assert float(variance) == pytest.approx(float(squares) / x.numel(), rel=1e-10)


def test_the_step_goes_on_from_the_model_and_reports_what_it_gained() -> None:
    x = problem()
    torch.manual_seed(0)
    state = State({"model": PPCA(5, components=2).double()})
    losses = []
    step = expectation_maximization(iterations=20)
    for _ in range(40):
        metrics = step(state, Batch((x,)))
        losses.append(float(metrics["loss"]))
    assert float(metrics["gain"]) == pytest.approx(losses[-2] - losses[-1], abs=1e-12)
    mean = negative_log_density(state.model, Batch((x,)), torch.Generator()).mean().detach()
    assert losses[-1] == pytest.approx(float(mean), rel=1e-10)
    exact = negative_log_density(fitted(x), Batch((x,)), torch.Generator()).mean().detach()
    assert losses[-1] == pytest.approx(float(exact), abs=1e-7)
    with pytest.raises(ValueError, match="iterations must be at least 1: got 0"):
        expectation_maximization(iterations=0)


def test_em_counts_an_example_by_its_weight() -> None:
    x = problem(12)
    weight = torch.tensor([0.0, 2, 1] * 4).double()
    found = []
    for batch in (Batch((x,), None, weight), Batch((x.repeat_interleave(weight.long(), 0),))):
        torch.manual_seed(0)
        state = State({"model": PPCA(5, components=2).double()})
        expectation_maximization(iterations=5)(state, batch)
        found.append(state.model)
    for a, b in zip(found[0].parameters(), found[1].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


# factor analysis


def wine() -> torch.Tensor:
    x = torch.from_numpy(load_wine().data)
    return (x - x.mean(0)) / x.std(0, correction=0)


def test_it_is_scikit_learns_and_more_likely_than_probabilistic_pca() -> None:
    x = wine()
    state = State({"model": FactorAnalysis(13, components=3).double()})
    metrics = factors()(state, Batch((x,)))
    score = -negative_log_density(state.model, Batch((x,)), torch.Generator()).mean().detach()
    peer = decomposition.FactorAnalysis(3, tol=1e-8 * len(x), max_iter=10_000, svd_method="lapack").fit(
        x.numpy()
    )
    assert float(score) == pytest.approx(peer.score(x.numpy()), abs=1e-9)
    assert float(metrics["loss"]) == pytest.approx(-float(score), rel=1e-9)
    codes = peer.transform(x.numpy())
    np.testing.assert_allclose(state.model(x).detach(), codes, atol=1e-6)
    even = -negative_log_density(fitted(x, 3), Batch((x,)), torch.Generator()).mean().detach()
    assert float(score) > float(even) + 0.1


def test_the_unit_of_a_feature_scales_its_loadings_alone_unlike_pcas() -> None:
    x = wine()
    unit = torch.ones(13).double()
    unit[2] = 10.0
    _, W, psi = fit_factors(x, 2)
    _, scaled, noise = fit_factors(x * unit, 2)
    assert torch.allclose(scaled @ scaled.T / torch.outer(unit, unit), W @ W.T, atol=2e-3)
    assert torch.allclose(noise, psi * unit.square(), rtol=1e-2)
    axes, other = (principal_axes(t, 2)[1] for t in (x, x * unit))
    back = other / unit
    cosine = torch.linalg.svdvals(torch.linalg.qr(axes.T).Q.T @ torch.linalg.qr(back.T).Q)
    assert cosine[-1] < 0.9


def test_a_constant_feature_and_unequal_weights_are_refused() -> None:
    x = wine()[:, :4]
    state = State({"model": FactorAnalysis(4).double()})
    weight = torch.ones(len(x))
    weight[0] = 2
    with pytest.raises(ValueError, match="no weights of examples but equal ones: got from 1 to 2"):
        factors()(state, Batch((x,), None, weight))
    weight[0] = 0
    factors()(state, Batch((x,), None, 3 * weight))
    rest = State({"model": FactorAnalysis(4).double()})
    factors()(rest, Batch((x[1:],)))
    assert torch.equal(state.model.loadings, rest.model.loadings)
    x = torch.cat((x, torch.ones(len(x), 1)), 1)
    with pytest.raises(ValueError, match="feature 4 is constant, leave it out"):
        fit_factors(x, 2)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_features_that_determine_each_other_leave_no_bound_and_are_refused(scale: float) -> None:
    x = problem(40, 6)
    twin = torch.cat((x, scale * x[:, :1]), 1)
    with pytest.raises(ValueError, match=r"has no bound: got no noise in features \[0, 6\]; leave some out"):
        fit_factors(twin, 2)
    with pytest.raises(ValueError, match=r"has no bound: got no noise in features \[0, 1, 2, 3, 4, 5\]"):
        fit_factors(problem(4, 6), 3)  # four rows span three directions


def test_a_solver_that_is_cut_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margin.classic.factors.factor_analysis.MOST_ITERATIONS", 2)
    with pytest.raises(ValueError, match="must converge in 2 iterations: it did not with components=2"):
        fit_factors(wine(), 2)


def test_samples_of_factors_have_the_models_covariance() -> None:
    # 100,000 draws, each entry within 6 standard errors: probability > 1 - 1e-7
    state = State({"model": FactorAnalysis(13, components=3).double()})
    factors()(state, Batch((wine(),)))
    model = state.model
    rows = model.sample(100_000, torch.Generator().manual_seed(0)).detach()
    C = (model.loadings @ model.loadings.T + model.noise_variance.diag()).detach()
    sizes = C.diagonal().sqrt()
    assert ((rows.T.cov() - C).abs() / torch.outer(sizes, sizes)).max() < 6 * math.sqrt(2 / 100_000)
