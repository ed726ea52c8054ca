"""Mixtures of Gaussians: the density against scipy and the exact law, samples against moments, options."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Generator

from margin.generative.diffusion.exact import Mixture
from margin.generative.latent.mixture import GaussianMixture


def known(covariance: str) -> tuple[GaussianMixture, torch.Tensor, torch.Tensor]:
    """Two components in three dimensions, float64, with their weights and covariances."""
    torch.manual_seed(0)
    model = GaussianMixture(3, components=2, covariance=covariance).double()  # type: ignore[arg-type]
    weights = torch.tensor([0.3, 0.7]).double()
    with torch.no_grad():
        model.log_weights.copy_(weights.log())
        if covariance == "full":
            model.factors.copy_((torch.randn(2, 3, 3).tril() * 0.4 + 1.2 * torch.eye(3)).double())
            S = model.factors @ model.factors.mT
        else:
            model.factors.copy_(torch.rand(2, 3) + 0.5)
            S = model.factors.square().diag_embed()
    return model, weights, S


@pytest.mark.parametrize("covariance", ["full", "diagonal", "spherical"])
def test_the_density_is_scipys_and_that_of_the_exact_law(covariance: str) -> None:
    model, weights, S = known(covariance)
    x = torch.randn(20, 3).double()
    pdf = sum(
        float(w) * multivariate_normal(m.numpy(), C.numpy()).pdf(x.numpy())
        for w, m, C in zip(weights, model.means.detach(), S.detach(), strict=True)
    )
    np.testing.assert_allclose(model(x).detach().numpy(), np.log(pdf), rtol=1e-10)
    law = Mixture(model.means.detach(), S.detach(), weights)
    torch.testing.assert_close(model.log_prob(x), law.log_prob(x), rtol=1e-10, atol=1e-10)
    shares = model.responsibilities(x)
    torch.testing.assert_close(shares.sum(1), torch.ones(20).double())
    torch.testing.assert_close(shares, law.log_components(x, 1.0).softmax(1), rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_the_density_integrates_to_one_in_the_plane() -> None:
    torch.manual_seed(1)
    model = GaussianMixture(2, components=3).double()
    axis = torch.linspace(-9, 9, 361, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    assert float(model(grid).exp().sum() * 0.05**2) == pytest.approx(1.0, abs=1e-8)


@torch.no_grad()
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_samples_have_the_mixtures_mean_and_covariance(covariance: str) -> None:
    model, weights, S = known(covariance)
    n = 40_000
    x = model.sample(n, generator=Generator().manual_seed(0))
    assert x.shape == (n, 3)
    assert x.dtype == torch.float64
    mean = weights @ model.means
    apart = model.means - mean
    total = torch.einsum("k,kij->ij", weights, S + apart[:, :, None] * apart[:, None])
    error = total.diagonal().sqrt() / math.sqrt(n)
    assert bool(((x.mean(0) - mean).abs() < 4.5 * error).all())  # fails for one seed in 40,000
    scale = total.diagonal().sqrt()
    assert float(((x.T.cov() - total) / scale[:, None] / scale).abs().max()) < 4.5 * 2 / math.sqrt(n)
    again = model.sample(5, generator=Generator().manual_seed(0))
    assert torch.equal(again, model.sample(5, generator=Generator().manual_seed(0)))


@torch.no_grad()
def test_images_are_flattened_and_a_far_row_has_a_finite_density() -> None:
    model = GaussianMixture(12, components=2)
    assert model(torch.randn(3, 1, 3, 4)).shape == (3,)
    assert bool(model(torch.full((1, 12), 1e4)).isfinite().all())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"components": 0}, "components must be at least 1: got 0"),
        ({"floor": -1e-9}, "floor must be at least 0 and finite: got -1e-09"),
        ({"floor": math.nan}, "floor must be at least 0 and finite: got nan"),
        ({"floor": math.inf}, "floor must be at least 0 and finite: got inf"),
    ],
)
def test_options_that_make_no_mixture_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GaussianMixture(2, **options)  # type: ignore[arg-type]
    GaussianMixture(2, floor=0.0, components=1)
