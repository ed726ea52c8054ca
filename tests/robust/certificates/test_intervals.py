"""Interval bounds of whole models: sound on samples, exact where theory says so, without a trace."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.data.preprocess import Standardize
from margin.nn.preprocessed import Preprocessed
from margin.robust.certificates.interval_arithmetic import Box, NoIntervalRule
from margin.robust.certificates.intervals import bounds, margin_bounds, propagate
from margin.vision.convnets.lenet5 import LeNet5


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


class Network(nn.Module):
    """Branches on shapes, a skip, a resizing, in-place activations."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True))
        self.block = Residual(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        if x.ndim == 3:
            x = x.unsqueeze(1)
        if x.shape[-1] != 8:
            x = F.interpolate(x, size=(8, 8), mode="bilinear", align_corners=False)
        x = F.max_pool2d(self.block(self.stem(x)), 2)
        return self.head(x.mean(dim=(2, 3)))


def network():
    torch.manual_seed(0)
    net = Network()
    net.block.norm.running_mean.uniform_(-0.1, 0.1)
    return net.eval()


def samples(low, high, count):
    generator = torch.Generator().manual_seed(0)
    t = torch.rand(count, *low.shape[1:], generator=generator)
    t[: count // 2] = (t[: count // 2] > 0.5).float()
    x = torch.maximum(torch.minimum(low + t * (high - low), high), low)
    return torch.cat([x, (low + high) / 2, low, high])


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3])
def test_a_hundred_thousand_samples_lie_inside(eps):
    net = network()
    x = torch.rand(1, 5, 5, generator=torch.Generator().manual_seed(1))
    low, high = x - eps, x + eps
    found = bounds(net, low, high)
    margins = margin_bounds(net, low, high, torch.tensor([1]))
    with torch.no_grad():
        for part in samples(low, high, 33_334).split(5000):
            y = net(part)
            assert ((found.low <= y) & (y <= found.high)).all()
            assert (y[:, 1:2] - y >= margins).all()


def test_margins_are_exact_for_a_linear_model_behind_its_preprocessing():
    torch.manual_seed(0)
    layer = nn.Linear(5, 4)
    mean, std = torch.randn(5), torch.rand(5) + 0.5
    net = nn.Sequential(Standardize(mean, std), nn.Flatten(), nn.Dropout(), layer).double()
    x, eps = torch.randn(6, 5, dtype=torch.float64), 0.3
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    found = margin_bounds(net, x - eps, x + eps, labels)
    W, b = (
        layer.weight.detach() / net[0].std,
        layer.bias.detach() - layer.weight.detach() @ (net[0].mean / net[0].std),
    )
    for i, y in enumerate(labels.tolist()):
        for j in range(4):
            w = W[y] - W[j]
            expected = w @ x[i] + b[y] - b[j] - eps * w.abs().sum()
            assert abs(found[i, j] - expected) < 1e-12
    assert torch.equal(found.gather(1, labels[:, None]), torch.zeros(6, 1, dtype=torch.float64))


def test_merging_the_last_layer_is_never_looser():
    net = network()
    x = torch.rand(4, 8, 8, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 1, 2, 0])
    merged = margin_bounds(net, x - 0.02, x + 0.02, labels)
    split = margin_bounds(net, x - 0.02, x + 0.02, labels, lambda scores: scores + 0)
    off = F.one_hot(labels, 3) == 0
    assert (merged >= split)[off].all()
    assert (merged > split + 1e-3)[off].any()


def test_margins_of_a_signed_score_are_its_own_bounds():
    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x):
            return self.linear(x).squeeze(-1)

    torch.manual_seed(0)
    net = Score().double()
    x = torch.randn(2, 3, dtype=torch.float64)
    read = lambda score: torch.stack((-score, score), -1) / 2
    found = margin_bounds(net, x - 0.1, x + 0.1, torch.tensor([1, 0]), read)
    reach = 0.1 * net.linear.weight.detach().abs().sum()
    score = net(x).detach()
    assert abs(found[0, 0] - (score[0] - reach)) < 1e-12
    assert abs(found[1, 1] - (-score[1] - reach)) < 1e-12


def test_no_certificate_crosses_the_boundary_of_a_linear_model_in_float32():
    # Case: bounds that ignore rounding certify up to the exact distance and beyond it.
    torch.manual_seed(0)
    net = nn.Linear(50, 2)
    x = 100 * torch.rand(500, 50)
    with torch.no_grad():
        labels = net(x).argmax(1)
    w = (net.weight[1] - net.weight[0]).double().detach()
    f = (x.double() @ w + (net.bias[1] - net.bias[0]).double().detach()).abs()
    distance = (f / w.abs().sum())[:, None]
    inside = margin_bounds(net, x - distance, x + distance, labels)
    assert (inside.scatter(1, labels[:, None], -1.0).amax(1) <= 0).all()
    most = margin_bounds(net, x - 0.99 * distance, x + 0.99 * distance, labels)
    assert (most.scatter(1, labels[:, None], 1.0).amin(1) > 0).double().mean() > 0.9


def test_an_unknown_layer_is_named_by_its_path():
    net = network()
    net.block.norm = nn.Softmin(1)
    with pytest.raises(NoIntervalRule, match=r"no interval rule for layer 'block.norm' \(Softmin\)"):
        bounds(net, torch.zeros(1, 8, 8), torch.ones(1, 8, 8))


def test_a_forward_that_reads_values_is_named():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(NoIntervalRule, match=r"the model itself \(Branching\): gt"):
        bounds(Branching(), torch.zeros(1, 2), torch.ones(1, 2))


def test_a_constant_output_is_refused():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.zeros_like(x)

    with pytest.raises(NoIntervalRule, match="does not depend on the input"):
        bounds(Constant(), torch.zeros(1, 2), torch.ones(1, 2))


def test_a_model_that_cannot_be_copied_is_named():
    net = nn.Linear(2, 2)
    net.made = net.weight * 2
    with pytest.raises(NoIntervalRule, match="cannot be copied"):
        bounds(net, torch.zeros(1, 2), torch.ones(1, 2))


def test_ends_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="low <= high"):
        bounds(nn.Identity(), torch.ones(1, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="low <= high"):
        bounds(nn.Identity(), torch.full((1, 2), torch.nan), torch.ones(1, 2))


def test_scores_that_are_no_matrix_are_refused():
    with pytest.raises(NoIntervalRule, match="one score per class"):
        margin_bounds(nn.Identity(), torch.zeros(1, 2, 3), torch.ones(1, 2, 3), torch.tensor([0]))


def test_asking_leaves_no_trace():
    net = network().train()
    net.block.eval()
    before, flags = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    state = torch.get_rng_state()
    x = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0))
    first = margin_bounds(net, x - 0.1, x + 0.1, torch.tensor([0, 1]))
    assert torch.equal(first, margin_bounds(net, x - 0.1, x + 0.1, torch.tensor([0, 1])))
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert net.head.weight.dtype == torch.float32
    assert [m.training for m in net.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert not first.requires_grad


def test_hooks_are_taken_off_even_when_a_layer_is_refused():
    net = nn.Sequential(nn.Linear(2, 2), nn.Softmin(1))
    with pytest.raises(NoIntervalRule):
        propagate(net, Box(torch.zeros(1, 2), torch.ones(1, 2)))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_bounds_are_differentiable_by_the_parameters():
    # d/dw of the upper bound of w x + b over [l, h] is h for w > 0 and l for w < 0.
    net = nn.Linear(2, 1).double()
    net.weight.data = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    low, high = torch.tensor([[0.5, 1.0]]).double(), torch.tensor([[1.5, 4.0]]).double()
    propagate(net, Box(low, high)).high.sum().backward()
    torch.testing.assert_close(net.weight.grad, torch.tensor([[1.5, 1.0]]).double())


def test_the_widest_type_of_the_model_decides_the_rounding():
    net = nn.Linear(100, 1)
    x = torch.ones(1, 100)
    single, double = bounds(net, x, x), bounds(copy.deepcopy(net).double(), x, x)
    half = bounds(copy.deepcopy(net).bfloat16(), x, x)
    widths = [(b.high - b.low).item() for b in (double, single, half)]
    assert widths[0] < 1e-5 * widths[1] < 1e-5 * widths[2]


def test_a_model_in_float64_that_rounds_to_float32_inside_is_refused():
    class Coarse(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2).double()

        def forward(self, x):
            return self.linear(x).float()

    x = torch.zeros(1, 2).double()
    with pytest.raises(NoIntervalRule, match=r"a conversion to torch\.float32"):
        bounds(Coarse(), x, x)


@pytest.mark.parametrize("options", [{}, {"activation": "relu", "pooling": "max"}, {"activation": "sigmoid"}])
def test_lenet_behind_its_preprocessing_is_followed(options):
    torch.manual_seed(0)
    scale = Standardize(torch.full((1, 1, 1), 4.0).double(), torch.full((1, 1, 1), 6.0).double())
    net = Preprocessed(scale, LeNet5(1, 10, **options)).eval()
    x = torch.randint(0, 17, (2, 1, 8, 8), generator=torch.Generator().manual_seed(0)).float()
    found = bounds(net, x - 0.05, x + 0.05)
    for seed in range(100):
        sign = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).sign()
        with torch.no_grad():
            y = net((x + 0.05 * sign).clamp(x - 0.05, x + 0.05))
        assert ((found.low <= y) & (y <= found.high)).all()
