"""A dense mass matrix: its coordinates, the exact posterior of weights that go together, what is refused."""

import pytest
import torch
from torch import Generator, nn

from margin.bayes.mcmc.adaptation import Adaptation
from margin.bayes.mcmc.chains import leapfrog, point_at, trajectory
from margin.bayes.mcmc.diagnostics import effective_sample_size
from margin.bayes.mcmc.learning import hamiltonian_sampling, langevin_sampling
from margin.bayes.mcmc.posterior import ChainRegressor
from margin.core.types import Batch
from margin.engine.loop import State, Step, fit

DOUBLE = torch.float64


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def adapted() -> tuple[Adaptation, torch.Tensor]:
    seen = torch.randn(40, 2, generator=generator(), dtype=DOUBLE)
    seen = torch.stack((seen[:, 0], 3 * seen[:, 0] + 0.2 * seen[:, 1]), 1)
    found = Adaptation(2, "dense")
    for part in seen.split(8):
        found.observe(part)
    found.take_masses()
    return found, seen


def quartic(theta: torch.Tensor) -> torch.Tensor:
    return (theta**4 / 4 + theta.prod(1, keepdim=True) / 3).sum(1)


def test_a_dense_mass_matrix_is_the_inverse_of_the_covariance_shrunk_as_stan_does() -> None:
    found, seen = adapted()
    expected = 40 / 45 * seen.T.cov() + 1e-3 * 5 / 45 * torch.eye(2, dtype=DOUBLE)
    assert torch.allclose(found.root @ found.root.T, expected, rtol=1e-12)
    assert torch.equal(found.inverse, torch.ones(2, dtype=DOUBLE))
    z = found.inside(seen)
    assert torch.allclose(found.outside(z), seen, atol=1e-12)
    assert torch.allclose(z.T.cov(), 45 / 40 * torch.eye(2, dtype=DOUBLE), atol=0.05)


def test_a_trajectory_in_its_coordinates_is_that_of_the_matrix() -> None:
    """theta' = M^-1 v, v' = -grad E with M^-1 = L L^T, in positions as they are, step by step."""
    found, seen = adapted()
    theta, step = seen[:3] / 4, 0.02
    covariance = found.root @ found.root.T
    z_momentum = torch.randn(3, 2, generator=generator(1), dtype=DOUBLE)
    at = point_at(found.within(quartic), found.inside(theta))
    end, _ = trajectory(found.within(quartic), at, z_momentum, found.inverse, step, 7)
    v = torch.linalg.solve(found.root.T, z_momentum.T).T  # of N(0, M)
    for _ in range(7):
        v = v - step / 2 * point_at(quartic, theta).slope
        theta = theta + step * v @ covariance
        v = v - step / 2 * point_at(quartic, theta).slope
    assert torch.allclose(found.outside(end.theta), theta, atol=1e-12)
    other, _ = leapfrog(quartic, seen[:3] / 4, z_momentum, 1 / covariance.diagonal(), step, 7)
    assert not torch.allclose(other, theta, atol=1e-2)


def chained(
    mass_matrix: str, steps: int, x: torch.Tensor, y: torch.Tensor, step: Step | None = None
) -> tuple:
    """The model after so many trajectories of two steps."""
    torch.manual_seed(0)
    model = ChainRegressor(
        lambda: nn.Linear(2, 1, bias=False).double(),
        draws=steps // 2,
        chains=16,
        prior_precision=1e-4,
        noise=0.3,
        learn="none",
        mass_matrix=mass_matrix,
    )
    fit(
        State({"model": model}, seed=0),
        lambda _: Batch((x,), y),
        step or hamiltonian_sampling(steps, leapfrog_steps=2),
        max_steps=steps,
    )
    return model


def correlated() -> tuple[torch.Tensor, torch.Tensor]:
    i = torch.arange(20.0, dtype=DOUBLE)
    x = torch.stack((i.sin(), i.sin() + 0.1 * (2 * i).cos()), 1)
    y = x @ torch.tensor([1.0, -2.0], dtype=DOUBLE) + 0.3 * (7 * i).sin()
    return x, (y - y.mean()) / y.std(correction=0)


def test_weights_that_go_together_are_sampled_as_if_they_did_not() -> None:
    """A posterior correlation of -.994: at least ten times the effective draws, and the exact law.

    Means of 1,280 draws to 5 / sqrt(1280) deviations and half more, covariances likewise.
    """
    x, y = correlated()
    worth = []
    for masses in ("diagonal", "dense"):
        model = chained(masses, 160, x, y)
        off = model.draws - model.draws.mean((0, 1))
        worth.append(float(effective_sample_size(torch.cat((off, off.square()), 2)).min()))
    assert worth[1] > 10 * worth[0] and worth[1] > 640
    V = torch.linalg.inv(x.T @ x / 0.3 + 2e-4 * torch.eye(2, dtype=DOUBLE))
    draws, scale = model.draws.flatten(0, 1), V.diagonal().sqrt()
    assert abs(float(V[0, 1] / scale.prod())) > 0.99
    assert ((draws.mean(0) - V @ x.T @ y / 0.3) / scale).abs().max() < 5 / 1280**0.5 * 1.5
    off = (draws.T.cov() - V) / torch.outer(scale, scale)
    assert off.abs().max() < 5 * (2 / 1280) ** 0.5 * 1.5


def test_a_covariance_of_too_few_positions_and_one_of_langevin_steps_are_refused() -> None:
    x, y = correlated()
    with pytest.raises(ValueError, match=r"twice as many positions of the warm-up as coordinates, 2: got 0"):
        chained("dense", 2, x, y)
    with pytest.raises(ValueError, match="mass_matrix of Langevin steps must be diagonal: got dense"):
        chained("dense", 2, x, y, langevin_sampling(2))
