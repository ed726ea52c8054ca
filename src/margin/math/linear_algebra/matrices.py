"""Facts of matrices as functions: completed squares, low-rank solves, definiteness, Gram matrices.

Horn and Johnson (2013), Chapter 7, and Golub and Van Loan (2013), Section 2.1.4.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Matrix = Float[Tensor, "dim dim"]
Definiteness = Literal[
    "positive definite",
    "positive semidefinite",
    "negative definite",
    "negative semidefinite",
    "zero",
    "indefinite",
]
MOST_MINORS = 16
"""Order up to which all 2^n - 1 principal minors are computed."""


def check_symmetric(A: Matrix) -> None:
    """Refuse a matrix that is not symmetric up to rounding.

    Raises:
        ValueError: An entry differs from its mirror image, or is not finite; the message names it.
    """
    if A.numel() == 0:
        return
    largest = A[A.isfinite()].abs().amax() if bool(A.isfinite().any()) else 0.0
    bad = ~((A - A.mT).abs() <= 8 * torch.finfo(A.dtype).eps * largest)
    if bool(bad.any()):
        i, j = bad.nonzero()[0].tolist()
        raise ValueError(
            f"a matrix must be symmetric and finite: got {A[i, j].item():g} at ({i}, {j}), "
            f"{A[j, i].item():g} at ({j}, {i})"
        )


def complete_square(M: Matrix, b: Float[Tensor, " dim"]) -> tuple[Float[Tensor, " dim"], Float[Tensor, ""]]:
    r"""The center c and the constant k of a quadratic function, for a symmetric invertible M.

    .. math:: x^\top M x - 2 b^\top x = (x - c)^\top M (x - c) + k, \quad
        c = M^{-1} b, \quad k = -b^\top M^{-1} b

    M need not be positive definite: c is then a stationary point, no minimum.

    Args:
        M: The quadratic part.
        b: Minus half the linear part.

    Raises:
        ValueError: M is not symmetric, or singular.

    Reference: Bishop 2006, Equation 2.71.
    """
    check_symmetric(M)
    center = _solve(M, b[:, None], "M")[:, 0]
    return center, -b @ center


def solve_low_rank(
    diagonal: Float[Tensor, " dim"],
    U: Float[Tensor, "dim rank"],
    V: Float[Tensor, "rank dim"],
    b: Float[Tensor, "dim columns"],
) -> Float[Tensor, "dim columns"]:
    r"""The solution x of (D + U V) x = b at the cost of a solve of the rank's size.

    .. math:: (D + U V)^{-1} = D^{-1} - D^{-1} U (I + V D^{-1} U)^{-1} V D^{-1}

    Time is O(dim rank (rank + columns)), memory O(dim (rank + columns)).

    Args:
        diagonal: The diagonal of D; all ones gives (I + U V) x = b.
        U: Left factor.
        V: Right factor.
        b: Right-hand sides, one a column.

    Raises:
        ValueError: D has a 0, or I + V D^-1 U is singular: so is D + U V.

    Reference: Woodbury 1950; Golub and Van Loan 2013, Section 2.1.4.
    """
    if not bool((diagonal != 0).all()):
        raise ValueError(f"the diagonal must have no 0: got one at {int((diagonal == 0).nonzero()[0, 0])}")
    scaled_b, scaled_U = b / diagonal[:, None], U / diagonal[:, None]
    small = torch.eye(U.shape[1], dtype=U.dtype, device=U.device) + V @ scaled_U
    return scaled_b - scaled_U @ _solve(small, V @ scaled_b, "I + V D^-1 U")


def definiteness(A: Matrix) -> Definiteness:
    """The kind of a symmetric matrix, by the signs of its eigenvalues in float64.

    An eigenvalue counts as 0 where its modulus is at most 8 n eps times the largest, eps that of A's type.
    "Semidefinite" is said of what is not definite, "indefinite" of what has eigenvalues of both signs.

    Args:
        A: A symmetric matrix of order n >= 1.

    Raises:
        ValueError: A is not symmetric, not finite, or empty.

    Reference: Horn and Johnson 2013, Theorem 7.2.1.
    """
    if not len(A):
        raise ValueError("a matrix must have a row: got order 0")
    check_symmetric(A)
    eigenvalues = torch.linalg.eigvalsh(A.double())
    allowed = 8 * len(A) * torch.finfo(A.dtype).eps * eigenvalues.abs().max()
    positive, negative = eigenvalues > allowed, eigenvalues < -allowed
    if bool(positive.any()) and bool(negative.any()):
        return "indefinite"
    if bool(positive.any()):
        return "positive definite" if bool(positive.all()) else "positive semidefinite"
    if bool(negative.any()):
        return "negative definite" if bool(negative.all()) else "negative semidefinite"
    return "zero"


def leading_minors(A: Matrix) -> Float[Tensor, " dim"]:
    """The determinants of the leading blocks, of order 1 to n.

    Sylvester's criterion: a symmetric matrix is positive definite exactly where all are > 0, and negative
    definite exactly where their signs alternate from < 0 on. That all are >= 0 decides nothing: diag(0, -1).

    Args:
        A: A symmetric matrix.

    Raises:
        ValueError: A is not symmetric.

    Reference: Horn and Johnson 2013, Theorem 7.2.5.
    """
    check_symmetric(A)
    return torch.stack([torch.linalg.det(A[:k, :k]) for k in range(1, len(A) + 1)])


def principal_minors(A: Matrix) -> Float[Tensor, " subsets"]:
    """The determinants of all 2^n - 1 blocks on the same rows and columns.

    A symmetric matrix is positive semidefinite exactly where all are >= 0.

    Args:
        A: A symmetric matrix of order at most 16.

    Raises:
        ValueError: A is not symmetric, or too large.

    Reference: Horn and Johnson 2013, Theorem 7.2.5.
    """
    check_symmetric(A)
    n = len(A)
    if n > MOST_MINORS:
        raise ValueError(f"the order must be at most {MOST_MINORS}: got {n}; use the eigenvalues")
    subsets = [list(rows) for size in range(1, n + 1) for rows in combinations(range(n), size)]
    return torch.stack([torch.linalg.det(A[rows][:, rows]) for rows in subsets])


def least_gram_eigenvalue(
    kernel: Callable[[Tensor, Tensor], Tensor], x: Float[Tensor, " points *shape"]
) -> Float[Tensor, ""]:
    """The least eigenvalue of the matrix k(x_i, x_j), as a share of the largest in modulus; in float64.

    A symmetric function is a kernel, an inner product of features, exactly where no finite set of points
    gives less than 0. Sums and products of kernels are kernels.

    Args:
        kernel: ``(x, y) -> k(x_i, y_j)``, a matrix with a row for each x_i.
        x: Points.

    Returns:
        A number in [-1, 1]; 0 for a matrix of zeros.

    Raises:
        ValueError: The matrix is not symmetric.

    Reference: Shawe-Taylor and Cristianini 2004, Theorem 3.11 and Proposition 3.22.
    """
    gram = kernel(x, x)
    check_symmetric(gram)  # to the rounding of its own type
    eigenvalues = torch.linalg.eigvalsh(gram.double())
    largest = eigenvalues.abs().max()
    return eigenvalues[0] / torch.where(largest > 0, largest, 1.0)


def _solve(A: Matrix, b: Float[Tensor, "dim columns"], name: str) -> Float[Tensor, "dim columns"]:
    """The solution of A x = b, refused where A is singular to working precision."""
    if not bool(A.isfinite().all()):
        raise ValueError(f"{name} must be finite: got {A[~A.isfinite()][0].item():g} among its entries")
    if A.numel() and not float(torch.linalg.cond(A)) * torch.finfo(A.dtype).eps < 1:
        raise ValueError(f"{name} must be invertible: it is singular to working precision")
    return torch.linalg.solve(A, b)
