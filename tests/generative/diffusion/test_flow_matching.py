"""Flow matching against Gaussian data, whose velocity, flow and density are known; what it refuses."""

import math
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from torch.distributions import MultivariateNormal

from margin.generative.diffusion.flow_matching import CLOCK, EXACT, FlowMatching, Method
from margin.generative.diffusion.networks import conditional_flow_matching as conditional_points
from margin.generative.diffusion.networks import flow_matching as points

MEAN = torch.tensor([2.0, -1.0], dtype=torch.float64)
COVARIANCE = torch.tensor([[0.25, 0.2], [0.2, 1.5]], dtype=torch.float64)


class Known(nn.Module):
    """E[x_1 - x_0 | x_t] of Gaussian data: the regression of one Gaussian on another."""

    def __init__(self, mean: Tensor, covariance: Tensor) -> None:
        super().__init__()
        self.mean, self.covariance = mean, covariance

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        t = (t / CLOCK)[:, None, None]
        eye = torch.eye(len(self.mean), dtype=x.dtype)
        of_x = (1 - t) ** 2 * eye + t**2 * self.covariance
        of_both = t * self.covariance - (1 - t) * eye
        away = (x - t[:, 0] * self.mean)[..., None]
        return self.mean + (of_both @ torch.linalg.solve(of_x, away))[..., 0]


def known(mean: Tensor = MEAN, covariance: Tensor = COVARIANCE) -> FlowMatching:
    return FlowMatching(Known(mean, covariance), (len(mean),)).double()


def test_the_loss_of_the_best_velocity_is_what_x_t_does_not_tell() -> None:
    """The variance of x_1 - x_0 given x_t, over even times; 20,000 rows, 4.5 standard errors (7e-6)."""
    model, g = known(), Generator().manual_seed(0)
    x1 = MEAN + torch.randn(20_000, 2, generator=g, dtype=torch.float64) @ torch.linalg.cholesky(COVARIANCE).T
    loss = model.loss(x1, g)
    eye, total = torch.eye(2, dtype=torch.float64), 0.0
    for t in (np.arange(500) + 0.5) / 500:
        of_x = (1 - t) ** 2 * eye + t**2 * COVARIANCE
        of_both = t * COVARIANCE - (1 - t) * eye
        left = COVARIANCE + eye - of_both @ torch.linalg.solve(of_x, of_both)
        total += float(left.trace()) / 500
    assert float(loss.mean()) == pytest.approx(total, abs=4.5 * float(loss.std()) / math.sqrt(20_000))


def test_a_network_of_zeros_costs_the_distance_of_the_ends() -> None:
    """E|x_1 - x_0|^2 = |x_1|^2 + d; the times it is told are even between 0 and 1000."""
    told: list[Tensor] = []

    class Zero(nn.Module):
        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            told.append(t)
            return torch.zeros_like(x)

    model = FlowMatching(Zero(), (3,))
    loss = model.loss(torch.full((4000, 3), 2.0), Generator().manual_seed(0))
    assert float(loss.mean()) == pytest.approx(15, abs=4.5 * float(loss.std()) / math.sqrt(4000))
    assert torch.bincount((told[0] / 100).long(), minlength=10).tolist() == [400] * 10


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 3), ("heun", 2)])
def test_the_flow_of_one_number_is_affine_at_the_methods_order(method: Method, order: int) -> None:
    """x_1 = mu + s x_0: in one dimension the flow keeps quantiles.

    The midpoint rule gains an order here, as its density in two dimensions does not.
    """
    model = known(MEAN[:1], COVARIANCE[:1, :1])
    x0 = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]
    counts, gaps = (16, 32, 64, 128), []
    for steps in counts:
        found = model.carried(x0, method, steps, 0.0, None)
        gaps.append(float((found - (2 + 0.5 * x0)).abs().max()))
    assert all(b < a for a, b in pairwise(gaps))
    fitted = -np.polyfit(np.log(counts), np.log(gaps), 1)[0]
    assert fitted == pytest.approx(order, abs=0.2), gaps


@pytest.mark.parametrize("method", get_args(Method))
def test_a_point_is_reached_in_one_step_of_euler(method: Method) -> None:
    """Data in one point: the paths are straight lines that meet there only, and one step is exact."""
    model = known(MEAN, torch.zeros(2, 2, dtype=torch.float64))
    if method == "heun":  # it asks at t = 1, where the velocity of a point is 0 / 0
        return
    x = model.sample(4, generator=Generator().manual_seed(0), sampler=method, steps=1)
    torch.testing.assert_close(x, MEAN.expand(4, 2))


def test_the_density_is_that_of_the_data() -> None:
    """A correlated Gaussian: the error falls as steps^-2, to 1e-5 nats at 160 steps."""
    model, law = known(), MultivariateNormal(MEAN, COVARIANCE)
    g = Generator().manual_seed(0)
    x = MEAN + torch.randn(50, 2, generator=g, dtype=torch.float64) @ torch.linalg.cholesky(COVARIANCE).T
    gaps = [
        float((model.log_density(x, steps=n) - law.log_prob(x)).detach().abs().max()) for n in (40, 80, 160)
    ]
    assert gaps[2] < 1e-5
    assert all(3.5 < a / b < 5 for a, b in pairwise(gaps)), gaps
    assert float((model(x) - law.log_prob(x)).detach().abs().max()) < 2e-3


def test_of_many_numbers_the_divergence_is_estimated_without_bias() -> None:
    """Random signs are exact for a diagonal Jacobian; for another, over many draws, the trace."""
    d = EXACT + 4
    law = known(torch.zeros(d).double(), torch.diag(torch.linspace(0.5, 2, d).double()))
    x = torch.randn(6, d, generator=Generator().manual_seed(0), dtype=torch.float64)
    assert len(law.probes(x)) < d
    wanted = MultivariateNormal(torch.zeros(d).double(), law.network.covariance).log_prob(x)  # type: ignore[arg-type]
    torch.testing.assert_close(law.log_density(x, steps=100), wanted, rtol=0, atol=1e-3)
    full = known(torch.zeros(d).double(), torch.eye(d).double() + 0.2)
    g = Generator().manual_seed(1)
    signs = 2 * torch.randint(0, 2, (2000, d), generator=g).double() - 1
    jacobian = torch.autograd.functional.jacobian(
        lambda y: full.velocity(y[None], y.new_full((1,), 0.6))[0], x[0]
    )
    trace = float(jacobian.trace())
    each = torch.einsum("ki,ij,kj->k", signs, jacobian, signs)
    assert float(each.mean()) == pytest.approx(trace, abs=4.5 * float(each.std()) / math.sqrt(2000))
    found = full.divergence(x[:1], 0.6, signs[:50] / math.sqrt(50))[1]
    assert float(found) == pytest.approx(float(each[:50].mean()), abs=1e-9)


def test_a_density_leaves_no_trace_and_has_a_gradient_where_one_is_asked() -> None:
    model = points(2, hidden=8, depth=1)
    with torch.no_grad():
        model.network.leave.weight.normal_(generator=Generator().manual_seed(0))  # type: ignore[union-attr, operator]
        x = torch.randn(5, 2, generator=Generator().manual_seed(1))
        together = model(x)
        torch.testing.assert_close(model(x[1:3]), together[1:3])
        assert not together.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert not x.requires_grad
    known_model, y = known(), torch.tensor([[1.0, 0.5]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(known_model.log_density(y, steps=60).sum(), y)
    wanted = -torch.linalg.solve(COVARIANCE, (y.detach() - MEAN).T).T
    torch.testing.assert_close(slope, wanted, rtol=2e-2, atol=0)


def test_what_it_refuses() -> None:
    model = points(2, hidden=8)
    for steps in (0, -3):
        with pytest.raises(ValueError, match=f"steps must be at least 1: got {steps}"):
            model.sample(2, generator=Generator(), steps=steps)
        with pytest.raises(ValueError, match=f"steps must be at least 1: got {steps}"):
            model.log_density(torch.zeros(1, 2), steps=steps)
    with pytest.raises(ValueError, match="need a model trained on classes: got guidance=1"):
        model.sample(2, generator=Generator(), guidance=1.0)
    with pytest.raises(ValueError, match="label must be from 0 to 2: got 3"):
        conditional_points(2, 3, hidden=8).sample(2, generator=Generator(), label=3)
    with pytest.raises(ValueError, match="drop must be a probability: got 2"):
        conditional_points(2, 3, drop=2.0)
    with torch.no_grad():
        model.network.leave.bias.fill_(math.nan)  # type: ignore[union-attr, operator]
    with pytest.raises(ValueError, match="samples must be finite: got 2 of 2 that are not"):
        model.sample(2, generator=Generator())


def test_classes_are_told_dropped_and_guided() -> None:
    """Two points at -1 and 1, none at 0: w = 0 is the class, -1 none, 1 twice as far from the rest."""
    seen: list[Tensor] = []

    class Toward(nn.Module):
        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            assert label is not None
            seen.append(label)
            places = torch.tensor([-1.0, 1.0, 0.0])
            return places[label][:, None] + 0 * x

    model = FlowMatching(Toward(), (1,), num_classes=2, drop=0.25)
    model.loss(torch.zeros(4000, 1), Generator().manual_seed(0), torch.ones(4000).long())
    none = float((seen[0] == 2).double().mean())
    assert none == pytest.approx(0.25, abs=4.5 * math.sqrt(0.25 * 0.75 / 4000))
    g = Generator().manual_seed(0)
    x0 = torch.randn(4, 1, generator=g)

    def moved(**more: object) -> list[float]:
        x = model.sample(4, generator=Generator().manual_seed(0), **more)  # type: ignore[arg-type]
        return [round(float(y), 5) for y in (x - x0)[:, 0]]

    assert moved() == [-1, 1, -1, 1]
    assert moved(label=1) == [1] * 4
    assert moved(label=1, guidance=-1.0) == [0] * 4
    assert moved(label=1, guidance=1.0) == [2] * 4
    model(torch.zeros(2, 1))
    assert seen[-1].tolist() == [2, 2]
    path = model.interpolate(3, generator=Generator().manual_seed(0))
    torch.testing.assert_close(path[[0, -1]], x0[:2] - 1)
