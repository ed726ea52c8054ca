"""VGG (Simonyan and Zisserman 2015): stages of 3x3 convolutions with pooling between them."""

from typing import Literal

from torch import nn

from margin.core.types import ClassScores
from margin.vision.convnets.layers import Images, Stem, check_least, check_size, he_initialize, is_small

DEPTHS: dict[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
"""Convolutions of each stage, Table 1 (A, B, D and E)."""

WIDTHS = (64, 128, 256, 512, 512)
"""Maps of each stage, Table 1."""

SIDE = 7
"""Rows and columns that the dense layers of the large form read; other sizes are averaged to them."""


class VGG(nn.Module):
    """Stages of 3x3 convolutions with ReLU, maximum pooling of 2x2 after each stage, dense layers.

    Two 3x3 convolutions read 5x5 pixels with 18 c^2 weights where one 5x5 has 25 c^2, three read 7x7 with
    27 c^2 instead of 49 c^2 (Section 2.3).

    The large form has the stages of its depth and dense layers of 4,096 units on 7 x 7 maps; the small one,
    for images of up to 64 pixels, two convolutions in each of three stages of 32, 64 and 128 maps with batch
    normalization, and 128 dense units. What is named replaces a part of either.

    Args:
        channels: Channels of an image.
        image_size: Rows and columns.
        num_classes: Number of logits.
        depth: Layers with weights, 11, 13, 16 or 19: the large form.
        stem: Which form: large, small, or by the shorter side of an image (auto).
        stages: Convolutions of each stage.
        widths: Maps of each stage.
        hidden: Widths of the dense layers before the logits.
        norm: What follows a convolution before ReLU: nothing as in the paper, or batch normalization.
        dropout: Probability that a dense unit is dropped while training.

    Raises:
        ValueError: Stages of another number than widths, or images that pooling would use up.

    Reference:
        Simonyan and Zisserman 2015, Table 1 and Section 2.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        *,
        depth: Literal[11, 13, 16, 19] | None = None,
        stem: Stem = "auto",
        stages: tuple[int, ...] | None = None,
        widths: tuple[int, ...] | None = None,
        hidden: tuple[int, ...] | None = None,
        norm: Literal["none", "batch"] | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        small = depth is None and is_small(stem, image_size)
        counts = stages or ((2, 2, 2) if small else DEPTHS[depth or 11])
        maps = widths or ((32, 64, 128) if small else WIDTHS)[: len(counts)]
        if len(counts) != len(maps) or min(*counts, *maps) < 1:
            raise ValueError(f"stages and widths must be as many numbers from 1 on: got {counts} and {maps}")
        fitting = counts[: min(image_size).bit_length() - 1]  # each stage halves rows and columns
        remedy = f"fewer stages take them: --model.stages {','.join(map(str, fitting))}" if fitting else ""
        check_size(image_size, 2 ** len(counts), remedy)
        units = hidden if hidden is not None else ((128,) if small else (4096, 4096))
        check_least(*[("hidden", width) for width in units])
        layers: list[nn.Module] = []
        fan_in = channels
        for count, width in zip(counts, maps, strict=True):
            for _ in range(count):
                layers.append(nn.Conv2d(fan_in, width, 3, padding=1))
                if (norm or ("batch" if small else "none")) == "batch":
                    layers.append(nn.BatchNorm2d(width))
                layers.append(nn.ReLU())
                fan_in = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        rows, columns = (side // 2 ** len(counts) for side in image_size)
        if not small and stages is None:
            layers = [nn.AdaptiveAvgPool2d(SIDE), nn.Flatten()]
            rows = columns = SIDE
        else:
            layers = [nn.Flatten()]
        fan_in *= rows * columns
        for width in units:
            layers += [nn.Linear(fan_in, width), nn.ReLU(), nn.Dropout(dropout)]
            fan_in = width
        self.classifier = nn.Sequential(*layers, nn.Linear(fan_in, num_classes))
        he_initialize(self)

    def forward(self, x: Images) -> ClassScores:
        """The logits of each image."""
        return self.classifier(self.features(x))
