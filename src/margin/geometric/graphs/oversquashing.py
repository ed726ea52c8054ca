r"""Oversquashing: how little of a distant node's features reaches another (Topping et al. 2022, Lemma 1).

.. math:: \left\lVert \frac{\partial x_i^{(k)}}{\partial x_j} \right\rVert_2
    \le \Bigl( \prod_{l=1}^{k} \alpha_l \lVert W_l \rVert_2 \Bigr) (\hat A^k)_{ij}

for layers :math:`x^{(l)} = \sigma_l(\hat A x^{(l-1)} W_l + b_l)` whose activation is
:math:`\alpha_l`-Lipschitz.
The entry of the power counts the ways from j to i; where they are few among many, the product is small.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

Features = Float[Tensor, "nodes features"]


def reach(matrix: Tensor, node: int, layers: int) -> Float[Tensor, " nodes"]:
    """Row i of A^k: how much weight the ways of k steps to node i give to each node.

    Args:
        matrix: A (M, M), sparse.
        node: i.
        layers: k, at least 0.
    """
    back, row = matrix.t(), _unit(matrix, node)
    for _ in range(layers):
        row = back @ row
    return row[:, 0]


def _unit(matrix: Tensor, node: int) -> Float[Tensor, "nodes 1"]:
    unit = torch.zeros(matrix.shape[0], 1, dtype=matrix.dtype, device=matrix.device)
    unit[node] = 1.0
    return unit


def bound(matrices: Sequence[Tensor], norms: Sequence[float], node: int) -> Float[Tensor, " nodes"]:
    """The bound of |d x_i / d x_j|_2 for every j, of layers that couple nodes by their own matrices.

    Args:
        matrices: A_l (M, M) of each layer, the first layer's first; entries of any sign: magnitudes count.
        norms: alpha_l |W_l|_2 of each layer.
        node: i.
    """
    if len(matrices) != len(norms) or not len(matrices):
        raise ValueError(f"each layer has a matrix and a norm: got {len(matrices)} and {len(norms)}")
    row = _unit(matrices[0], node)
    for matrix, norm in zip(reversed(matrices), reversed(norms), strict=True):
        row = norm * (matrix.abs().t() @ row)
    return row[:, 0]


def jacobian_norms(
    f: Callable[[Features], Tensor], x: Features, node: int, near: Int[Tensor, " near"] | None = None
) -> Float[Tensor, " near"]:
    """The spectral norm of d f(x)_i / d x_j for every node j, by one backward pass an output.

    Args:
        f: Features of nodes to features of nodes.
        x: Where it is differentiated.
        node: i.
        near: The nodes j that are asked for; None: all.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        outputs = f(x)[node]
        rows = []
        for k, output in enumerate(outputs):
            (gradient,) = torch.autograd.grad(output, x, retain_graph=k + 1 < len(outputs))
            rows.append(gradient if near is None else gradient[near])
    return torch.linalg.matrix_norm(torch.stack(rows, 1), ord=2)
