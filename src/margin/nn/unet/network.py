"""The U-Net of diffusion (Ho, Jain and Abbeel 2020): from a noisy image and its time to an image."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.nn.unet.blocks import AttentionBlock, Double, Half, ResidualBlock, Stage, faint
from margin.nn.unet.time_features import time_features

Images = Float[Tensor, "batch channels height width"]


class UNet(nn.Module):
    r"""A network of images and times: down through levels of half the size, and up beside what was passed.

    Level l has ``widths[l]`` maps. On the way down it has ``blocks`` residual blocks and, but for the last, a
    convolution of stride 2; on the way up ``blocks + 1`` residual blocks, each of which also reads the maps
    that the way down left at its place, and a doubling. At the turn: a residual block, attention, another.
    The time's waves pass through two affine maps to an embedding of 4 ``widths[0]`` numbers, to which that of
    the class is added; every residual block reads it. With equal weights this is the function of UNet2DModel
    in the library diffusers (:func:`margin.generative.diffusion.diffusers_names.from_diffusers`).

    An image whose sides 2^(levels - 1) does not divide is surrounded by zeros up to the next multiple, the
    odd pixel below and right, and cut out again at the end. The last convolution, the second of each
    residual block and the output of each attention begin near zero: at first so does the answer.

    Args:
        channels: Channels of the image, in and out.
        image_size: Height and width, in pixels.
        num_classes: Number of classes of the label; 0 where there are no labels. Label ``num_classes`` says
            that the class is not told.
        widths: Maps of each level, from the full size down.
        blocks: Residual blocks of a level on the way down.
        attention: Levels, from 0, whose residual blocks are each followed by attention; at the turn there is
            always one.
        head_width: Channels of a head of the attention.
        groups: Groups of the normalizations.

    Raises:
        ValueError: ``groups`` does not divide a width, ``head_width`` that of an attention, a level does not
            exist, or a number is not positive.

    Reference:
        Ho, Jain and Abbeel 2020, Appendix B; Ronneberger, Fischer and Brox 2015, Section 2.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        *,
        num_classes: int = 0,
        widths: tuple[int, ...] = (16, 32, 32),
        blocks: int = 1,
        attention: tuple[int, ...] = (2,),
        head_width: int = 8,
        groups: int = 8,
    ) -> None:
        super().__init__()
        check_shape(widths, blocks, attention, head_width, groups)
        self.image_size, self.num_classes, self.first = image_size, num_classes, widths[0]
        self.factor = 2 ** (len(widths) - 1)
        embedding = 4 * widths[0]

        def stage(fan_in: int, level: int) -> Stage:
            heads = widths[level] // head_width if level in attention else 0
            return Stage(fan_in, widths[level], embedding, heads=heads, groups=groups)

        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.embedding = nn.Sequential(
            nn.Linear(widths[0], embedding), nn.SiLU(), nn.Linear(embedding, embedding)
        )
        self.classes = nn.Embedding(num_classes + 1, embedding) if num_classes else None
        self.down, left = way_down(widths, blocks, stage)
        last = widths[-1]
        self.turn = nn.ModuleList(
            (
                ResidualBlock(last, last, embedding, groups=groups),
                AttentionBlock(last, heads=last // head_width, groups=groups),
                ResidualBlock(last, last, embedding, groups=groups),
            )
        )
        self.up = way_up(widths, blocks, left, stage)
        self.norm = nn.GroupNorm(groups, widths[0])
        self.head = faint(nn.Conv2d(widths[0], channels, 3, padding=1))

    def embed(
        self, t: Float[Tensor, " batch"], label: Int[Tensor, " batch"] | None
    ) -> Float[Tensor, "batch embedding"]:
        """What every residual block reads of the time and the class."""
        if (label is None) != (self.classes is None):
            got = "none" if label is None else "one"
            raise ValueError(
                "a label must be given exactly where there are classes: "
                f"got {got} with num_classes={self.num_classes}"
            )
        e = self.embedding(time_features(t, self.first))
        return F.silu(e if self.classes is None else e + self.classes(label))

    def forward(
        self, x: Images, t: Float[Tensor, " batch"], label: Int[Tensor, " batch"] | None = None
    ) -> Images:
        """An image for each image.

        Args:
            x: Noisy images.
            t: The time of each, in steps of the diffusion.
            label: The class of each, where the network has classes.

        Raises:
            ValueError: A label is lacking, or given to a network without classes.
        """
        e = self.embed(t, label)
        height, width = x.shape[2:]
        below, right = -height % self.factor, -width % self.factor
        top, leading = below // 2, right // 2
        h = self.stem(F.pad(x, (leading, right - leading, top, below - top)))
        left = [h]
        for layer in self.down:
            h = layer(h, e)
            left.append(h)
        before, attention, after = self.turn
        h = after(attention(before(h, e)), e)
        for layer in self.up:
            h = layer(h) if isinstance(layer, Double) else layer(torch.cat((h, left.pop()), 1), e)
        return self.head(F.silu(self.norm(h)))[:, :, top : top + height, leading : leading + width]


def way_down(
    widths: tuple[int, ...], blocks: int, stage: Callable[[int, int], Stage]
) -> tuple[nn.ModuleList, list[int]]:
    """The layers from the stem's maps down to the smallest, and the widths that each of them leaves.

    Args:
        widths: Maps of each level.
        blocks: Stages of a level.
        stage: ``(maps in, level) -> stage``.
    """
    layers, left = nn.ModuleList(), [widths[0]]
    for level, width in enumerate(widths):
        for _ in range(blocks):
            layers.append(stage(left[-1], level))
            left.append(width)
        if level < len(widths) - 1:
            layers.append(Half(width))
            left.append(width)
    return layers, left


def way_up(
    widths: tuple[int, ...], blocks: int, left: list[int], stage: Callable[[int, int], Stage]
) -> nn.ModuleList:
    """The layers from the smallest maps up to the image's size.

    Args:
        widths: Maps of each level, from the full size down.
        blocks: Stages of a level on the way down; here there is one more.
        left: The widths that the way down left, the last read first.
        stage: ``(maps in, level) -> stage``.
    """
    layers, left, now = nn.ModuleList(), [*left], widths[-1]
    for level in reversed(range(len(widths))):
        for _ in range(blocks + 1):
            layers.append(stage(now + left.pop(), level))
            now = widths[level]
        if level:
            layers.append(Double(now))
    return layers


def check_shape(
    widths: tuple[int, ...], blocks: int, attention: tuple[int, ...], head_width: int, groups: int
) -> None:
    """Refuse widths, levels and divisors of which no U-Net can be built.

    Raises:
        ValueError: The first rule that is broken.
    """
    if not widths or min(*widths, blocks, head_width, groups) < 1:
        raise ValueError(
            "widths, blocks, head_width and groups must be positive: "
            f"got widths={widths}, blocks={blocks}, head_width={head_width}, groups={groups}"
        )
    if any(width % groups for width in widths):
        raise ValueError(f"groups must divide every width: got widths={widths}, groups={groups}")
    if widths[0] % 2:
        raise ValueError(f"the first width must be even, for pairs of waves: got {widths[0]}")
    if any(not 0 <= level < len(widths) for level in attention):
        raise ValueError(f"levels of attention must be from 0 to {len(widths) - 1}: got {attention}")
    if any(widths[level] % head_width for level in {*attention, len(widths) - 1}):
        raise ValueError(
            "head_width must divide the widths of the levels with attention and of the last: "
            f"got widths={widths}, attention={attention}, head_width={head_width}"
        )
