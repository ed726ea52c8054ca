"""RealNVP of images (Dinh et al. 2017): numbers of 2^b levels, spread over their cells, mapped to noise.

Its couplings move the pixels of one color of a checkerboard, or half of the channels; images are squeezed
between scales, and half of the channels leave early.
"""

import math
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.generative.autoencoder.distributions import noise_path, unit_inputs
from margin.generative.flow.coupling import BEGIN, Affine, standard_normal

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


ALPHA = 0.05
"""Share of [0, 1] that is kept free at either end, so that no logit is infinite."""


def logits_of(y: Images) -> tuple[Images, PerImage]:
    r"""The map of [0, 1] to the line, and its log-determinant.

    .. math:: v = \mathrm{logit}(\alpha + (1 - 2 \alpha) y), \quad
        \log v' = \log(1 - 2 \alpha) + \mathrm{softplus}(v) + \mathrm{softplus}(-v)

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Section 4.1, alpha = .05; as printed, alpha + (1 - alpha)
        y, it is infinite at 1, and what they ran keeps both ends free.
    """
    v = torch.logit(ALPHA + (1 - 2 * ALPHA) * y)
    logs = math.log(1 - 2 * ALPHA) + F.softplus(v) + F.softplus(-v)
    return v, logs.flatten(1).sum(1)


def from_logits(v: Images) -> Images:
    """The y of which v is the logit: in [0, 1], and beyond by alpha / (1 - 2 alpha) at most."""
    return (v.sigmoid() - ALPHA) / (1 - 2 * ALPHA)


class RealNVPImages(nn.Module):
    r"""A distribution of images of L levels, bounded below by a flow's density of their cells.

    A level k of a number is spread evenly over the cell [k, k + 1) / L; with p the flow's density on [0, 1]^D

    .. math:: \log P(k) = \log \int_{[0, 1]^D} p\big(\tfrac{k + u}{L}\big) \frac{du}{L^D}
        \ge E_u \log p\big(\tfrac{k + u}{L}\big) - D \log L

    Args:
        channels: Channels of an image.
        image_size: Its height and width, divisible by 2^(scales - 1).
        scales: Scales; with 1 nothing is squeezed, and any size will do.
        width: Channels of each network.
        blocks: Residual blocks of each network.
        levels: L, the values that a number can have, evenly from 0 to 1; an input is taken to the nearest.
        max_log_scale: Largest |s| of a coupling, which scales by exp(s).

    Raises:
        ValueError: The size cannot be halved so often, or an option is out of range.

    Reference:
        Dinh, Sohl-Dickstein and Bengio 2017, Sections 3.6 and 4.1; Theis, van den Oord and Bethge 2016,
        Section 3.1 (the bound).
    """

    def __init__(
        self,
        channels: int,
        image_size: tuple[int, int],
        *,
        scales: int = 2,
        width: int = 32,
        blocks: int = 1,
        levels: int = 256,
        max_log_scale: float = 2.0,
    ) -> None:
        super().__init__()
        if levels < 2:
            raise ValueError(f"levels must be at least 2: got {levels}")
        self.shape, self.levels = (channels, *image_size), levels
        self.couplings = MultiScale(
            channels, image_size, scales=scales, width=width, blocks=blocks, affine=Affine(max_log_scale)
        )

    def transform(self, y: Images) -> tuple[Rows, PerImage]:
        """The noise z = f(y) of images of real numbers in [0, 1], and log |det f'(y)|."""
        v, outer = logits_of(y)
        z, inner = self.couplings(v)
        return z, outer + inner

    def inverse(self, z: Rows) -> Images:
        """The images f^-1(z) of real numbers."""
        return from_logits(self.couplings.inverse(z))

    def log_density(self, y: Images) -> PerImage:
        """The flow's log-density of images of real numbers in [0, 1], in nats: exact."""
        z, log_det = self.transform(y)
        return standard_normal(z) + log_det

    def cell(self, x: Images, u: Float[Tensor, "*batch channels height width"]) -> Images:
        """The points (k + u) / L of the cells of the levels k nearest to the images."""
        k = (unit_inputs(x, "a flow of images") * (self.levels - 1)).round()
        return (k + u) / self.levels

    def _bounded(self, x: Images, u: Tensor) -> PerImage:
        return self.log_density(self.cell(x, u)) - math.prod(self.shape) * math.log(self.levels)

    def bound(self, x: Images, *, generator: Generator) -> PerImage:
        """A lower bound of each log-probability in the mean over the draw, in nats.

        Args:
            x: Images in [0, 1].
            generator: Where the points of the cells are drawn from.

        Raises:
            ValueError: A number is outside of [0, 1].
        """
        return self._bounded(x, torch.rand(x.shape, generator=generator).to(x))

    def noise(self, count: int, generator: Generator) -> Rows:
        """Standard normal rows, in the type and on the device of the weights."""
        weight = next(self.parameters())
        return torch.randn(count, math.prod(self.shape), generator=generator).to(weight)

    def _levels(self, z: Rows) -> Images:
        """The images of noise, at the levels in whose cells they lie, the outer ones with what is beyond."""
        k = (self.inverse(z) * self.levels).floor()
        return k.clamp(0, self.levels - 1) / (self.levels - 1)

    def sample(self, count: int, *, generator: Generator, temperature: float = 1.0) -> Images:
        """Images drawn from the model.

        Args:
            count: How many.
            generator: Where the noise is drawn from.
            temperature: Standard deviation of the noise, positive: below 1 the images are the more likely
                ones, and no longer drawn from the distribution.

        Raises:
            ValueError: The temperature is not positive.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite: got {temperature:g}")
        return self._levels(temperature * self.noise(count, generator))

    def interpolate(self, count: int, *, generator: Generator) -> Images:
        """Images on the path between two that are drawn, along the great circle of their noise."""
        first, last = self.noise(2, generator)
        return self._levels(noise_path(first, last, count))

    def forward(self, x: Images) -> PerImage:
        """The bound of each image's log-probability in nats, at one draw that is the same for all."""
        u = torch.rand(self.shape, generator=Generator().manual_seed(0))
        return self._bounded(x, u.to(x))
