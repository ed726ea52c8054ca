"""GoogLeNet (Szegedy et al. 2015): Inception modules, whose branches of several sizes stand side by side."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores
from margin.vision.convnets.layers import Images, Maps, Stem, check_size, he_initialize, is_small, normalized


class Branches(NamedTuple):
    """Maps of the branches of a module: 1x1; 1x1 then 3x3; 1x1 then 5x5; pooling then 1x1."""

    one: int
    three_reduced: int
    three: int
    five_reduced: int
    five: int
    pooled: int


STAGES: tuple[tuple[Branches, ...], ...] = (
    (Branches(64, 96, 128, 16, 32, 32), Branches(128, 128, 192, 32, 96, 64)),
    (
        Branches(192, 96, 208, 16, 48, 64),
        Branches(160, 112, 224, 24, 64, 64),
        Branches(128, 128, 256, 24, 64, 64),
        Branches(112, 144, 288, 32, 64, 64),
        Branches(256, 160, 320, 32, 128, 128),
    ),
    (Branches(256, 160, 320, 32, 128, 128), Branches(384, 192, 384, 48, 128, 128)),
)
"""The modules 3a, 3b; 4a to 4e; 5a, 5b of Table 1."""

WIDTH = 64
"""Maps of the first convolution in the paper."""


class Inception(nn.Module):
    """Four branches of one input, their maps side by side: rows and columns stay as they are.

    1x1; 1x1 and 3x3; 1x1 and 5x5; 3x3 maximum pooling and 1x1, each convolution with batch normalization and
    ReLU. The 1x1 convolutions before the larger ones reduce the number of maps, and with it the weights.

    Args:
        fan_in: Maps that come in.
        maps: Maps of the branches.
        third: Size of the convolution of the third branch: 5 as in the paper, or 3 as in torchvision.

    Reference:
        Szegedy et al. 2015, Figure 2 (b).
    """

    def __init__(self, fan_in: int, maps: Branches, *, third: Literal[3, 5] = 5) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            (
                normalized(fan_in, maps.one, 1),
                nn.Sequential(
                    normalized(fan_in, maps.three_reduced, 1), normalized(maps.three_reduced, maps.three, 3)
                ),
                nn.Sequential(
                    normalized(fan_in, maps.five_reduced, 1), normalized(maps.five_reduced, maps.five, third)
                ),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), normalized(fan_in, maps.pooled, 1)),
            )
        )

    def forward(self, x: Maps) -> Float[Tensor, "batch joined rows columns"]:
        """The maps of all branches."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(nn.Module):
    """Three convolutions, nine Inception modules with pooling between, the mean of each map, the logits.

    Batch normalization follows each convolution, and the two auxiliary classifiers of the paper are left out,
    as in torchvision: with the third branch of 3x3 it has 6,624,904 parameters, on 3 channels and 1,000
    classes. The large form begins with 7x7 at stride 2 and two poolings; the small one, for images of up to
    64 pixels, keeps their size until the first modules have passed, and has a quarter of the maps.

    Args:
        channels: Channels of an image.
        image_size: Rows and columns.
        num_classes: Number of logits.
        stem: Which form: large, small, or by the shorter side of an image (auto).
        width: Maps of the first convolution; all others are in proportion to 64.
        third: Size of the third branch's convolution: 5 as in the paper, or 3 as in torchvision.
        dropout: Probability that a mean is dropped while training.

    Raises:
        ValueError: A width that is no multiple of 4, or images that pooling would use up.

    Reference:
        Szegedy et al. 2015, "Going deeper with convolutions", Table 1; normalization: Ioffe and Szegedy 2015.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        *,
        stem: Stem = "auto",
        width: int | None = None,
        third: Literal[3, 5] = 5,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        small = is_small(stem, image_size)
        check_size(image_size, 2 if small else 15, "" if small else "--model.stem small takes 2 x 2")
        first = (WIDTH // 4 if small else WIDTH) if width is None else width
        if first < 4 or first % 4:
            raise ValueError(f"width must be a multiple of 4: got {first}")
        if small:
            layers: list[nn.Module] = [normalized(channels, first, 3), normalized(first, 3 * first, 3)]
        else:
            layers = [normalized(channels, first, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True)]
            layers += [normalized(first, first, 1), normalized(first, 3 * first, 3)]
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        fan_in = 3 * first
        for number, stage in enumerate(STAGES):
            if number > 0:
                layers.append(nn.MaxPool2d(3 if number == 1 else 2, 2, ceil_mode=True))
            for maps in stage:
                scaled = Branches(*(count * first // WIDTH for count in maps))
                layers.append(Inception(fan_in, scaled, third=third))
                fan_in = scaled.one + scaled.three + scaled.five + scaled.pooled
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(fan_in, num_classes)
        he_initialize(self)

    def forward(self, x: Images) -> ClassScores:
        """The logits of each image."""
        return self.head(self.dropout(self.features(x).mean((2, 3))))
