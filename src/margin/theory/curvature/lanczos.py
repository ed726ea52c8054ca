"""The Lanczos process: the ends of a symmetric matrix's spectrum from products with it alone.

Lanczos (1950); Parlett (1980), Chapter 13, with full reorthogonalization. The Krylov space of a random vector
contains vectors whose Rayleigh quotients approach both ends; the residual of such a vector bounds the
distance to an eigenvalue, so that an answer carries its own error.

The density of the spectrum by stochastic Lanczos quadrature: Lin, Saad and Yang (2016), Ghorbani, Krishnan
and Xiao (2019): for a random unit vector v the Gauss quadrature of v' f(A) v, whose nodes are Ritz values and
whose weights are squared first components, is in the mean the average of f over the eigenvalues.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.math.seeds import mix

End = Literal["largest", "smallest"]
Product = Callable[[Tensor], Tensor]
"""A vector's image under a symmetric matrix."""

SEED = 1950
FEWEST = 20
"""Steps before the end of smaller magnitude may count as found: see :func:`extreme_eigenvalues`."""


class Extremes(NamedTuple):
    """The ends of a spectrum as the Lanczos process found them.

    ``values`` and ``residuals`` follow the ends asked for: an eigenvalue lies within ``residuals[i]`` of
    ``values[i]``. ``ritz`` and ``weights`` are the nodes and weights of the Gauss quadrature of the start
    vector's spectral measure: the weights are first components squared and sum to 1. ``converged`` says
    whether every residual is within the tolerance, ``missed`` bounds how far beyond the ends found an
    eigenvalue may lie, with probability 0.9999 over the start vector.
    """

    values: Float[Tensor, " ends"]
    residuals: Float[Tensor, " ends"]
    ritz: Float[Tensor, " iterations"]
    weights: Float[Tensor, " iterations"]
    iterations: int
    converged: bool
    missed: float


def krylov(matvec: Product, basis: Float[Tensor, "rows dim"]) -> Iterator[tuple[float, float]]:
    """The Lanczos recurrence: fills ``basis`` row by row from its first, yields alpha and beta of each step.

    Each new vector is made orthogonal to all earlier ones: see :func:`orthogonal_part`.

    Args:
        matvec: Product with the symmetric matrix.
        basis: Its first row is the start, of norm 1; there is a row more than steps taken.
    """
    for k in range(len(basis) - 1):
        w, h = orthogonal_part(matvec(basis[k]).to(basis), basis[: k + 1])
        beta = float(w.norm())
        basis[k + 1] = w / beta if beta > 0 else 0
        yield float(h[k]), beta


def orthogonal_part(w: Tensor, known: Float[Tensor, "rows dim"]) -> tuple[Tensor, Float[Tensor, " rows"]]:
    """A vector less its part in the span of orthonormal rows, and its products with them.

    It is taken away twice where that is most of it ("twice is enough", Parlett 1980, Section 6.9).
    """
    before = float(w.norm())
    h = known @ w
    w = w - h @ known
    if float(w.norm()) < 0.7 * before:
        c = known @ w
        w, h = w - c @ known, h + c
    return w, h


def ritz_pairs(
    alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Float[Tensor, " k"], Float[Tensor, "k k"], Float[Tensor, " k"]]:
    """Eigenvalues and eigenvectors of the tridiagonal matrix, and the residual of each Ritz pair.

    Reference: Parlett 1980, Section 13.2 (the residual norm is beta_k times the last component).
    """
    T = torch.diag(torch.tensor(alphas, dtype=torch.float64))
    off = torch.tensor(betas[:-1], dtype=torch.float64)
    k = len(alphas)
    T[range(k - 1), range(1, k)] = off
    T[range(1, k), range(k - 1)] = off
    values, vectors = torch.linalg.eigh(T)
    return values, vectors, betas[-1] * vectors[-1].abs()


def missed_distance(
    spread: float, dim: int, iterations: int, *, probability: float = 1e-4, share: float = 1.0
) -> float:
    r"""How far beyond the Ritz values an eigenvalue may lie, except with this probability.

    .. math:: P\{\lambda_{\max} - \theta_{\max} > \varepsilon\,(\lambda_{\max} - \lambda_{\min})\}
        \le 1.648 \sqrt{n}\, e^{-(2k-1)\sqrt{\varepsilon}}

    for a start vector of uniform direction, whatever the spectrum; the same holds at the other end.

    Args:
        spread: Largest less smallest Ritz value.
        dim: n.
        iterations: k.
        probability: Allowed for both ends together, in (0, 1).
        share: Least share of the start's norm that is a uniform direction u, in (0, 1]. With s = u + c, c
            fixed, a component of s is small no more often than that of u (Anderson 1955, Theorem 1),
            so 1 / share multiplies the probability.

    Returns:
        The distance: 0 after ``dim`` iterations, infinite where the bound says nothing.

    Reference: Kuczynski and Wozniakowski 1992, Theorem 4.2, for A shifted to be positive definite.
    """
    if iterations >= dim:
        return 0.0
    root = math.log(2 * 1.648 * math.sqrt(dim) / (probability * share)) / (2 * iterations - 1)
    epsilon = root * root
    return epsilon * spread / (1 - 2 * epsilon) if epsilon < 0.5 else math.inf


def extreme_eigenvalues(
    matvec: Product,
    start: Float[Tensor, " dim"],
    *,
    ends: Sequence[End] = ("largest", "smallest"),
    tol: float = 1e-3,
    max_iterations: int = 100,
    share: float = 1.0,
) -> Extremes:
    """The largest and smallest eigenvalues of a symmetric matrix, each with its residual |Hv - lambda v|.

    Steps are taken until the residual of each end asked for is at most ``tol`` times the largest
    magnitude found; it is then measured by a product more, not inferred. A start vector is
    mostly made of eigenvectors of the bulk of the spectrum, whose eigenvalues can pass for an end of
    smaller magnitude in the first steps: that end is not believed before step 20.

    Args:
        matvec: Product with the matrix.
        start: A vector with a random part, not 0; its dtype is the process's, T's is float64.
        ends: The ends asked for, in the order of the answer.
        tol: Largest residual, relative to the largest magnitude of the spectrum, above 0.
        max_iterations: Steps after which the process gives up; it holds a vector a step.
        share: Least share of the start's norm that is a uniform direction: see :func:`missed_distance`.

    Returns:
        The ends. NaN and not converged where a product is not finite.

    Raises:
        ValueError: An option is out of range, or the start is not a finite vector other than 0.

    Reference: Parlett 1980, Theorem 4.5.1 (an eigenvalue lies within the residual) and Chapter 13.
    """
    if tol <= 0 or max_iterations < 1 or not ends:
        raise ValueError(
            f"tol must be above 0, max_iterations at least 1, ends not empty: "
            f"got tol={tol}, max_iterations={max_iterations}, ends={tuple(ends)}"
        )
    norm = float(start.norm())
    if not (math.isfinite(norm) and norm > 0):
        raise ValueError(f"the start must be a finite vector other than 0: got norm {norm}")
    dim = len(start)
    basis = start.new_empty(min(max_iterations, dim) + 1, dim)
    basis[0] = start / norm
    alphas: list[float] = []
    betas: list[float] = []
    for alpha, beta in krylov(matvec, basis):
        if not (math.isfinite(alpha) and math.isfinite(beta)):
            return _nothing(len(ends), len(alphas))
        alphas.append(alpha)
        betas.append(beta)
        values, vectors, residuals = ritz_pairs(alphas, betas)
        if beta <= torch.finfo(basis.dtype).eps * float(values.abs().max()):
            break
        if all(_settled(end, values, residuals, tol) for end in ends):
            break
    return _measured(matvec, basis, values, vectors, ends, tol, share)


def _settled(end: End, values: Tensor, residuals: Tensor, tol: float) -> bool:
    at = -1 if end == "largest" else 0
    scale = values.abs().max()
    early = len(values) < FEWEST and values[at].abs() < scale
    return bool(residuals[at] <= tol * scale) and not early


def _nothing(ends: int, iterations: int) -> Extremes:
    nan, none = torch.full((ends,), math.nan, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    return Extremes(nan, nan.clone(), none, none, iterations, False, math.inf)


def _measured(
    matvec: Product,
    basis: Tensor,
    ritz: Tensor,
    vectors: Tensor,
    ends: Sequence[End],
    tol: float,
    share: float,
) -> Extremes:
    """Rayleigh quotients and residuals of the ends' Ritz vectors, from a product with each."""
    k, dim = len(ritz), basis.shape[1]
    values, residuals = [], []
    for end in ends:
        weights = vectors[:, -1 if end == "largest" else 0].to(basis)
        y = weights @ basis[:k]
        y = y / y.norm()
        image = matvec(y).to(y)
        value = y @ image
        values.append(float(value))
        residuals.append(float((image - value * y).norm()))
    scale = max(float(ritz.abs().max()), max(map(abs, values)))
    return Extremes(
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(residuals, dtype=torch.float64),
        ritz,
        vectors[0].square(),
        k,
        all(residual <= tol * scale for residual in residuals),
        missed_distance(float(ritz[-1] - ritz[0]), dim, k, share=share),
    )


def random_direction(
    dim: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu", seed: int = SEED
) -> Float[Tensor, " dim"]:
    """A vector of uniform direction, the same for the same seed on every device."""
    generator = Generator().manual_seed(seed)
    return torch.randn(dim, generator=generator, dtype=dtype).to(device)


DENSITY_SEED = 2016
MARGIN = 4.0
"""Widths of the smoothing by which a grid reaches beyond the outermost nodes."""


class SpectralDensity(NamedTuple):
    """A spectrum as quadratures, one a probe: nodes, and weights that sum to 1 in each row.

    ``dim`` is the order of the matrix. Where a Krylov space closed early its row is filled with nodes of
    weight 0.
    """

    nodes: Float[Tensor, "probes steps"]
    weights: Float[Tensor, "probes steps"]
    dim: int

    @property
    def resolution(self) -> float:
        """The width of smoothing that the quadrature resolves: that of the spectrum over the steps.

        With s the half-width of the spectrum and k >= 8 the steps it is 2 s / k: polynomials of degree
        2k - 1, for which the quadrature is exact, follow the distribution function of a Gaussian of that
        width to 4e-5 (the density, to 6e-4 of its peak), and the quadrature errs by at most twice that.
        """
        low, high = self.ends
        steps = int((self.weights > 0).sum(1).max())
        return max((high - low) / steps, 1e-6 * max(abs(low), abs(high)), torch.finfo(torch.float64).tiny)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and largest node that has a weight."""
        seen = self.nodes[self.weights > 0]
        return float(seen.min()), float(seen.max())

    def grid(self, points: int, width: float) -> Float[Tensor, " points"]:
        """Equally spaced points that hold the smoothed density but for 1e-4 of it."""
        low, high = self.ends
        return torch.linspace(low - MARGIN * width, high + MARGIN * width, points, dtype=torch.float64)

    def smoothed(
        self, grid: Float[Tensor, " points"], width: float
    ) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
        r"""The density convolved with a Gaussian of standard deviation ``width``, and its standard error.

        Returns:
            The mean over probes, which integrates to 1, and the standard error of the mean.
        """
        z = (grid[:, None, None] - self.nodes) / width
        each = ((-z.square() / 2).exp() * self.weights).sum(-1) / (width * math.sqrt(2 * math.pi))
        draws = each.shape[1]
        # One row is the spectrum itself: see density_of.
        error = each.std(1) / math.sqrt(draws) if draws > 1 else torch.zeros_like(grid)
        return each.mean(1), error

    def share_below(self, x: float, width: float) -> Float[Tensor, " probes"]:
        """The share of the smoothed spectrum below x, of each probe."""
        z = (x - self.nodes) / (width * math.sqrt(2))
        return ((1 + z.erf()) / 2 * self.weights).sum(1)

    def mean(self) -> Float[Tensor, " probes"]:
        """The mean eigenvalue, trace / dim, of each probe."""
        return (self.nodes * self.weights).sum(1)


def spectral_density(
    matvec: Product,
    dim: int,
    *,
    probes: int = 8,
    steps: int = 60,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    seed: int = DENSITY_SEED,
) -> SpectralDensity:
    """The quadratures of a symmetric matrix's spectral density, from ``probes * steps`` products.

    Full orthogonalization keeps copies of converged Ritz values out of the nodes.

    Args:
        matvec: Product with the matrix.
        dim: Its order.
        probes: Random starts, at least 2.
        steps: Lanczos steps of each, at least 2; at most ``dim`` are taken. So many vectors are held.
        dtype: Of the vectors; nodes and weights are float64.
        device: Of the vectors.
        seed: Of the starts.

    Returns:
        The quadratures; NaN where a product is not finite.

    Raises:
        ValueError: ``probes`` or ``steps`` is out of range.

    Reference: Lin, Saad and Yang 2016, Section 3.2; Golub and Welsch 1969 (weights).
    """
    if probes < 2 or steps < 2:
        raise ValueError(f"probes and steps must be at least 2: got probes={probes}, steps={steps}")
    steps = min(steps, dim)
    nodes = torch.zeros(probes, steps, dtype=torch.float64)
    weights = torch.zeros(probes, steps, dtype=torch.float64)
    basis = torch.empty(steps + 1, dim, dtype=dtype, device=device)
    for i in range(probes):
        start = random_direction(dim, dtype=dtype, device=device, seed=mix(seed, i))
        basis[0] = start / start.norm()
        alphas: list[float] = []
        betas: list[float] = []
        for alpha, beta in krylov(matvec, basis):
            alphas.append(alpha)
            betas.append(beta)
            if not math.isfinite(alpha + beta):
                nan = torch.full_like(nodes, math.nan)
                return SpectralDensity(nan, nan, dim)
            scale = max(abs(a) for a in (*alphas, *betas))
            if beta <= 10 * torch.finfo(dtype).eps * scale:
                break
        values, vectors, _ = ritz_pairs(alphas, betas)
        nodes[i, : len(values)] = values
        nodes[i, len(values) :] = values[-1]
        weights[i, : len(values)] = vectors[0].square()
    return SpectralDensity(nodes, weights, dim)
