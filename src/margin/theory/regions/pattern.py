"""The cells of one hidden layer of ReLUs: where the same units are on, the network is affine.

Montufar, Pascanu, Cho and Bengio (2014), Section 2: the pattern kappa(x) = 1[Wx + b > 0] is constant on the
regions of the arrangement of the hyperplanes {x : w_i x + b_i = 0}.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Halfspaces(NamedTuple):
    """The convex polyhedron {x : A x <= c}."""

    A: Float[Tensor, "faces dim"]
    c: Float[Tensor, " faces"]


def activation_pattern(
    x: Float[Tensor, "*batch dim"], W: Float[Tensor, "width dim"], b: Float[Tensor, " width"]
) -> Bool[Tensor, "*batch width"]:
    """Which units of the layer relu(Wx + b) are on: kappa(x) = 1[Wx + b > 0].

    Args:
        x: Inputs.
        W: A unit a row.
        b: Their biases.

    Reference: Montufar, Pascanu, Cho and Bengio 2014, Section 2.
    """
    return x @ W.T + b > 0


def cell_of(
    kappa: Bool[Tensor, " width"], W: Float[Tensor, "width dim"], b: Float[Tensor, " width"]
) -> Halfspaces:
    """The closure of the cell X_kappa, an intersection of half-spaces and so convex.

    Args:
        kappa: The pattern.
        W: A unit a row.
        b: Their biases.

    Returns:
        A and c with w_i x + b_i >= 0 where unit i is on, <= 0 where it is off.

    Reference: Montufar, Pascanu, Cho and Bengio 2014, Section 2.
    """
    sign = 1.0 - 2.0 * kappa.to(W)
    return Halfspaces(sign[:, None] * W, -sign * b)


def affine_on_cell(
    kappa: Bool[Tensor, " width"],
    W_1: Float[Tensor, "width dim"],
    b_1: Float[Tensor, " width"],
    W_2: Float[Tensor, "out width"],
    b_2: Float[Tensor, " out"],
) -> tuple[Float[Tensor, "out dim"], Float[Tensor, " out"]]:
    """The map x -> J x + c that W_2 relu(W_1 x + b_1) + b_2 is on a cell: J = W_2 diag(kappa) W_1.

    Args:
        kappa: The pattern of the cell.
        W_1: Weights of the hidden layer.
        b_1: Its biases.
        W_2: Weights of the output layer.
        b_2: Its biases.

    Returns:
        J and c = W_2 diag(kappa) b_1 + b_2.

    Reference: Montufar, Pascanu, Cho and Bengio 2014, Section 2.
    """
    on = torch.where(kappa, W_2, 0.0)
    return on @ W_1, on @ b_1 + b_2
