"""Hyperplane arrangements: into how many regions do m hyperplanes cut R^n (Zaslavsky 1975)?

A hidden layer of ReLUs cuts its inputs along the hyperplanes {x : w_i x + b_i = 0}; its cells are the regions
of their arrangement. They are counted in three ways: by the formula for general position, by the
characteristic polynomial, and one by one.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

MOST_HYPERPLANES = 14
"""For the characteristic polynomial, a sum over all 2^m sets of hyperplanes."""

THIN = 1e-9
"""Radius of the largest ball in a region, in units of the arrangement, at and below which it is none."""


class Cells(NamedTuple):
    """The regions of an arrangement: on which side of each hyperplane, +1 or -1, and a point of each."""

    signs: Int[Tensor, "cells hyperplanes"]
    points: Float[Tensor, "cells dim"]


def most_regions(hyperplanes: int, dim: int) -> int:
    r"""The number of regions of m hyperplanes in general position in R^n, the most that m can have.

    .. math:: R(m) = \sum_{i=0}^{\min(n, m)} \binom{m}{i}

    Args:
        hyperplanes: m >= 0.
        dim: n >= 0.

    Raises:
        ValueError: A number is negative.

    Reference: Zaslavsky 1975, Theorem A; Stanley 2004, Proposition 2.4 (general position; Schlaefli 1901).
    """
    if hyperplanes < 0 or dim < 0:
        raise ValueError(f"hyperplanes and dim must be at least 0: got {hyperplanes} and {dim}")
    return sum(math.comb(hyperplanes, i) for i in range(min(dim, hyperplanes) + 1))


def characteristic_polynomial(
    W: Float[Tensor, "hyperplanes dim"], b: Float[Tensor, " hyperplanes"]
) -> list[int]:
    r"""The characteristic polynomial of the arrangement {x : w_i x + b_i = 0}, by Whitney's theorem.

    .. math:: \chi(t) = \sum_{B \text{ central}} (-1)^{|B|}\, t^{n - \mathrm{rank}(B)}

    over the sets B of hyperplanes with a common point, the empty set among them. Its coefficients are the
    Moebius function summed over the flats of each rank.

    Args:
        W: A normal a row, none 0.
        b: The offsets.

    Returns:
        The coefficients of 1, t, ..., t^n.

    Raises:
        ValueError: A normal is 0, something is not finite, or there are more than 14 hyperplanes.

    Reference: Stanley 2004, Theorem 2.4 (Whitney); Zaslavsky 1975.
    """
    normals, offsets = _unit(W, b)
    count, dim = normals.shape
    if count > MOST_HYPERPLANES:
        raise ValueError(f"the polynomial sums over 2^m sets, m at most {MOST_HYPERPLANES}: got m={count}")
    chosen = (torch.arange(2**count)[:, None] >> torch.arange(count)) & 1
    taken = chosen[:, :, None] * normals
    with_offsets = torch.cat((taken, (chosen * offsets)[:, :, None]), 2)
    rank, joint = (torch.linalg.matrix_rank(m, rtol=1e-9) for m in (taken, with_offsets))
    coefficients = torch.zeros(dim + 1, dtype=torch.long)
    central = rank == joint
    signs = 1 - 2 * (chosen.sum(1) % 2)
    coefficients.index_add_(0, dim - rank[central], signs[central])
    return coefficients.tolist()


def count_regions(W: Float[Tensor, "hyperplanes dim"], b: Float[Tensor, " hyperplanes"]) -> int:
    r"""The number of regions of any arrangement of few hyperplanes, :math:`R = |\chi(-1)|`.

    Args:
        W: A normal a row, none 0.
        b: The offsets.

    Raises:
        ValueError: As :func:`characteristic_polynomial`.

    Reference: Zaslavsky 1975, Theorem A; Stanley 2004, Theorem 2.5.
    """
    return abs(sum(c * (-1) ** power for power, c in enumerate(characteristic_polynomial(W, b))))


def cells(W: Float[Tensor, "hyperplanes dim"], b: Float[Tensor, " hyperplanes"]) -> Cells:
    """All regions of the arrangement {x : w_i x + b_i = 0} on all of R^n, one linear program a candidate.

    Hyperplane by hyperplane: each region so far keeps a point of it, which is on one side of the next
    hyperplane; whether the region has a part on the other is asked of a linear program, which looks for the
    largest ball there, of radius 1 at most.

    Args:
        W: A normal a row, none 0.
        b: The offsets.

    Returns:
        Every region whose largest ball exceeds 1e-9 in the unit of the largest offset.

    Raises:
        ValueError: A normal is 0 or something is not finite.
        ArithmeticError: A linear program was not solved.

    Reference: Serra, Tjandraatmadja and Ramalingam 2018, Section 5 (exact counting by optimization).
    """
    normals, offsets = (part.numpy() for part in _unit(W, b))
    count, dim = normals.shape
    found: list[tuple[list[int], np.ndarray]] = [([], np.zeros(dim))]
    for i in range(count):
        grown: list[tuple[list[int], np.ndarray]] = []
        for signs, point in found:
            value = float(normals[i] @ point + offsets[i])
            for side in (1, -1):
                if side * value > THIN:
                    grown.append(([*signs, side], point))
                    continue
                inside = _ball(np.array([*signs, side]), normals[: i + 1], offsets[: i + 1])
                if inside is not None:
                    grown.append(([*signs, side], inside))
        found = grown
    sides = torch.tensor([signs for signs, _ in found], dtype=torch.long).reshape(len(found), count)
    return Cells(sides, torch.from_numpy(np.stack([point for _, point in found])))


def _ball(signs: np.ndarray, normals: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
    """The middle of the largest ball, of radius 1 at most, on these sides; None where there is none."""
    # Without integer variables this is a linear program, at half the overhead of scipy's linprog.
    from scipy.optimize import Bounds, LinearConstraint, milp

    dim = normals.shape[1]
    sides = np.concatenate((-signs[:, None] * normals, np.ones((len(signs), 1))), 1)
    cost = np.append(np.zeros(dim), -1.0)
    bounds = Bounds(np.full(dim + 1, -np.inf), np.append(np.full(dim, np.inf), 1.0))
    solved = milp(cost, constraints=LinearConstraint(sides, -np.inf, signs * offsets), bounds=bounds)
    if solved.status != 0:
        raise ArithmeticError(f"a linear program was not solved: {solved.message}")
    return solved.x[:-1] if solved.x[-1] > THIN else None


def _unit(W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Normals of length 1, and offsets in units of the largest."""
    W, b = W.detach().cpu().double(), b.detach().cpu().double()
    norms = W.norm(dim=1)
    if not bool(W.isfinite().all() and b.isfinite().all()) or bool((norms == 0).any()):
        raise ValueError("the normals of an arrangement must be finite and not 0, its offsets finite")
    offsets = b / norms
    scale = float(offsets.abs().max()) if len(b) else 0.0
    return W / norms[:, None], offsets / scale if scale else offsets
