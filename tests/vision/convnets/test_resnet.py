"""Residual networks: their counts, their blocks by hand, their first layers, and what they refuse."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from margin.vision.convnets.resnet import ResNet, residual_block

PUBLISHED = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}
"""Parameters on 3 channels and 1,000 classes, as torchvision lists them."""


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("depth", PUBLISHED)
def test_the_networks_for_imagenet_have_their_published_parameters(depth: int) -> None:
    with torch.device("meta"):
        model = ResNet(3, (224, 224), 1000, depth=depth)
    assert count(model) == PUBLISHED[depth]
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules()) - 4 + (depth < 50) == depth


@pytest.mark.parametrize("n", [3, 5, 7, 9, 18])
def test_the_networks_for_cifar_have_the_papers_parameters(n: int) -> None:
    # a 3x3 convolution without bias and its normalization; shortcuts have none; Table 6 prints .27 M to 1.7 M
    def layer(fan_in: int, fan_out: int) -> int:
        return 9 * fan_in * fan_out + 2 * fan_out

    stages = [layer(a, b) + (2 * n - 1) * layer(b, b) for a, b in ((16, 16), (16, 32), (32, 64))]
    model = ResNet(3, (32, 32), 10, depth=6 * n + 2)
    assert count(model) == layer(3, 16) + sum(stages) + 64 * 10 + 10
    printed = {3: 0.27, 5: 0.46, 7: 0.66, 9: 0.85, 18: 1.7}[n]
    assert count(model) / 1e6 == pytest.approx(printed, abs=0.03)


def normalized(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    shape = (1, -1, 1, 1)
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return (x - norm.running_mean.view(shape)) * scale.view(shape) + norm.bias.view(shape)


def drawn(module: nn.Module) -> nn.Module:
    """The module in evaluation mode, its normalizations with numbers of their own."""
    torch.manual_seed(1)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.weight, layer.bias, layer.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
    return module.double().eval()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kind", ["basic", "bottleneck", "basic_preactivation", "bottleneck_preactivation"])
def test_a_block_is_the_papers_formula(kind: Any, stride: int, padded: bool) -> None:
    block = drawn(residual_block(kind, 3, 4, stride, padded=padded))
    convs = [m for m in block.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in block.modules() if isinstance(m, nn.BatchNorm2d)]
    x = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    inner = 3 if kind.startswith("bottleneck") else 2
    sizes = [1, 3, 1] if inner == 3 else [3, 3]
    strides = [1, stride, 1] if inner == 3 else [stride, 1]
    out = 16 if inner == 3 else 4
    pre = kind.endswith("preactivation")

    def branch(z: Tensor) -> Tensor:
        for i in range(inner):
            if pre and i > 0:
                z = normalized(z, norms[i]).relu()
            z = F.conv2d(z, convs[i].weight, stride=strides[i], padding=sizes[i] // 2)
            if not pre:
                z = normalized(z, norms[i])
                z = z.relu() if i < inner - 1 else z
        return z

    start = normalized(x, norms[0]).relu() if pre else x
    if padded:
        beside = torch.zeros(2, out, *branch(start).shape[2:], dtype=torch.float64)
        beside[:, :3] = start[:, :, ::stride, ::stride]
    else:
        beside = F.conv2d(start, convs[-1].weight, stride=stride)
        beside = beside if pre else normalized(beside, norms[-1])
    expected = branch(start) + beside
    assert torch.allclose(block(x), expected if pre else expected.relu(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["basic_preactivation", "bottleneck_preactivation"])
def test_where_shapes_agree_a_preactivation_shortcut_is_the_identity(kind: Any) -> None:
    block = residual_block(kind, 16, 16 if kind.startswith("basic") else 4, 1)
    for layer in block.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.weight)
    x = torch.randn(2, 16, 5, 5)
    assert torch.equal(block(x), x)


def test_a_last_normalization_of_zero_makes_a_block_relu_of_its_input() -> None:
    model = ResNet(2, (8, 8), 3, depth=20, zero_init=True).eval()
    x = torch.randn(2, 16, 6, 6)
    assert torch.equal(model.stages[0](x), x.relu())
    assert not torch.equal(ResNet(2, (8, 8), 3, depth=20).eval().stages[0](x), x.relu())
    with pytest.raises(
        ValueError, match="zero_init needs a branch that ends in a normalization: got the block"
    ):
        ResNet(2, (8, 8), 3, block="basic_preactivation", zero_init=True)


@pytest.mark.parametrize(
    ("side", "stem", "expected"), [(64, "auto", 64), (65, "auto", 17), (64, "large", 16)]
)
def test_the_first_layers_follow_the_size_of_the_images(side: int, stem: Any, expected: int) -> None:
    model = ResNet(1, (side, side + 9), 2, stem=stem)
    x = torch.randn(1, 1, side, side)
    assert model.stem(x).shape == (1, 16, expected, expected)


@pytest.mark.parametrize("side", [1, 2, 9])
def test_images_of_any_size_fit(side: int) -> None:
    for stem in ("small", "large"):
        assert ResNet(2, (side, 3), 4, stem=stem).eval()(torch.randn(2, 2, side, 3)).shape == (2, 4)


def test_other_networks_are_named_by_their_stages() -> None:
    model = ResNet(1, (8, 8), 2, block="bottleneck", blocks=(1, 2), widths=(4, 6))
    assert [len(stage) for stage in model.stages] == [1, 2] and model.head.in_features == 24
    with pytest.raises(ValueError, match=r"depth must be one of 18, 20, 32, .* got 19; blocks and widths"):
        ResNet(1, (8, 8), 2, depth=19)
    with pytest.raises(ValueError, match="blocks and widths must name the same stages"):
        ResNet(1, (8, 8), 2, blocks=(1, 2))
