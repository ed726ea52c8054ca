"""DenseNet (Huang, Liu, van der Maaten and Weinberger 2017): a layer reads the maps of all before it."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.vision.convnets.layers import (
    Images,
    Maps,
    Stem,
    check_least,
    check_size,
    conv,
    he_initialize,
    is_small,
)

IMAGENET: dict[int, tuple[int, ...]] = {
    121: (6, 12, 24, 16),
    161: (6, 12, 36, 24),
    169: (6, 12, 32, 32),
    201: (6, 12, 48, 32),
    264: (6, 12, 64, 48),
}
"""Layers of each block by depth, Table 1; they grow by 32 maps, 161 (torchvision's) by 48."""

CIFAR = (40, 100, 190, 250)
"""Depths 6 n + 4 of Section 3: three blocks of n layers with bottlenecks, 2 n without."""

BOTTLENECK = 4
"""Maps between the two convolutions of a layer, in multiples of the growth."""


class DenseBlock(nn.Module):
    """Layers x_{l+1} = [x_l, ..., x_0, F_l([x_l, ..., x_0])]: each adds ``growth`` maps to all before it.

    F is normalization, ReLU, 3x3; with a bottleneck normalization, ReLU, 1x1 to 4 growth maps before that.

    Args:
        fan_in: Maps n0 that come in; layer l reads n0 + l growth.
        layers: Number of layers.
        growth: Maps that each adds.
        bottleneck: Whether a 1x1 convolution comes first.
        dropout: Probability that a new map's entry is dropped while training.

    Reference:
        Huang, Liu, van der Maaten and Weinberger 2017, Equation 2 and Section 3.
    """

    def __init__(
        self, fan_in: int, layers: int, growth: int, *, bottleneck: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            _layer(fan_in + place * growth, growth, bottleneck=bottleneck, dropout=dropout)
            for place in range(layers)
        )

    def forward(self, x: Maps) -> Float[Tensor, "batch joined rows columns"]:
        """All maps, those that came in first."""
        for layer in self.layers:
            x = torch.cat((x, layer(x)), 1)
        return x


class DenseNet(nn.Module):
    """Dense blocks with transitions between (1x1 to fewer maps, 2x2 average pooling), then the logits.

    Both families, four blocks for ImageNet and three for CIFAR, begin with 7x7 at stride 2 and pooling, or
    with 3x3 on small images. DenseNet-121 has 7,978,856 parameters on 3 channels and 1,000 classes,
    DenseNet-BC of depth 100 and growth 12 has 769,162 on CIFAR-10.

    Args:
        channels: Channels of an image.
        image_size: Rows and columns.
        num_classes: Number of logits.
        depth: Layers with weights: 121, 161, 169, 201, 264 as for ImageNet, or 40, 100, 190, 250 for CIFAR.
        growth: Maps that a layer adds; 32 for ImageNet (48 at depth 161), 12 for CIFAR if not given.
        block: Whether a 1x1 convolution precedes each 3x3 (bottleneck, "B") or not (basic).
        compression: Share of the maps that a transition keeps ("C"); 1 keeps all.
        stem: First layers: 7x7 with stride 2 and pooling (large), 3x3 (small), or by the shorter side (auto).
        dropout: Probability that a new map's entry is dropped while training.

    Raises:
        ValueError: No such depth, a compression outside of (0, 1], or images that pooling would use up.

    Reference:
        Huang, Liu, van der Maaten and Weinberger 2017, "Densely connected convolutional networks", Table 1.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        *,
        depth: int = 40,
        growth: int | None = None,
        block: Literal["basic", "bottleneck"] = "bottleneck",
        compression: float = 0.5,
        stem: Stem = "auto",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 < compression <= 1:
            raise ValueError(f"compression must be in (0, 1]: got {compression}")
        check_least(("growth", growth))
        bottleneck = block == "bottleneck"
        blocks = layers_of(depth, bottleneck=bottleneck)
        growth = growth or (48 if depth == 161 else 32 if depth in IMAGENET else 12)
        # 16 maps without compression, Section 3
        maps = 2 * growth if compression < 1 or depth in IMAGENET else 16
        layers: list[nn.Module] = []
        small = is_small(stem, image_size)
        least = 2 ** (len(blocks) - 1)
        check_size(
            image_size, least if small else 4 * least - 3, "" if small else "--model.stem small takes fewer"
        )
        if small:
            layers.append(conv(channels, maps, 3))
        else:
            layers += [conv(channels, maps, 7, 2), nn.BatchNorm2d(maps), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        for number, count in enumerate(blocks):
            if number > 0:
                kept = int(maps * compression)
                layers += [nn.BatchNorm2d(maps), nn.ReLU(), conv(maps, kept, 1)]
                layers.append(nn.AvgPool2d(2))
                maps = kept
            layers.append(DenseBlock(maps, count, growth, bottleneck=bottleneck, dropout=dropout))
            maps += count * growth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(maps), nn.ReLU())
        self.head = nn.Linear(maps, num_classes)
        he_initialize(self)

    def forward(self, x: Images) -> ClassScores:
        """The logits of each image."""
        return self.head(self.features(x).mean((2, 3)))


def layers_of(depth: int, *, bottleneck: bool) -> tuple[int, ...]:
    """The layers of each block of a depth.

    Raises:
        ValueError: The paper has no network of that depth.
    """
    if depth in IMAGENET:
        return IMAGENET[depth]
    if depth in CIFAR:
        return ((depth - 4) // (6 if bottleneck else 3),) * 3
    known = ", ".join(map(str, sorted([*IMAGENET, *CIFAR])))
    raise ValueError(f"depth must be one of {known}: got {depth}")


def _layer(fan_in: int, growth: int, *, bottleneck: bool, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = [nn.BatchNorm2d(fan_in), nn.ReLU()]
    if bottleneck:
        between = BOTTLENECK * growth
        layers += [conv(fan_in, between, 1), nn.BatchNorm2d(between), nn.ReLU()]
        fan_in = between
    layers.append(conv(fan_in, growth, 3))
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
