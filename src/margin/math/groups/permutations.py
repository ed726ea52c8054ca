r"""Permutations of M things, as the row of their values and as matrices (Cauchy's two-line notation, 1815).

.. math:: \pi = \begin{pmatrix} 1 & 2 & \dots & M \\ \pi(1) & \pi(2) & \dots & \pi(M) \end{pmatrix}, \qquad
    (P_\pi X)_m = x_{\pi(m)}, \qquad P_\pi^{-1} = P_\pi^\top

Here things are counted from 0. :math:`P_\pi` permutes the rows of X, :math:`X P_\pi^\top` its columns in the
same way.
"""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

Permutation = Int[Tensor, " things"]


def check_permutation(pi: Permutation) -> None:
    """Refuse what is no permutation of 0 .. M-1.

    Raises:
        ValueError: A value is missing or comes twice.
    """
    if not torch.equal(pi.sort().values, torch.arange(len(pi), device=pi.device)):
        raise ValueError(f"a permutation holds each of 0 .. {len(pi) - 1} once: got {pi.tolist()}")


def drawn(count: int, generator: Generator) -> Permutation:
    """A permutation of 0 .. count-1, each as likely as any other."""
    return torch.randperm(count, generator=generator)


def matrix(pi: Permutation, dtype: torch.dtype = torch.float64) -> Float[Tensor, "things things"]:
    """P with (P X)_m = x_{pi(m)}: P[m, pi(m)] = 1, and 0 elsewhere."""
    check_permutation(pi)
    return torch.eye(len(pi), dtype=dtype, device=pi.device)[pi]


def of_matrix(P: Float[Tensor, "things things"]) -> Permutation:
    """The permutation of a matrix.

    Raises:
        ValueError: An entry is neither 0 nor 1, or a row or column does not sum to 1.
    """
    binary = bool(((P == 0) | (P == 1)).all())
    if not (binary and bool((P.sum(0) == 1).all()) and bool((P.sum(1) == 1).all())):
        raise ValueError("a permutation matrix has one 1 in every row and column and 0 elsewhere")
    return P.argmax(1)


def inverse(pi: Permutation) -> Permutation:
    """The permutation that undoes ``pi``, whose value at pi(m) is m."""
    check_permutation(pi)
    undone = torch.empty_like(pi)
    undone[pi] = torch.arange(len(pi), device=pi.device)
    return undone


def composed(first: Permutation, then: Permutation) -> Permutation:
    """Rows permuted by ``first``, the result by ``then``: row m of P_then P_first X is x_{first(then(m))}."""
    check_permutation(first)
    check_permutation(then)
    return first[then]


def cycles(pi: Permutation) -> list[list[int]]:
    """The cycles m -> pi(m) -> ..., each from its least element, fixed points included."""
    check_permutation(pi)
    values, seen, found = pi.tolist(), set(), []
    for start in range(len(values)):
        if start in seen:
            continue
        cycle = [start]
        while (following := values[cycle[-1]]) != start:
            cycle.append(following)
        seen.update(cycle)
        found.append(cycle)
    return found


def sign(pi: Permutation) -> int:
    """The determinant of P: 1 for an even number of exchanges, -1 for an odd one; a cycle of l is l - 1."""
    return -1 if (len(pi) - len(cycles(pi))) % 2 else 1


def two_lines(pi: Permutation) -> str:
    """The two-line notation, things counted from 1."""
    check_permutation(pi)
    rows = [range(1, len(pi) + 1), (pi + 1).tolist()]
    width = len(str(len(pi)))
    return "\n".join(" ".join(f"{value:>{width}}" for value in row) for row in rows)
