"""Continuation: closed forms of the smoothing, the minimum that plain descent misses, and its refusals."""

import math

import pytest
import torch
from torch import Generator, nn

from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, NonFiniteError, State, descent, fit
from margin.engine.methods.continuation import continuation, continued, smoothed

HERE = Batch((torch.zeros(1, dtype=torch.float64),))
SIGMA = 1.5


def waves(x):
    return (x**2 / 10 - torch.cos(5 * x)).sum()


def exact(x, s):
    """E J(x + (1 - s) sigma z) in closed form."""
    w = (1 - s) * SIGMA
    return ((x**2 + w**2) / 10 - torch.cos(5 * x) * math.exp(-((5 * w) ** 2) / 2)).sum()


def start(at=3.0):
    return torch.tensor([at], dtype=torch.float64)


def sampled(draws, seed=0):
    return smoothed(waves, SIGMA, draws=draws, generator=Generator().manual_seed(seed))


@pytest.mark.parametrize("family", [exact, sampled(400)], ids=["closed form", "draws"])
def test_it_ends_at_the_lowest_minimum_where_descent_stays_in_another(family):
    path = continued(family, start(), stages=15, steps=30, lr=0.05)
    assert path.shape == (15, 1)
    assert path[-1].abs() <= 1e-3
    alone = continued(lambda x, s: waves(x), start(), stages=2, steps=100, lr=0.05)
    x = alone[-1].requires_grad_()
    assert torch.autograd.grad(waves(x), x)[0].abs() <= 1e-9  # a minimum, another one
    assert 2 < x.item() < 3


@pytest.mark.parametrize("s", [0.0, 0.4, 0.9, 1.0])
def test_the_mean_over_draws_is_the_gaussian_smoothing(s):
    """20,000 pairs: the standard error is at most 0.011, five of them fail once in 10^6."""
    x = start(1.3)
    gap = abs(sampled(20_000)(x, s) - exact(x, s))
    assert gap <= 0.055
    if s == 1:
        assert gap == 0


def test_pairs_leave_linear_functions_alone_and_draws_are_kept():
    family = smoothed(lambda x: 3 * x.sum(), 2.0, draws=1, generator=Generator().manual_seed(0))
    assert abs(family(start(), 0.0) - 9) <= 1e-12
    family = sampled(3)
    assert family(start(), 0.3) == family(start(), 0.3) != sampled(3, seed=1)(start(), 0.3)


class Point(nn.Module):
    def __init__(self, at):
        super().__init__()
        self.x = nn.Parameter(torch.as_tensor(at, dtype=torch.float64).clone())


def state_at(at, lr=0.05):
    model = Point(at)
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=lr)}, seed=4)


def objective(model, batch, generator):
    return waves(model.x)[None]


def test_as_a_rule_it_finds_what_descent_misses():
    """Each of 200 coordinates is a start with draws of its own; nine of ten end at 0, 3/4 surely."""
    begin = torch.full((200,), 3.0, dtype=torch.float64)
    state = state_at(begin)
    step = continuation(objective, GradientUpdate(), 300, sigma=SIGMA, draws=4)
    fit(state, lambda k: HERE, step, max_steps=300)
    assert (state.model.x.abs() <= 1e-3).double().mean() > 0.75
    other = state_at(begin)
    fit(other, lambda k: HERE, descent(objective, GradientUpdate()), max_steps=300)
    assert (other.model.x > 2).all()


def test_the_smoothing_falls_along_a_straight_line_and_ends():
    state = state_at([0.5])
    step = continuation(objective, GradientUpdate(), 10, sigma=0.4, until=0.5)
    widths = []
    fit(state, lambda k: HERE, step, max_steps=10, hooks=[lambda s, m: widths.append(m["smoothing"])])
    assert widths == pytest.approx([0.4, 0.32, 0.24, 0.16, 0.08, 0, 0, 0, 0, 0], abs=1e-15)


def test_the_gradient_is_the_mean_at_two_opposite_points():
    # on a quadratic the moves cancel, on a quartic they add 12 x w^2 z^2
    for power, z_matters in ((2, False), (4, True)):
        state = state_at([0.5], lr=1.0)
        step = continuation(lambda m, b, g, k=power: m.x**k, GradientUpdate(), 10, sigma=0.4)
        step(state, HERE)
        moved = 0.5 - state.model.x.item() - power * 0.5 ** (power - 1)
        assert (moved > 1e-6) == z_matters
        assert z_matters or abs(moved) <= 1e-14


def test_without_smoothing_it_is_descent_to_the_bit():
    one, other = state_at([3.0]), state_at([3.0])
    fit(one, lambda k: HERE, continuation(objective, GradientUpdate(), 5, sigma=0.0), max_steps=5)
    fit(other, lambda k: HERE, descent(objective, GradientUpdate()), max_steps=5)
    assert torch.equal(one.model.x, other.model.x)


def test_what_is_not_finite_moves_nothing():
    def cliff(model, batch, generator):
        return torch.where(model.x != 1, math.inf, model.x)

    state = state_at([1.0])
    with pytest.raises(NonFiniteError, match="loss inf at step 0"):
        continuation(cliff, GradientUpdate(), 5)(state, HERE)
    assert state.model.x.item() == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": -1.0}, r"sigma must be at least 0 and finite: got -1\.0"),
        ({"draws": 0}, "draws must be at least 1: got 0"),
        ({"until": 0.0}, r"until must be in \(0, 1\]: got 0\.0"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        continuation(objective, GradientUpdate(), 10, **options)


def test_paths_and_families_out_of_range_are_refused():
    with pytest.raises(ValueError, match="stages must be at least 2 and steps at least 1: got 1 and 5"):
        continued(exact, start(), stages=1, steps=5, lr=0.1)
    with pytest.raises(ValueError, match="lr must be positive and finite: got nan"):
        continued(exact, start(), stages=2, steps=5, lr=math.nan)
    with pytest.raises(ValueError, match="sigma must be at least 0"):
        smoothed(waves, -1.0, draws=3, generator=Generator())
    with pytest.raises(ValueError, match="continuation needs whole weights"):
        continuation(objective, GradientUpdate(synchronized=True), 10)
