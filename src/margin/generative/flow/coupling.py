"""Coupling layers (Dinh et al. 2014, 2017): half of the numbers move, as a network of the other half says.

A number moves by an affine map, or by a monotone rational-quadratic spline (Gregory and Delbourgo 1982;
Durkan et al. 2019).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.activations import Activation
from margin.nn.dense import dense

Rows = Float[Tensor, "batch features"]
Context = Float[Tensor, "batch context"]
PerRow = Float[Tensor, " batch"]

PIECE = 4096
"""Rows that are mapped at once where no gradient is needed: what lies between then stays in the cache."""

BEGIN = 0.1
"""Factor of the last layer of each network at the beginning: every map is then near the identity."""


@runtime_checkable
class Monotone(Protocol):
    """An increasing map of each number by itself, and its inverse, from a network's raw outputs."""

    @property
    def count(self) -> int:
        """Raw outputs that one number needs."""
        ...

    def forward(self, x: Rows, raw: Tensor) -> tuple[Rows, Rows]:
        """The images of the numbers, and the logarithms of the derivatives."""
        ...

    def inverse(self, y: Rows, raw: Tensor) -> Rows:
        """The numbers of which these are the images."""
        ...


@dataclass(frozen=True, slots=True)
class Affine:
    """The map y = x exp(s) + t, where s = limit tanh(the raw output).

    Args:
        limit: Largest |s|, positive.

    Raises:
        ValueError: The limit is not positive.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Equations 4 to 8 and Section 4.1, where the factor of the
        tanh is learned.
    """

    limit: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.limit < math.inf:
            raise ValueError(f"max_log_scale must be positive: got {self.limit:g}")

    @property
    def count(self) -> int:
        """Raw outputs that one number needs: those of s, then those of t."""
        return 2

    def forward(self, x: Float[Tensor, "*n"], raw: Tensor) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """The images and the log-derivatives; raw has twice the channels of x (axis 1), s before t."""
        s, t = raw.chunk(2, 1)
        s = self.limit * torch.tanh(s)
        return torch.addcmul(t, x, s.exp()), s

    def inverse(self, y: Float[Tensor, "*n"], raw: Tensor) -> Float[Tensor, "*n"]:
        """The numbers of which these are the images: (y - t) exp(-s)."""
        s, t = raw.chunk(2, 1)
        return (y - t) * torch.exp(-self.limit * torch.tanh(s))


class Couplings(nn.Module):
    r"""A chain of couplings of two halves that change roles from one to the next.

    .. math:: (a, b) \mapsto (a, g(b; N_1(a))) \mapsto (g(a; N_2(b)), b) \mapsto \dots

    with g increasing in each number, so the Jacobian is triangular in each step and its log-determinant is
    the sum of the log-derivatives. The halves are cut once and joined once.

    Args:
        in_features: Numbers of a row, at least 2; the first half is the smaller of two that are unequal.
        context: Numbers that every network sees besides.
        monotone: g.
        layers: Couplings, at least 2: fewer leave a half as it is.
        hidden: Widths of the layers of each network.
        activation: Between the layers of a network.

    Raises:
        ValueError: There are fewer than two features or layers.

    Reference: Dinh, Sohl-Dickstein and Bengio 2017, Sections 3.2 to 3.5, Equations 6 and 7; the beginning is
        Kingma and Dhariwal 2018, Section 3.3, short of their 0, where most weights had no gradient.
    """

    def __init__(
        self,
        in_features: int,
        context: int,
        *,
        monotone: Monotone,
        layers: int,
        hidden: tuple[int, ...],
        activation: Activation,
    ) -> None:
        super().__init__()
        if in_features < 2:
            raise ValueError(f"a coupling moves half of the features by the other: got {in_features} feature")
        if layers < 2:
            raise ValueError(f"layers must be at least 2, that both halves move: got {layers}")
        self.monotone = monotone
        self.sizes = (in_features // 2, in_features - in_features // 2)
        pairs = (self.sizes, self.sizes[::-1])
        networks = [
            dense(fixed + context, hidden, monotone.count * moved, activation)
            for fixed, moved in (pairs[i % 2] for i in range(layers))
        ]
        self.networks = nn.ModuleList(networks)
        for module in self.networks.modules():
            if isinstance(module, nn.ReLU):
                # of an affine map's output, which no gradient needs: a fifth of the time
                module.inplace = True
        with torch.no_grad():  # a chain that begins near the identity keeps the tails of its density
            for network in networks:
                for parameter in network[-1].parameters():
                    parameter.mul_(BEGIN)

    def forward(self, x: Rows, context: Context | None = None) -> tuple[Rows, PerRow]:
        """The image of each row, and the log-determinant of the Jacobian there."""
        fixed, moved = x.split(self.sizes, 1)
        totals = [torch.zeros_like(moved), torch.zeros_like(fixed)]  # a half each: rows are summed once
        for i, network in enumerate(self.networks):
            moved, logs = self.monotone.forward(moved, network(_joined(fixed, context)))
            totals[i % 2] = totals[i % 2] + logs
            fixed, moved = moved, fixed
        return self._restored(fixed, moved), totals[0].sum(1) + totals[1].sum(1)

    def inverse(self, z: Rows, context: Context | None = None) -> Rows:
        """The row of which each is the image."""
        odd = len(self.networks) % 2 == 1
        first, second = z.split(self.sizes, 1)
        fixed, moved = (second, first) if odd else (first, second)
        for network in reversed(self.networks):
            fixed, moved = moved, fixed
            moved = self.monotone.inverse(moved, network(_joined(fixed, context)))
        return torch.cat((fixed, moved), 1)

    def _restored(self, fixed: Tensor, moved: Tensor) -> Tensor:
        odd = len(self.networks) % 2 == 1
        return torch.cat((moved, fixed) if odd else (fixed, moved), 1)


def _joined(fixed: Tensor, context: Tensor | None) -> Tensor:
    return fixed if context is None else torch.cat((fixed, context), 1)


def standard_normal(z: Float[Tensor, " batch *features"]) -> PerRow:
    """Log N(z; 0, I) of each row, in nats."""
    flat = z.flatten(1)
    return -0.5 * (flat.square().sum(1) + flat.shape[1] * math.log(2 * math.pi))


def in_pieces(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """A function of rows, a piece of them at a time where no gradient is needed and there are many."""
    if torch.is_grad_enabled() or len(rows[0]) <= PIECE:
        return function(*rows)
    return torch.cat([function(*piece) for piece in zip(*(x.split(PIECE) for x in rows), strict=True)])


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
