"""Changes of images that keep what they show (Simard, Steinkraus and Platt, 2003): moved, mirrored, turned.

Each is one vectorized operation on a batch (batch, channels, height, width), every image with a draw of its
own; the image itself is among the outcomes. Types are kept; integers are rounded.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from margin.data.transforms.noise import like, real_of, uniform

Border = Literal["edge", "background", "cyclic"]
"""What comes in from outside: the nearest pixel, the background, or what left on the other side."""

Images = Shaped[Tensor, "batch channels height width"]


@runtime_checkable
class Moving(Protocol):
    """A change that moves pixels: a mask must move with its image."""

    def of_maps(self) -> Callable[[Tensor, Generator], Tensor]:
        """The same for maps of labels and weights: no two are mixed, and 0 comes in from outside."""
        ...


@dataclass(frozen=True, slots=True)
class Translate:
    """Translation by whole pixels, uniform in {-reach .. reach} along each axis.

    With the border "background" this is padding and random cropping (He et al. 2016, Section 4.2).

    Args:
        reach: Pixels at most.
        border: What comes in from outside.
        background: The value of the background.
    """

    reach: int
    border: Border
    background: float = 0.0

    def of_maps(self) -> "Translate":
        """See :class:`Moving`."""
        return replace(self, background=0.0)

    def __call__(self, x: Images, generator: Generator) -> Images:
        """Each image with a draw of its own."""
        sizes = (2, len(x))
        drawn = torch.randint(2 * self.reach + 1, sizes, generator=generator, device=generator.device)
        down, right = (drawn - self.reach).to(x.device)
        return translated(x, down, right, self.border, reach=(self.reach, self.reach), value=self.background)


def translated(
    x: Images,
    down: Int[Tensor, " batch"],
    right: Int[Tensor, " batch"],
    border: Border,
    *,
    reach: tuple[int, int],
    value: float = 0.0,
) -> Images:
    """Each image moved by its own whole number of pixels: one gather of windows of the padded batch.

    Args:
        x: Images.
        down: Pixels by which each moves down, in -reach[0] .. reach[0].
        right: Pixels to the right, in -reach[1] .. reach[1].
        border: What comes in from outside.
        reach: The largest moves.
        value: Of the background.
    """
    height, width = x.shape[2:]
    padded = _padded(x, reach, border, value)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(x), device=x.device), :, reach[0] - down, reach[1] - right]


def _padded(x: Images, reach: tuple[int, int], border: Border, value: float) -> Tensor:
    if border == "background":
        return F.pad(x, (reach[1], reach[1], reach[0], reach[0]), value=value)
    for axis, most in ((2, reach[0]), (3, reach[1])):
        if most:
            size = x.shape[axis]
            if border == "cyclic":
                before, after = x.narrow(axis, size - most, most), x.narrow(axis, 0, most)
            else:
                shape = list(x.shape)
                shape[axis] = most
                before, after = (x.narrow(axis, end, 1).expand(shape) for end in (0, size - 1))
            x = torch.cat((before, x, after), axis)
    return x


@dataclass(frozen=True, slots=True)
class Flip:
    """The mirror image, left and right exchanged, with probability 1/2."""

    def of_maps(self) -> "Flip":
        """See :class:`Moving`."""
        return self

    def __call__(self, x: Images, generator: Generator) -> Images:
        """Each image with a draw of its own."""
        mirrored = torch.rand(len(x), generator=generator, device=generator.device).to(x.device) < 0.5
        return torch.where(mirrored[:, None, None, None], x.flip(3), x)


@dataclass(frozen=True, slots=True)
class Resample:
    """Rotation about the center by a uniform angle and magnification by a uniform factor.

    Args:
        degrees: Largest angle, to either side.
        zoom: Largest relative change of size, in [0, 1).
        background: The value of what comes in from outside.
        mode: How a value between pixels is found.
    """

    degrees: float = 0.0
    zoom: float = 0.0
    background: float = 0.0
    mode: Literal["bilinear", "nearest"] = "bilinear"

    def of_maps(self) -> "Resample":
        """See :class:`Moving`."""
        return replace(self, background=0.0, mode="nearest")

    def __call__(self, x: Images, generator: Generator) -> Images:
        """Each image with a draw of its own."""
        turn = math.radians(self.degrees)
        angle = uniform(len(x), -turn, turn, x, generator) if turn else real_of(x.new_zeros(len(x)))
        factor = 1.0 + 0 * angle
        if self.zoom:
            factor = uniform(len(x), 1 - self.zoom, 1 + self.zoom, x, generator)
        return resampled(x, angle, factor, self.background, self.mode)


def resampled(
    x: Images,
    angle: Tensor,
    factor: Tensor,
    background: float = 0.0,
    mode: Literal["bilinear", "nearest"] = "bilinear",
) -> Images:
    """Each image turned counterclockwise by its own angle and magnified by its own factor.

    Args:
        x: Images.
        angle: In radians.
        factor: > 0; 2 shows everything twice as large.
        background: The value of what comes in from outside.
        mode: How a value between pixels is found.
    """
    height, width = x.shape[2:]
    cos, sin = angle.cos() / factor, angle.sin() / factor
    zero = torch.zeros_like(cos)
    # affine_grid's coordinates run from -1 to 1 along both axes, whatever their lengths
    rows = (
        torch.stack((cos, -sin * height / width, zero), 1),
        torch.stack((sin * width / height, cos, zero), 1),
    )
    grid = F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    moved = F.grid_sample(real_of(x) - background, grid, mode=mode, align_corners=False)
    return like(x, moved + background)


@dataclass(frozen=True, slots=True)
class Elastic:
    """Elastic deformation: a smooth field of displacements, bicubic between Gaussian vectors at 3 x 3 places.

    The places are the corners, the middles of the edges and the center.

    Args:
        spread: Standard deviation of a displacement along each axis, in pixels.
        background: The value of what comes in from outside.
        mode: How a value between pixels is found.

    Reference: Ronneberger, Fischer and Brox 2015, Section 3.1 (spread 10 on 512 x 512).
    """

    spread: float
    background: float = 0.0
    mode: Literal["bilinear", "nearest"] = "bilinear"

    def of_maps(self) -> "Elastic":
        """See :class:`Moving`."""
        return replace(self, background=0.0, mode="nearest")

    def __call__(self, x: Images, generator: Generator) -> Images:
        """Each image with a draw of its own."""
        drawn = torch.randn(len(x), 2, 3, 3, generator=generator, device=generator.device)
        coarse = self.spread * drawn.to(real_of(x))
        return deformed(
            x,
            F.interpolate(coarse, x.shape[2:], mode="bicubic", align_corners=True),
            self.background,
            self.mode,
        )


def deformed(
    x: Images,
    field: Float[Tensor, "batch 2 height width"],
    background: float = 0.0,
    mode: Literal["bilinear", "nearest"] = "bilinear",
) -> Images:
    """Each image with every pixel taken from where a field of displacements points.

    Args:
        x: Images.
        field: From a pixel to where it is taken, in pixels: right, then down.
        background: The value of what comes in from outside.
        mode: How a value between pixels is found.
    """
    height, width = x.shape[2:]
    columns, rows = torch.arange(width).to(field), torch.arange(height).to(field)
    # the coordinates of grid_sample run from -1 to 1, from the outer edge of the first pixel to the last's
    across = (2 * (columns + field[:, 0]) + 1) / width - 1
    down = (2 * (rows[:, None] + field[:, 1]) + 1) / height - 1
    grid = torch.stack((across, down), 3)
    moved = F.grid_sample(real_of(x) - background, grid, mode=mode, align_corners=False)
    return like(x, moved + background)


@dataclass(frozen=True, slots=True)
class Cutout:
    """A square of background somewhere in the image, with probability 1/2.

    The square lies wholly inside, which DeVries and Taylor (2017, Section 3.2) found to do as well as one
    that may stick out, if half of the images stay whole.

    Args:
        side: Of the square, in pixels.
        background: Its value.
    """

    side: int
    background: float = 0.0

    def __call__(self, x: Images, generator: Generator) -> Images:
        """Each image with a draw of its own."""
        drawn = torch.rand(3, len(x), generator=generator, device=generator.device).to(x.device)
        inside = (drawn[0] < 0.5)[:, None, None]
        for axis in (2, 3):
            size = x.shape[axis]
            start = (drawn[axis - 1] * (size - self.side + 1)).long()[:, None]
            places = torch.arange(size, device=x.device)
            within = (places >= start) & (places < start + self.side)
            inside = inside & within.unsqueeze(4 - axis)
        return x.masked_fill(inside[:, None], self.background)
