"""Markov chains: detailed balance on finite ones, reversible trajectories, stationary laws in closed form."""

import pytest
import torch

from margin.bayes.linear.regression import posterior, reduced
from margin.bayes.mcmc.chains import (
    hamiltonian,
    imbalance,
    leapfrog,
    metropolis_hastings,
    overdamped_langevin,
    underdamped_langevin,
)

DOUBLE = torch.float64


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def finite(states: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    law = torch.rand(states, generator=generator(), dtype=DOUBLE) + 0.05
    proposal = torch.rand(states, states, generator=generator().manual_seed(1), dtype=DOUBLE)
    return law / law.sum(), proposal / proposal.sum(1, keepdim=True)


def test_metropolis_hastings_is_in_detailed_balance_and_the_inverted_ratio_is_not() -> None:
    law, proposal = finite()
    P = metropolis_hastings(law, proposal)
    assert torch.allclose(P.sum(1), torch.ones(6, dtype=DOUBLE)) and bool((P >= 0).all())
    assert imbalance(law, P) < 1e-15 and torch.allclose(law @ P, law, atol=1e-15)
    inverted = metropolis_hastings(1 / law, proposal.T / proposal.T.sum(1, keepdim=True))
    assert imbalance(law, inverted) > 1e-2
    flow = law[:, None] * proposal
    printed = proposal * (flow / flow.T).clamp(max=1)
    printed = printed - torch.diag(printed.diagonal()) + torch.diag(1 - printed.sum(1) + printed.diagonal())
    assert imbalance(law, printed) > 1e-2 and not torch.allclose(law @ printed, law, atol=1e-3)


def test_detailed_balance_alone_does_not_make_the_law_the_only_one() -> None:
    identity = torch.eye(3, dtype=DOUBLE)
    for law in (torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1.0, 0.0, 0.0])):
        assert imbalance(law.double(), identity) == 0


def quartic(theta: torch.Tensor) -> torch.Tensor:
    return (theta**4 / 4 + theta.prod(1, keepdim=True) / 3).sum(1)


def test_leapfrog_is_reversible_keeps_volume_and_errs_by_the_square_of_its_step() -> None:
    mass = torch.tensor([0.5, 2.0], dtype=DOUBLE)
    theta = torch.tensor([[0.7, -0.4]], dtype=DOUBLE)
    v = torch.tensor([[0.3, 1.1]], dtype=DOUBLE)
    new, w = leapfrog(quartic, theta, v, mass, 0.1, 7)
    back, u = leapfrog(quartic, new, -w, mass, 0.1, 7)
    assert torch.allclose(back, theta, atol=1e-13) and torch.allclose(-u, v, atol=1e-13)

    def moved(z: torch.Tensor) -> torch.Tensor:
        return torch.cat(leapfrog(quartic, z[None, :2], z[None, 2:], mass, 0.1, 7), 1)[0]

    z, e = torch.cat((theta, v), 1)[0], 1e-6
    eye = torch.eye(4, dtype=DOUBLE)
    J = torch.stack([(moved(z + e * d) - moved(z - e * d)) / (2 * e) for d in eye], 1)
    assert float(torch.linalg.det(J)) == pytest.approx(1, abs=1e-7)
    errors = []
    for steps in (20, 40):
        a, b = leapfrog(quartic, theta, v, mass, 1 / steps, steps)
        errors.append(float(quartic(a) - quartic(theta) + ((b**2 - v**2) / mass).sum() / 2))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


def test_hamiltonian_draws_are_the_exact_posterior_of_a_linear_gaussian_model() -> None:
    """200 chains of 100 draws after 20: means to 5 standard errors over chains, covariance to 10 %."""
    x = torch.randn(30, 2, generator=generator(), dtype=DOUBLE)
    y = x @ torch.tensor([1.0, -2.0], dtype=DOUBLE) + 0.5 * torch.randn(
        30, generator=generator(), dtype=DOUBLE
    )
    xc, yc = x - x.mean(0), y - y.mean()
    exact = posterior(
        reduced(x, y, torch.ones(30, dtype=DOUBLE)), torch.tensor(0.25).double(), torch.tensor(1.5).double()
    )

    def energy(theta: torch.Tensor) -> torch.Tensor:
        return (yc - theta @ xc.T).square().sum(1) / 0.5 + theta.square().sum(1) / 3

    start = torch.zeros(200, 2, dtype=DOUBLE)
    found = hamiltonian(energy, start, draws=120, step=0.05, steps=8, generator=generator())
    kept = found.states[20:]
    error = kept.mean(0).std(0) / 200**0.5
    assert bool(((kept.mean((0, 1)) - exact.mean).abs() < 5 * error).all())
    assert torch.allclose(kept.flatten(0, 1).T.cov(), exact.covariance, rtol=0.1, atol=2e-4)
    assert float(found.acceptance.min()) > 0.8 and not found.divergent.any()


def test_a_step_far_too_large_is_reported_as_divergent_and_never_accepted() -> None:
    start = torch.ones(4, 2, dtype=DOUBLE)
    found = hamiltonian(quartic, start, draws=5, step=50.0, steps=5, generator=generator())
    assert found.divergent.tolist() == [5.0] * 4
    assert torch.equal(found.states[-1], start)
    with pytest.raises(ValueError, match="step size above 0"):
        hamiltonian(quartic, start, draws=1, step=0.0, steps=5, generator=generator())


@pytest.mark.parametrize(("curvature", "step"), [(1.0, 1.0), (2.0, 0.5)])
def test_overdamped_langevin_has_its_exact_discrete_variance(curvature: float, step: float) -> None:
    """At step 1 and curvature 1 it is 4/3; of 20,000 chains to five standard errors of a variance, 5 %."""
    start = torch.zeros(20_000, 1, dtype=DOUBLE)
    found = overdamped_langevin(lambda t: curvature * t, start, draws=40, step=step, generator=generator())
    exact = 1 / (curvature * (1 - step * curvature / 4))
    assert float(found[-1].var()) == pytest.approx(exact, rel=0.05)
    assert abs(exact - 1 / curvature) > 0.1 / curvature


def test_underdamped_langevin_tends_to_the_law_and_the_printed_noise_does_not() -> None:
    start = torch.zeros(20_000, 1, dtype=DOUBLE)
    found = underdamped_langevin(
        lambda t: 2 * t, start, draws=400, step=0.05, friction=2.0, generator=generator()
    )
    assert float(found[-1].var()) == pytest.approx(0.5, rel=0.08)
    theta, v, noise = start, torch.zeros_like(start), generator()
    for _ in range(400):  # 2 eta g in the place of its root: the temperature is 2 eta g, here a fifth
        xi = torch.randn(theta.shape, generator=noise, dtype=DOUBLE)
        v = (1 - 0.1) * v - 0.05 * 2 * theta + 2 * 0.1 * xi
        theta = theta + 0.05 * v
    assert float(theta.var()) == pytest.approx(0.2 * 0.5, rel=0.08)
    with pytest.raises(ValueError, match="step times friction must be in"):
        underdamped_langevin(lambda t: t, start, draws=1, step=1.0, friction=1.0, generator=generator())
