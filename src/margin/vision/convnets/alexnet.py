"""AlexNet (Krizhevsky, Sutskever and Hinton 2012): five convolutions, three dense layers, ReLU, dropout."""

from typing import Literal

from torch import nn

from margin.core.types import ClassScores
from margin.vision.convnets.layers import Images, Stem, check_least, check_size, is_small

WIDTHS = {1: (64, 192, 384, 256, 256), 2: (96, 256, 384, 384, 256)}
"""Maps of each convolution, by the number of groups."""

SIDE = 6
"""Rows and columns that the dense layers of the large form read; other sizes are averaged to them."""

LEAST = {True: 8, False: 63}
"""Pixels a side that are needed, of the small form and of the large one."""


class AlexNet(nn.Module):
    """Five convolutions with ReLU and three poolings of 3x3 with stride 2, then three dense layers.

    The network of 2012 ran on two processors: its second, fourth and fifth convolutions have two groups, and
    the first two are followed by local response normalization. With one group the maps are those of the
    later paper, without that normalization, as in torchvision.

    The large form begins with 11x11 at stride 4 and has dense layers of 4,096 units on 6 x 6 maps: 61,100,840
    parameters with one group, 60,965,224 with two, on 3 channels and 1,000 classes. The small one, for images
    of up to 64 pixels, begins with 3x3 at stride 1, has a quarter of the maps, and 256 dense units.

    Args:
        channels: Channels of an image.
        image_size: Rows and columns.
        num_classes: Number of logits.
        groups: 1, or 2 as in the paper of 2012.
        stem: Which form: large, small, or by the shorter side of an image (auto).
        hidden: Units of each of the two dense layers; by the form if not given.
        dropout: Probability that an input of these layers is dropped while training.

    Raises:
        ValueError: Images that pooling would use up.

    Reference:
        Krizhevsky, Sutskever and Hinton 2012, Section 3; one group: Krizhevsky 2014, "One weird trick".
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        *,
        groups: Literal[1, 2] = 1,
        stem: Stem = "auto",
        hidden: int | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        small = is_small(stem, image_size)
        check_least(("hidden", hidden))
        check_size(image_size, LEAST[small], "" if small else "--model.stem small takes 8 x 8")
        maps = tuple(width // 4 if small else width for width in WIDTHS[groups])
        units = hidden or (256 if small else 4096)
        first = (
            nn.Conv2d(channels, maps[0], 3, padding=1) if small else nn.Conv2d(channels, maps[0], 11, 4, 2)
        )
        pool = (3, 2, 1) if small else (3, 2)
        layers: list[nn.Module] = [first, nn.ReLU(), *_normalized(groups), nn.MaxPool2d(*pool)]
        layers += [nn.Conv2d(maps[0], maps[1], 5, padding=2, groups=groups), nn.ReLU(), *_normalized(groups)]
        layers.append(nn.MaxPool2d(*pool))
        for fan_in, fan_out, parts in zip(maps[1:], maps[2:], (1, groups, groups), strict=False):
            layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1, groups=parts), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(*pool))
        side = 2 if small else SIDE
        self.classifier = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(side), nn.Flatten()),
            *(nn.Dropout(dropout), nn.Linear(maps[-1] * side**2, units), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(units, units), nn.ReLU()),
            nn.Linear(units, num_classes),
        )

    def forward(self, x: Images) -> ClassScores:
        """The logits of each image."""
        return self.classifier(self.features(x))


def _normalized(groups: int) -> list[nn.Module]:
    """Local response normalization of the network of 2012, x / (2 + 1e-4 sum of 5 maps squared)^0.75."""
    if groups == 1:
        return []
    return [
        nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)
    ]  # torch divides alpha by the number of maps
