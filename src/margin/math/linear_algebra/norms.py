"""The chain of vector norms, each at most the next (Golub and Van Loan 2013, Section 2.2.2).

The spectral norm of a matrix by power iteration (Golub and Van Loan 2013): its largest stretch.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor


def norm_chain(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch 5"]:
    r"""The five quantities of the chain, in an order that never falls.

    .. math:: \|x\|_2 / \sqrt d \;\le\; \|x\|_\infty \;\le\; \|x\|_2 \;\le\; \|x\|_1 \;\le\; \sqrt d\, \|x\|_2

    The constants cannot be improved: a unit vector e_1 makes the second, third and fourth equal, a vector of
    ones the first two and the last two.

    Args:
        x: Vectors of dimension d >= 1.

    Raises:
        ValueError: The dimension is 0.
    """
    dim = x.shape[-1]
    if dim == 0:
        raise ValueError("the chain of norms needs a dimension >= 1: got 0")
    one, two, largest = (torch.linalg.vector_norm(x, order, dim=-1) for order in (1, 2, math.inf))
    return torch.stack((two / math.sqrt(dim), largest, two, one, two * math.sqrt(dim)), -1)


class Stretch(NamedTuple):
    """The largest singular value of a matrix and its vectors, A v = sigma u.

    Args:
        value: sigma = ||A v||, at most the spectral norm: no vector of length 1 is stretched more.
        left: u, of length 1.
        right: v, of length 1.
        steps: Multiplications by A and its transpose that were made.
    """

    value: float
    left: Float[Tensor, " rows"]
    right: Float[Tensor, " columns"]
    steps: int


def power_iteration(
    A: Float[Tensor, "rows columns"],
    *,
    generator: Generator,
    tolerance: float = 1e-10,
    max_steps: int = 100_000,
) -> Stretch:
    r"""The largest singular value, by multiplying a random vector with A and its transpose in turn.

    .. math:: v \leftarrow A^\top A v / \|A^\top A v\|, \qquad \sigma = \|A v\| \to \|A\|_2

    It ends where :math:`\|A^\top u - \sigma v\| \le` tolerance x sigma: then (sigma, u, v) is exact for a
    matrix that differs from A by at most tolerance x sigma, and so sigma lies as near to a singular value of
    A. That this is the largest holds with probability 1 over the start; of two that differ by less than the
    tolerance it may be either. ``torch.linalg.matrix_norm(A, 2)`` is the direct way, in cubic time.

    Args:
        A: The matrix.
        generator: Where the first vector is drawn from.
        tolerance: Relative, positive.
        max_steps: How often at most, at least 1; the error falls as (sigma_2 / sigma_1)^(2 steps).

    Raises:
        ValueError: A has no entries or one that is not finite, or an option is out of range.
        ArithmeticError: It has not converged after ``max_steps``.

    Reference: Golub and Van Loan 2013, Section 8.2.1, on A^T A.
    """
    if A.numel() == 0 or not bool(A.isfinite().all()):
        raise ValueError(f"a spectral norm needs finite entries: got shape {tuple(A.shape)}")
    if not tolerance > 0 or max_steps < 1:
        raise ValueError(f"tolerance must be positive and max_steps >= 1: got {tolerance:g}, {max_steps}")
    v = torch.randn(A.shape[1], generator=generator, dtype=A.dtype).to(A.device)
    v /= v.norm()
    residual = 0.0
    for step in range(1, max_steps + 1):
        u = A @ v
        value = float(u.norm())
        if value == 0:
            if bool((A == 0).all()):
                return Stretch(0.0, torch.zeros_like(u), v, step)
            raise ArithmeticError("the first vector is stretched to 0: draw another")
        u /= value
        back = A.T @ u
        residual = float((back - value * v).norm()) / value
        if residual <= tolerance:
            return Stretch(value, u, v, step)
        v = back / back.norm()
    raise ArithmeticError(
        f"power iteration has not converged after {max_steps} steps: residual {residual:.1e}, "
        f"tolerance {tolerance:.1e}"
    )


def spectral_radius(A: Float[Tensor, "size size"]) -> float:
    r"""The largest modulus of an eigenvalue, at most the spectral norm; equal to it where A is normal.

    Reference: Horn and Johnson 2013, Theorem 5.6.9.
    """
    return float(torch.linalg.eigvals(A).abs().max())
