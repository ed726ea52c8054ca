"""Contractions of tensors, and the chain rule with tensors for derivatives (Ricci and Levi-Civita 1900).

A contraction over the axes that two tensors share is a matrix product after reshaping.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def contract(P: Float[Tensor, "..."], Q: Float[Tensor, "..."], shared: int) -> Float[Tensor, "..."]:
    r"""The contraction of the last axes of P with the first of Q, as a product of matrices.

    .. math:: T_{i,k} = \sum_j P_{i,j} Q_{j,k}, \qquad
        i \in a,\ j \in b,\ k \in c \text{ (lists of indices)}

    It is ``torch.tensordot(P, Q, dims=shared)``.

    Args:
        P: Of shape (a, b).
        Q: Of shape (b, c).
        shared: The number of axes of b; with 0 the outer product.

    Raises:
        ValueError: The shared axes differ, or a tensor has fewer.

    Reference: Golub and Van Loan 2013, Section 12.4 (tensor unfoldings and contractions).
    """
    if not 0 <= shared <= min(P.ndim, Q.ndim):
        raise ValueError(f"shared must lie in 0 .. {min(P.ndim, Q.ndim)}: got {shared}")
    a, b, c = P.shape[: P.ndim - shared], P.shape[P.ndim - shared :], Q.shape[shared:]
    if Q.shape[:shared] != b:
        raise ValueError(
            f"the last {shared} axes of P must be the first of Q: got {tuple(P.shape)} and {tuple(Q.shape)}"
        )
    rows, middle, columns = math.prod(a), math.prod(b), math.prod(c)
    return (P.reshape(rows, middle) @ Q.reshape(middle, columns)).reshape((*a, *c))


def chain_rule(upstream: Float[Tensor, "..."], derivative: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""The gradient of a loss in W through y: dL/dy contracted with dy/dW over the axes of y.

    .. math:: \frac{\partial L}{\partial W_{kl}} =
        \sum_{ij} \frac{\partial L}{\partial y_{ij}} \frac{\partial y_{ij}}{\partial W_{kl}}

    Args:
        upstream: dL/dy, of the shape of y.
        derivative: dy/dW, of the shape of y followed by that of W.

    Raises:
        ValueError: The first axes of ``derivative`` are not those of y.

    Reference: Magnus and Neudecker 2019, Chapter 5.
    """
    return contract(upstream, derivative, upstream.ndim)


def product_derivative(X: Float[Tensor, "inner columns"], rows: int) -> Float[Tensor, "i j k l"]:
    r"""The derivative of the matrix product y = W X in W, a tensor of four axes.

    .. math:: \frac{\partial y_{ij}}{\partial W_{kl}} = \delta_{ik} X_{lj}

    It holds ``rows`` times as many zeros as numbers, which is why nobody forms it: contracted with dL/dy it
    is the matrix product (dL/dy) X^T.

    Args:
        X: The right factor.
        rows: Rows of W, at least 1.

    Raises:
        ValueError: There is no row.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1: got {rows}")
    return torch.einsum("ik,lj->ijkl", torch.eye(rows, dtype=X.dtype, device=X.device), X)
