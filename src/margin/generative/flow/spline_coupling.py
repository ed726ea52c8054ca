"""Monotone rational-quadratic splines (Gregory and Delbourgo 1982; Durkan et al. 2019) as coupling maps."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Numbers = Float[Tensor, "*numbers"]
Raw = Float[Tensor, "*numbers raw"]

LEAST = 1e-3
"""The least width and height of a bin, as shares of the box, and the least derivative at a knot."""


class Knots(NamedTuple):
    """The knots of a spline: places x and y, rising, and the derivative at each; a spline a number."""

    x: Float[Tensor, "*numbers knots"]
    y: Float[Tensor, "*numbers knots"]
    slope: Float[Tensor, "*numbers knots"]


class Bin(NamedTuple):
    """What is known of the bin in which a number lies: its lower left corner, its sides, its end slopes."""

    x: Numbers
    y: Numbers
    width: Numbers
    height: Numbers
    low: Numbers
    high: Numbers


def knots_of(raw: Raw, box: float) -> Knots:
    """The knots of K bins on [-box, box]^2 from 3 K - 1 raw outputs: K widths, K heights, K - 1 slopes.

    Raw outputs of 0 give the identity. The slopes at the two ends are 1, as outside.

    Reference: Durkan, Bekasov, Murray and Papamakarios 2019, Section 3.1.
    """
    bins = (raw.shape[-1] + 1) // 3
    widths, heights, slopes = raw.split((bins, bins, bins - 1), -1)
    inner = LEAST + F.softplus(slopes + math.log(math.expm1(1 - LEAST)))
    return Knots(_places(widths, box), _places(heights, box), F.pad(inner, (1, 1), value=1.0))


def _places(raw: Tensor, box: float) -> Tensor:
    shares = LEAST + (1 - LEAST * raw.shape[-1]) * raw.softmax(-1)
    inner = box * (2 * shares.cumsum(-1)[..., :-1] - 1)
    # the ends are exact: a sum of shares is 1 up to rounding only
    return F.pad(F.pad(inner, (1, 0), value=-box), (0, 1), value=box)


def _bin_of(places: Tensor, at: Tensor, knots: Knots) -> Bin:
    """The bin of each number among ``places``, the lower one's end belonging to the upper bin."""
    index = (at[..., None] >= places[..., 1:-1]).sum(-1, keepdim=True)

    def ends(values: Tensor) -> tuple[Tensor, Tensor]:
        return values.gather(-1, index)[..., 0], values.gather(-1, index + 1)[..., 0]

    (x, right), (y, top), (low, high) = ends(knots.x), ends(knots.y), ends(knots.slope)
    return Bin(x, y, right - x, top - y, low, high)


def spline(x: Numbers, raw: Raw, box: float) -> tuple[Numbers, Numbers]:
    r"""The rational-quadratic spline at each number, and the logarithm of its derivative.

    In a bin of width w, height h, s = h / w, with xi the place in the bin from 0 to 1 and r = xi (1 - xi):

    .. math:: y = y_k + h \frac{s \xi^2 + d_k r}{s + (d_{k+1} + d_k - 2 s) r}, \qquad
        y' = s^2 \frac{d_{k+1} \xi^2 + 2 s r + d_k (1 - \xi)^2}{(s + (d_{k+1} + d_k - 2 s) r)^2}

    Outside of [-box, box] it is the identity. There the spline is computed at the box's edge and not used,
    so no gradient is NaN.

    Reference: Durkan, Bekasov, Murray and Papamakarios 2019, Equations 4 and 5.
    """
    knots, inside = knots_of(raw, box), x.abs() < box
    at = _bin_of(knots.x, x.clamp(-box, box), knots)
    s = at.height / at.width
    xi = (x.clamp(-box, box) - at.x) / at.width
    r = xi * (1 - xi)
    below = s + (at.high + at.low - 2 * s) * r
    y = at.y + at.height * (s * xi.square() + at.low * r) / below
    above = at.high * xi.square() + 2 * s * r + at.low * (1 - xi).square()
    log_slope = 2 * (s.log() - below.log()) + above.log()
    return torch.where(inside, y, x), torch.where(inside, log_slope, torch.zeros_like(x))


def spline_inverse(y: Numbers, raw: Raw, box: float) -> Numbers:
    r"""The number at which the spline has each value: the root in [0, 1] of a quadratic.

    .. math:: \xi = \frac{2 c}{-b - \sqrt{b^2 - 4 a c}} = \frac{\sqrt{b^2 - 4 a c} - b}{2 a}

    The first where b >= 0, the second where b < 0 (then a > 0, for c <= 0): so neither subtracts numbers that
    may be nearly equal. The discriminant is the square of the quadratic's slope at the root; where it is
    rounded below 0 it is taken as the least positive number. All is computed in float64, for the coefficients
    cancel where the spline is steep beside flat, and the root is kept in its bin.

    Reference: Durkan, Bekasov, Murray and Papamakarios 2019, Equations 6 to 8 and Appendix A.3, which has the
        first form alone.
    """
    dtype, inside = y.dtype, y.abs() < box
    given, y, knots = y, y.double(), knots_of(raw.double(), box)
    at = _bin_of(knots.y, y.clamp(-box, box), knots)
    s = at.height / at.width
    rise = y.clamp(-box, box) - at.y
    bend = rise * (at.high + at.low - 2 * s)
    a = at.height * (s - at.low) + bend
    b = at.height * at.low - bend
    c = -s * rise
    discriminant = (b.square() - 4 * a * c).clamp_min(torch.finfo(y.dtype).tiny)
    root, steep, one = discriminant.sqrt(), b < 0, torch.ones_like(b)
    # what is not taken is computed of 1, so that no gradient is NaN
    shallow = 2 * c / (-torch.where(steep, one, b) - root)
    xi = torch.where(steep, (root - b) / (2 * torch.where(steep, a, one)), shallow)
    return torch.where(inside, (at.x + xi.clamp(0, 1) * at.width).to(dtype), given)


@dataclass(frozen=True, slots=True)
class Spline:
    """A monotone rational-quadratic spline for each number, the identity outside of a box.

    Args:
        bins: K, pieces of a spline, at least 2.
        box: Half the side of the box, positive.

    Raises:
        ValueError: The bins or the box are out of range.
    """

    bins: int = 8
    box: float = 3.0

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= 1 / (2 * LEAST):
            raise ValueError(f"bins must be from 2 to {1 / (2 * LEAST):g}: got {self.bins}")
        if not 0 < self.box < math.inf:
            raise ValueError(f"box must be positive: got {self.box:g}")

    @property
    def count(self) -> int:
        """Raw outputs that one number needs: widths, heights, slopes between."""
        return 3 * self.bins - 1

    def forward(
        self, x: Float[Tensor, "batch features"], raw: Tensor
    ) -> tuple[Float[Tensor, "batch features"], Float[Tensor, "batch features"]]:
        """The images and the log-derivatives; raw has the outputs of the first number, then the next."""
        return spline(x, raw.unflatten(1, (x.shape[1], self.count)), self.box)

    def inverse(self, y: Float[Tensor, "batch features"], raw: Tensor) -> Float[Tensor, "batch features"]:
        """The numbers of which these are the images."""
        return spline_inverse(y, raw.unflatten(1, (y.shape[1], self.count)), self.box)
