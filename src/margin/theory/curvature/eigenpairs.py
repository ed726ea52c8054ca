"""The leading eigenpairs of a symmetric matrix from products with it alone, and the largest of a Hessian.

Lanczos (1950) with full orthogonalization and thick restarts (Wu and Simon 2000): when the basis is full,
its best Ritz vectors are kept and the process goes on from them, so that memory is bounded.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import Batch, Objective
from margin.theory.curvature.hessian import MEMORY, risk_hessian
from margin.theory.curvature.lanczos import (
    FEWEST,
    SEED,
    Product,
    extreme_eigenvalues,
    orthogonal_part,
    random_direction,
)

Order = Literal["magnitude", "largest", "smallest"]
"""Which eigenvalues lead: those of largest magnitude, the largest, or the smallest."""

ROWS = 80
"""Vectors of the basis before a restart, where memory does not ask for fewer."""


class Pairs(NamedTuple):
    """Eigenpairs, the leading first: an eigenvalue lies within ``residuals[i]`` of ``values[i]``.

    ``vectors[i]`` is a unit vector whose Rayleigh quotient is ``values[i]``. ``converged`` says whether
    every residual is within the tolerance.
    """

    values: Float[Tensor, " count"]
    residuals: Float[Tensor, " count"]
    vectors: Float[Tensor, "count dim"]
    products: int
    converged: bool


class _Projection:
    """An orthonormal basis V of a Krylov space and T = V H V'.

    T is made symmetric; by how much it was not, in the Frobenius norm, is kept in ``rounding``.
    """

    def __init__(self, start: Tensor, rows: int) -> None:
        self.V = start.new_empty(rows, len(start))
        self.V[0] = start / start.norm()
        self.T = torch.zeros(rows, rows, dtype=torch.float64)
        self.size = 1
        self.rounding = 0.0

    def take(self, image: Tensor) -> tuple[Tensor, float]:
        """The part of the newest vector's image outside of the space, and its norm."""
        k = self.size - 1
        w, h = orthogonal_part(image, self.V[: self.size])
        column = h.double().cpu()
        self.rounding = math.hypot(self.rounding, float((column[:k] - self.T[k, :k]).norm()))
        self.T[k, k] = column[k]
        return w, float(w.norm())

    def ritz(self, beta: float) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values, their coordinates as columns, and a bound of the residual of each."""
        values, S = torch.linalg.eigh(self.T[: self.size, : self.size])
        return values, S, beta * S[-1].abs() + self.rounding

    def grow(self, vector: Tensor, row: Tensor) -> None:
        """Add a unit vector orthogonal to the space; ``row`` is its products with the images so far."""
        k = self.size
        self.V[k] = vector
        self.T[k, :k] = self.T[:k, k] = row
        self.size += 1

    def restart(self, values: Tensor, S: Tensor) -> None:
        """Keep the space of these Ritz vectors alone."""
        kept = len(values)
        self.V[:kept] = S.T.to(self.V) @ self.V[: self.size]
        self.T.zero_()
        self.T[range(kept), range(kept)] = values
        self.size = kept

    def outside(self, seed: int) -> Tensor:
        """A random unit vector orthogonal to the space."""
        known = self.V[: self.size]
        v = random_direction(known.shape[1], dtype=known.dtype, device=known.device, seed=seed)
        for _ in range(3):
            v = v / v.norm()
            v = v - (known @ v) @ known
        return v / v.norm()


def _leading(values: Tensor, by: Order, count: int) -> Tensor:
    key = {"magnitude": values.abs(), "largest": values, "smallest": -values}[by]
    return key.argsort(descending=True)[:count]


def leading_eigenpairs(
    matvec: Product,
    start: Float[Tensor, " dim"],
    count: int,
    *,
    by: Order = "magnitude",
    tol: float = 1e-3,
    max_products: int = 300,
    rows: int = ROWS,
) -> Pairs:
    """The ``count`` leading eigenpairs of a symmetric matrix, each with its residual |Hv - lambda v|.

    A Krylov space holds one direction of each eigenspace: where rounding or a breakdown brings no second
    one, an eigenvalue of multiplicity above 1 is found once. After a breakdown (an invariant space) the
    process goes on from a random vector until that changes none of the leading values.

    Args:
        matvec: Product with the matrix.
        start: A vector with a random part, not 0.
        count: How many pairs, at least 1, at most the order of the matrix.
        by: Which eigenvalues lead.
        tol: Largest residual, relative to the largest magnitude found, above 0.
        max_products: Products after which the process gives up.
        rows: Vectors held at once, at least ``count + 2``; more need fewer products.

    Returns:
        The pairs. NaN and not converged where a product is not finite.

    Raises:
        ValueError: An option is out of range, or the start is not a finite vector other than 0.

    Reference: Wu and Simon 2000, Algorithm 3 (thick-restart Lanczos); Parlett 1980, Theorem 4.5.1.
    """
    dim = len(start)
    _check(start, count, tol, max_products, rows)
    space = _Projection(start, min(rows, dim))
    settled = torch.zeros(0)  # the leading values at the last breakdown
    for products in range(1, max_products + 1):
        w, beta = space.take(matvec(space.V[space.size - 1]).to(space.V))
        if not math.isfinite(beta):
            return _nothing(start, count, products)
        values, S, residuals = space.ritz(beta)
        scale = float(values.abs().max())
        chosen = _leading(values, by, count)
        broken = beta <= 10 * torch.finfo(start.dtype).eps * scale
        within = len(chosen) == count and bool((residuals[chosen] <= tol * scale).all())
        if space.size == dim or products == max_products:
            break
        if broken:
            before, settled = settled, values[chosen]
            if len(before) == len(settled) == count and torch.allclose(before, settled, 0, tol * scale):
                break
        elif within and not _early(values[chosen], scale, by, products):
            break
        row = torch.zeros(space.size, dtype=torch.float64) if broken else beta * S[-1]
        if space.size == len(space.V):
            kept = _leading(values, by, (count + space.size) // 2)
            space.restart(values[kept], S[:, kept])
            row = row[kept]
        elif not broken:
            row = torch.zeros(space.size, dtype=torch.float64)
            row[-1] = beta
        space.grow(space.outside(products) if broken else w / beta, row)
    vectors = S[:, chosen].T.to(space.V) @ space.V[: space.size]
    return Pairs(values[chosen], residuals[chosen], vectors, products, within or space.size == dim)


def _early(values: Tensor, scale: float, by: Order, products: int) -> bool:
    """Whether an end of smaller magnitude may still hide: see :func:`extreme_eigenvalues`."""
    return by != "magnitude" and products < FEWEST and bool((values.abs() < scale).any())


def _check(start: Tensor, count: int, tol: float, max_products: int, rows: int) -> None:
    if not 1 <= count <= len(start):
        raise ValueError(f"count must lie in 1 .. the order of the matrix: got {count} of {len(start)}")
    if tol <= 0 or max_products < 1 or rows < min(count + 2, len(start)):
        raise ValueError(
            "tol must be above 0, max_products at least 1, rows at least count + 2: "
            f"got tol={tol}, max_products={max_products}, rows={rows}, count={count}"
        )
    norm = float(start.norm())
    if not (math.isfinite(norm) and norm > 0):
        raise ValueError(f"the start must be a finite vector other than 0: got norm {norm}")


def _nothing(start: Tensor, count: int, products: int) -> Pairs:
    nan = torch.full((count,), math.nan, dtype=torch.float64)
    return Pairs(nan, nan.clone(), torch.full_like(start, math.nan).expand(count, -1), products, False)


def largest_eigenvalue(
    model: nn.Module,
    objective: Objective,
    batches: Sequence[Batch],
    *,
    independent: bool = True,
    scale: Float[Tensor, " dim"] | None = None,
    tol: float = 1e-2,
    memory: int = MEMORY,
) -> float:
    r"""The largest eigenvalue of D H D, H the Hessian of the mean loss; leaves no trace in the model.

    Args:
        model: The module; its parameters that require a gradient are differentiated, in their order.
        objective: The loss of each term.
        batches: The examples.
        independent: Whether a batch may be cut.
        scale: The diagonal of D, one number a parameter: for the Hessian preconditioned by P it is
            :math:`P^{-1/2}`. None: D is the identity.
        tol: Largest residual, relative to the largest magnitude, above 0.
        memory: Bytes that the graphs of a chunk of examples may hold, about.

    Returns:
        The eigenvalue; NaN where a product is not finite or 100 Lanczos steps do not reach ``tol``.

    Raises:
        ValueError: The model has no parameter that requires a gradient, or there are no examples.
    """
    with risk_hessian(model, batches, objective, independent=independent, memory=memory) as hessian:
        if scale is not None and scale.shape != (hessian.dim,):
            raise ValueError(
                f"scale must have one number a parameter: got shape {tuple(scale.shape)} for {hessian.dim}"
            )
        D = None if scale is None else scale.to(device=hessian.device, dtype=hessian.dtype)
        product: Product = hessian if D is None else (lambda v: D * hessian(D * v))
        found = extreme_eigenvalues(product, hessian.start(SEED), ends=("largest",), tol=tol)
        finite = hessian.finite
    return float(found.values[0]) if found.converged and finite else math.nan
