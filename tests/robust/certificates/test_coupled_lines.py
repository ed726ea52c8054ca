"""Lines around maxima, softmax and normalization: sound at 10,000 points, tight where that can be said."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.robust.certificates.affine_forms import Ball
from margin.robust.certificates.intervals import bounds, margin_bounds
from margin.robust.certificates.linear_bounds import crown_margins, relaxed
from margin.robust.certificates.tape import Tape

WEIGHT = torch.tensor([1.0, -2.0, 0.5, 0.0, 1.5, -1.0], dtype=torch.float64)
BIAS = torch.linspace(-1, 1, 6, dtype=torch.float64)
FUNCTIONS = {
    "max_pool2d, 3 by 2": (lambda x: F.max_pool2d(x, 3, 2), (2, 7, 7)),
    "max_pool2d, padded": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 6, 6)),
    "max_pool2d, 3 by 1": (lambda x: F.max_pool2d(x, 3, 1), (1, 5, 5)),
    "max_pool2d, uneven": (lambda x: F.max_pool2d(x, (3, 2), (2, 1), ceil_mode=True), (1, 6, 5)),
    "max_pool2d, dilated": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), (1, 5, 5)),
    "max_pool2d, apart": (lambda x: F.max_pool2d(x, 2), (2, 4, 4)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2), (2, 9)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 3, 2), (1, 5, 5, 5)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 3), (1, 5, 7)),
    "adaptive_max_pool1d, longer": (lambda x: F.adaptive_max_pool1d(x, 5), (1, 3)),
    "amax": (lambda x: x.amax((1, 3), keepdim=True), (3, 4, 2)),
    "softmax": (lambda x: torch.softmax(x, -1), (3, 5)),
    "softmax of the first axis": (lambda x: F.softmax(x, dim=1), (4, 2)),
    "layer_norm": (lambda x: F.layer_norm(x, (6,), WEIGHT, BIAS), (2, 6)),
    "layer_norm of two axes": (lambda x: F.layer_norm(x, (2, 3), eps=1e-2), (2, 2, 3)),
    "rms_norm": (lambda x: F.rms_norm(x, (6,), WEIGHT), (2, 6)),
    "group_norm": (lambda x: F.group_norm(x, 3, WEIGHT, BIAS), (6, 2, 2)),
}


class Called(nn.Module):
    """One function as a module, in float64."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("kind", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return self.function(x)


def around(function, low, high, module=None):
    """The coefficients and offsets of the lines below and above each coordinate of a function."""
    ball = Ball((low + high) / 2, low, high, 1.0, "linf", torch.ones((), dtype=torch.float64))
    tape = Tape()
    result = bounds(module or Called(function), low, high, tape=tape)
    made = relaxed(tape, ball).at(len(tape.calls) - 1)
    count, found = result.low.numel(), []
    eye = torch.eye(count, dtype=torch.float64).reshape(count, *result.low.shape)
    for sign, offset in ((1.0, made.low), (-1.0, made.high)):
        rows = made.adjoint(sign * eye)[0] * sign if made.adjoint else torch.zeros(count, *low.shape)
        found.append((rows.reshape(count, -1).double(), offset.flatten()))
    return found, result


def box(shape, seed, radius):
    g = torch.Generator().manual_seed(seed)
    middle = 2 * torch.randn(1, *shape, generator=g, dtype=torch.float64)
    wide = radius * torch.rand(1, *shape, generator=g, dtype=torch.float64)
    wide[torch.rand(1, *shape, generator=g) < 0.1] = 0.0
    return middle - wide, middle + wide


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_point_of_random_boxes_leaves_the_lines(name):
    """10,000 points of ten boxes, half of them corners; boxes also of equal ends, as after a clamp.

    Mutants: the largest of all inputs that a window shares left out, ties left out together, a tangent for a
    chord, a mean of squares between the wrong ends.
    """
    function, shape = FUNCTIONS[name]
    for seed in range(10):
        low, high = box(shape, seed, (0.1, 1.0, 4.0)[seed % 3])
        if seed >= 7:
            low, high = low.clamp(-1, 1), high.clamp(-1, 1)
        (below, b), (above, d) = around(function, low, high)[0]
        g = torch.Generator().manual_seed(100 + seed)
        share = torch.rand(1000, *shape, generator=g, dtype=torch.float64)
        share[::2] = (share[::2] > 0.5).double()
        points = low + share * (high - low)
        out, flat = function(points).flatten(1), points.flatten(1)
        assert (flat @ below.T + b <= out).all() and (flat @ above.T + d >= out).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_line_is_farther_at_the_middle_than_the_interval(name):
    """Of the pools the line below alone is not: it is the input that is surely the least far below."""
    function, shape = FUNCTIONS[name]
    gains = []
    for seed in range(6):
        low, high = box(shape, seed, 0.5)
        ((below, b), (above, d)), result = around(function, low, high)
        middle = ((low + high) / 2).flatten()
        under, over = below @ middle + b, above @ middle + d
        assert (over <= result.high.flatten() + 1e-6).all() and (under >= result.low.flatten() - 1e-6).all()
        gains.append(((result.high - result.low).flatten() - (over - under)).mean())
    assert min(gains) > 0


def test_a_maximum_by_hand():
    """Of x in [0, 4] and 1: above the chord from (0, 1) to (4, 4), below x. In [2, 4] it is x itself."""
    for low, slope, offset in ((0.0, 0.75, 1.0), (2.0, 1.0, 0.0)):
        ends = torch.tensor([[[low, 1.0, 1.0]]]).double(), torch.tensor([[[4.0, 1.0, 1.0]]]).double()
        (_, _), (above, d) = around(lambda x: F.max_pool1d(x, 3, 2), *ends)[0]
        assert above[0].tolist() == pytest.approx([slope, 0, 0]) and float(d) == pytest.approx(offset)


def test_two_windows_that_share_their_largest_input_are_equal():
    """Windows {0, 1, 2} and {2, 3, 4}, x_2 above all: max - max = 0. Mutant: constant ends, then -2."""
    net = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.MaxPool1d(3, 2), nn.Flatten()).double()
    x = torch.tensor([[0.0, 0.0, 5.0, 0.0, 0.0]]).double()
    one = torch.ones((), dtype=torch.float64)
    ball = Ball(x, x - 1, x + 1, 1.0, "linf", one)
    labels = torch.tensor([0])
    assert float(margin_bounds(net, ball.low, ball.high, labels)[0, 1]) == pytest.approx(-2, abs=1e-9)
    assert float(crown_margins(net, ball, labels)[0, 1]) == pytest.approx(0, abs=1e-9)


def test_equal_lower_ends_leave_no_input_out():
    """-max(relu(x), relu(5 y)) on [0, 1]^2 is -5 at least. Mutant: all of the tied taken for the largest."""
    first, last = nn.Linear(2, 2, bias=False).double(), nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
        last.weight.copy_(torch.tensor([[0.0], [-1.0]]))
    net = nn.Sequential(first, nn.ReLU(), Called(lambda x: x.amax(1, keepdim=True)), last)
    x = torch.full((1, 2), 0.5, dtype=torch.float64)
    ball = Ball(x, x - 0.5, x + 0.5, 0.5, "linf", torch.ones((), dtype=torch.float64))
    assert float(crown_margins(net, ball, torch.tensor([1]))[0, 0]) == pytest.approx(-5, abs=1e-9)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "group_norm"])
def test_of_a_small_box_the_lines_are_off_by_its_square(name):
    """A box a tenth as wide has lines a hundredth as far apart; intervals are a tenth as wide."""
    function, shape = FUNCTIONS[name]
    middle = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    far = []
    for eps in (1e-2, 1e-3):
        ((below, b), (above, d)), result = around(function, middle - eps, middle + eps)
        at = middle.flatten()
        far.append(((above @ at + d - below @ at - b).max(), (result.high - result.low).max()))
    (wide, interval), (narrow, small) = far
    assert wide / narrow > 80 and interval / small < 15


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "group_norm"])
@pytest.mark.parametrize("shift", [0.0, 30.0, 1000.0])
def test_the_models_own_rounding_is_between_the_lines(name, shift):
    """Of points, in float32, a mean far from 0 included. Mutant: lines of exact arithmetic."""
    shape = FUNCTIONS[name][1]
    norms = {"layer_norm": nn.LayerNorm(6), "group_norm": nn.GroupNorm(3, 6), "rms_norm": nn.RMSNorm(6)}
    function = norms.get(name, nn.Softmax(-1))
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        x = shift + torch.randn(1, *shape, generator=g)
        with torch.no_grad():
            (below, b), (above, d) = around(function, x.double(), x.double(), function)[0]
            out, at = function(x).double().flatten(), x.double().flatten()
        assert (below @ at + b <= out).all() and (above @ at + d >= out).all()
        assert (above @ at + d - below @ at - b).max() > 0


@pytest.mark.parametrize("lows", [(0.0, -3.0), (0.0, 0.0)])
def test_of_equal_upper_ends_one_is_the_largest(lows):
    """Of x and y up to 1. Mutant: both taken for the largest, then their mean lies above the maximum."""
    low, high = torch.tensor([lows]).double(), torch.ones(1, 2).double()
    (below, b), (above, d) = around(lambda x: x.amax(1, keepdim=True), low, high)[0]
    for point in ((1.0, lows[1]), (lows[0], 1.0), (1.0, 1.0), lows):
        at = torch.tensor(point).double()
        assert below[0] @ at + b <= max(point) <= above[0] @ at + d
