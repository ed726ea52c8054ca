"""Lipschitz constants: exact of linear models, above dense norms, sound on samples, or refused by name."""

import math

import pytest
import torch
from tests.robust.certificates.test_linear_bounds import NORMS, ball, moved, network
from torch import nn

from margin.robust.certificates.interval_arithmetic import NoIntervalRule
from margin.robust.certificates.intervals import bounds
from margin.robust.certificates.lipschitz import constants, lipschitz_margins
from margin.robust.certificates.tape import Tape

P = {"linf": math.inf, "l2": 2.0, "l1": 1.0}


def norm_of(matrix, norm):
    """The operator norm of a dense matrix, by its own formula."""
    if norm == "l2":
        return torch.linalg.svdvals(matrix).max()
    return matrix.abs().sum(1 if norm == "linf" else 0).max()


def dense(layer, shape):
    """The linear part, a column for each unit of the input."""
    units = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        return (layer(units) - layer(torch.zeros_like(units[:1]))).flatten(1).T


def constant(net, shape, norm, eps=0.1):
    """That of the last result over a ball, and of the smallest that the tape's names say."""
    at, tape = (
        ball(torch.rand(1, *shape, generator=torch.Generator().manual_seed(1)) - 0.5, eps, norm),
        Tape(),
    )
    bounds(net, at.low, at.high, tape=tape)
    return float(constants(tape, at).stretches[-1].constant)


LAYERS = {
    "linear": (nn.Linear(7, 5), (7,), 1.0 + 1e-6),
    "convolution": (nn.Conv2d(2, 3, 3, padding=1), (2, 9, 9), 1.06),
    "strided": (nn.Conv2d(2, 3, 3, stride=2), (2, 9, 9), 2.1),
    "dilated": (nn.Conv1d(2, 4, 3, dilation=2), (2, 20), 1.1),
    "groups": (nn.Conv2d(4, 4, 3, groups=2), (4, 8, 8), 1.1),
    "mean": (nn.AvgPool2d(2), (2, 6, 6), 1.0 + 1e-6),
    "norm": (nn.BatchNorm2d(3), (3, 4, 4), 1.0 + 1e-6),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_of_one_layer_it_is_the_norm_of_its_dense_matrix(name, norm):
    """Exact of l1 and l-infinity, and of l2 but for what a periodic image or a stride adds."""
    torch.manual_seed(0)
    layer, shape, most = LAYERS[name]
    if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
        layer.reset_parameters()  # they were drawn when the file was read
    if name == "norm":
        layer.running_var.uniform_(0.5, 2.0)
        layer.weight.data = torch.tensor([1.0, -3.0, 0.5])
    layer = layer.eval()
    found, truth = constant(layer, shape, norm), float(norm_of(dense(layer.double(), shape), norm))
    layer.float()
    assert truth * (1 - 1e-12) <= found <= truth * (most if norm == "l2" else 1 + 1e-6)


class Branches(nn.Module):
    """A sum, a concatenation, a difference that broadcasts, an overlapping maximum."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(2, 4, 3, padding=1), nn.Linear(8 * 6, 3)

    def forward(self, x):
        y = torch.relu(self.first(x))
        y = torch.cat((y + 2 * y.tanh(), y - y.mean(2, keepdim=True)), 1)
        return self.last(nn.functional.max_pool1d(y, 3, 2, padding=1).flatten(1))


def model(name):
    if name != "branches":
        return network(name)
    torch.manual_seed(0)
    return Branches(), torch.rand(4, 2, 12, generator=torch.Generator().manual_seed(1)) - 0.3


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["ReLU", "Tanh", "Sigmoid", "GELU", "average", "max", "branches"])
def test_no_sample_moves_further_and_no_margin_falls_below(name, norm):
    net, x = model(name)
    eps = {"linf": 0.02, "l2": 0.1, "l1": 0.2}[norm]
    at, tape = ball(x, eps, norm), Tape()
    bounds(net, at.low, at.high, tape=tape)
    known = constants(tape, at).stretches[-1].constant
    wide = constants(tape, at, local=False).stretches[-1].constant
    assert (known <= wide * (1 + 1e-9)).all()
    points = moved(x, eps, norm, 200)
    with torch.no_grad():
        y = net(x).argmax(1)
        out = net(points.reshape(-1, *x.shape[1:])).reshape(200, len(x), -1).double()
        still = net(x).double()
    far = torch.linalg.vector_norm(out - still, P[norm], 2) / eps
    assert (far <= known).all() and (far.amax(0) > known / 200).all() | (name not in ("ReLU", "Tanh"))
    least = (out.gather(2, y.expand(200, -1)[..., None]) - out).amin(0)
    for local in (True, False):
        assert (lipschitz_margins(net, at, y, local=local) <= least).all()


@pytest.mark.parametrize("norm", NORMS)
def test_margins_of_a_linear_model_fall_by_eps_times_the_dual_norm(norm):
    torch.manual_seed(0)
    net, x, eps = nn.Linear(6, 4), torch.randn(5, 6), 0.3
    y = torch.tensor([0, 1, 2, 3, 0])
    out, w = net(x).double().detach(), net.weight.double().detach()
    q = {"linf": 1.0, "l2": 2.0, "l1": math.inf}[norm]
    expected = out.gather(1, y[:, None]) - out - eps * (w[y][:, None] - w).norm(q, 2)
    found = lipschitz_margins(net, ball(x, eps, norm), y)
    torch.testing.assert_close(found, expected.scatter(1, y[:, None], 0.0), rtol=0, atol=1e-5)
    assert (found <= expected.scatter(1, y[:, None], 0.0) + 1e-9).all()
    normed = nn.Sequential(net, nn.LogSoftmax(1))
    torch.testing.assert_close(lipschitz_margins(normed, ball(x, eps, norm), y), found, rtol=0, atol=1e-4)


def test_two_orthogonal_layers_keep_a_constant_of_one_where_intervals_grow():
    """The case in which Lipschitz constants are the better certificate: rotations do not stretch l2."""
    torch.manual_seed(0)
    turns = [nn.utils.parametrizations.orthogonal(nn.Linear(16, 16, bias=False)) for _ in range(4)]
    net = nn.Sequential(*(part for turn in turns for part in (turn, nn.ReLU()))).eval()
    assert constant(net, (16,), "l2") == pytest.approx(1.0, rel=1e-5)
    assert constant(net, (16,), "linf") > 30


def test_a_function_without_a_constant_is_named():
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    with pytest.raises(NoIntervalRule, match="no Lipschitz constant is known of layer_norm"):
        lipschitz_margins(net, ball(torch.rand(2, 4), 0.1, "l2"), torch.tensor([0, 1]))


@pytest.mark.parametrize(("norm", "moves"), [("linf", 1.0), ("l2", 2**0.5), ("l1", 2.0)])
def test_a_value_that_two_windows_share_moves_both_maxima(norm, moves):
    """Windows of 3 in steps of 2, the larger value of both raised by 1: both maxima rise by 1."""
    net, x = nn.MaxPool1d(3, 2), torch.zeros(1, 1, 5).double()
    x[..., 2] = 1.0
    raised = x.clone()
    raised[..., 2] += 1.0
    assert torch.linalg.vector_norm(net(raised) - net(x), P[norm]) == pytest.approx(moves)
    assert constant(net, (1, 5), norm) == pytest.approx(moves, rel=1e-6)


def test_what_the_model_rounds_on_its_way_is_taken_off():
    """Of .4 the model says 0: it is added to 2^24, where float32 has whole numbers alone, and back."""
    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 2))
    with torch.no_grad():
        for layer, bias in zip(net, (2.0**24, -(2.0**24), 0.0), strict=True):
            layer.weight.fill_(1.0)
            layer.bias.fill_(bias)
        net[2].weight[1] = 0.0
        x = torch.tensor([[0.4]])
        assert float(net(x)[0, 0]) == 0.0
    assert lipschitz_margins(net, ball(x, 1e-9, "l2"), torch.tensor([0]))[0, 1] <= 0
