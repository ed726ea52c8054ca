"""Couplings of images (Dinh et al. 2017): checkerboards, channels, squeezing, and halves that leave early."""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.generative.flow.coupling import BEGIN, Affine

Images = Float[Tensor, "batch channels height width"]
PerImage = Float[Tensor, " batch"]
Rows = Float[Tensor, "batch features"]


class Block(nn.Module):
    """The residual map h + c2(relu(c1(relu(h)))), c1 and c2 convolutions of 3 x 3."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, h: Images) -> Images:
        """The image after the block, of the same size."""
        return h + self.second(F.relu(self.first(F.relu(h))))


def convolutions(inputs: int, outputs: int, *, width: int, blocks: int) -> nn.Sequential:
    """A residual convolutional network that keeps the size of an image; near 0 at the beginning."""
    last = nn.Conv2d(width, outputs, 3, padding=1)
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(BEGIN)
    inner = (Block(width) for _ in range(blocks))
    return nn.Sequential(nn.Conv2d(inputs, width, 3, padding=1), *inner, nn.ReLU(), last)


def checkerboard(x: Images, parity: int) -> Float[Tensor, "height width"]:
    """1 where row + column + parity is odd, else 0, in the size of the images."""
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[2:])
    return ((rows[:, None] + columns + parity) % 2).to(x.dtype)


class Checkerboard(nn.Module):
    """A coupling in which the pixels of one color of a checkerboard move, as those of the other say.

    Args:
        channels: Channels of an image.
        parity: Which color moves: 1 the one of the corner.
        affine: How a number moves.
        width: Channels of the network.
        blocks: Its residual blocks.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Section 3.4, Equation 9.
    """

    def __init__(self, channels: int, parity: int, affine: Affine, *, width: int, blocks: int) -> None:
        super().__init__()
        self.parity, self.affine = parity, affine
        self.network = convolutions(channels, 2 * channels, width=width, blocks=blocks)

    def forward(self, x: Images) -> tuple[Images, PerImage]:
        """The image of each, and the log-determinant."""
        moves = checkerboard(x, self.parity)
        y, logs = self.affine.forward(x, moves * self.network((1 - moves) * x))
        return y, logs.flatten(1).sum(1)

    def inverse(self, y: Images) -> Images:
        """That of which each is the image."""
        moves = checkerboard(y, self.parity)
        return self.affine.inverse(y, moves * self.network((1 - moves) * y))


class Channels(nn.Module):
    """A coupling in which half of the channels move, as the other half says.

    Args:
        channels: Channels of an image, even.
        parity: Which half moves: 1 the first.
        affine: How a number moves.
        width: Channels of the network.
        blocks: Its residual blocks.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Sections 3.4 and 3.6.
    """

    def __init__(self, channels: int, parity: int, affine: Affine, *, width: int, blocks: int) -> None:
        super().__init__()
        self.parity, self.affine = parity, affine
        self.network = convolutions(channels // 2, channels, width=width, blocks=blocks)

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.chunk(2, 1)
        return (second, first) if self.parity else (first, second)

    def _joined(self, fixed: Tensor, moved: Tensor) -> Tensor:
        return torch.cat((moved, fixed) if self.parity else (fixed, moved), 1)

    def forward(self, x: Images) -> tuple[Images, PerImage]:
        """The image of each, and the log-determinant."""
        fixed, moved = self._halves(x)
        moved, logs = self.affine.forward(moved, self.network(fixed))
        return self._joined(fixed, moved), logs.flatten(1).sum(1)

    def inverse(self, y: Images) -> Images:
        """That of which each is the image."""
        fixed, moved = self._halves(y)
        return self._joined(fixed, self.affine.inverse(moved, self.network(fixed)))


class MultiScale(nn.Module):
    r"""The multi-scale chain from images to as many numbers.

    At each scale three couplings by checkerboards; then each 2 x 2 x c becomes 1 x 1 x 4 c (squeezing), three
    couplings by channels, and half of the channels leave. The last scale is four checkerboards.

    Args:
        channels: Channels of an image.
        image_size: Its height and width; each divisible by 2^(scales - 1).
        scales: Scales, at least 1: with 1 nothing is squeezed, and any size will do.
        width: Channels of each network.
        blocks: Residual blocks of each network.
        affine: How a number moves.

    Raises:
        ValueError: The size cannot be halved so often, or an option is out of range.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Section 3.6 and Figure 4. There are batch norms between
        and in the networks; here are none, so that no example reads another.
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        *,
        scales: int,
        width: int,
        blocks: int,
        affine: Affine,
    ) -> None:
        super().__init__()
        height, breadth = check_size(image_size, scales)
        if width < 1 or blocks < 0:
            raise ValueError(f"width must be at least 1 and blocks at least 0: got {width}, {blocks}")
        self.shapes, self.scales = [], nn.ModuleList()
        for scale in range(scales):
            last = scale == scales - 1
            boards = [
                Checkerboard(channels, i % 2, affine, width=width, blocks=blocks)
                for i in range(4 if last else 3)
            ]
            wide = 0 if last else 3
            halves = [Channels(4 * channels, i % 2, affine, width=width, blocks=blocks) for i in range(wide)]
            self.scales.append(nn.ModuleList((nn.ModuleList(boards), nn.ModuleList(halves))))
            if not last:
                channels, height, breadth = 2 * channels, height // 2, breadth // 2
            self.shapes.append((channels, height, breadth))  # of what leaves here

    def _parts(self) -> list[tuple[nn.ModuleList, nn.ModuleList]]:
        """The couplings by checkerboards and by channels of each scale."""
        return [
            cast("tuple[nn.ModuleList, nn.ModuleList]", tuple(cast(nn.ModuleList, s))) for s in self.scales
        ]

    def forward(self, x: Images) -> tuple[Rows, PerImage]:
        """The numbers of each image, those that leave first in front, and the log-determinant."""
        left: list[Tensor] = []
        total = x.new_zeros(len(x))
        for boards, halves in self._parts():
            for layer in boards:
                x, logs = layer(x)
                total = total + logs
            if len(halves):
                x = squeezed(x)
                for layer in halves:
                    x, logs = layer(x)
                    total = total + logs
                x, leaves = x.chunk(2, 1)
                left.append(leaves.flatten(1))
        return torch.cat((*left, x.flatten(1)), 1), total

    def inverse(self, z: Rows) -> Images:
        """The image of which these are the numbers."""
        sizes = [channels * height * width for channels, height, width in self.shapes]
        left = [part.unflatten(1, shape) for part, shape in zip(z.split(sizes, 1), self.shapes, strict=True)]
        x = left.pop()
        for boards, halves in reversed(self._parts()):
            if len(halves):
                x = torch.cat((x, left.pop()), 1)
                for layer in reversed(list(halves)):
                    x = cast(Channels, layer).inverse(x)
                x = unsqueezed(x)
            for layer in reversed(list(boards)):
                x = cast(Checkerboard, layer).inverse(x)
        return x


def squeezed(x: Images) -> Float[Tensor, "batch channels4 half_height half_width"]:
    """Each 2 x 2 x c as 1 x 1 x 4 c, in the order of pixel_unshuffle (which leaves no images as they are)."""
    _, _, height, width = x.shape
    cut = x.unflatten(3, (width // 2, 2)).unflatten(2, (height // 2, 2))
    return cut.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def unsqueezed(x: Images) -> Float[Tensor, "batch channels_4 doubled_height doubled_width"]:
    """The images of which :func:`squeezed` makes these."""
    cut = x.unflatten(1, (x.shape[1] // 4, 2, 2))
    return cut.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)


def check_size(image_size: tuple[int, int], scales: int) -> tuple[int, int]:
    """The height and width, which can be halved scales - 1 times.

    Raises:
        ValueError: They cannot, or there is but one pixel.
    """
    height, width = image_size
    if scales < 1:
        raise ValueError(f"scales must be at least 1: got {scales}")
    if height * width < 2:
        raise ValueError(f"a checkerboard needs two pixels: got {height} x {width}")
    side = 2 ** (scales - 1)
    if height % side or width % side:
        raise ValueError(
            f"{scales} scales need a height and width divisible by {side}: got {height} x {width}; "
            "take scales 1, which squeezes nothing, or images of another size"
        )
    return height, width
