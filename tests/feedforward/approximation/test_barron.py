"""Barron's bound: C_f by closed forms and integrals, greedy nets under it, the wrong convention refuted."""

import math

import pytest
import torch
from scipy.integrate import quad
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.approximation.barron import (
    GreedyNet,
    Spectral,
    ball,
    barron_bound,
    cosine,
    gaussian,
    greedy,
    steepest,
)
from margin.feedforward.approximation.barron_claims import demo, greedy_bound, is_greedy

WAVE = torch.tensor([3.0, -4.0])


def net_of(target: Spectral, radius: float, *, points: int = 300, seed: int = 0, **options) -> Subject:
    g = torch.Generator().manual_seed(seed)
    x = ball(points, target.dimension, radius, g)
    options = {"candidates": 150, **options}
    return asked(greedy(target, x, radius, generator=g, **options), x)


def asked(net: nn.Module, x: torch.Tensor, weight: torch.Tensor | None = None) -> Subject:
    batch = Batch((x,), torch.zeros(len(x)).double(), weight)
    return Subject(model=net, test=[batch], task=VALUES, objective=risk(VALUES))


def test_the_norm_of_a_wave_is_its_frequency() -> None:
    wave = cosine(WAVE)
    assert wave.norm == 5.0
    x = torch.tensor([[0.1, 0.2], [1.0, -1.0]]).double()
    assert wave.function(x).tolist() == pytest.approx([math.cos(-0.5), math.cos(7.0)])


@pytest.mark.parametrize("dimension", [1, 2, 3, 8])
def test_the_norm_of_a_gaussian_is_the_mean_of_a_chi_variable(dimension: int) -> None:
    d = dimension
    closed = math.sqrt(2) * math.gamma((d + 1) / 2) / math.gamma(d / 2)
    assert gaussian(d).norm == pytest.approx(closed, rel=1e-12)
    # |w| times the normal density, integrated over shells of R^d
    shell = 2 * math.pi ** (d / 2) / math.gamma(d / 2) / (2 * math.pi) ** (d / 2)
    integral, _ = quad(lambda r: shell * r**d * math.exp(-(r**2) / 2), 0, 40)
    assert gaussian(d).norm == pytest.approx(integral, rel=1e-9)
    assert gaussian(1).norm == pytest.approx(math.sqrt(2 / math.pi))
    assert gaussian(2).norm == pytest.approx(math.sqrt(math.pi / 2))
    # the function has this transform: in one variable by the integral of the cosine
    if d == 1:
        value, _ = quad(lambda w: math.cos(0.7 * w) * math.exp(-(w**2) / 2) / math.sqrt(2 * math.pi), -40, 40)
        assert float(gaussian(1).function(torch.tensor([[0.7]], dtype=torch.float64))) == pytest.approx(
            value, abs=1e-12
        )


@pytest.mark.parametrize(("target", "radius"), [(cosine(WAVE), 1.0), (gaussian(1), 3.0), (gaussian(5), 2.0)])
@pytest.mark.parametrize("seed", range(2))
def test_greedy_nets_of_1_to_64_units_keep_the_bound(target: Spectral, radius: float, seed: int) -> None:
    subject = net_of(target, radius, seed=seed)
    (batch,) = subject.test
    stages = subject.model.stages(batch.inputs[0])
    errors = (stages - target.function(batch.inputs[0])[:, None]).square().mean(0)
    for m in range(1, 65):
        assert float(errors[m - 1]) <= (2 * radius * target.norm) ** 2 / m
    assert float(errors[63]) < float(errors[0]) / 3
    found = greedy_bound(subject)
    assert found.scope == "exists"
    assert found.verdict is Verdict.HOLDS
    assert found.value.tolist() == pytest.approx([float(errors[m - 1]) for m in (1, 2, 4, 8, 16, 32, 64)])


@pytest.mark.parametrize("factor", [1.0, 1 / (2 * math.pi)])
def test_the_norm_in_cycles_without_2_pi_fails(factor: float) -> None:
    """With frequencies in cycles, as printed, C_f lacks 2 pi: then f is steeper than C_f, which it cannot be,
    and the greedy net in the hull of height 2 r C_f stays above the bound."""
    right = cosine(torch.tensor([6.0]))
    subject = net_of(right._replace(norm=right.norm * factor), 1.0)
    found = greedy_bound(subject)
    if factor == 1:
        assert found.verdict is Verdict.HOLDS
        return
    assert found.premises[0].status == "refuted"
    assert found.verdict is Verdict.UNFOUNDED
    assert float(found.value[-1]) > 2 * float(found.high[-1])


@pytest.mark.parametrize("target", [cosine(WAVE), gaussian(1), gaussian(2)])
def test_no_function_is_steeper_than_its_norm(target: Spectral) -> None:
    x = ball(4000, target.dimension, 2.0, torch.Generator().manual_seed(0))
    assert steepest(target.function, x) <= target.norm * (1 + 1e-12)
    # for a wave this is an equality, so that nothing smaller than the norm will do
    if target.norm == 5:
        assert steepest(target.function, x) == pytest.approx(5, rel=1e-4)
    else:
        assert steepest(target.function, x) == pytest.approx(math.exp(-0.5), rel=1e-3)


def test_a_net_that_is_worse_than_the_bound_violates_nothing() -> None:
    """The theorem says that some net is as good; another may be worse: measured."""
    net = GreedyNet(gaussian(2), 0.01, units=64)
    net.constants.fill_(5.0)
    found = greedy_bound(asked(net, ball(50, 2, 0.01, torch.Generator().manual_seed(0))))
    assert float(found.value[0]) > float(found.high[0])
    assert found.verdict is Verdict.MEASURED


def test_points_outside_of_the_ball_are_unfounded() -> None:
    subject = net_of(gaussian(2), 1.0, units=2)
    far = asked(subject.model, 3 * subject.test[0].inputs[0])
    assert greedy_bound(far).verdict is Verdict.UNFOUNDED
    assert greedy_bound(far).premises[1].status == "refuted"
    with pytest.raises(ValueError, match=r"in the ball of radius 1 of R\^2"):
        greedy(gaussian(2), torch.full((3, 2), 2.0), 1.0, generator=torch.Generator())
    with pytest.raises(ValueError, match=r"in the ball of radius 1 of R\^3"):
        greedy(gaussian(3), torch.zeros(3, 2), 1.0, generator=torch.Generator())


def test_points_are_counted_by_their_weight() -> None:
    subject = net_of(gaussian(1), 1.0, units=4)
    x = subject.test[0].inputs[0]
    weight = (torch.arange(len(x)) % 3).double()
    weighted = greedy_bound(asked(subject.model, x, weight))
    copied = greedy_bound(asked(subject.model, x.repeat_interleave(weight.long(), 0)))
    torch.testing.assert_close(weighted.value, copied.value)
    # a point of weight 0 need not lie in the ball, and may be no number
    odd = torch.where((weight == 0)[:, None], 50.0, x)
    assert greedy_bound(asked(subject.model, odd, weight)).verdict is Verdict.HOLDS


def test_the_last_stage_is_the_net_itself_and_coefficients_stay_in_the_hull() -> None:
    subject = net_of(cosine(WAVE), 1.0, units=20)
    net, (batch,) = subject.model, subject.test
    torch.testing.assert_close(net(batch.inputs[0]), net.stages(batch.inputs[0])[:, -1])
    assert bool((net.coefficients.abs().sum(1) <= 2 * 1.0 * 5.0 * (1 + 1e-12)).all())
    assert bool((net.coefficients.triu(1) == 0).all())  # the net of m units has m


def test_a_norm_that_is_only_said_is_assumed() -> None:
    subject = net_of(gaussian(1)._replace(known=""), 1.0, units=2)
    assert greedy_bound(subject).assuming == ("the integral of |w| |f~(w)| is at most 0.7979, w in radians",)
    assert greedy_bound(demo()).assuming == ()


def test_points_of_the_ball_fill_it_evenly() -> None:
    """Of 4,000 points of the ball of R^3 the share within r/2 is 1/8 up to 4.5 standard errors."""
    x = ball(4000, 3, 2.0, torch.Generator().manual_seed(0))
    r = torch.linalg.vector_norm(x, dim=1)
    assert float(r.max()) <= 2
    assert abs(float((r < 1).double().mean()) - 1 / 8) < 4.5 * math.sqrt(7 / 64 / 4000)


def test_arguments_out_of_range_are_refused() -> None:
    for radius, norm, units in ((0.0, 1.0, 1), (1.0, -1.0, 1), (1.0, 1.0, 0), (math.nan, 1.0, 1)):
        with pytest.raises(ValueError, match="radius > 0, norm >= 0 and units >= 1"):
            barron_bound(radius, norm, units)
    assert barron_bound(1.5, 2.0, 9) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="at least 1: got 0"):
        gaussian(0)
    assert not is_greedy(asked(nn.Identity(), torch.zeros(2, 1)))
    with pytest.raises(ValueError, match="greedy net of a known function: got Identity"):
        greedy_bound(asked(nn.Identity(), torch.zeros(2, 1)))
