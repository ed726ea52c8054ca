"""Encoders and decoders, dense and convolutional: inputs to short vectors, and back.

Convolutions take images of any size: sizes are halved rounding up, and doubled to exactly the sizes that were
met on the way down, so that odd and oblong images come back as they were. Upsampling repeats pixels and
convolves, which leaves none of the checkered traces of strided transposed convolutions (Odena, Dumoulin and
Olah 2016).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.activations import Activation
from margin.nn.dense import dense

Images = Float[Tensor, "batch channels height width"]


def halvings(image_size: tuple[int, int], depth: int) -> list[tuple[int, int]]:
    """The sizes met when both axes are halved ``depth`` times, rounding up; the image's own first.

    Raises:
        ValueError: A size or the depth is not positive, or the image is smaller than one pixel before the
            last halving.
    """
    height, width = image_size
    if min(height, width, depth) < 1:
        raise ValueError(f"image_size and depth must be at least 1: got {tuple(image_size)}, {depth}")
    sizes = [(height, width)]
    for _ in range(depth):
        if sizes[-1] == (1, 1):
            raise ValueError(
                f"depth must leave more than one pixel before the last halving: got {depth} for images of "
                f"{height} x {width}"
            )
        sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
    return sizes


def channel_norm(width: int) -> nn.GroupNorm:
    """Normalization over at most 8 groups of channels, which knows no other example (Wu and He 2018)."""
    groups = math.gcd(8, width, max(1, width // 4))  # of one number nothing would be left
    return nn.GroupNorm(groups, width)


class Downsampling(nn.Module):
    """Images to vectors: ``depth`` strided convolutions of doubling width, then an affine map.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        outputs: Numbers of a vector.
        width: Channels after the first convolution.
        depth: Number of convolutions, each of which halves both axes, rounding up.
        normalize: Whether channels are normalized; not in a critic whose slope is penalized.

    Raises:
        ValueError: A number is not positive, or the depth is too large for the image.

    Reference:
        Radford, Metz and Chintala 2016, Section 3, whose strided convolutions replace pooling.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        outputs: int,
        *,
        width: int = 32,
        depth: int = 2,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        if min(width, outputs) < 1:
            raise ValueError(f"width and outputs must be at least 1: got {width}, {outputs}")
        height, breadth = halvings(image_size, depth)[-1]
        widths = [channels, *(width * 2**i for i in range(depth))]
        layers: list[nn.Module] = []
        for i in range(depth):
            layers.append(nn.Conv2d(widths[i], widths[i + 1], 3, stride=2, padding=1))
            layers += [channel_norm(widths[i + 1])] if normalize and i else []
            layers.append(nn.SiLU())
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1] * height * breadth, outputs)

    def forward(self, x: Images) -> Float[Tensor, "batch outputs"]:
        """The vector of each image."""
        return self.head(self.convolutions(x).flatten(1))


class Upsampling(nn.Module):
    """Vectors to images: an affine map to the smallest size, then ``depth`` doublings with a convolution.

    Args:
        inputs: Numbers of a vector.
        channels: Channels of an image.
        image_size: Its height and width.
        width: Channels before the last convolution.
        depth: Number of doublings.

    Raises:
        ValueError: A number is not positive, or the depth is too large for the image.
    """

    def __init__(
        self, inputs: int, channels: int, image_size: tuple[int, int], *, width: int = 32, depth: int = 2
    ) -> None:
        super().__init__()
        if min(width, inputs) < 1:
            raise ValueError(f"width and inputs must be at least 1: got {width}, {inputs}")
        self.sizes = halvings(image_size, depth)[::-1]
        widths = [width * 2**i for i in reversed(range(depth))]
        self.shape = (widths[0], *self.sizes[0])
        self.head = nn.Linear(inputs, math.prod(self.shape))
        self.convolutions = nn.ModuleList(
            nn.Sequential(channel_norm(before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
            for before, after in zip(widths, [*widths[1:], width], strict=True)
        )
        self.last = nn.Sequential(channel_norm(width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, z: Float[Tensor, "batch inputs"]) -> Images:
        """The image of each vector."""
        x = self.head(z).reshape(len(z), *self.shape)
        for size, convolution in zip(self.sizes[1:], self.convolutions, strict=True):
            x = convolution(F.interpolate(x, size=size, mode="nearest"))
        return self.last(x)


@dataclass(frozen=True, slots=True)
class Coder:
    """An encoder and a decoder, to be made once it is known what each passes beside the code.

    Args:
        code: Numbers of a code.
        encoder: ``(outputs) -> module``, from inputs to so many numbers.
        decoder: ``(inputs) -> module``, from so many numbers to an input.

    Raises:
        ValueError: A code has no number.
    """

    code: int
    encoder: Callable[[int], nn.Module]
    decoder: Callable[[int], nn.Module]

    def __post_init__(self) -> None:
        if self.code < 1:
            raise ValueError(f"code must be at least 1: got {self.code}")


def dense_coder(
    in_features: int, *, code: int = 2, hidden: tuple[int, ...] = (128,), activation: Activation = "relu"
) -> Coder:
    """Affine maps with a pointwise function between; without hidden layers, one each way.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        code: Numbers m of a code.
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        activation: The pointwise function between two maps.

    Raises:
        ValueError: A width is not positive.

    Reference:
        Hinton and Salakhutdinov 2006, Figure 1; Baldi and Hornik 1989, Section 2 (no hidden layer).
    """
    return Coder(
        code,
        lambda outputs: nn.Sequential(nn.Flatten(), dense(in_features, hidden, outputs, activation)),
        lambda inputs: dense(inputs, hidden[::-1], in_features, activation),
    )


def conv_coder(
    channels: int, image_size: tuple[int, int], *, code: int = 16, width: int = 16, depth: int = 2
) -> Coder:
    """Strided convolutions, and upsampling with convolutions, of images of any size.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        code: Numbers m of a code.
        width: Channels at the image's full size; doubled at each halving.
        depth: Halvings of the image.

    Raises:
        ValueError: A number is not positive, or the depth is too large for the image.

    Reference:
        Masci, Meier, Ciresan and Schmidhuber 2011, Section 3; here strides stand in place of pooling.
    """
    return Coder(
        code,
        lambda outputs: Downsampling(channels, image_size, outputs, width=width, depth=depth),
        lambda inputs: Upsampling(inputs, channels, image_size, width=width, depth=depth),
    )
