"""DenseNet: its published counts, the maps of its blocks, its layers by hand, and that every map is read."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from margin.vision.convnets.densenet import DenseBlock, DenseNet, layers_of

PUBLISHED = {121: 7_978_856, 161: 28_681_000, 169: 14_149_480, 201: 20_013_928}
"""Parameters on 3 channels and 1,000 classes, as torchvision lists them."""


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("depth", PUBLISHED)
def test_the_networks_for_imagenet_have_their_published_parameters(depth: int) -> None:
    with torch.device("meta"):
        model = DenseNet(3, (224, 224), 1000, depth=depth)
    assert count(model) == PUBLISHED[depth]
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in model.modules()) == depth


@pytest.mark.parametrize(
    ("depth", "compression", "maps"), [(121, 0.5, 64), (121, 1.0, 64), (40, 0.5, 24), (40, 1.0, 16)]
)
def test_the_first_convolution_has_twice_the_growth_or_16_maps(depth, compression, maps) -> None:
    """Section 3: 2 k with compression and for ImageNet, else 16."""
    with torch.device("meta"):
        model = DenseNet(3, (64, 64), 2, depth=depth, compression=compression)
    assert model.features[0].out_channels == maps


def test_a_transition_rounds_the_maps_that_it_keeps_down() -> None:
    """Section 3, floor(theta m): of 32 maps 22.4 with .7, of 46 then 32.2; with .55 17.6 and 22.55."""
    for compression, kept in ((0.7, [22, 32]), (0.55, [17, 22])):
        model = DenseNet(3, (8, 8), 2, growth=4, compression=compression)
        transitions = [c.out_channels for c in model.features if isinstance(c, nn.Conv2d)][1:]
        assert transitions == kept


@pytest.mark.parametrize(
    ("millions", "options"),
    [
        (1.0, {"depth": 40, "block": "basic", "compression": 1.0}),
        (0.8, {"depth": 100}),
        (25.6, {"depth": 190, "growth": 40}),
    ],
)
def test_the_networks_for_cifar_have_the_papers_parameters(millions: float, options: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = DenseNet(3, (32, 32), 10, **options)
    assert count(model) / 1e6 == pytest.approx(millions, abs=0.05)  # Table 2 prints one decimal
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in model.modules()) == options["depth"]


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_block_is_the_papers_equation(bottleneck: bool) -> None:
    torch.manual_seed(0)
    block = DenseBlock(3, 3, 2, bottleneck=bottleneck).double().eval()
    for layer in block.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.weight, layer.bias, layer.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(layer.running_var, 0.5, 2)
    convolutions = [layer for layer in block.modules() if isinstance(layer, nn.Conv2d)]
    norms = [layer for layer in block.modules() if isinstance(layer, nn.BatchNorm2d)]
    each = 2 if bottleneck else 1
    fan_ins = [layer.in_channels for layer in convolutions[::each]]
    assert fan_ins == [3, 5, 7]  # n0 + l growth
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    maps: list[Tensor] = [x]
    for place in range(3):
        z = torch.cat(maps, 1)
        for i in range(place * each, place * each + each):
            own, W = norms[i], convolutions[i].weight
            z = F.batch_norm(z, own.running_mean, own.running_var, own.weight, own.bias).relu()
            z = F.conv2d(z, W, padding=W.shape[-1] // 2)
        maps.append(z)
    assert torch.allclose(block(x), torch.cat(maps, 1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("place", [0, 1])
def test_a_map_is_read_by_others_than_its_successor(place: int) -> None:
    torch.manual_seed(0)
    block = DenseBlock(2, 4, 3).eval()
    with torch.no_grad():  # the successor reads nothing
        for parameter in block.layers[place + 1].parameters():
            parameter.zero_()
    output = block(torch.randn(1, 2, 6, 6))
    start = 2 + 3 * (place + 1)
    assert not output[:, start : start + 3].any()
    (gradient,) = torch.autograd.grad(output[:, start + 3 :].square().sum(), block.layers[place][-1].weight)
    assert gradient.abs().max() > 0


def test_transitions_halve_maps_and_sizes() -> None:
    model = DenseNet(1, (12, 8), 2, depth=40)
    # 24, + 6 12 = 96, 48, + 72 = 120, 60, + 72
    assert model.head.in_features == 132
    assert model.features(torch.randn(2, 1, 12, 8)).shape == (2, 132, 3, 2)
    whole = DenseNet(1, (12, 8), 2, depth=40, compression=1.0)
    assert whole.head.in_features == 16 + 3 * 72
    assert layers_of(40, bottleneck=True) == (6, 6, 6) and layers_of(40, bottleneck=False) == (12, 12, 12)


@pytest.mark.parametrize(("stem", "depth", "side"), [("small", 40, 4), ("small", 121, 8), ("large", 121, 29)])
def test_the_least_size_is_enough(stem: Any, depth: int, side: int) -> None:
    model = DenseNet(1, (side, side), 2, depth=depth, stem=stem, growth=2).eval()
    assert model(torch.rand(1, 1, side, side)).shape == (1, 2)
    with pytest.raises(
        ValueError, match=f"images must have {side} x {side} pixels or more: got {side - 1} x"
    ):
        DenseNet(1, (side - 1, side), 2, depth=depth, stem=stem)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"depth must be one of 40, 100, 121, .* got 41"):
        DenseNet(1, (8, 8), 2, depth=41)
    with pytest.raises(ValueError, match=r"compression must be in \(0, 1\]: got 0"):
        DenseNet(1, (8, 8), 2, compression=0)
    with pytest.raises(ValueError, match=r"growth must be at least 1: got 0"):
        DenseNet(1, (8, 8), 2, growth=0)


def test_a_transition_is_the_mean_of_two_by_two_of_fewer_maps() -> None:
    """Section 3, Pooling layers: normalization, ReLU, 1x1, average pooling. Kills the maximum."""
    torch.manual_seed(0)
    model = DenseNet(1, (6, 4), 2, depth=40).double().eval()
    nn.init.normal_(model.features[2].bias)
    x = torch.randn(2, 1, 6, 4, dtype=torch.float64)
    z = model.features[1](model.features[0](x))
    z = (z / (1 + 1e-5) ** 0.5 + model.features[2].bias.view(1, -1, 1, 1)).relu()
    z = torch.einsum("nchw,oc->nohw", z, model.features[4].weight[:, :, 0, 0])
    expected = z.unflatten(3, (2, 2)).unflatten(2, (3, 2)).mean((3, 5))
    assert torch.allclose(model.features[:6](x), expected, rtol=0, atol=1e-10)
    maps = model.features(x)
    assert torch.allclose(model(x), maps.flatten(2).mean(2) @ model.head.weight.T + model.head.bias)
