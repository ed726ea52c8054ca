"""Every interval rule by brute force: the float32 values of sampled points and corners lie in the bounds."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.data.preprocess import Standardize
from margin.robust.certificates.interval_arithmetic import Box, NoIntervalRule
from margin.robust.certificates.interval_rules import GELU_BOTTOM, MISH_BOTTOM, SILU_BOTTOM
from margin.robust.certificates.intervals import bounds, propagate

POINTS = 10_000


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def batch_norm(layer):
    layer.running_mean.uniform_(-1, 1)
    layer.running_var.uniform_(0.2, 3)
    nn.init.uniform_(layer.weight, -2, 2)
    nn.init.uniform_(layer.bias, -1, 1)
    return layer


def weight_norm():
    return nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))


ELEMENTWISE = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "leaky_relu falling": lambda: nn.LeakyReLU(-0.5),
    "prelu": lambda: nn.PReLU(init=-0.3),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": lambda: nn.ELU(1.7),
    "celu": lambda: nn.CELU(0.6),
    "selu": nn.SELU,
    "softplus": nn.Softplus,
    "softplus jumping": lambda: nn.Softplus(beta=2.0, threshold=1.0),
    "hardtanh": lambda: nn.Hardtanh(-0.5, 1.5),
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "gelu": nn.GELU,
    "gelu tanh": lambda: nn.GELU(approximate="tanh"),
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "softsign": nn.Softsign,
    "logsigmoid": nn.LogSigmoid,
    "abs": lambda: Call(torch.abs),
    "square": lambda: Call(lambda x: x**2),
    "exp": lambda: Call(torch.exp),
    "atan": lambda: Call(torch.atan),
    "clamp": lambda: Call(lambda x: x.clamp(min=-0.3)),
    "neg": lambda: Call(lambda x: -x),
    "1 - x": lambda: Call(lambda x: 1 - x),
    "-2.5 x + 3": lambda: Call(lambda x: -2.5 * x + 3),
    "x / -3": lambda: Call(lambda x: x / -3),
}

LAYERS = {
    "linear": (lambda: nn.Linear(6, 4), (6,)),
    "linear without bias": (lambda: nn.Linear(6, 4, bias=False), (6,)),
    "linear over time": (lambda: nn.Linear(3, 4), (5, 3)),
    "weight norm": (weight_norm, (6,)),
    "x @ W": (lambda: Call(lambda x: x @ torch.linspace(-1, 1, 12).reshape(6, 2).to(x)), (6,)),
    "W @ x": (lambda: Call(lambda x: torch.linspace(-1, 1, 8).reshape(2, 4).to(x) @ x), (4, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding=1, dilation=2), (2, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 5, 6)),
    "conv2d groups": (lambda: nn.Conv2d(4, 4, 2, groups=2, bias=False), (4, 4, 4)),
    "conv2d same": (lambda: nn.Conv2d(2, 3, 3, padding="same", dilation=2), (2, 5, 5)),
    "conv2d reflect": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 4, 4)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    "conv transpose": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1), (3, 3, 3)),
    "average pool": (lambda: nn.AvgPool2d(2, padding=1), (2, 5, 5)),
    "average pool 1d": (lambda: nn.AvgPool1d(3, stride=2), (2, 7)),
    "adaptive average": (lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 5, 5)),
    "max pool": (lambda: nn.MaxPool2d(2, stride=1, padding=1), (2, 4, 4)),
    "adaptive max": (lambda: nn.AdaptiveMaxPool2d(2), (2, 5, 5)),
    "batch norm 1d": (lambda: batch_norm(nn.BatchNorm1d(5)), (5,)),
    "batch norm 2d": (lambda: batch_norm(nn.BatchNorm2d(3)), (3, 2, 2)),
    "batch norm plain": (lambda: nn.BatchNorm2d(3, affine=False), (3, 2, 2)),
    "standardize": (lambda: Standardize(torch.tensor([1.0, -2.0, 0.1]), torch.tensor([0.3, 7.0, 1.0])), (3,)),
    "bilinear": (lambda: Call(lambda x: F.interpolate(x, size=(7, 11), mode="bilinear")), (1, 4, 5)),
    "bilinear corners": (lambda: nn.UpsamplingBilinear2d(scale_factor=3), (1, 4, 5)),
    "bilinear smaller": (lambda: Call(lambda x: F.interpolate(x, size=(3, 2), mode="bilinear")), (1, 5, 7)),
    "bilinear antialiased": (
        lambda: Call(lambda x: F.interpolate(x, size=(3, 9), mode="bilinear", antialias=True)),
        (1, 8, 5),
    ),
    "nearest": (lambda: nn.Upsample(size=(7, 11)), (1, 4, 5)),
    "linear resizing": (lambda: Call(lambda x: F.interpolate(x, size=9, mode="linear")), (2, 4)),
    "flatten, unflatten": (lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (4, 3))), (2, 6)),
    "dropout": (lambda: nn.Sequential(nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout()), (2, 3, 3)),
    "identity": (nn.Identity, (3,)),
    "mean": (lambda: Call(lambda x: x.mean((2, 3))), (2, 3, 3)),
    "sum": (lambda: Call(lambda x: x.sum(-1, keepdim=True)), (2, 6)),
    "masked": (lambda: Call(lambda x: x.masked_fill(torch.arange(5) > 2, 0.1)), (2, 5)),
    "masked in place": (lambda: Call(lambda x: (2 * x).masked_fill_(torch.arange(5) > 2, -7.3)), (2, 5)),
    "where": (lambda: Call(lambda x: torch.where(torch.arange(5) > 2, x, 3 * x)), (2, 5)),
    "where constant": (lambda: Call(lambda x: torch.where(torch.arange(5) > 2, 0.7, x)), (2, 5)),
    "where as a method": (lambda: Call(lambda x: x.where(torch.arange(5) > 2, -x)), (2, 5)),
    "max of an axis": (lambda: Call(lambda x: x.max(1).values), (4, 3)),
    "min of an axis": (lambda: Call(lambda x: torch.min(x, dim=2, keepdim=True)[0]), (4, 3)),
    "max of two": (lambda: Call(lambda x: torch.max(x, -x)), (4, 3)),
    "gathered": (lambda: Call(lambda x: x.gather(1, torch.tensor([[2, 0]]).expand(len(x), 2))), (3,)),
    "addmm": (lambda: Call(lambda x: torch.addmm(torch.ones(2), x, torch.ones(3, 2).to(x), alpha=2)), (3,)),
    "logsumexp": (lambda: Call(lambda x: (30 * x).logsumexp(-1)), (4, 3)),
    "largest": (lambda: Call(lambda x: torch.amax(x, 1)), (5,)),
    "indexing": (lambda: Call(lambda x: x[:, [2, 0], ..., None]), (3, 2)),
    "permuted": (lambda: Call(lambda x: x.permute(0, 2, 1).reshape(x.shape[0], -1)), (3, 2)),
    "padding": (lambda: Call(lambda x: F.pad(x, (1, 2), value=0.5)), (3,)),
    "cat": (lambda: Call(lambda x: torch.cat([x, torch.zeros_like(x), 2 * x], dim=1)), (3,)),
    "stack of halves": (lambda: Call(lambda x: torch.stack((-x, x), -1) / 2), ()),
    "chunks": (lambda: Call(lambda x: x.chunk(2, dim=1)[0] - x.chunk(2, dim=1)[1]), (4,)),
    "product": (lambda: Call(lambda x: x[:, 0] * x[:, 1]), (2,)),
    "sum of branches": (lambda: Call(lambda x: torch.tanh(x) + x), (3,)),
    "difference": (lambda: Call(lambda x: torch.sub(x[:, 0], x[:, 1], alpha=3)), (2,)),
    "maximum": (lambda: Call(lambda x: torch.maximum(x[:, 0], torch.tensor(0.1))), (2,)),
    "minimum": (lambda: Call(lambda x: torch.minimum(x[:, 0], x[:, 1])), (2,)),
    "constants that float32 rounds": (
        lambda: Call(
            lambda x: torch.cat([torch.maximum(x, x.new_full((2,), 0.1)), torch.full_like(x, 0.3)], 1)
        ),
        (2,),
    ),
    "padding by a rounded constant": (lambda: Call(lambda x: F.pad(x, (1, 0), value=0.1)), (2,)),
    "into constants": (lambda: Call(lambda x: x.new_ones(3) - x.view(x.size(0), -1)), (3,)),
    "converted": (lambda: Call(lambda x: x.float().to(x.dtype).contiguous()), (3,)),
    "overwritten": (lambda: Call(lambda x: (2 * x).mul_(-1).add_(1).relu_()), (3,)),
}


def box(shape, seed, width):
    generator = torch.Generator().manual_seed(seed)
    center = 2 * torch.randn(1, *shape, generator=generator)
    radius = width * torch.rand(1, *shape, generator=generator)
    return center - radius, center + radius


def points(low, high, count, seed=0):
    """Uniform points, corners, the center and both ends; all in the box in float32."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, *low.shape[1:])
    t = torch.rand(shape, generator=generator)
    t[: count // 2] = (t[: count // 2] > 0.5).float()
    x = torch.maximum(torch.minimum(low + t * (high - low), high), low)
    return torch.cat([x, (low + high) / 2, low, high])


@pytest.mark.parametrize("name", [*ELEMENTWISE, *LAYERS])
@pytest.mark.parametrize("width", [0.0, 0.05, 3.0])
def test_no_float32_value_escapes(name, width):
    torch.manual_seed(0)
    build, shape = (ELEMENTWISE[name], (50,)) if name in ELEMENTWISE else LAYERS[name]
    module = build().eval()
    low, high = box(shape, 1, width)
    found = bounds(module, low, high)
    with torch.no_grad():
        y = module(points(low, high, 1000 if name in ELEMENTWISE else POINTS))
    assert y.dtype == torch.float32
    assert found.low.shape == (1, *y.shape[1:])
    assert bool(((found.low <= y) & (y <= found.high)).all())


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_bounds_of_a_function_of_one_number_are_its_range(name):
    torch.manual_seed(0)
    module = ELEMENTWISE[name]().double().eval()
    low = torch.linspace(-4, 3, 40, dtype=torch.float64)[None]
    high = low + torch.linspace(0.1, 5, 40, dtype=torch.float64)
    found = bounds(module, low, high)
    with torch.no_grad():
        y = module(low + torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None] * (high - low))
    # The grid misses an extreme by at most slope x step, and softplus with threshold 1 falls by .16.
    slack = 0.17 if "jumping" in name else 5e-3
    assert (found.low <= y.amin(0)).all() and (y.amin(0) - found.low).max() < slack
    assert (found.high >= y.amax(0)).all() and (found.high - y.amax(0)).max() < slack


LINEAR_MAPS = [name for name in LAYERS if name.split()[0] in ("linear", "conv1d", "conv2d", "conv3d", "conv")]
LINEAR_MAPS.remove("conv2d reflect")  # two maps: the padding repeats coordinates, which intervals forget
LINEAR_MAPS += [
    "average pool",
    "adaptive average",
    "batch norm 2d",
    "bilinear",
    "standardize",
    "W @ x",
    "x @ W",
]


@pytest.mark.parametrize("name", LINEAR_MAPS)
def test_bounds_of_one_affine_layer_are_exact(name):
    # The matrix of an affine map from autograd; its range over a box is W mu + b -+ |W| r.
    torch.manual_seed(0)
    build, shape = LAYERS[name]
    module = build().double().eval()
    low, high = (end.double() for end in box(shape, 2, 1.0))
    center, radius = (low + high) / 2, (high - low) / 2
    W = torch.autograd.functional.jacobian(lambda x: module(x)[0].flatten(), center)[:, 0].flatten(1)
    middle, reach = module(center).detach().flatten(), W.abs() @ radius.flatten()
    found = propagate(module, Box(low, high))
    torch.testing.assert_close(found.low.detach().flatten(), middle - reach, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.high.detach().flatten(), middle + reach, rtol=0, atol=1e-12)


def test_the_bottoms_of_the_valleys_are_stationary():
    cases = [(F.gelu, GELU_BOTTOM["none"]), (F.silu, SILU_BOTTOM), (F.mish, MISH_BOTTOM)]
    cases += [(lambda x: F.gelu(x, approximate="tanh"), GELU_BOTTOM["tanh"])]
    for function, bottom in cases:
        x = torch.tensor(bottom, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(function(x), x)
        assert abs(slope) < 1e-14


def test_cancelling_sums_of_large_terms_stay_inside_at_a_single_point():
    # The float32 sum is wrong in its leading digits; bounds of the exact value alone would miss it.
    torch.manual_seed(3)
    layer = nn.Linear(2000, 20)
    layer.weight.data = 1e4 * torch.randn(20, 2000)
    layer.weight.data[:, 1000:] = -layer.weight.data[:, :1000] + 1e-3 * torch.randn(20, 1000)
    x = torch.randn(1, 1000).repeat(1, 2)
    found = bounds(layer, x, x)
    exact = (x.double() @ layer.weight.double().T + layer.bias.double()).detach()
    with torch.no_grad():
        y = layer(x).double()
    assert (y - exact).abs().max() > 1e-3
    assert ((found.low <= y) & (y <= found.high)).all()
    assert ((found.low <= exact) & (exact <= found.high)).all()


@pytest.mark.parametrize(("mode", "source", "target"), [("nearest", 4, 94), ("linear", 3000, 8999)])
def test_resizing_is_bounded_as_float32_does_it(mode, source, target):
    # In float64 another pixel is the nearest, and the weights differ in the fourth digit.
    x = ((-1.0) ** torch.arange(source))[None, None]
    resize = lambda x: F.interpolate(x, size=target, mode=mode)
    assert (resize(x) - resize(x.double())).abs().max() > 1e-4
    found = bounds(Call(resize), x, x)
    assert ((found.low <= resize(x)) & (resize(x) <= found.high)).all()
    assert (found.high - found.low).max() < 1e-5


class Centered(nn.Module):
    """Weights less their mean, computed at every forward: float32 cancels what float64 keeps."""

    def __init__(self, noise):
        super().__init__()
        self.weight = nn.Parameter(7 + noise * torch.randn(4, 6))

    def forward(self, x):
        return F.linear(x, self.weight - self.weight.mean(1, keepdim=True))


class LessItsMean(nn.Module):
    def forward(self, weight):
        return weight - weight.mean(1, keepdim=True)


def parametrized(noise):
    layer = nn.Linear(6, 4)
    layer.weight.data.mul_(noise).add_(7)
    nn.utils.parametrize.register_parametrization(layer, "weight", LessItsMean())
    return layer


@pytest.mark.parametrize("build", [Centered, parametrized])
@pytest.mark.parametrize(("kind", "noise"), [(torch.float32, 1e-3), (torch.bfloat16, 0.2)])
def test_a_weight_that_the_model_computes_is_the_one_that_it_rounds(build, kind, noise):
    # It is off by the rounding of 7, which is thousands of times what sums of six products may lose of it.
    for seed in range(5):
        torch.manual_seed(seed)
        model = build(noise).to(kind)
        x = torch.rand(2000, 6).to(kind)
        found = bounds(model, x, x)
        with torch.no_grad():
            y = model(x).double()
            off = (model.double()(x.double()) - y).abs()
        assert ((found.low <= y) & (y <= found.high)).all()
        assert (off > found.high - found.low).any()  # a copy in float64 has another weight


def test_rounding_costs_little_where_nothing_cancels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    x = torch.rand(1, 100)
    found = bounds(net, x, x)
    assert (found.high - found.low).max() < 1e-3
    double = bounds(net.double(), x.double(), x.double())
    assert (double.high - double.low).max() < 1e-12


REFUSED = {
    "local_response_norm|avg_pool": nn.LocalResponseNorm(2),
    "sin": Call(torch.sin),
    "softmax without an axis": nn.Softmax(),
    "depend on its other examples": nn.BatchNorm1d(4, track_running_stats=False),
    "statistics of a batch": Call(lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)),
    "gt": Call(lambda x: x if bool((x > 0).all()) else -x),
    "item": Call(lambda x: x * x.sum().item()),
    "rand_like": Call(lambda x: x + torch.rand_like(x)),
    "draws at random": Call(lambda x: F.dropout(x, 0.5)),
    "power 3": Call(lambda x: x**3),
    "division by an interval": Call(lambda x: 1 / (x + 3) if False else torch.div(x, x + 3)),
    "__rdiv__|reciprocal": Call(lambda x: 1 / (x + 3)),
    "bicubic": Call(lambda x: F.interpolate(x.reshape(1, 1, 2, 2), size=(3, 3), mode="bicubic")),
    "indices|with_indices": Call(lambda x: F.max_pool1d(x[:, None], 2, return_indices=True)[0]),
    "views": Call(lambda x: (x.view(-1).relu_(), x)[1]),
    "overwrites": Call(lambda x: (torch.zeros(1, 4).add_(x), x)[1]),
    "conversion to torch.float16": Call(lambda x: x.to(torch.float16)),
    "numpy": Call(lambda x: torch.from_numpy(x.numpy())),
    "alpha=-1.0": Call(lambda x: F.elu(x, -1.0)),
    "setitem": Call(lambda x: x.clone().__setitem__(0, 0.0) or x),
    "new_full": Call(lambda x: x.new_full((4,), x.sum())),
    "into a given tensor": Call(lambda x: torch.add(x, 1, out=torch.empty(1, 4))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_and_named(name):
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), REFUSED[name]), nn.Linear(4, 2)).eval()
    with pytest.raises(NoIntervalRule, match=name) as error:
        bounds(net, torch.zeros(1, 4), torch.ones(1, 4))
    assert f"layer '1.1' ({type(REFUSED[name]).__name__})" in str(error.value)
    assert "\n" not in str(error.value)


def test_overwriting_is_seen_through_every_name_of_the_tensor():
    class PreActivation(nn.Module):
        """The skip is overwritten too, as it is in torch."""

        def forward(self, x):
            h = 2 * x
            skip = h
            return F.relu(h, inplace=True) + skip

    low, high = torch.tensor([[-3.0, 1.0]]), torch.tensor([[-1.0, 2.0]])
    found = bounds(PreActivation(), low, high)
    torch.testing.assert_close(found.low, torch.tensor([[0.0, 4.0]], dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.high, torch.tensor([[0.0, 8.0]], dtype=torch.float64), atol=1e-4, rtol=0)


def test_constants_of_a_box_of_no_width_reproduce_the_function():
    x = torch.tensor([[0.3, -0.7]], dtype=torch.float64)
    for build in ELEMENTWISE.values():
        module = build().double().eval()
        found = propagate(module, Box(x, x))
        y = module(x)
        jump = math.log1p(math.exp(-1.0)) / 2 if isinstance(module, nn.Softplus) else 0.0
        assert (found.high - y).abs().max() <= jump + 1e-12 and (y - found.low).abs().max() <= jump + 1e-12
