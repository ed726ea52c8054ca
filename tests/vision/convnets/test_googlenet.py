"""GoogLeNet: its published count, its modules by hand, what its 1x1 convolutions save, its sizes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from margin.vision.convnets.claims import map_sizes
from margin.vision.convnets.googlenet import STAGES, Branches, GoogLeNet, Inception

WIDTHS = (192, 256, 480, 512, 512, 512, 528, 832, 832, 1024)
"""Maps before each module and behind the last, Table 1 of the paper."""


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_it_has_the_published_parameters() -> None:
    with torch.device("meta"):
        assert count(GoogLeNet(3, (224, 224), 1000, third=3)) == 6_624_904
        paper = GoogLeNet(3, (224, 224), 1000)
    # 16 weights more for each pair of maps of the nine branches of 5x5
    more = sum(16 * module.five_reduced * module.five for stage in STAGES for module in stage)
    assert count(paper) == 6_624_904 + more
    fan_ins = [
        module.branches[0][0].in_channels for module in paper.modules() if isinstance(module, Inception)
    ]
    assert (*fan_ins, paper.head.in_features) == WIDTHS


def test_the_large_form_has_the_papers_sizes() -> None:
    model = GoogLeNet(3, (224, 224), 10, width=4)
    sizes = [size[1:] for _, size in map_sizes(model, torch.randn(1, 3, 224, 224))]
    assert list(dict.fromkeys(sizes)) == [(n, n) for n in (224, 112, 56, 28, 14, 7)]


def test_module_3a_yields_256_maps_of_the_same_size_with_fewer_weights_than_without_1x1() -> None:
    module = Inception(192, STAGES[0][0])
    assert module(torch.randn(1, 192, 9, 6)).shape == (1, 256, 9, 6)
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    weights = sum(layer.weight.numel() for layer in convolutions)
    # 1x1: 192 64; 192 96 + 9 96 128; 192 16 + 25 16 32; 192 32
    assert weights == 12_288 + 18_432 + 110_592 + 3_072 + 12_800 + 6_144
    assert weights < 192 * (64 + 9 * 128 + 25 * 32 + 32)


@pytest.mark.parametrize("third", [3, 5])
def test_a_module_is_the_papers_figure(third: Any) -> None:
    torch.manual_seed(0)
    module = Inception(3, Branches(2, 3, 4, 2, 5, 1), third=third).double().eval()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.weight, layer.bias, layer.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(layer.running_var, 0.5, 2)
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]

    def layer(i: int, z: Tensor) -> Tensor:
        own, W = norms[i], convolutions[i].weight
        z = F.conv2d(z, W, padding=(W.shape[-1] - 1) // 2)
        return F.batch_norm(z, own.running_mean, own.running_var, own.weight, own.bias, eps=1e-3).relu()

    x = torch.randn(2, 3, 6, 5, dtype=torch.float64)
    pooled = F.max_pool2d(x, 3, 1, 1)
    expected = torch.cat((layer(0, x), layer(2, layer(1, x)), layer(4, layer(3, x)), layer(5, pooled)), 1)
    assert [c.kernel_size[0] for c in convolutions] == [1, 1, 3, 1, third, 1]
    assert torch.allclose(module(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("stem", "side"), [("small", 2), ("large", 15)])
def test_the_least_size_is_enough(side: int, stem: Any) -> None:
    model = GoogLeNet(2, (side, side), 3, stem=stem, width=4).eval()
    assert model(torch.randn(2, 2, side, side)).shape == (2, 3)
    with pytest.raises(
        ValueError, match=f"images must have {side} x {side} pixels or more: got {side} x {side - 1}"
    ):
        GoogLeNet(2, (side, side - 1), 3, stem=stem)


def test_the_width_is_a_multiple_of_4() -> None:
    with pytest.raises(ValueError, match=r"width must be a multiple of 4: got 6"):
        GoogLeNet(1, (8, 8), 2, width=6)
    with pytest.raises(ValueError, match=r"width must be a multiple of 4: got 0"):
        GoogLeNet(1, (8, 8), 2, width=0)


def test_the_logits_read_the_mean_of_each_map() -> None:
    model = GoogLeNet(1, (8, 8), 3, width=4).eval()
    model.features = nn.Identity()
    maps = torch.randn(2, 64, 3, 5)
    expected = maps.flatten(2).sum(2) / 15 @ model.head.weight.T + model.head.bias
    assert torch.allclose(model(maps), expected, atol=1e-6)
