"""The exact denoiser: autograd's score, Tweedie by integration, the scalar formula."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Generator, Tensor

from margin.generative.diffusion.exact import ExactDenoiser, Mixture, gaussian_eps
from margin.generative.diffusion.process import linear_schedule


def covariance(dim: int, seed: int) -> Tensor:
    A = torch.randn(dim, dim, generator=Generator().manual_seed(seed), dtype=torch.float64)
    return A @ A.T / dim + 0.05 * torch.eye(dim, dtype=torch.float64)


def mixture(dim: int = 2, components: int = 3, seed: int = 0) -> Mixture:
    g = Generator().manual_seed(seed)
    means = 2 * torch.randn(components, dim, generator=g, dtype=torch.float64)
    covariances = torch.stack([covariance(dim, seed + k) for k in range(components)])
    return Mixture(means, covariances, 0.2 + torch.rand(components, generator=g, dtype=torch.float64))


def points(count: int = 20, dim: int = 2, seed: int = 5) -> Tensor:
    return 2 * torch.randn(count, dim, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("level", [1.0, 0.6, 0.01])
def test_the_density_of_noisy_points_is_scipys(level: float) -> None:
    law, x = mixture(), points()
    expected = sum(
        math.exp(law.logits[k])
        * multivariate_normal(
            math.sqrt(level) * law.means[k].numpy(),
            level * covariance(2, k).numpy() + (1 - level) * np.eye(2),
        ).pdf(x.numpy())
        for k in range(3)
    )
    np.testing.assert_allclose(law.log_prob(x, level), np.log(expected), rtol=1e-9)


@pytest.mark.parametrize("level", [1.0, 0.6, 0.01])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_score_is_the_gradient_of_the_log_density(level: float, dim: int) -> None:
    law, x = mixture(dim), points(dim=dim).requires_grad_()
    (gradient,) = torch.autograd.grad(law.log_prob(x, level).sum(), x)
    torch.testing.assert_close(law.score(x.detach(), level), gradient, rtol=1e-9, atol=1e-9)


def test_the_score_is_not_that_of_the_clean_density() -> None:
    """The notes print grad log p(x)."""
    law, x = mixture(), points()
    assert float((law.score(x, 0.6) - law.score(x, 1.0)).abs().max()) > 0.1


@pytest.mark.parametrize("level", [0.9, 0.3])
def test_tweedie_is_the_mean_by_integration(level: float) -> None:
    """E[x_0 | x_t] and E[eps | x_t] on a grid of x_0."""
    law = Mixture(
        torch.tensor([[-1.0], [1.5]]).double(),
        torch.tensor([[[0.09]], [[0.5]]]).double(),
        torch.tensor([1.0, 3.0]),
    )
    grid = np.linspace(-8, 8, 200_001)
    p = 0.25 * np.exp(-((grid + 1) ** 2) / 0.18) / math.sqrt(0.09) + 0.75 * np.exp(
        -((grid - 1.5) ** 2)
    ) / math.sqrt(0.5)
    for x in (-1.3, 0.1, 0.7, 2.5):
        weight = p * np.exp(-((x - math.sqrt(level) * grid) ** 2) / (2 * (1 - level)))
        mean = float((weight * grid).sum() / weight.sum())
        noise = (x - math.sqrt(level) * mean) / math.sqrt(1 - level)
        at = torch.tensor([[x]], dtype=torch.float64)
        assert float(law.denoised(at, level)) == pytest.approx(mean, abs=1e-7)
        assert float(law.eps(at, level)) == pytest.approx(noise, abs=1e-7)


@pytest.mark.parametrize("level", [1.0, 0.7, 1e-3, 0.0])
def test_one_gaussian_is_the_scalar_formula(level: float) -> None:
    x = torch.linspace(-3, 5, 9, dtype=torch.float64)
    law = Mixture(torch.full((1, 1), 2.0).double(), torch.full((1, 1, 1), 0.25).double())
    expected = [
        math.sqrt(1 - level) * (v - 2 * math.sqrt(level)) / (0.25 * level + 1 - level) for v in x.tolist()
    ]
    np.testing.assert_allclose(law.eps(x[:, None], level)[:, 0], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gaussian_eps(x, level, 2.0, 0.25), expected, rtol=1e-12, atol=1e-14)


def test_no_predictor_has_less_error_than_the_exact_one() -> None:
    """Regression of eps on x_t among lines: the fit is eps* (1e5 draws, 4.5 standard errors)."""
    level, n = 0.5, 100_000
    g = Generator().manual_seed(0)
    x0 = 2 + 0.5 * torch.randn(n, generator=g, dtype=torch.float64)
    eps = torch.randn(n, generator=g, dtype=torch.float64)
    x = math.sqrt(level) * x0 + math.sqrt(1 - level) * eps
    centered = x - x.mean()
    slope = float((centered * eps).sum() / centered.square().sum())
    residual = eps - eps.mean() - slope * centered
    error = float(residual.std() / centered.std()) / math.sqrt(n)
    two = gaussian_eps(torch.tensor([0.0, 1.0]).double(), level, 2.0, 0.25)
    assert slope == pytest.approx(float(two[1] - two[0]), abs=4.5 * error)


def test_levels_may_differ_from_row_to_row() -> None:
    law, x = mixture(), points(3)
    level = torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64)
    for i in range(3):
        torch.testing.assert_close(law.eps(x, level)[i], law.eps(x, float(level[i]))[i])


def test_its_samples_have_its_moments() -> None:
    """Mean and covariance within 4.5 standard errors: 5 tests, 4e-5."""
    law, n = mixture(), 50_000
    x = law.sample(n, Generator().manual_seed(0))
    share = law.logits.exp()
    mean = share @ law.means
    outer = sum(share[k] * (covariance(2, k) + torch.outer(law.means[k], law.means[k])) for k in range(3))
    assert bool(((x.mean(0) - mean).abs() <= 4.5 * x.std(0) / math.sqrt(n)).all())
    products = x[:, :, None] * x[:, None]
    assert bool(((products.mean(0) - outer).abs() <= 4.5 * products.std(0) / math.sqrt(n)).all())


def test_a_data_set_in_points_has_an_exact_denoiser_too() -> None:
    """Covariances 0: noisy data are a mixture about the examples."""
    law = Mixture(points(4), torch.zeros(4, 2, 2).double())
    x = law.means[:1] * math.sqrt(0.99) + 0.001
    torch.testing.assert_close(law.denoised(x, 0.99), law.means[:1], rtol=1e-3, atol=1e-3)


def test_as_a_network_it_reads_times_and_classes() -> None:
    law, schedule, x = mixture(), linear_schedule(10), points(4).float()
    network = ExactDenoiser(law, schedule)
    t = torch.tensor([1, 5, 9, 10])
    found = network(x, t.float(), torch.tensor([0, 1, 2, 3]))
    assert found.dtype == torch.float32
    for i in range(4):
        own = law if i == 3 else Mixture(law.means[i : i + 1], covariance(2, i)[None])
        expected = own.eps(x[i : i + 1], float(schedule.alpha_bar[t[i]]))
        torch.testing.assert_close(found[i], expected[0].float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(network(x, t.float()), network(x, t.float(), torch.full((4,), 3)))


def test_what_is_no_mixture_is_refused() -> None:
    means, eye = points(2), torch.eye(2).double().expand(2, 2, 2)
    with pytest.raises(ValueError, match="a positive weight of each component"):
        Mixture(means, eye, torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="got 2 means, 1 covariances"):
        Mixture(means, eye[:1])
    with pytest.raises(ValueError, match="no negative eigenvalue: got -1"):
        Mixture(means, -eye)
