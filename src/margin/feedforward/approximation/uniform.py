"""How near a function is to another and to a class: uniform distance, best uniform fit (Chebyshev 1854).

A grid sees the distance from below. What it may have missed is bounded by a Lipschitz constant.

Weierstrass's theorem (1885) by Bernstein's polynomials (1912), exact and uniform on [a, b].
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Function = Callable[[Tensor], Tensor]
"""From points, one a row, to a number for each."""

REFINED, ROUNDS = 8, 40
"""Points of the grid that are climbed from, and how often the step is halved."""


class UniformDistance(NamedTuple):
    r"""What is known of :math:`\|f - g\|_{\infty, K}`.

    Args:
        lower: The largest gap found: the distance is at least this.
        upper: The distance is at most this; infinite where no Lipschitz constant is given.
        where: The point of the largest gap.
    """

    lower: float
    upper: float
    where: Float[Tensor, " dimension"]


def uniform_distance(
    f: Function,
    g: Function,
    low: Float[Tensor, " dimension"],
    high: Float[Tensor, " dimension"],
    *,
    points: int = 100_000,
    lipschitz: float | None = None,
) -> UniformDistance:
    r"""The distance :math:`\sup_{x \in K} |f(x) - g(x)|` on a box, from below and, if it can be, from above.

    .. math:: \max_{\text{grid}} |f - g| \le \|f - g\|_{\infty, K} \le \max_{\text{grid}} |f - g| + L \rho

    The grid is even with the corners on it, rho half a cell's diagonal: no point of K is farther from it. The
    lower bound is improved by a search from the best points of the grid. Computed in float64.

    Args:
        f: A function of rows.
        g: Another.
        low: Least corner of K.
        high: Largest corner.
        points: Points of the grid at most; at least 2 a coordinate are needed.
        lipschitz: L, a Lipschitz constant of f - g in the Euclidean norm, where one is known.

    Raises:
        ValueError: The box is empty, L is negative, or its corners alone are more than ``points``.
    """
    low, high = low.double(), high.double()
    d = len(low)
    if not bool((low < high).all() and low.isfinite().all() and high.isfinite().all()):
        raise ValueError("a box needs low < high in every coordinate, both finite: got one that is not")
    if lipschitz is not None and not 0 <= lipschitz < math.inf:
        raise ValueError(f"a Lipschitz constant must be finite and at least 0: got {lipschitz}")
    side = math.floor(points ** (1 / d) + 1e-9)
    if side < 2:
        raise ValueError(f"points must be at least 2^dimension: got points={points}, dimension={d}")
    axes = [
        torch.linspace(float(a), float(b), side, dtype=torch.float64) for a, b in zip(low, high, strict=True)
    ]
    grid = torch.cartesian_prod(*axes).reshape(-1, d)
    with torch.no_grad():
        gaps = torch.cat([_gap(f, g, part) for part in grid.split(2**16)])
        if not bool(gaps.isfinite().all()):
            where = grid[~gaps.isfinite()][0]
            return UniformDistance(math.nan, math.nan, where)
        best, gap = _climbed(f, g, grid[gaps.topk(min(REFINED, len(gaps))).indices], low, high, side)
    rho = float(torch.linalg.vector_norm((high - low) / (side - 1))) / 2
    upper = math.inf if lipschitz is None else float(gaps.max()) + lipschitz * rho
    return UniformDistance(gap, upper, best)


def _gap(f: Function, g: Function, x: Float[Tensor, "points dimension"]) -> Float[Tensor, " points"]:
    one, other = f(x), g(x)
    if one.shape != (len(x),) or other.shape != (len(x),):
        raise ValueError(
            f"functions must give one number a row: got {tuple(one.shape)} and {tuple(other.shape)}"
        )
    return (one.double() - other.double()).abs()


def _climbed(  # 6 parameters: two functions and the grid that the search begins on
    f: Function,
    g: Function,
    x: Float[Tensor, "some dimension"],
    low: Float[Tensor, " dimension"],
    high: Float[Tensor, " dimension"],
    side: int,
) -> tuple[Tensor, float]:
    """Search along the axes, halving the step: where the largest gap is, and the gap."""
    step, gap = (high - low) / (side - 1), _gap(f, g, x)
    moves = torch.cat((torch.eye(len(low)), -torch.eye(len(low)))).to(x)
    for _ in range(ROUNDS):
        tried = (x[:, None] + moves * step).clamp(low, high)
        gaps = _gap(f, g, tried.flatten(0, 1)).reshape(len(x), -1)
        larger, index = gaps.max(1)
        better = larger > gap
        x = torch.where(better[:, None], tried[torch.arange(len(x)), index], x)
        gap = torch.maximum(gap, larger)
        step = step / 2 if not bool(better.any()) else step
    return x[int(gap.argmax())], float(gap.max())


class BestFit(NamedTuple):
    """The best uniform fit to values at points by a span of functions.

    Args:
        coefficients: Of the functions.
        error: Their largest error at the points.
        lower: No fit at these points has a smaller one. For points of a set K, nor has any on K.
    """

    coefficients: Float[Tensor, " functions"]
    error: float
    lower: float


def best_uniform_fit(
    functions: Float[Tensor, "points functions"], values: Float[Tensor, " points"]
) -> BestFit:
    r"""The coefficients of least uniform error, by a linear program, with a proof of how small it can be.

    .. math:: \min_c \max_i |(\Phi c)_i - y_i| = \max \{ \lambda \cdot y : \Phi^\top \lambda = 0,
        \|\lambda\|_1 = 1 \}

    The program is solved for the residual of least squares, in an orthonormal basis and the residual's unit;
    its multipliers, put exactly into the null space, give ``lower``. On a grid of K this bounds the distance
    d_K(f, G) from below; the error of the same coefficients on all of K bounds it from above.

    Args:
        functions: Phi, the value of each function at each point; nearly dependent ones count as dependent.
        values: y, the value of f at each point.

    Raises:
        ArithmeticError: The program is not solved, for instance where values are not finite.

    Reference: Cheney 1966, Chapter 2 (Tchebycheff solutions of inconsistent linear equations).
    """
    phi, y = functions.double(), values.double()
    if not bool(phi.isfinite().all() and y.isfinite().all()):
        raise ArithmeticError("functions and values must be finite: got one that is not")
    U, S, Vh = torch.linalg.svd(phi, full_matrices=False)
    kept = len(phi) * torch.finfo(torch.float64).eps * S[:1] < S
    Q, back = U[:, kept], Vh[kept].T / S[kept]
    residual = y - Q @ (Q.T @ y)
    scale = float(residual.abs().max())
    if scale <= 1e-14 * float(y.abs().max()):
        coefficients = back @ (Q.T @ y)
        return BestFit(coefficients, float((phi @ coefficients - y).abs().max()), 0.0)
    moved, multipliers = _program(Q * len(phi) ** 0.5, residual / scale)
    coefficients = back @ (Q.T @ y + scale * len(phi) ** 0.5 * moved)
    multipliers = multipliers - Q @ (Q.T @ multipliers)
    lower = float((multipliers @ residual).abs() / multipliers.abs().sum())
    return BestFit(coefficients, float((phi @ coefficients - y).abs().max()), lower)


def _program(
    phi: Float[Tensor, "points functions"], y: Float[Tensor, " points"]
) -> tuple[Float[Tensor, " functions"], Float[Tensor, " points"]]:
    """The least t with -t <= phi c - y <= t: c, and the multipliers of the points."""
    from scipy.optimize import linprog

    one = phi.new_ones(len(phi), 1)
    rows = torch.cat((torch.cat((phi, -one), 1), torch.cat((-phi, -one), 1)))
    cost = torch.zeros(rows.shape[1])
    cost[-1] = 1
    bounds = [(None, None)] * phi.shape[1] + [(0, None)]
    found = linprog(cost.numpy(), A_ub=rows.numpy(), b_ub=torch.cat((y, -y)).numpy(), bounds=bounds)
    if found.status != 0:
        raise ArithmeticError(f"the linear program must be solved: {found.message}")
    above, below = torch.from_numpy(found.ineqlin.marginals.copy()).reshape(2, -1)
    return torch.from_numpy(found.x[:-1].copy()), above - below


def monomials(x: Float[Tensor, " points"], degree: int) -> Float[Tensor, "points functions"]:
    """1, x, ..., x^degree at every point, a column each."""
    return x[:, None] ** torch.arange(degree + 1).to(x)


def alternations(residual: Float[Tensor, " points"], *, share: float = 1e-6) -> int:
    """How often a residual reaches its largest size with alternating signs along the points.

    A best fit by n functions of a Haar system reaches it n + 1 times, and no other fit does.

    Args:
        residual: f less its fit at rising points.
        share: What counts as the largest size, up to this share of it.

    Reference: Cheney 1966, Chapter 3 (the alternation theorem).
    """
    peaks = residual[residual.abs() >= (1 - share) * residual.abs().max()].sign().tolist()
    return sum(1 for _ in itertools.groupby(peaks))


def bernstein(
    function: Callable[[Tensor], Tensor],
    degree: int,
    x: Float[Tensor, "*batch"],
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "*batch"]:
    r"""The Bernstein polynomial of f: the mean of f(K / n) for K binomial with n trials of probability x.

    .. math:: B_n f(x) = \sum_{k=0}^n f(k/n) \binom nk x^k (1-x)^{n-k}

    It converges to every continuous f uniformly: x^2 becomes x^2 + x (1 - x) / n. Computed in float64 with
    logarithms, so that large n neither overflows nor cancels: all terms of the law are positive.

    Args:
        function: f, elementwise, on [low, high].
        degree: n, at least 1.
        x: Points of [low, high].
        low: Left end.
        high: Right end.

    Raises:
        ValueError: The degree is below 1, the interval is empty, or a point lies outside of it.

    Reference: Bernstein 1912; Lorentz 1986, Section 1.1.
    """
    if degree < 1 or not low < high:
        raise ValueError(
            f"Bernstein's polynomial needs degree >= 1 and low < high: got {degree}, {low:g}, {high:g}"
        )
    p = (x.double() - low) / (high - low)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError(f"Bernstein's polynomial is taken in [{low:g}, {high:g}]: got a point outside")
    n, k = degree, torch.arange(degree + 1, dtype=torch.float64)
    log_choose = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    p = p[..., None]
    law = (log_choose + torch.xlogy(k, p) + torch.xlogy(n - k, 1 - p)).exp()
    return law @ function(low + (high - low) * k / n).double()


def bernstein_bound(modulus: Callable[[float], float], degree: int, *, length: float = 1.0) -> float:
    r"""A bound of the uniform error: 5/4 times what f moves over length / sqrt(n).

    .. math:: \|B_n f - f\|_\infty \le \tfrac54\, \omega_f\big((b - a) / \sqrt n\big)

    Args:
        modulus: omega_f: the most that f moves over a distance.
        degree: n, at least 1.
        length: b - a.

    Raises:
        ValueError: The degree is below 1 or the length not positive.

    Reference: Lorentz 1986, Theorem 1.6.1.
    """
    if degree < 1 or not length > 0:
        raise ValueError(f"the bound needs degree >= 1 and length > 0: got {degree}, {length:g}")
    return 1.25 * modulus(length / math.sqrt(degree))
