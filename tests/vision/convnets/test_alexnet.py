"""AlexNet: its published counts, its layers by hand, its normalization, its two forms."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from margin.vision.convnets.alexnet import AlexNet


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("groups", "expected"), [(1, 61_100_840), (2, 60_965_224)])
def test_it_has_the_published_parameters(groups: Any, expected: int) -> None:
    with torch.device("meta"):
        assert count(AlexNet(3, (224, 224), 1000, groups=groups)) == expected


def test_the_network_of_2012_counted_layer_by_layer() -> None:
    # (48 maps of one group in, 256 out) and so on; Section 3.5 of the paper
    convolutions = [96 * (363 + 1), 256 * (48 * 25 + 1), 384 * (256 * 9 + 1), 384 * (192 * 9 + 1)]
    convolutions.append(256 * (192 * 9 + 1))
    with torch.device("meta"):
        model = AlexNet(3, (227, 227), 1000, groups=2)
    layers = [layer for layer in model.features if isinstance(layer, nn.Conv2d)]
    assert [count(layer) for layer in layers] == convolutions
    dense = [layer for layer in model.classifier if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in dense] == [(4096, 9216), (4096, 4096), (1000, 4096)]


def response_normalized(x: Tensor) -> Tensor:
    """Section 3.3 of the paper: k = 2, n = 5, alpha = 1e-4, beta = 0.75."""
    y = torch.empty_like(x)
    for i in range(x.shape[1]):
        near = x[:, max(0, i - 2) : i + 3]
        y[:, i] = x[:, i] / (2 + 1e-4 * near.square().sum(1)) ** 0.75
    return y


@pytest.mark.parametrize("stem", ["small", "large"])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_logits_are_the_papers_composition(groups: Any, stem: Any) -> None:
    torch.manual_seed(0)
    side = 64 if stem == "large" else 10
    model = AlexNet(2, (side, side), 3, groups=groups, stem=stem, hidden=5).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1 if parameter.ndim < 2 else parameter[0].numel() ** -0.5 * 3)
    x = torch.randn(2, 2, side, side, dtype=torch.float64)
    *weights, last, bias = [parameter.detach() for parameter in model.parameters()]
    z = x
    for i, (W, b) in enumerate(zip(weights[0:10:2], weights[1:10:2], strict=True)):
        stride, padding = ((4, 2) if stem == "large" else (1, 1)) if i == 0 else (1, 2 if i == 1 else 1)
        z = F.conv2d(z, W, b, stride, padding, groups=groups if i in (1, 3, 4) else 1).relu()
        if i < 2 and groups == 2:
            z = response_normalized(z)
        if i in (0, 1, 4):
            z = F.max_pool2d(z, 3, 2, 0 if stem == "large" else 1)
    z = F.adaptive_avg_pool2d(z, 6 if stem == "large" else 2).flatten(1)
    for W, b in zip(weights[10::2], weights[11::2], strict=True):
        z = (z @ W.T + b).relu()
    assert torch.allclose(model(x), z @ last.T + bias, rtol=1e-9, atol=1e-9)


def test_the_form_follows_the_size_of_the_images() -> None:
    assert AlexNet(1, (64, 200), 10).features[0].kernel_size == (3, 3)
    with torch.device("meta"):
        assert AlexNet(1, (65, 65), 10).features[0].kernel_size == (11, 11)
    message = r"images must have 63 x 63 pixels or more: got 32 x 70; --model.stem small takes 8 x 8"
    with pytest.raises(ValueError, match=message):
        AlexNet(1, (32, 70), 10, stem="large")
    with pytest.raises(ValueError, match=r"images must have 8 x 8 pixels or more: got 7 x 9$"):
        AlexNet(1, (7, 9), 10)


@pytest.mark.parametrize(("stem", "side"), [("small", 8), ("large", 63)])
def test_the_least_size_is_enough(stem: Any, side: int) -> None:
    model = AlexNet(1, (side, side), 2, stem=stem, hidden=3).eval()
    assert model(torch.rand(1, 1, side, side)).shape == (1, 2)


def test_no_dense_units_are_refused() -> None:
    with pytest.raises(ValueError, match=r"hidden must be at least 1: got 0"):
        AlexNet(1, (28, 28), 2, hidden=0)
