"""The layers of a U-Net that is told the time (Ho, Jain and Abbeel 2020): residual, attention, sizes."""

from typing import TypeVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

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
        embedding: Length of e, which comes with sigma already applied.
        groups: Groups of the normalizations; it must divide both numbers of maps.

    Reference:
        Ho, Jain and Abbeel 2020, Appendix B; He, Zhang, Ren and Sun 2016 (Identity mappings), Section 4.
    """

    def __init__(self, fan_in: int, fan_out: int, embedding: int, *, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, fan_in)
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, padding=1)
        self.time = nn.Linear(embedding, fan_out)
        self.norm2 = nn.GroupNorm(groups, fan_out)
        self.conv2 = faint(nn.Conv2d(fan_out, fan_out, 3, padding=1))
        self.shortcut = nn.Identity() if fan_in == fan_out else nn.Conv2d(fan_in, fan_out, 1)

    def forward(self, x: Maps, e: Embedding) -> Float[Tensor, "batch outputs height width"]:
        """The maps after the block."""
        h = self.conv1(F.silu(self.norm1(x))) + self.time(e)[:, :, None, None]
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
        three = self.queries_keys_values(pixels).unflatten(2, (3, self.heads, -1))
        q, k, v = three.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
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
