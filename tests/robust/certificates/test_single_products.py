"""Bounds whose products are in float32: they hold those of exact arithmetic, and little more.

What is expected comes from fractions, or from bounds in float64 of the model's copy in float64.
"""

import copy
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from tests.robust.certificates.test_linear_bounds import ball
from torch import nn

from margin.robust.certificates.interval_arithmetic import Box, linear_map
from margin.robust.certificates.intervals import bounds, margin_bounds
from margin.robust.certificates.linear_bounds import crown_margins

SINGLE = torch.float32


def mlp(seed, *sizes):
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def convolutional(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, stride=2, groups=2, bias=False),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(6, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3 * 4 * 4, 20),
        nn.ReLU(),
        nn.Linear(20, 4),
    ).eval()


def exactly(net, low, high):
    """Interval bounds in fractions of a stack of dense layers and rectifiers, for one example."""
    ends = [[Fraction(v) for v in part.tolist()] for part in (low, high)]
    for layer in net:
        if isinstance(layer, nn.ReLU):
            ends = [[max(v, Fraction(0)) for v in part] for part in ends]
            continue
        rows, found = layer.weight.tolist(), ([], [])
        for row, b in zip(rows, layer.bias.tolist(), strict=True):
            w = [Fraction(v) for v in row]
            for k in (0, 1):
                own = [ends[k if v > 0 else 1 - k][i] * v for i, v in enumerate(w)]
                found[k].append(sum(own, Fraction(b)))
        ends = list(found)
    return ends


def outside(box, ends):
    """How many of the exact ends lie outside the box, and how far it reaches beyond them at most."""
    least, most = (part.tolist()[0] for part in (box.low, box.high))
    pairs = list(zip(map(Fraction, least), map(Fraction, most), *ends, strict=True))
    wrong = sum((a > x) + (b < y) for a, b, x, y in pairs)
    return wrong, max(float(max(x - a, b - y)) for a, b, x, y in pairs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.1])
def test_they_hold_those_of_exact_arithmetic_and_little_more(seed, eps):
    net = mlp(seed, 12, 40, 30, 3)
    x = torch.rand(1, 12, generator=torch.Generator().manual_seed(seed))
    low, high = x.double() - eps, x.double() + eps
    found = bounds(net, low, high, products=SINGLE)
    wrong, beyond = outside(found, exactly(net, low[0], high[0]))
    size = max(found.low.abs().max(), found.high.abs().max(), 1.0)
    assert wrong == 0 and 0 < beyond <= 1e-4 * size


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_product_without_bias_or_radius_is_held_by_the_size_of_its_terms_alone(sign):
    net, x = mlp(0, 300, 200), sign * torch.rand(1, 300, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        net[0].bias.zero_()
    assert outside(bounds(net, x, x, products=SINGLE), exactly(net, x[0], x[0]))[0] == 0


def test_without_their_rounding_they_do_not(monkeypatch):
    net, x = mlp(0, 300, 200, 3), torch.rand(1, 300, generator=torch.Generator().manual_seed(0))
    ends = exactly(net, x[0], x[0])
    assert outside(bounds(net, x, x, products=SINGLE), ends)[0] == 0
    monkeypatch.setattr(Box, "gamma", lambda self, terms: 1e-30)
    assert outside(bounds(net, x, x, products=SINGLE), ends)[0] > 0


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.05])
def test_of_convolutions_they_hold_those_in_float64_and_little_more(eps):
    net, generator = convolutional(0), torch.Generator().manual_seed(0)
    for part in net:
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-1, 1), part.running_var.uniform_(0.3, 2)
    x = torch.randn(20, 2, 13, 13, generator=generator).double()
    found = bounds(net, x - eps, x + eps, products=SINGLE)
    exact = bounds(copy.deepcopy(net).double(), x - eps, x + eps)
    off = torch.maximum(exact.low - found.low, found.high - exact.high)
    assert (torch.minimum(exact.low - found.low, found.high - exact.high) > 0).all()
    assert off.max() <= 1e-4 * max(1.0, float(exact.magnitude.max()))


def test_products_are_taken_in_float32_where_asked_and_only_of_models_in_it(monkeypatch):
    kinds, plain = [], F.linear

    def linear(x, *rest):
        kinds.extend([x.dtype] if type(x) is torch.Tensor else [])
        return plain(x, *rest)

    monkeypatch.setattr("margin.robust.certificates.interval_rules.F.linear", linear)
    x = torch.rand(2, 4)
    for net, products in (
        (mlp(0, 4, 3), SINGLE),
        (mlp(0, 4, 3), torch.float64),
        (mlp(0, 4, 3).double(), SINGLE),
    ):
        bounds(net, x, x, products=products)
    assert kinds == 2 * [torch.float32] + 4 * [torch.float64]


def test_a_constant_that_float32_does_not_hold_is_not_rounded_to_it():
    """Weights of 1 and 1 + 2^-40: their difference is lost in float32."""
    weight = torch.tensor([[1.0 + 2.0**-40, -1.0]], dtype=torch.float64)
    x = torch.full((1, 2), 1e6, dtype=torch.float64)
    made = linear_map(F.linear, Box(x, x, SINGLE, products=SINGLE), weight, None, 2)
    assert made.ends[0].dtype == torch.float64 and made.low <= 1e6 * 2.0**-40 <= made.high


def test_sums_that_overflow_on_the_way_are_not_bounded():
    net = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[2.0, -2.0, 1.0], [1.0, 0.0, 0.0]]))
    x = torch.tensor([[2e38, 2e38, 1.0]])
    found = bounds(net, x, x, products=SINGLE)
    assert found.low[0, 0] == -torch.inf and found.high[0, 0] == torch.inf
    assert found.low[0, 1] <= 2e38 <= found.high[0, 1]


@pytest.mark.parametrize("bias", [True, False])
def test_products_that_underflow_are_held(bias):
    net = nn.Linear(50, 1, bias=bias)
    with torch.no_grad():
        net.weight.fill_(1e-30)
        if bias:
            net.bias.zero_()
    x = torch.full((1, 50), 1e-20, dtype=torch.float64)
    found = bounds(net, x, x, products=SINGLE)
    assert found.low < 0 and found.high >= 50e-50


def test_margins_that_are_0_exactly_are_not_certified():
    """Two equal rows: the margin is 0 everywhere, whatever the rounding."""
    net = mlp(1, 20, 30, 2)
    with torch.no_grad():
        net[-1].weight[1] = net[-1].weight[0]
        net[-1].bias[1] = net[-1].bias[0]
    x = torch.rand(500, 20, generator=torch.Generator().manual_seed(0))
    labels, at = torch.zeros(500, dtype=torch.long), ball(x, 0.0)
    for below in (margin_bounds(net, x, x, labels), crown_margins(net, at, labels)):
        assert (below[:, 1] <= 0).all() and (below[:, 1] > -1e-3).all()


def linear_net(seed):
    """Dense layers with rectifiers that are always on: linear, so CROWN is exact but for rounding."""
    torch.manual_seed(seed)
    net = mlp(seed, 200, 150, 100, 2)
    with torch.no_grad():
        for part, shift in zip(net[:-1:2], (4.0, 40.0), strict=True):
            part.bias.fill_(shift)
    return net


def exact_margin(net, x, eps, label):
    """The least margin of a linear network over the box, in fractions."""
    rows = None
    constant = Fraction(0)
    for layer in reversed([part for part in net if isinstance(part, nn.Linear)]):
        weight = [[Fraction(v) for v in row] for row in layer.weight.tolist()]
        if rows is None:
            rows = [Fraction(1 if k == label else -1) for k in range(len(weight))]
        constant += sum(r * Fraction(b) for r, b in zip(rows, layer.bias.tolist(), strict=True))
        rows = [sum(r * row[i] for r, row in zip(rows, weight, strict=True)) for i in range(len(weight[0]))]
    total = sum(r * Fraction(v) for r, v in zip(rows, x.tolist(), strict=True))
    return constant + total - Fraction(eps) * sum(abs(r) for r in rows)


def test_linear_bounds_lie_below_the_exact_margin_and_without_their_rounding_above_some(monkeypatch):
    net, eps = linear_net(0), 2.0**-7
    x = torch.rand(6, 200, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    exact = [exact_margin(net, row, eps, label) for row, label in zip(x, labels.tolist(), strict=True)]

    def excess():
        found = crown_margins(net, ball(x, eps), labels).gather(1, 1 - labels[:, None])[:, 0]
        return [float(Fraction(a) - b) for a, b in zip(found.tolist(), exact, strict=True)]

    size = float(net(x).detach().abs().max())
    off = excess()
    assert max(off) < 0 and min(off) > -3e-3 * size
    monkeypatch.setattr(Box, "gamma", lambda self, terms: 1e-30)
    assert max(excess()) > 0


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.1])
def test_linear_bounds_of_convolutions_are_those_in_float64_less_their_rounding(eps):
    net = convolutional(1)
    x = torch.randn(8, 2, 13, 13, generator=torch.Generator().manual_seed(0))
    labels = net(x).argmax(1)
    at = ball(x, eps)
    found, exact = crown_margins(net, at, labels), crown_margins(copy.deepcopy(net).double(), at, labels)
    off = F.one_hot(labels, 4) == 0
    assert (found < exact)[off].all()
    size = margin_bounds(copy.deepcopy(net).double(), at.low, at.high, labels).abs().max()
    assert (exact - found).max() <= 1e-4 * max(1.0, float(size))


def test_a_slope_that_underflows_on_its_way_back_is_held():
    """The slope 6e-26 times 1e-20 is 0 to float32, and of -1e37 the margin is -6e-9 all the same."""
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        net[0].weight.fill_(6e-26)
        net[1].weight.copy_(torch.tensor([[1e-20], [0.0]]))
        low, high = net(torch.tensor([[-1e37], [1e37]])).diff(dim=1).neg().flatten().tolist()
    assert low == pytest.approx(-6e-9, rel=1e-5)
    found = crown_margins(net, ball(torch.zeros(1, 1), 1e37), torch.tensor([0]))
    assert found[0, 1] <= low < high
