"""The density of a symmetric matrix's spectrum by stochastic Lanczos quadrature.

Lin, Saad and Yang (2016), Ghorbani, Krishnan and Xiao (2019): for a random unit vector v the Gauss
quadrature of v' f(A) v, whose nodes are Ritz values and whose weights are squared first components, is in
the mean the average of f over the eigenvalues.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.seeds import mix
from margin.theory.curvature.lanczos import Product, krylov, random_direction, ritz_pairs

SEED = 2016
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
    seed: int = SEED,
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
