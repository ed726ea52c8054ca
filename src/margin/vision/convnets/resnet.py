"""Residual networks (He, Zhang, Ren and Sun 2016), with basic, bottleneck and pre-activation blocks."""

from collections.abc import Iterator
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.nn.dense import Residual
from margin.vision.convnets.layers import Images, Maps, Stem, conv, he_initialize, is_small

Block = Literal["basic", "bottleneck", "basic_preactivation", "bottleneck_preactivation"]

IMAGENET: dict[int, tuple[Block, tuple[int, ...]]] = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}
"""The blocks of each stage by depth, Table 1; stages of 64, 128, 256 and 512 maps."""

CIFAR = (20, 32, 44, 56, 110)
"""Depths 6 n + 2 of Section 4.2: three stages of n basic blocks, of 16, 32 and 64 maps."""

EXPANSION = 4
"""Maps that leave a bottleneck for each within it."""


class PaddedShortcut(nn.Module):
    """Option A of the paper: every second row and column, then maps of zeros; it has no parameters.

    Args:
        extra: Maps of zeros that are added.
        stride: Rows and columns from one that is kept to the next.
    """

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra = extra
        self.stride = stride

    def forward(self, x: Maps) -> Float[Tensor, "batch widened kept_rows kept_columns"]:
        """The maps that are kept, and zeros."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class ResNet(nn.Module):
    """Stages of residual blocks, each block the sum of a shortcut and of two or three convolutions.

    A block is relu(shortcut(x) + branch(x)) with the branch 3x3, 3x3 (basic) or 1x1, 3x3, 1x1 (bottleneck),
    batch normalization after each convolution. With pre-activation it is shortcut(x) + branch(x), with
    normalization and ReLU before each convolution, and the first of them also before a shortcut that is no
    identity. The first block of each stage but the first halves rows and columns. The mean of each map goes
    through an affine layer to the logits.

    A bottleneck has its stride in the 3x3 convolution, as in torchvision and transformers; the paper's has
    it in the first 1x1. Weights of those libraries are read
    (:func:`margin.vision.convnets.weights.resnet_weights`).

    Args:
        channels: Channels of an image.
        image_size: Rows and columns.
        num_classes: Number of logits.
        depth: Layers with weights: 18, 34, 50, 101, 152 (ImageNet), or 20, 32, 44, 56, 110 (CIFAR). It says
            block, blocks, widths and shortcut where these are not given.
        block: What a block is made of.
        blocks: Blocks of each stage.
        widths: Maps of each stage, those within a bottleneck.
        stem: First layers: 7x7 with stride 2 and pooling (large), 3x3 (small), or small up to 64 pixels
            (auto).
        shortcut: Where shapes differ: a 1x1 convolution (projection), or zeros for the new maps (padded).
        zero_init: Whether the last normalization of each branch begins at 0: a block is relu(x) at first.

    Raises:
        ValueError: No such depth, or not as many widths as stages, or no normalization ends a branch.

    Reference:
        He, Zhang, Ren and Sun 2016, "Deep residual learning", Table 1 and Section 4.2; pre-activation: the
        same 2016, "Identity mappings in deep residual networks", Figure 4 (e).
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        *,
        depth: int = 20,
        block: Block | None = None,
        blocks: tuple[int, ...] | None = None,
        widths: tuple[int, ...] | None = None,
        stem: Stem = "auto",
        shortcut: Literal["projection", "padded"] | None = None,
        zero_init: bool = False,
    ) -> None:
        super().__init__()
        kind, counts, maps = shape_of(depth)
        kind, counts, maps = block or kind, blocks or counts, widths or maps
        if len(counts) != len(maps) or min(*counts, *maps) < 1:
            raise ValueError(f"blocks and widths must name the same stages: got {counts} and {maps}")
        pre = kind.endswith("preactivation")
        if zero_init and pre:
            raise ValueError(f"zero_init needs a branch that ends in a normalization: got the block {kind}")
        self.stem = nn.Sequential(*_stem(channels, maps[0], small=is_small(stem, image_size), pre=pre))
        padded = shortcut == "padded" or (shortcut is None and depth in CIFAR)
        stages, fan_in = [], maps[0]
        for stage, (count, width) in enumerate(zip(counts, maps, strict=True)):
            fan_out = width * (EXPANSION if kind.startswith("bottleneck") else 1)
            made = []
            for place in range(count):
                stride = 2 if stage > 0 and place == 0 else 1
                made.append(residual_block(kind, fan_in, width, stride, padded=padded))
                fan_in = fan_out
            stages.append(nn.Sequential(*made))
        last = [nn.BatchNorm2d(fan_in), nn.ReLU()] if pre else []
        self.stages = nn.Sequential(*stages, *last)
        self.head = nn.Linear(fan_in, num_classes)
        he_initialize(self)
        for module in self.modules() if zero_init else ():
            if isinstance(module, Residual) and isinstance(module.branch, nn.Sequential):
                nn.init.zeros_(module.branch[-1].get_parameter("weight"))

    def forward(self, x: Images) -> ClassScores:
        """The logits of each image."""
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def shape_of(depth: int) -> tuple[Block, tuple[int, ...], tuple[int, ...]]:
    """The block of a depth, and the blocks and widths of its stages.

    Raises:
        ValueError: The paper has no network of that depth.
    """
    if depth in IMAGENET:
        return *IMAGENET[depth], (64, 128, 256, 512)
    if depth in CIFAR:
        return "basic", ((depth - 2) // 6,) * 3, (16, 32, 64)
    known = ", ".join(map(str, sorted([*IMAGENET, *CIFAR])))
    raise ValueError(f"depth must be one of {known}: got {depth}; blocks and widths make other networks")


def residual_block(kind: Block, fan_in: int, width: int, stride: int, *, padded: bool = False) -> nn.Module:
    """One block: a map of fan_in maps to ``width`` maps, or of a bottleneck to four times as many.

    Args:
        kind: What it is made of.
        fan_in: Maps that come in.
        width: Maps of its 3x3 convolutions.
        stride: Of its first 3x3 convolution, and of its shortcut.
        padded: Whether new maps of a shortcut are zeros (option A), not a projection (option B).
    """
    if kind.startswith("bottleneck"):
        fan_out = EXPANSION * width
        convolutions = [conv(fan_in, width, 1), conv(width, width, 3, stride), conv(width, fan_out, 1)]
    else:
        fan_out = width
        convolutions = [conv(fan_in, width, 3, stride), conv(width, width, 3)]
    same = fan_in == fan_out and stride == 1
    if kind.endswith("preactivation"):
        layers = [x for c in convolutions for x in (nn.BatchNorm2d(c.in_channels), nn.ReLU(), c)]
        if same:
            return Residual(nn.Sequential(*layers), nn.Identity())
        beside = PaddedShortcut(fan_out - fan_in, stride) if padded else conv(fan_in, fan_out, 1, stride)
        return nn.Sequential(*layers[:2], Residual(nn.Sequential(*layers[2:]), beside))
    layers = [x for c in convolutions for x in (c, nn.BatchNorm2d(c.out_channels), nn.ReLU())][:-1]
    if same:
        shortcut: nn.Module = nn.Identity()
    elif padded:
        shortcut = PaddedShortcut(fan_out - fan_in, stride)
    else:
        shortcut = nn.Sequential(conv(fan_in, fan_out, 1, stride), nn.BatchNorm2d(fan_out))
    return nn.Sequential(Residual(nn.Sequential(*layers), shortcut), nn.ReLU())


def _stem(channels: int, width: int, *, small: bool, pre: bool) -> Iterator[nn.Module]:
    yield conv(channels, width, 3) if small else conv(channels, width, 7, 2)
    if not pre:  # its blocks begin with normalization and ReLU
        yield nn.BatchNorm2d(width)
        yield nn.ReLU()
    if not small:
        yield nn.MaxPool2d(3, 2, 1)
