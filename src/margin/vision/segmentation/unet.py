"""U-Net (Ronneberger, Fischer and Brox 2015): down to coarse maps, and up beside what the way down left."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.unet.network import Maps, ResidualBlock, surrounded

Border = Literal["zeros", "mirror"]
Norm = Literal["none", "batch", "group"]
Block = Literal["plain", "residual"]

GROUPS = 8
"""Groups of a group normalization."""


def mirrored(
    x: Maps, above: int, below: int, left: int, right: int
) -> Float[Tensor, "batch channels rows columns"]:
    """Maps continued beyond their border by their mirror images, however far; the edge itself stands once.

    Args:
        x: Maps with at least one pixel.
        above: Rows before the first.
        below: Rows after the last.
        left: Columns before the first.
        right: Columns after the last.
    """
    for axis, before, after in ((2, above, below), (3, left, right)):
        size = x.shape[axis]
        period = max(2 * (size - 1), 1)
        place = torch.arange(-before, size + after, device=x.device).abs() % period
        x = x.index_select(axis, torch.minimum(place, period - place) if size > 1 else place)
    return x


def unpadded_sizes(size: int, levels: int) -> tuple[int, int]:
    """The least length of an image whose answer by convolutions without padding has ``size`` pixels or more.

    With d = 2^(levels - 1): from b pixels at the bottom, the image has d (b + 4) + 4 (d - 1), the answer
    d b - 4 (d - 1).

    Args:
        size: Pixels wanted along an axis.
        levels: Levels of the network.

    Returns:
        The lengths of the image and of the answer.
    """
    d = 2 ** (levels - 1)
    bottom = max(1, -(-(size + 4 * (d - 1)) // d))
    return d * (bottom + 4) + 4 * (d - 1), d * bottom - 4 * (d - 1)


class UNet(nn.Module):
    r"""A U-Net: class logits of every pixel of images of any size.

    Level l has ``width`` 2^l maps. On the way down two 3 x 3 convolutions with ReLU, then the maximum over
    2 x 2 pixels; on the way up a transposed 2 x 2 convolution of stride 2 to half the maps, beside which the
    maps are put that the way down left at this level, and two 3 x 3 convolutions; a 1 x 1 convolution to the
    logits. As in the paper: ``width=64, levels=5, border="mirror", norm="none"``, 31,030,658 parameters with
    one channel and two classes.

    Args:
        channels: Channels of an image.
        num_classes: Number of classes K.
        width: Maps of the first level, of which each level has twice as many as the one above.
        levels: Levels, each of half the height and width.
        border: ``mirror``: convolutions without padding, of the image continued by its mirror image (the
            paper's overlap-tile strategy); ``zeros``: padded by zeros, which takes less than half the time.
        norm: Normalization after each convolution of a plain block.
        block: Two convolutions, or the residual block of the diffusion's U-Net, which normalizes by groups.
        skips: What the way up reads of the way down, beside its own maps: that level's, or nothing.
        dropout: Share of the numbers of the lowest maps that are dropped in training, in [0, 1).

    Raises:
        ValueError: A number is out of range, or options contradict each other.

    Reference:
        Ronneberger, Fischer and Brox 2015, Figures 1 and 2, Section 3 (initial weights).
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        width: int = 16,
        levels: int = 4,
        border: Border = "zeros",
        norm: Norm = "batch",
        block: Block = "plain",
        skips: Literal["joined", "none"] = "joined",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_options(width, levels, dropout)
        if block == "residual" and (border, norm) != ("zeros", "group"):
            raise ValueError(
                f"residual blocks need border zeros and norm group: got border {border}, norm {norm}"
            )
        if norm == "group" and width % GROUPS:
            raise ValueError(f"a group normalization needs a width divisible by {GROUPS}: got {width}")
        self.levels, self.border, self.skips = levels, border, skips
        widths = [width * 2**level for level in range(levels)]

        def convolutions(fan_in: int, fan_out: int) -> nn.Module:
            if block == "residual":
                return ResidualBlock(fan_in, fan_out, 0, groups=GROUPS)
            return twice(fan_in, fan_out, norm, padding=border == "zeros")

        # a residual block normalizes its input by groups, which an image's channels have not
        self.stem = nn.Conv2d(channels, width, 3, padding=1) if block == "residual" else nn.Identity()
        first = width if block == "residual" else channels
        self.down = nn.ModuleList(convolutions(a, b) for a, b in zip([first, *widths], widths, strict=False))
        self.pool, self.dropout = nn.MaxPool2d(2), nn.Dropout(dropout)
        self.up, self.join = nn.ModuleList(), nn.ModuleList()
        for inner in widths[-2::-1]:
            self.up.append(nn.ConvTranspose2d(2 * inner, inner, 2, stride=2))
            self.join.append(convolutions(2 * inner if skips == "joined" else inner, inner))
        self.head = nn.Conv2d(width, num_classes, 1)
        begin(self)

    def maps(self, x: Maps) -> Float[Tensor, "batch classes rows columns"]:
        """The logits of an image of a size that fits, classes first: smaller than it without padding."""
        left, h = [], self.stem(x)
        for level, block in enumerate(self.down):
            h = block(h if level == 0 else self.pool(h))
            left.append(h)
        h = self.dropout(left.pop())
        for up, join in zip(self.up, self.join, strict=True):
            h, passed = up(h), left.pop()
            h = join(torch.cat((central(passed, h), h), 1) if self.skips == "joined" else h)
        return self.head(h)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch height width classes"]:
        """The logits of every pixel."""
        if self.border == "zeros":
            padded, rows, columns = surrounded(x, 2 ** (self.levels - 1))
            return self.maps(padded)[:, :, rows, columns].permute(0, 2, 3, 1)
        sides, cuts = [], []
        for size in x.shape[2:]:
            image, answer = unpadded_sizes(size, self.levels)
            first = (answer - size) // 2
            before = (image - answer) // 2 + first
            sides += [before, image - size - before]
            cuts.append(slice(first, first + size))
        return self.maps(mirrored(x, *sides))[:, :, cuts[0], cuts[1]].permute(0, 2, 3, 1)


def twice(fan_in: int, fan_out: int, norm: Norm, *, padding: bool) -> nn.Sequential:
    """Two 3 x 3 convolutions, each normalized if so wished, and followed by ReLU."""
    layers: list[nn.Module] = []
    for maps in (fan_in, fan_out):
        # a normalization by batch has a shift of its own
        layers.append(nn.Conv2d(maps, fan_out, 3, padding=int(padding), bias=norm != "batch"))
        if norm != "none":
            layers.append(nn.BatchNorm2d(fan_out) if norm == "batch" else nn.GroupNorm(GROUPS, fan_out))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def central(
    x: Maps, like: Float[Tensor, "batch maps rows columns"]
) -> Float[Tensor, "batch channels rows columns"]:
    """The pixels in the middle of maps, as many as other maps have (the paper's "copy and crop")."""
    rows, columns = ((a - b) // 2 for a, b in zip(x.shape[2:], like.shape[2:], strict=True))
    return x[:, :, rows : rows + like.shape[2], columns : columns + like.shape[3]]


def begin(network: nn.Module) -> None:
    """Gaussian initial weights by which every map has about the variance of its input; biases of 0.

    Standard deviation sqrt(2 / N), N the weights of a unit, as ReLU halves a variance; of a transposed
    convolution, after which there is none and whose every pixel has one weight a map, sqrt(1 / N). What
    begins near 0 stays so.

    Reference: Ronneberger, Fischer and Brox 2015, Section 3; He, Zhang, Ren and Sun 2015, Section 2.2.
    """
    inside = {
        layer for block in network.modules() if isinstance(block, ResidualBlock) for layer in block.modules()
    }
    for layer in network.modules():
        if layer in inside or not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            continue
        relu = isinstance(layer, nn.Conv2d)
        count = layer.in_channels * (layer.weight[0, 0].numel() if relu else 1)
        nn.init.normal_(layer.weight, 0.0, ((2 if relu else 1) / count) ** 0.5)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def check_options(width: int, levels: int, dropout: float) -> None:
    """Refuse numbers of which no network can be built.

    Raises:
        ValueError: The first rule that is broken.
    """
    if min(width, levels) < 1 or levels > 12:
        raise ValueError(f"width must be at least 1, levels from 1 to 12: got width={width}, levels={levels}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1): got {dropout}")
