"""Breakpoints along segments: none is missing, none is spurious, whatever the network is made of."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.data.preprocess import Standardize
from margin.theory.regions import segments as regions_segments
from margin.theory.regions.followed import CannotFollow, NotPiecewiseLinear
from margin.theory.regions.segments import breakpoints


class Residual(nn.Module):
    """Sums with what was before the last kinks, written in place, and the number of examples read early."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        count = x.shape[0]
        h = self.relu(self.first(x))
        h = h.clone()
        h += x
        h = self.relu(self.second(h)) - 0.5 * x
        return self.last(h.view(count, 2, 3).reshape(count, -1))


class Pointwise(nn.Module):
    """Two affine maps around a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.function(3 * self.first(x)))


class Convolves(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            pool,
            nn.Conv2d(3, 4, 2),
            nn.LeakyReLU(),
        )
        self.top = nn.Linear(4, 3)

    def forward(self, x):
        x = F.interpolate(x.view(-1, 1, 2, 3), size=(4, 6), mode="bilinear")
        return self.top(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class PoolsPadded(nn.Module):
    """Largest values of windows that reach over the border, where all values are negative."""

    def __init__(self, **arguments):
        super().__init__()
        self.first, self.pool = nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(**arguments)
        self.top = nn.Linear(self.pool(torch.zeros(1, 2, 5, 7)).numel(), 3)

    def forward(self, x):
        x = self.first(F.interpolate(x.view(-1, 1, 2, 3), size=(5, 7), mode="bilinear")) - 9
        return self.top(self.pool(x).flatten(1))


def mlp(*widths):
    made = []
    for a, b in itertools.pairwise(widths[:-1]):
        made += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*made, nn.Linear(*widths[-2:]))


def normalized():
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    net(torch.randn(50, 6, generator=torch.Generator().manual_seed(3)))
    return nn.Sequential(Standardize(torch.arange(6.0), torch.arange(1.0, 7.0)), net)


POINTWISE = [
    nn.ReLU(),
    nn.LeakyReLU(0.2),
    nn.PReLU(8),
    torch.abs,
    nn.ReLU6(),
    nn.Hardtanh(-0.5, 0.7),
    nn.Hardsigmoid(),
    nn.Softshrink(0.3),
    lambda x: x.clamp(-1.0, 2.0),
    lambda x: x.clamp(max=0.5),
    lambda x: torch.clamp_min(x, 0.2),
    lambda x: torch.maximum(x, 1 - x.flip(-1)),
    lambda x: torch.minimum(x, torch.zeros(8).to(x)),
    lambda x: torch.cat((x[:, :4].relu(), -x[:, 4:].abs()), 1),
    lambda x: x.unflatten(1, (2, 4)).relu().transpose(1, 2).flatten(1) / 2 + x.sum(1, keepdim=True),
]


def nets():
    makers = [lambda function=function: Pointwise(function) for function in POINTWISE]
    makers += [lambda: mlp(6, 12, 10, 8, 3), Residual, normalized]
    makers += [
        lambda pool=pool: Convolves(pool) for pool in (nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 1))
    ]
    makers += [
        lambda arguments=arguments: PoolsPadded(**arguments)
        for arguments in (
            {"kernel_size": 3, "stride": 1, "padding": 1},
            {"kernel_size": 3, "stride": 2, "ceil_mode": True},
            {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
            {"kernel_size": (2, 3), "stride": (3, 2), "padding": (1, 0), "ceil_mode": True},
        )
    ]
    return makers


def built(make, seed=0):
    torch.manual_seed(seed)
    return make().double().eval().requires_grad_(False)


def segments(count=7, dim=6, seed=1, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    a, b = scale * torch.randn(2, count, dim, generator=generator, dtype=torch.float64)
    return a, b


def at(starts, ends, segment, position):
    return torch.lerp(starts[segment], ends[segment], position[:, None])


@pytest.mark.parametrize("make", nets())
def test_between_breakpoints_the_network_is_affine_and_at_each_it_bends(make):
    net = built(make)
    starts, ends = segments()
    found = breakpoints(net, starts, ends)
    assert int(found.activation_regions.sum()) > 7
    # No kink that an output feels is missing: at random points the network is the interpolation.
    generator = torch.Generator().manual_seed(2)
    for k in range(len(starts)):
        own = found.segment == k
        position, outputs = found.position[own], found.outputs[own]
        assert bool((position.diff() > 0).all()) and position[0] == 0 and position[-1] == 1
        t = torch.rand(200, generator=generator, dtype=torch.float64)
        cell = torch.searchsorted(position, t) - 1
        share = (t - position[cell]) / (position[cell + 1] - position[cell])
        expected = torch.lerp(outputs[cell], outputs[cell + 1], share[:, None])
        real = net(at(starts, ends, torch.full((200,), k), t))
        torch.testing.assert_close(real, expected, rtol=0, atol=1e-10)
        # The slopes of the network itself, by automatic differentiation, decide which breakpoints bend it.
        middle = ((position[1:] + position[:-1]) / 2).requires_grad_()
        out = net(at(starts, ends, torch.full((len(middle),), k), middle))
        slopes = torch.stack([torch.autograd.grad(y.sum(), middle, retain_graph=True)[0] for y in out.T], 1)
        bends = (slopes.diff(dim=0).abs() > 1e-9 * slopes.abs().max()).any(1)
        assert torch.equal(found.bends[own][1:-1], bends)
        assert int(found.linear_regions[k]) == 1 + int(bends.sum())


class Tells(nn.Module):
    """A network whose outputs are all its pre-activations."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 9), nn.Linear(9, 9), nn.Linear(9, 9)])

    def forward(self, x):
        told = []
        for layer in self.layers:
            told.append(layer(x))
            x = told[-1].relu()
        return torch.cat(told, 1)


def test_every_breakpoint_is_the_zero_of_exactly_one_neuron_and_patterns_differ():
    net = built(Tells)
    starts, ends = segments(count=20)
    found = breakpoints(net, starts, ends)
    last = found.segment.diff(append=torch.tensor([99])) != 0
    inner = (found.position > 0) & (found.position < 1)
    told = net(at(starts, ends, found.segment, found.position))
    assert bool(((told[inner].abs() < 1e-12).sum(1) == 1).all())
    middles = ((found.position[1:] + found.position[:-1]) / 2)[~last[:-1]]
    own = found.segment[:-1][~last[:-1]]
    patterns = net(at(starts, ends, own, middles)) > 0
    for k in range(20):
        mine = patterns[own == k]
        assert len(mine.unique(dim=0)) == len(mine) == int(found.activation_regions[k])
        # A neuron changes side once for each of its zeros: none was missed in the grid's resolution.
        grid = net(at(starts, ends, torch.full((4001,), k), torch.linspace(0, 1, 4001).double())) > 0
        assert int((grid[1:] != grid[:-1]).sum()) <= len(mine) - 1
    assert found.layers == [("", 9)] * 3


def test_relu_of_x_less_relu_of_minus_x_has_an_activation_boundary_and_no_linear_one():
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        net[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
    found = breakpoints(net, torch.tensor([[-1.0]]), torch.tensor([[3.0]]))
    assert found.position.tolist() == [0, 0.25, 1]  # both neurons there: one vertex
    assert int(found.activation_regions) == 2 and int(found.linear_regions) == 1


def test_kinks_at_the_ends_and_along_the_segment_are_none():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
        net[0].bias.copy_(torch.tensor([0.0, 0.0, -1.0]))
    # At both ends the first or the third neuron is 0; the second is 0 all along.
    found = breakpoints(net, torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    assert int(found.activation_regions) == 1
    # A segment of a point has one region too.
    assert int(breakpoints(net, torch.ones(1, 2), torch.ones(1, 2)).linear_regions) == 1


def test_one_breakpoint_is_at_the_ratio_of_the_ends():
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU()).double()
    with torch.no_grad():
        net[0].weight.fill_(3.0)
        net[0].bias.fill_(-1.0)
    found = breakpoints(net, torch.tensor([[0.0], [-1.0]]), torch.tensor([[1.0], [0.1]]))
    assert found.position.tolist() == pytest.approx([0, 1 / 3, 1, 0, 1], abs=1e-15)
    assert found.activation_regions.tolist() == [2, 1]


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_chunks_change_nothing(chunk, monkeypatch):
    net = built(lambda: mlp(6, 12, 10, 3))
    whole = breakpoints(net, *segments())
    parts = breakpoints(net, *segments(), chunk=chunk)
    for one, other in zip(whole[:-1], parts[:-1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    # A layer of 12 numbers at 30 vertices: segments are followed in halves until they fit.
    monkeypatch.setattr(regions_segments, "MEMORY", 8 * 12 * 30)
    halves = breakpoints(net, *segments(), chunk=chunk)
    torch.testing.assert_close(whole.position, halves.position, rtol=1e-12, atol=1e-12)
    assert torch.equal(whole.segment, halves.segment)
    monkeypatch.setattr(regions_segments, "MEMORY", 8 * 12)
    with pytest.raises(ArithmeticError, match="do not fit in memory"):
        breakpoints(net, *segments(), chunk=chunk)


def test_what_has_no_room_for_one_vertex_more_is_not_searched(monkeypatch):
    """Of millions of values, the list of all crossings takes many times the values' own memory."""
    monkeypatch.setattr(regions_segments, "MEMORY", 8 * 12 * 2)  # the ends of a segment, and no more
    monkeypatch.setattr(regions_segments.Chains, "_crossings", lambda *_: pytest.fail("searched"))
    with pytest.raises(ArithmeticError, match="12 values at 3 breakpoints do not fit in memory"):
        breakpoints(built(lambda: mlp(6, 12, 10, 3)), *segments())


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.tanh, "tanh"),
        (nn.GELU(), "gelu"),
        (nn.LayerNorm(8), "layer_norm"),
        (lambda x: x.softmax(1), "softmax"),
        (lambda x: x * x, "multiplies values that depend on the input"),
        (torch.sign, "sign"),
    ],
)
def test_what_is_curved_or_jumps_is_refused_by_name(function, name):
    net = built(lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU(), Pointwise(function)))
    with pytest.raises(NotPiecewiseLinear, match=name) as error:
        breakpoints(net, *segments())
    assert "layer '2" in str(error.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.einsum("bi->bi", x),
        lambda x: x - x.mean(0),
        lambda x: x.numpy(),
        lambda x: torch.zeros(1, 8),
        lambda x: x.flatten(),
        lambda x: x.view(-1, 2, 4).relu_().flatten(1) + x,  # overwrites what is read again
        lambda x: F.max_pool2d(x[:, None, None], (1, 2), dilation=(1, 2)),
    ],
)
def test_what_cannot_be_followed_is_said_to_be_so(function):
    with pytest.raises(CannotFollow, match="cannot be followed"):
        breakpoints(built(lambda: Pointwise(function)), *segments())


def test_outputs_that_depend_on_the_other_examples_are_found_out():
    net = built(lambda: Pointwise(lambda x: x.relu() + x.roll(1, 0)))
    with pytest.raises(CannotFollow, match="own outputs differ"):
        breakpoints(net, *segments())


def test_what_is_not_finite_fails():
    net = built(lambda: mlp(6, 4, 3))
    net[0].bias[1] = math.nan
    with pytest.raises(ArithmeticError, match="not finite"):
        breakpoints(net, *segments())


def test_hooks_are_taken_off_even_after_an_error():
    net = built(lambda: Pointwise(torch.tanh))
    with pytest.raises(NotPiecewiseLinear):
        breakpoints(net, *segments())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_there_must_be_a_segment():
    net = built(lambda: mlp(6, 4, 3))
    with pytest.raises(ValueError, match="at least 1: got 0 and 32"):
        breakpoints(net, torch.zeros(0, 6), torch.zeros(0, 6))
    with pytest.raises(ValueError, match="at least 1: got 7 and 0"):
        breakpoints(net, *segments(), chunk=0)
