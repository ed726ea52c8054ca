"""BP-means (Broderick, Kulis and Jordan 2013): binary features of rows, as many as a penalty allows."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "rows dim"]
Codes = Float[Tensor, "rows features"]
Parts = Float[Tensor, "features dim"]


def cost(X: Rows, Z: Codes, A: Parts, penalty: float) -> float:
    r"""The objective :math:`\|X - Z A\|^2 + \lambda^2 K` for K features."""
    return float((X - Z @ A).square().sum()) + penalty**2 * Z.shape[1]


def bp_means(X: Rows, *, penalty: float, sweeps: int = 100) -> tuple[Codes, Parts]:
    r"""Binary codes Z and parts A that lower :math:`\|X - Z A\|^2 + \lambda^2 K` until nothing moves.

    It is the beta process (the Indian buffet) with Gaussian noise that vanishes. A sweep chooses each code
    given the others, gives a row whose squared residual exceeds lambda^2 a part of its own, and then solves
    for A; none of it raises the objective. It ends in a local minimum, from one part, the mean.

    Args:
        X: Rows.
        penalty: lambda, positive.
        sweeps: At most.

    Returns:
        Z, (rows, K) of 0 and 1, and A, (K, dim).

    Raises:
        ValueError: The penalty is not positive and finite, or there is no sweep.

    Reference: Broderick, Kulis and Jordan 2013, Algorithm 1.
    """
    if not 0 < penalty < math.inf or sweeps < 1:
        raise ValueError(f"penalty must be positive and finite, sweeps at least 1: got {penalty}, {sweeps}")
    Z, A = X.new_ones(len(X), 1), X.mean(0, keepdim=True)
    for _ in range(sweeps):
        before = Z
        Z, A = _sweep(X, Z.clone(), A, penalty)
        Z = Z[:, Z.any(0)]
        A = torch.linalg.pinv(Z) @ X
        if Z.shape == before.shape and torch.equal(Z, before):
            break
    return Z, A


def _sweep(X: Tensor, Z: Tensor, A: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    for n, x in enumerate(X):
        for k in range(len(A)):
            without = x - Z[n] @ A + Z[n, k] * A[k]
            Z[n, k] = float((without - A[k]).square().sum() < without.square().sum())
        rest = x - Z[n] @ A
        if float(rest.square().sum()) > penalty**2:
            A = torch.cat((A, rest[None]))
            Z = torch.cat((Z, torch.zeros_like(Z[:, :1])), 1)
            Z[n, -1] = 1.0
    return Z, A
