"""Pooling, the locally connected layer, costs against real layers, the backward pass against autograd."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from margin.vision.algebra.layers import (
    Arrangement,
    LocallyConnected2d,
    MinPool2d,
    SoftmaxPool2d,
    convolution_backward,
    layer_costs,
    softmax_pool2d,
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


POOLS = [(2, None, 0), (3, 2, 1), (3, 1, 0), (2, 3, 1)]


@pytest.mark.parametrize(("kernel", "stride", "padding"), POOLS)
def test_min_pooling_is_the_least_of_each_window(kernel: int, stride: int | None, padding: int) -> None:
    x = drawn(2, 3, 7, 8) + 5  # all above 0: zeros that count would be the least
    found = MinPool2d(kernel, stride=stride, padding=padding)(x)
    step = stride or kernel
    for i, j in product(*map(range, found.shape[2:])):
        top, left = i * step - padding, j * step - padding
        window = x[:, :, max(top, 0) : top + kernel, max(left, 0) : left + kernel]
        assert torch.equal(found[:, :, i, j], window.amin((2, 3)))


@pytest.mark.parametrize(("kernel", "stride", "padding"), POOLS)
def test_softmax_pooling_lies_between_its_limits(kernel: int, stride: int | None, padding: int) -> None:
    x = drawn(2, 3, 7, 8) + 5

    def pooled(beta: float) -> Tensor:
        return softmax_pool2d(x, torch.tensor(beta).double(), kernel, stride=stride, padding=padding)

    mean = F.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)
    least = MinPool2d(kernel, stride=stride, padding=padding)(x)
    assert torch.allclose(pooled(0.0), mean, atol=1e-13)
    assert torch.allclose(pooled(1e4), F.max_pool2d(x, kernel, stride, padding), atol=1e-12)
    assert torch.allclose(pooled(-1e4), least, atol=1e-12)
    whole = (..., slice(1, None), slice(1, None))  # a window in the corner may hold one place alone
    assert bool((pooled(1.0) > mean)[whole].all() and (pooled(-1.0) < mean)[whole].all())


def test_softmax_pooling_of_a_window_by_hand() -> None:
    x = torch.tensor([[[[0.0, math.log(3.0)]]]]).double()
    layer = SoftmaxPool2d(2, beta=1.0, padding=1)
    # windows of one row each: of 0 alone, and of log 3 alone; then both in one
    assert layer(x).flatten().tolist() == pytest.approx([0.0, math.log(3.0)])
    both = softmax_pool2d(x.expand(1, 1, 2, 2), torch.ones(()).double(), 2)
    assert float(both) == pytest.approx(3 / 4 * math.log(3.0))
    with pytest.raises(ValueError, match="half the kernel"):
        SoftmaxPool2d(2, padding=2)


def test_the_gradient_of_max_pooling_goes_to_one_place_of_each_window() -> None:
    x = drawn(1, 1, 6, 6).requires_grad_()
    (mask,) = torch.autograd.grad(nn.MaxPool2d(2)(x).sum(), x)
    windows = F.unfold(mask, 2, stride=2)
    assert torch.equal(windows.sum(1), torch.ones(1, 9).double()) and set(mask.unique().tolist()) == {
        0.0,
        1.0,
    }
    assert torch.equal((mask * x).amin((2, 3)) < 0, (F.max_pool2d(x, 2) < 0).amax((2, 3)))
    (spread,) = torch.autograd.grad(nn.AvgPool2d(2)(x).sum(), x)
    assert torch.allclose(spread, torch.full_like(x, 0.25))


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1)])
def test_a_tied_locally_connected_layer_is_a_convolution(stride: int, padding: int) -> None:
    torch.manual_seed(0)
    layer = LocallyConnected2d(3, (7, 6), out_channels=4, kernel=3, stride=stride, padding=padding).double()
    convolution = nn.Conv2d(3, 4, 3, stride=stride, padding=padding).double()
    x = drawn(2, 3, 7, 6)
    assert layer(x).shape == convolution(x).shape
    assert not torch.allclose(layer(x), convolution(x), atol=1e-2)
    layer.tie(convolution.weight, convolution.bias)
    assert torch.allclose(layer(x), convolution(x), atol=1e-13)


def test_an_untied_layer_has_the_weights_of_its_place() -> None:
    torch.manual_seed(0)
    layer = LocallyConnected2d(2, (4, 5), out_channels=3, kernel=2).double()
    x = drawn(1, 2, 4, 5)
    y = layer(x)
    for i, j in product(range(3), range(4)):
        window = x[0, :, i : i + 2, j : j + 2].flatten()
        expected = layer.weight[4 * i + j] @ window + layer.bias[4 * i + j]
        assert torch.allclose(y[0, :, i, j], expected, atol=1e-13)


def test_costs_are_those_of_real_layers() -> None:
    (m, n), c, K, (p, q) = (9, 7), 3, 5, (3, 3)
    real = {
        "convolution": nn.Conv2d(c, K, (p, q)),
        "locally connected": LocallyConnected2d(c, (m, n), out_channels=K, kernel=p),
        "fully connected": nn.Sequential(nn.Flatten(), nn.Linear(m * n * c, (m - p + 1) * (n - q + 1) * K)),
    }
    costs = layer_costs((m, n), c, K, (p, q))
    assert set(costs) == set(real)
    for name, layer in real.items():
        assert costs[name].parameters == sum(w.numel() for w in layer.parameters()), name
        with FlopCounterMode(display=False) as counter:
            layer(torch.zeros(1, c, m, n))
        assert 2 * costs[name].multiply_adds == counter.get_total_flops(), name
    # biases are counted once an output: not the forms mnc (m'n' + 1) K and pqc (m'n' + 1) K that are printed
    assert costs["fully connected"].parameters == (m * n * c + 1) * 7 * 5 * K != m * n * c * (7 * 5 + 1) * K
    assert costs["locally connected"].parameters == (p * q * c + 1) * 7 * 5 * K != p * q * c * (7 * 5 + 1) * K


LAYOUTS = [
    Arrangement(),
    Arrangement(stride=(2, 3)),
    Arrangement(padding=(2, 1)),
    Arrangement(dilation=(2, 1)),
    Arrangement(groups=2),
    Arrangement((2, 2), (1, 2), (1, 2), 2),
    Arrangement((3, 2), (0, 1), (2, 2), 2),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_backward_pass_written_out_is_autograds(layout: Arrangement) -> None:
    x, w, b = drawn(2, 4, 9, 10), drawn(6, 4 // layout.groups, 3, 2, seed=1), drawn(6, seed=2)
    leaves = [t.requires_grad_() for t in (x, w, b)]
    y = F.conv2d(x, w, b, *layout)
    delta = drawn(*y.shape, seed=3)
    expected = torch.autograd.grad(y, leaves, delta)
    found = convolution_backward(x.detach(), w.detach(), delta, layout)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-11)
    by_torch = torch.nn.grad.conv2d_weight(x, w.shape, delta, *layout)
    assert torch.allclose(found.weight, by_torch, atol=1e-11)


def test_plain_convolutions_for_both_gradients_are_wrong() -> None:
    """What is printed as Delta * W and Delta * X: the second must be a correlation."""
    x, w = drawn(1, 1, 6, 6).requires_grad_(), drawn(1, 1, 3, 3, seed=1).requires_grad_()
    y = F.conv2d(x, w)
    delta = drawn(*y.shape, seed=3)
    by_input, by_weight = torch.autograd.grad(y, (x, w), delta)
    assert torch.allclose(F.conv_transpose2d(delta, w), by_input, atol=1e-12)
    turned = F.conv2d(x, delta.flip(2, 3))
    assert not torch.allclose(turned, by_weight, atol=1e-2)
    assert torch.allclose(F.conv2d(x, delta), by_weight, atol=1e-12)


def test_the_order_of_channels_tells_nothing() -> None:
    x, w = drawn(2, 5, 6, 6), drawn(3, 5, 3, 3, seed=1)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(F.conv2d(x[:, order], w[:, order]), F.conv2d(x, w), atol=1e-12)
    assert not torch.allclose(F.conv2d(x[:, order], w), F.conv2d(x, w), atol=1e-1)
