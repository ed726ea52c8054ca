"""Gaussian process regression: scikit-learn's at equal hyper-parameters, closed forms, bad input."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.kernel_ridge import KernelRidge

from margin.bayes.gp.claims import learned, posterior, stationarity
from margin.bayes.gp.kernels import Hyperparameters, correlation, gram, slope
from margin.bayes.gp.learning import regression
from margin.bayes.gp.regression import GaussianProcess, log_evidence
from margin.core.findings import Verdict
from margin.core.types import Batch
from margin.data.sets.tiny.tables import values
from margin.engine.loop import State

PEERS = {
    "rbf": lambda scales: RBF(scales),
    "matern12": lambda scales: Matern(scales, nu=0.5),
    "matern32": lambda scales: Matern(scales, nu=1.5),
    "matern52": lambda scales: Matern(scales, nu=2.5),
}
SCALES, SIGNAL, NOISE = (0.7, 1.9, 3.1), 1.7, 0.2


def rows(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    y = (2 * x[:, 0]).sin() + x[:, 1] + 0.3 * torch.randn(count, generator=generator, dtype=torch.float64)
    return x, y


def found(scales=SCALES, signal: float = SIGNAL, noise: float = NOISE) -> Hyperparameters:
    return Hyperparameters(*(torch.tensor(v, dtype=torch.float64) for v in (scales, signal, noise)))


def trained(x, y, weight=None, **options) -> tuple[GaussianProcess, dict]:
    model = GaussianProcess(x.shape[1], len(x), **options).double()
    metrics = regression()(State({"model": model}), Batch((x,), y, weight))
    return model.eval(), metrics


@pytest.mark.parametrize("kernel", PEERS)
def test_the_evidence_and_its_gradient_are_scikit_learns(kernel: str) -> None:
    x, y = rows(40)
    ours = log_evidence(x, y, torch.ones(40).double(), found(), kernel)
    peer = GaussianProcessRegressor(
        ConstantKernel(SIGNAL) * PEERS[kernel](SCALES) + WhiteKernel(NOISE), optimizer=None
    )
    peer.fit(x.numpy(), y.numpy())
    value, slopes = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    assert ours.value == pytest.approx(value, rel=1e-7)
    # theirs are in the order signal, scales, noise
    np.testing.assert_allclose(ours.gradient, [*slopes[1:4], slopes[0], slopes[4]], rtol=1e-6)


@pytest.mark.parametrize("kernel", PEERS)
def test_mean_and_deviation_are_scikit_learns(kernel: str) -> None:
    x, y = rows(40)
    new = rows(15, seed=1)[0]
    model, _ = trained(x, y, kernel=kernel, learn="none", noise=NOISE)
    unit = float(y.std(correction=0))
    peer = GaussianProcessRegressor(PEERS[kernel]([3**0.5] * 3), alpha=NOISE, optimizer=None)
    peer.fit(x.numpy(), ((y - y.mean()) / unit).numpy())
    mean, std = peer.predict(new.numpy(), return_std=True)
    law = model.predictive(new, noise=False)
    np.testing.assert_allclose(law.mean, float(y.mean()) + unit * mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(law.variance.sqrt(), unit * std, rtol=1e-6)
    np.testing.assert_allclose(model(new).detach(), law.mean, rtol=1e-12)
    noisy = model.predictive(new)
    np.testing.assert_allclose(noisy.variance - law.variance, NOISE * unit**2, rtol=1e-9)


def test_the_evidence_is_the_density_of_the_values() -> None:
    x, y = rows(12)
    weight = torch.arange(1, 13).double() / 5
    K = (gram(x, x, found(), "matern52") + torch.diag(NOISE / weight)).numpy()
    ours = log_evidence(x, y, weight, found(), "matern52")
    assert ours.value == pytest.approx(multivariate_normal.logpdf(y.numpy(), cov=K), rel=1e-10)


@pytest.mark.parametrize("kernel", PEERS)
@pytest.mark.parametrize("scales", [SCALES, (1.3,)])
def test_the_gradient_is_that_of_finite_differences(kernel: str, scales: tuple) -> None:
    """A weight of each row, so that the noise's derivative is not that of equal weights."""
    x, y = rows(20)
    weight, log = torch.arange(1, 21).double() / 7, found(scales).log()
    ours = log_evidence(x, y, weight, found(scales), kernel).gradient
    for i in range(len(log)):
        step = torch.zeros_like(log)
        step[i] = 1e-5
        ends = [
            log_evidence(x, y, weight, Hyperparameters.of_log(log + s * step), kernel).value for s in (1, -1)
        ]
        assert float(ours[i]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kernel", PEERS)
def test_a_slope_is_the_kernels_derivative(kernel: str) -> None:
    square = torch.linspace(0.05, 9, 50, dtype=torch.float64).requires_grad_()
    correlation(square, kernel).sum().backward()
    np.testing.assert_allclose(slope(square.detach(), kernel), square.grad, rtol=1e-10)
    assert bool(slope(torch.zeros(1), kernel).isfinite().all())


def test_the_mean_is_kernel_ridge_regression_with_the_noise_as_penalty() -> None:
    x, y = rows(30)
    new = rows(9, seed=1)[0]
    model, _ = trained(x, y, learn="none", noise=NOISE)
    z = ((y - y.mean()) / y.std(correction=0)).numpy()
    peer = KernelRidge(alpha=NOISE, kernel="rbf", gamma=1 / (2 * 3)).fit(x.numpy(), z)
    expected = float(y.mean()) + float(y.std(correction=0)) * peer.predict(new.numpy())
    np.testing.assert_allclose(model(new).detach(), expected, rtol=1e-9)


def test_evidence_finds_the_scales_that_made_the_values() -> None:
    """400 values of a process: of 20 such draws the log length scale of a feature is found to 0.3."""
    generator = torch.Generator().manual_seed(3)
    x = 6 * torch.rand(400, 2, generator=generator, dtype=torch.float64)
    true = found((1.0, 4.0), 1.0, 0.01)
    lower = torch.linalg.cholesky(gram(x, x, true, "rbf") + 0.01 * torch.eye(400))
    y = lower @ torch.randn(400, generator=generator, dtype=torch.float64)
    model, metrics = trained(x, y)
    got = model.hyperparameters
    assert (got.scales.log() - true.scales.log()).abs().max() < 0.3
    assert float(metrics["noise"]) == pytest.approx(0.1, rel=0.15)
    ours = log_evidence(x, (y - model.shift) / model.unit, torch.ones(400).double(), got, "rbf")
    assert metrics["evidence"] == pytest.approx(ours.value - 400 * float(model.unit.log()), rel=1e-9)
    assert ours.gradient.abs().max() < 0.5


def test_a_weight_of_two_counts_as_two_rows_and_one_of_zero_as_none() -> None:
    x, y = rows(12)
    new = rows(5, seed=1)[0]
    weight = torch.tensor([2.0] * 3 + [1.0] * 7 + [0.0] * 2).double()
    one, _ = trained(x, y, weight, noise=0.3, learn="none")
    index = torch.cat((torch.arange(3), torch.arange(10)))
    other, _ = trained(x[index], y[index], noise=0.3, learn="none")
    for a, b in zip(one.predictive(new), other.predictive(new), strict=True):
        assert torch.allclose(a, b, rtol=1e-9)
    assert torch.allclose(one(new), other(new), rtol=1e-9)


def test_duplicate_rows_without_noise_are_interpolated_with_a_jitter_that_is_reported() -> None:
    x, y = rows(20)
    x, y = torch.cat((x, x)), torch.cat((y, y))
    model, metrics = trained(x, y, noise=0.0, learn="none")
    assert 0 < metrics["jitter"] <= 1e-6
    assert float(model.jitter) == pytest.approx(metrics["jitter"])
    np.testing.assert_allclose(model(x).detach(), y, atol=1e-3)
    law = model.predictive(x)
    assert bool((law.variance >= 0).all()) and float(law.variance.max()) < 1e-4
    assert trained(*rows(20), noise=0.1, learn="none")[1]["jitter"] == 0


def test_a_variance_is_never_negative_where_rounding_decides() -> None:
    """A thousand points on [0, 1] of one length scale: the matrix is singular to working precision."""
    x = torch.linspace(0, 1, 1000, dtype=torch.float64)[:, None]
    model, metrics = trained(x, x[:, 0].sin(), noise=0.0, learn="none", lengthscale=1.0)
    law = model.predictive(torch.linspace(-0.5, 1.5, 301, dtype=torch.float64)[:, None])
    assert metrics["jitter"] > 0 and bool((law.variance >= 0).all())


def test_constant_targets_are_predicted_with_little_doubt() -> None:
    x, _ = rows(20)
    model, metrics = trained(x, torch.full((20,), 7.3, dtype=torch.float64))
    law = model.predictive(rows(5, seed=1)[0])
    assert bool((law.mean == 7.3).all()) and bool((law.variance > 0).all())
    assert float(metrics["loss"]) == 0 and float(law.variance.max()) < 0.1


def test_far_from_the_examples_the_law_is_the_prior() -> None:
    x, y = rows(20)
    model, _ = trained(x, y, learn="none", noise=NOISE)
    law = model.predictive(torch.full((1, 3), 1e3).double())
    assert float(law.mean) == pytest.approx(float(y.mean()), rel=1e-12)
    assert float(law.variance) == pytest.approx((1 + NOISE) * float(y.var(correction=0)), rel=1e-12)


def test_a_factor_is_computed_anew_where_what_it_rests_on_has_changed() -> None:
    x, y = rows(20)
    model, _ = trained(x, y, learn="none", noise=NOISE)
    before = model.predictive(x).variance
    assert model.factor() is model.factor()
    model.noise.mul_(4)
    assert not torch.allclose(model.predictive(x).variance, before + 3 * NOISE * model.unit**2)
    fresh = GaussianProcess(3, 20, noise=NOISE).double()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.predictive(x).variance, model.predictive(x).variance)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.0}, "where it is learned: got 0; --model.learn none keeps it"),
        ({"noise": -1.0, "learn": "none"}, "noise must be at least 0 and finite: got -1"),
        ({"lengthscale": 0.0}, "lengthscale must be positive and finite: got 0"),
        ({"restarts": -1}, "restarts must be at least 0: got -1"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianProcess(3, 10, **options)


def test_an_untrained_process_predicts_no_law() -> None:
    with pytest.raises(ValueError, match="predicts once it is trained"):
        GaussianProcess(3, 10).predictive(torch.zeros(2, 3))


def test_the_claims_hold_of_a_process_and_not_of_one_that_is_moved() -> None:
    data = values()
    subject = learned(data, GaussianProcess(3, len(data.splits["train"]), scales="shared"))
    assert posterior(subject).verdict is Verdict.HOLDS
    rest = stationarity(subject)
    assert rest.value.abs().max() < 0.1 and len(rest.labels) == 3
    subject.model.model.noise.mul_(1.5)
    assert posterior(subject).verdict is Verdict.VIOLATED
