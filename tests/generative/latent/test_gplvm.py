"""The GPLVM: its likelihood term by term, dual PCA by the linear kernel, the process against scikit-learn."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, State
from margin.generative.latent.gplvm import GPLVM, codes_by_descent, negative_log_likelihood, principal_latents


def rows(n: int = 30, d: int = 5) -> Tensor:
    g = Generator().manual_seed(0)
    z = torch.randn(n, 2, generator=g).double() * torch.tensor([3.0, 1.5]).double()
    return z @ torch.randn(2, d, generator=g).double() + 0.3 * torch.randn(n, d, generator=g).double() + 1.0


@torch.enable_grad()
def trained(x: Tensor, steps: int, lr: float, **options: Any) -> tuple[Any, list[float]]:
    torch.manual_seed(0)
    model = GPLVM(len(x), x.shape[1], **options).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state = State(modules={"model": model}, optimizers={"": optimizer})
    step = codes_by_descent(GradientUpdate())
    return model, [float(step(state, Batch((x,)))["loss"]) for _ in range(steps)]


def test_the_likelihood_is_a_normal_law_of_each_feature() -> None:
    torch.manual_seed(0)
    A = torch.randn(6, 6).double()
    K, Y = A @ A.T + torch.eye(6).double(), torch.randn(6, 3).double()
    law = MultivariateNormal(torch.zeros(6).double(), K)
    torch.testing.assert_close(negative_log_likelihood(Y, K), -law.log_prob(Y.T).sum())


def test_the_linear_kernel_finds_the_subspace_of_dual_probabilistic_pca() -> None:
    """The maximum: Z = U (L - s^2)^(1/2) R, L the top eigenvalues of Y Y^T / d, s^2 the others' mean."""
    x = rows(20, 8)
    model, losses = trained(x, 300, 0.05, kernel="linear")
    Y = x - x.mean(0)
    spectrum, U = torch.linalg.eigh(Y @ Y.T / 8)
    spectrum, U = spectrum.flip(0), U.flip(1)
    noise = spectrum[2:].sum() / 18
    K = U[:, :2] * (spectrum[:2] - noise) @ U[:, :2].T + noise * torch.eye(20).double()
    best = float(negative_log_likelihood(Y, K)) / 20
    assert losses[-1] == pytest.approx(best, abs=1e-3)
    assert losses[-1] >= best - 1e-9
    Q = torch.linalg.qr(model.latents.detach()).Q
    cosines = torch.linalg.svdvals(Q.T @ U[:, :2])
    assert float(cosines.min()) > 0.9999


@torch.no_grad()
def test_predictions_are_scikit_learns_gaussian_process() -> None:
    model, _ = trained(rows(), 3, 0.1)
    z = torch.randn(7, 2).double()
    noise, scale = (2 * model.log_noise).exp().item(), (2 * model.log_scale).exp().item()
    kernel = ConstantKernel(scale) * RBF(model.log_length.exp().item()) + WhiteKernel(noise)
    peer = GaussianProcessRegressor(kernel, optimizer=None)
    peer.fit(model.latents.numpy(), (model.rows - model.mean).numpy())
    mean, std = peer.predict(z.numpy(), return_std=True)
    ours, variance = model.predict(z)
    np.testing.assert_allclose(ours.numpy(), mean + model.mean.numpy(), atol=1e-8)
    np.testing.assert_allclose(variance.numpy(), std[:, 0] ** 2, atol=1e-8)


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_density_is_the_mixture_of_predictions_and_codes_its_means(kernel: Any) -> None:
    model, _ = trained(rows(), 3, 0.05, kernel=kernel)
    mean, variance = model.predict(model.latents)
    x = rows()[:4] + 0.1
    eye = torch.eye(5).double()
    parts = torch.stack(
        [MultivariateNormal(m, v * eye).log_prob(x) for m, v in zip(mean, variance, strict=True)], 1
    )
    torch.testing.assert_close(model.log_prob(x), parts.logsumexp(1) - math.log(30))
    torch.testing.assert_close(model(x), parts.softmax(1) @ model.latents)
    torch.testing.assert_close(model(x[2:3]), model(x)[2:3], rtol=1e-11, atol=1e-11)
    n = 20_000
    drawn = model.sample(n, generator=Generator().manual_seed(0))
    total = mean.var(0, unbiased=False) + variance.mean()
    gap = (drawn.mean(0) - mean.mean(0)).abs()
    assert bool((gap < 4.5 * (total / n).sqrt()).all())  # one seed in 30,000 fails
    assert bool(((drawn.var(0) / total - 1).abs() < 4.5 * 2 / math.sqrt(n)).all())


def test_training_explains_more_and_codes_follow_a_curve() -> None:
    t = torch.linspace(-1.5, 1.5, 40).double()
    x = torch.stack((t, t.square(), torch.sin(2 * t), torch.cos(3 * t)), 1)
    x = x + 0.03 * torch.randn(40, 4, generator=Generator().manual_seed(0)).double()
    model, losses = trained(x, 150, 0.03, code=1)
    assert losses[-1] < losses[0] - 1.0
    codes = model(x)[:, 0].detach()
    order = torch.stack((codes.argsort().argsort().double(), torch.arange(40).double()))
    assert abs(float(torch.corrcoef(order)[0, 1])) > 0.95
    assert float((model.reconstruct(x) - x).detach().square().mean()) < 0.05
    assert model.interpolate(5, generator=Generator().manual_seed(0)).shape == (5, 4)


def test_principal_components_have_variance_1_and_are_the_datas() -> None:
    Z = principal_latents(rows(), 2)
    torch.testing.assert_close(Z.T @ Z / 30, torch.eye(2).double())
    Y = rows() - rows().mean(0)
    U = torch.linalg.eigh(Y @ Y.T).eigenvectors[:, -2:]
    torch.testing.assert_close(U @ (U.T @ Z), Z)
    with pytest.raises(ValueError, match="directions that the rows span, 1: got 2"):
        principal_latents(torch.arange(6.0).double()[:, None] * torch.ones(3).double(), 2)
    with pytest.raises(ValueError, match="span, 0: got 1"):
        principal_latents(torch.ones(4, 3).double(), 1)


def test_what_gives_no_code_is_refused() -> None:
    with pytest.raises(ValueError, match="code must be at least 1: got 0"):
        GPLVM(5, 2, code=0)
    with pytest.raises(ValueError, match="at most 3000: got 3001"):
        GPLVM(3001, 2)
    model = GPLVM(4, 2)
    state = State(modules={"model": model}, optimizers={"": torch.optim.SGD(model.parameters(), lr=0.1)})
    step = codes_by_descent(GradientUpdate())
    x = torch.randn(4, 2)
    with pytest.raises(ValueError, match="got 3 examples for 4 codes, weights from 1 to 1"):
        step(state, Batch((x[:3],)))
    with pytest.raises(ValueError, match="weights from 1 to 2"):
        step(state, Batch((x,), weight=torch.tensor([1.0, 1.0, 1.0, 2.0])))
