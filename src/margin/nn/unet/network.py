"""The U-Net of diffusion (Ho, Jain and Abbeel 2020): from a noisy image and its time to an image.

Sinusoids of the time (Vaswani et al. 2017), residual and attention blocks that read them, levels of half the
size on the way down and of double the size on the way up, beside what the way down left there.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.nn.attention import multi_head

Maps = Float[Tensor, "batch channels height width"]
Embedding = Float[Tensor, "batch embedding"]
Layer = TypeVar("Layer", bound=nn.Module)

FAINT = 1e-5
"""Factor of the weights of what begins near 0."""


def upsampled_convolution(
    x: Maps, weight: Float[Tensor, "outputs channels 3 3"], bias: Float[Tensor, " outputs"] | None = None
) -> Float[Tensor, "batch outputs doubled_height doubled_width"]:
    r"""A 3 x 3 convolution, padded by zeros, of maps in which every pixel was repeated 2 x 2.

    Repetition is a transposed convolution of stride 2 with ones, and the two are one: of stride 2, with the
    4 x 4 kernel W * 1, turned. So 16 products for each pixel and pair of maps do the work of 36.

    Args:
        x: Maps of height h and width w.
        weight: Kernels W of the convolution.
        bias: Added to each map, if there is one.

    Returns:
        Maps of height 2 h and width 2 w.
    """
    turned = weight.flip(2, 3).transpose(0, 1)
    padded = F.pad(turned, (1, 1, 1, 1))
    kernel = padded[..., 1:, 1:] + padded[..., 1:, :-1] + padded[..., :-1, 1:] + padded[..., :-1, :-1]
    return F.conv_transpose2d(x, kernel, bias, stride=2, padding=1)


class ResidualBlock(nn.Module):
    r"""Two normalized convolutions, added to the maps they are given, with the time's embedding in between.

    .. math:: h = \mathrm{conv}_1(\sigma(\mathrm{norm}_1 x)) + P e, \qquad
        y = S x + \mathrm{conv}_2(\sigma(\mathrm{norm}_2 h)), \qquad \sigma(z) = z / (1 + e^{-z})

    S is the identity, or a 1 x 1 convolution where the number of maps changes. conv_2 begins near zero: at
    first y = S x.

    Args:
        fan_in: Maps of x.
        fan_out: Maps of y.
        embedding: Length of e, which comes with sigma already applied; 0: no time is read, P e = 0.
        groups: Groups of the normalizations; it must divide both numbers of maps.

    Reference:
        Ho, Jain and Abbeel 2020, Appendix B; He, Zhang, Ren and Sun 2016 (Identity mappings), Section 4.
    """

    def __init__(self, fan_in: int, fan_out: int, embedding: int, *, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, fan_in)
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, padding=1)
        self.time = nn.Linear(embedding, fan_out) if embedding else None
        self.norm2 = nn.GroupNorm(groups, fan_out)
        self.conv2 = faint(nn.Conv2d(fan_out, fan_out, 3, padding=1))
        self.shortcut = nn.Identity() if fan_in == fan_out else nn.Conv2d(fan_in, fan_out, 1)

    def forward(self, x: Maps, e: Embedding | None = None) -> Float[Tensor, "batch outputs height width"]:
        """The maps after the block."""
        h = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            h = h + self.time(e)[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class AttentionBlock(nn.Module):
    """Self-attention among the pixels of normalized maps, added to the maps; its output begins near zero.

    Args:
        channels: Number of maps.
        heads: Number of heads, a divisor of it.
        groups: Groups of the normalization.

    Reference:
        Ho, Jain and Abbeel 2020, Appendix B; Vaswani et al. 2017, Section 3.2.
    """

    def __init__(self, channels: int, *, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels)
        self.queries_keys_values = nn.Linear(channels, 3 * channels)
        self.output = faint(nn.Linear(channels, channels))

    def forward(self, x: Maps) -> Maps:
        """The maps after the block."""
        batch, channels, height, width = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.queries_keys_values(pixels).chunk(3, 2)
        mixed = multi_head(q, k, v, self.heads)
        return x + self.output(mixed).transpose(1, 2).reshape(batch, channels, height, width)


class Stage(nn.Module):
    """A residual block, and attention after it where there are heads.

    Args:
        fan_in: Maps of the input.
        fan_out: Maps of the output.
        embedding: Length of the time's embedding.
        heads: Heads of the attention, 0 for none.
        groups: Groups of the normalizations.
    """

    def __init__(self, fan_in: int, fan_out: int, embedding: int, *, heads: int, groups: int) -> None:
        super().__init__()
        self.residual = ResidualBlock(fan_in, fan_out, embedding, groups=groups)
        self.attention = AttentionBlock(fan_out, heads=heads, groups=groups) if heads else nn.Identity()

    def forward(self, x: Maps, e: Embedding) -> Float[Tensor, "batch outputs height width"]:
        """The maps after the stage."""
        return self.attention(self.residual(x, e))


class Half(nn.Module):
    """A 3 x 3 convolution of stride 2: maps of half the height and width, both even.

    Args:
        channels: Number of maps.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Maps, e: Embedding) -> Float[Tensor, "batch channels half_height half_width"]:
        """The smaller maps; the time plays no part."""
        return self.conv(x)


class Double(nn.Module):
    """A 3 x 3 convolution of maps whose pixels are repeated: maps of double height and width.

    Args:
        channels: Number of maps.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Maps) -> Float[Tensor, "batch channels doubled_height doubled_width"]:
        """The larger maps."""
        return upsampled_convolution(x, self.conv.weight, self.conv.bias)


def faint(layer: Layer) -> Layer:
    """The layer with a bias of 0 and nearly no weights: what adds its output changes nothing at first.

    Not exactly 0, as in the authors' own code: then every parameter has a gradient from the first step.
    """
    for parameter in layer.parameters():
        nn.init.zeros_(parameter) if parameter.ndim == 1 else parameter.data.mul_(FAINT)
    return layer


def surrounded(x: Maps, factor: int) -> tuple[Float[Tensor, "batch channels rows columns"], slice, slice]:
    """Maps with zeros around them up to the next multiple of ``factor``, and their rows and columns therein.

    The odd pixel is below and right.
    """
    height, width = x.shape[2:]
    below, right = -height % factor, -width % factor
    top, leading = below // 2, right // 2
    padded = F.pad(x, (leading, right - leading, top, below - top))
    return padded, slice(top, top + height), slice(leading, leading + width)


def time_features(t: Float[Tensor, " batch"], width: int) -> Float[Tensor, "batch width"]:
    r"""Cosines and sines of t at frequencies from 1 down to almost 1/10000, evenly in the logarithm.

    .. math:: (\cos \omega_0 t, .., \cos \omega_{h-1} t, \sin \omega_0 t, .., \sin \omega_{h-1} t), \qquad
        \omega_i = 10000^{-i / h}, \quad h = width / 2

    Args:
        t: Times, in steps of the chain.
        width: Numbers of a time, even and positive.

    Raises:
        ValueError: The width is odd or not positive.

    Reference: Vaswani et al. 2017, Section 3.5; Ho, Jain and Abbeel 2020, Appendix B.
    """
    if width < 2 or width % 2:
        raise ValueError(f"the width of time features must be even and positive: got {width}")
    half = width // 2
    omega = torch.exp(-math.log(10000) / half * torch.arange(half, dtype=t.dtype, device=t.device))
    angle = t[:, None] * omega
    return torch.cat((angle.cos(), angle.sin()), 1)


Images = Float[Tensor, "batch channels height width"]


class UNet(nn.Module):
    r"""A network of images and times: down through levels of half the size, and up beside what was passed.

    Level l has ``widths[l]`` maps. On the way down it has ``blocks`` residual blocks and, but for the last, a
    convolution of stride 2; on the way up ``blocks + 1`` residual blocks, each of which also reads the maps
    that the way down left at its place, and a doubling. At the turn: a residual block, attention, another.
    The time's waves pass through two affine maps to an embedding of 4 ``widths[0]`` numbers, to which that of
    the class is added; every residual block reads it. With equal weights this is the function of UNet2DModel
    in the library diffusers (:func:`margin.nn.unet.diffusers_weights.from_diffusers`).

    An image whose sides 2^(levels - 1) does not divide is surrounded by zeros up to the next multiple, the
    odd pixel below and right, and cut out again at the end. The last convolution, the second of each
    residual block and the output of each attention begin near zero: at first so does the answer.

    Args:
        channels: Channels of an image, in and out.
        image_size: Its height and width, in pixels; any.
        num_classes: Number of classes; the label ``num_classes`` is that of none. 0: no labels are read.
        widths: Maps of each level of the U-Net, from the full size down, each level of half the size.
        blocks: Residual blocks of a level on the way down; on the way up there is one more.
        attention: Levels, from 0, whose residual blocks are each followed by attention; at the turn there is
            always one.
        head_width: Channels of a head of the attention.
        groups: Groups of the normalizations, a divisor of each width.

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
        self.shape = (channels, *image_size)
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
        padded, rows, columns = surrounded(x, self.factor)
        h = self.stem(padded)
        left = [h]
        for layer in self.down:
            h = layer(h, e)
            left.append(h)
        before, attention, after = self.turn
        h = after(attention(before(h, e)), e)
        for layer in self.up:
            h = layer(h) if isinstance(layer, Double) else layer(torch.cat((h, left.pop()), 1), e)
        return self.head(F.silu(self.norm(h)))[:, :, rows, columns]


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
