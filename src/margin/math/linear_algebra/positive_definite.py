"""Cholesky factors of positive definite matrices that rounding may leave indefinite: a ladder of jitter.

A kernel matrix of duplicate or close rows is singular to working precision. What is added to its diagonal is
never hidden: it is returned beside the factor. Rasmussen and Williams (2006), Section 3.4.3 (the jitter);
Golub and Van Loan (2013), Section 4.2.7 (what rounding does to a factorization).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LADDER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
"""What is added to the diagonal in turn, relative to its mean."""


class Factor(NamedTuple):
    """The Cholesky factor of K + jitter I.

    Args:
        lower: L of L L^T.
        jitter: What was added to each entry of the diagonal; 0 where the matrix was definite.
    """

    lower: Float[Tensor, "n n"]
    jitter: float

    def solve(self, b: Float[Tensor, " n *columns"]) -> Float[Tensor, " n *columns"]:
        """The solution x of L L^T x = b."""
        columns = b if b.ndim > 1 else b[:, None]
        return torch.cholesky_solve(columns, self.lower).reshape(b.shape)

    def half_solve(self, b: Float[Tensor, "n columns"]) -> Float[Tensor, "n columns"]:
        """L^-1 b, whose squares sum to b^T (L L^T)^-1 b column by column."""
        return torch.linalg.solve_triangular(self.lower, b, upper=False)

    def log_det(self) -> Float[Tensor, ""]:
        """The logarithm of det L L^T."""
        return 2 * self.lower.diagonal().log().sum()


def factored(K: Float[Tensor, "n n"]) -> Factor:
    """The Cholesky factor of a symmetric positive semidefinite matrix, with the least jitter of the ladder.

    Args:
        K: Float64; of another type the steps of the ladder lie below its rounding.

    Raises:
        ValueError: The matrix is not finite, or even the last step of the ladder leaves it indefinite.
    """
    if not (bool(K.sum().isfinite()) or bool(K.isfinite().all())):  # the sum is one pass
        raise ValueError("a kernel matrix must be finite: got an entry that is not")
    mean = float(K.diagonal().mean()) if len(K) else 1.0
    for step in LADDER:
        shifted = K if not step else K + step * mean * torch.eye(len(K), dtype=K.dtype, device=K.device)
        lower, info = torch.linalg.cholesky_ex(shifted)
        if not int(info):
            return Factor(lower, step * mean)
    raise ValueError(
        f"a kernel matrix must be positive semidefinite up to rounding: got one of {len(K)} rows that is "
        f"indefinite with {LADDER[-1]:g} of its mean diagonal added"
    )
