"""Flows of couplings: densities that integrate to 1, laws of their samples, what they refuse."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.engine.objectives import negative_log_density
from margin.generative.autoencoder.interpolation import slerp
from margin.generative.flow.coupling import PIECE
from margin.generative.flow.realnvp import CouplingFlow, neural_spline_flow, realnvp

BUILDERS = (realnvp, neural_spline_flow)


def begun(build: object, features: int = 2, seed: int = 0, **options: object) -> CouplingFlow:
    torch.manual_seed(seed)
    flow: CouplingFlow = build(features, **options)  # type: ignore[operator]
    with torch.no_grad():  # away from the identity
        for network in flow.couplings.networks:
            network[-1].weight.mul_(5)  # type: ignore[index]
    return flow


def moons(count: int, noise: float = 0.1) -> Tensor:
    generator = Generator().manual_seed(0)
    t = math.pi * torch.rand(count, generator=generator)
    upper = torch.rand(count, generator=generator) < 0.5
    x = torch.where(upper, t.cos(), 1 - t.cos())
    y = torch.where(upper, t.sin(), 0.5 - t.sin())
    points = torch.stack((x, y), 1)
    points = points + noise * torch.randn(points.shape, generator=generator)
    return (points - points.mean(0)) / points.std(0)


def fitted(flow: CouplingFlow, x: Tensor, steps: int) -> CouplingFlow:
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        (-flow.log_prob(x)).mean().backward()
        optimizer.step()
    return flow


def mass(flow: CouplingFlow, side: float, cells: int) -> float:
    """The midpoint rule on a square grid."""
    ends = torch.linspace(-side, side, cells + 1, dtype=torch.float64)
    middle = (ends[1:] + ends[:-1]) / 2
    with torch.no_grad():
        log_density = flow.double().log_prob(torch.cartesian_prod(middle, middle))
    return float(log_density.exp().sum() * (2 * side / cells) ** 2)


@pytest.mark.parametrize(("build", "layers", "steps"), [(realnvp, 6, 200), (neural_spline_flow, 2, 80)])
def test_the_density_of_two_moons_integrates_to_1_and_its_map_inverts(
    build: object, layers: int, steps: int
) -> None:
    """Trained until it is far from a Gaussian: what a wrong log-determinant would show."""
    x = moons(256)
    flow = fitted(begun(build, layers=layers, hidden=(32,)), x, steps)
    with torch.no_grad():
        gaussian = torch.distributions.MultivariateNormal(x.mean(0), x.T.cov())
        gain = float((flow.log_prob(x) - gaussian.log_prob(x)).mean())
        z, _ = flow.transform(x)
        assert float((flow.inverse(z) - x).abs().max()) < 1e-5
        assert gain > 0.2
        assert mass(flow, 6.0, 300) == pytest.approx(1.0, abs=2e-3)
        z, _ = flow.transform(x.double())
        assert float((flow.inverse(z) - x.double()).abs().max()) < 1e-10


@pytest.mark.parametrize("build", BUILDERS)
def test_the_log_density_is_that_of_the_noise_and_the_jacobian(build: object) -> None:
    flow = begun(build, 5).double()
    x = torch.randn(3, 5, generator=Generator().manual_seed(1), dtype=torch.float64)
    for row in x:
        J = torch.func.jacrev(lambda one: flow.transform(one[None])[0][0])(row)
        z = flow.transform(row[None])[0]
        expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum() + torch.linalg.slogdet(J).logabsdet
        assert float(flow(row[None]).detach()) == pytest.approx(float(expected.detach()), abs=1e-10)


@pytest.mark.parametrize("build", BUILDERS)
def test_samples_have_the_density(build: object) -> None:
    """The share of samples in a triangle beside the density's integral over it: 4 standard errors, 6e-5."""
    flow = begun(build, seed=3, layers=3, hidden=(16,)).double()
    x = flow.sample(20_000, generator=Generator().manual_seed(0))
    inside = (x.abs() < 4).all(1)
    share = float((inside & (x.sum(1) > 0.5)).double().mean())
    ends = torch.linspace(-4, 4, 161, dtype=torch.float64)
    middle = (ends[1:] + ends[:-1]) / 2
    points = torch.cartesian_prod(middle, middle)
    with torch.no_grad():
        p = flow.log_prob(points).exp() * 0.05**2
    there = float(p[points.sum(1) > 0.5].sum())
    error = 4 * math.sqrt(0.25 / 20_000) + 2e-3
    assert float(p.sum()) == pytest.approx(float(inside.double().mean()), abs=error)
    assert share == pytest.approx(there, abs=error)


def test_many_rows_have_the_densities_of_few() -> None:
    flow = begun(realnvp).double()
    x = torch.randn(PIECE + 7, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        together = flow(x)
        torch.testing.assert_close(together[-9:], flow(x[-9:]), atol=1e-12, rtol=0)
    assert torch.equal(
        flow.sample(3, generator=Generator().manual_seed(5)),
        flow.sample(3, generator=Generator().manual_seed(5)),
    )


def test_temperature_scales_the_noise() -> None:
    flow = begun(realnvp)
    cold = flow.sample(50, generator=Generator().manual_seed(2), temperature=0.5)
    z = flow.transform(cold)[0]
    torch.testing.assert_close(z, 0.5 * flow.noise(50, Generator().manual_seed(2)), atol=1e-4, rtol=0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"temperature must be positive"):
            flow.sample(1, generator=Generator(), temperature=bad)


def test_a_path_joins_two_samples_in_the_noise() -> None:
    flow = begun(neural_spline_flow, 4)
    path = flow.interpolate(9, generator=Generator().manual_seed(1))
    ends = flow.sample(2, generator=Generator().manual_seed(1))
    torch.testing.assert_close(path[[0, -1]], ends)
    first, last = flow.noise(2, Generator().manual_seed(1))
    arc = slerp(first, last, torch.linspace(0, 1, 9))
    torch.testing.assert_close(flow.transform(path)[0], arc, atol=1e-5, rtol=0)


def test_any_shape_is_flattened_and_the_objective_is_its_negative() -> None:
    flow = begun(realnvp, 6)
    x = torch.randn(3, 2, 3, generator=Generator().manual_seed(0))
    torch.testing.assert_close(flow(x), flow(x.flatten(1)))
    loss = negative_log_density(flow, Batch((x,)), Generator())
    torch.testing.assert_close(loss, -flow(x))


@pytest.mark.parametrize("build", BUILDERS)
def test_no_rows_have_no_densities(build: object) -> None:
    flow = begun(build, 3)
    assert flow(torch.zeros(0, 3)).shape == (0,)
    assert flow.inverse(torch.zeros(0, 3)).shape == (0, 3)


def test_one_feature_has_no_halves() -> None:
    for build in BUILDERS:
        with pytest.raises(ValueError, match=r"a coupling moves half of the features by the other: got 1"):
            build(1)
