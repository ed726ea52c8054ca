"""Layouts of a derivative: which axis is the function's, which the variable's, and how chains multiply.

Magnus and Neudecker (2019), Chapter 9, argue for the Jacobian (numerator layout), which is the house's;
Petersen and Pedersen (2012) write much in its transpose (denominator layout).
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Layout = Literal["numerator", "denominator"]
Function = Callable[[Tensor], Tensor]


class Passes(NamedTuple):
    """How many passes a full Jacobian takes: ``forward`` by columns, ``reverse`` by rows."""

    forward: int
    reverse: int


def converted(derivative: Float[Tensor, "rows columns"], origin: Layout, target: Layout) -> Tensor:
    r"""A derivative of a map R^n -> R^m in another layout.

    .. math:: \text{numerator:}\ J_{ij} = \partial f_i / \partial x_j \ (m \times n), \qquad
        \text{denominator:}\ D_{ij} = \partial f_j / \partial x_i \ (n \times m), \qquad D = J^\top

    Args:
        derivative: The matrix.
        origin: The layout that it has.
        target: The layout that is wanted.

    Raises:
        ValueError: A layout is neither of the two.

    Reference: Magnus and Neudecker 2019, Chapter 9.
    """
    _check_layout(origin)
    _check_layout(target)
    return derivative if origin == target else derivative.mT


def derivative(f: Function, x: Float[Tensor, " n"], layout: Layout = "numerator") -> Float[Tensor, "a b"]:
    """The derivative of a map of vectors at a point, in the layout that is wanted.

    It is computed by columns where the map has fewer inputs than outputs, else by rows.

    Args:
        f: R^n -> R^m, differentiable by torch.
        x: The point.
        layout: ``numerator`` gives (m, n), ``denominator`` (n, m).

    Raises:
        ValueError: f does not give a vector, or the layout is neither of the two.
    """
    with torch.no_grad():
        shape = tuple(f(x).shape)
    if len(shape) != 1:
        raise ValueError(f"f must map a vector to a vector: got outputs of shape {shape}")
    by_columns = len(x) < shape[0]
    jacobian = (torch.func.jacfwd if by_columns else torch.func.jacrev)(f)(x)
    return converted(jacobian, "numerator", layout)


def chain(derivatives: Sequence[Tensor], layout: Layout = "numerator") -> Tensor:
    r"""The derivative of f_k o ... o f_1 from those of f_1, ..., f_k, given in this order.

    .. math:: \text{numerator:}\ J = J_k \cdots J_1, \qquad \text{denominator:}\ D = D_1 \cdots D_k

    The product is formed from the end of the outputs, as reverse accumulation does.

    Args:
        derivatives: The matrix of each map, of the one that is applied first first; at least one.
        layout: The layout of all of them, and of the result.

    Raises:
        ValueError: There is none, or two neighbors do not fit.

    Reference: Magnus and Neudecker 2019, Chapter 5 (chain rule).
    """
    _check_layout(layout)
    if not derivatives:
        raise ValueError("a chain must have a derivative: got none")
    jacobians = [converted(each, layout, "numerator") for each in derivatives]
    for i, (first, then) in enumerate(pairwise(jacobians)):
        if then.shape[1] != first.shape[0]:
            raise ValueError(
                f"map {i + 2} must take what map {i + 1} gives: in {layout} layout got derivatives of shape "
                f"{tuple(derivatives[i].shape)} and {tuple(derivatives[i + 1].shape)}"
            )
    return converted(reduce(torch.matmul, reversed(jacobians)), "numerator", layout)


def accumulation_passes(inputs: int, outputs: int) -> Passes:
    """The passes of a full Jacobian of R^n -> R^m: n of forward accumulation, or m of reverse.

    Forward accumulation gives J v, a column a pass; reverse accumulation w^T J, a row a pass. A pass costs a
    small multiple of the function. The gradient of one loss in many parameters is one reverse pass.

    Args:
        inputs: n >= 1.
        outputs: m >= 1.

    Raises:
        ValueError: A number is below 1.

    Reference: Griewank and Walther 2008, Chapter 3.
    """
    if min(inputs, outputs) < 1:
        raise ValueError(f"a map must have inputs and outputs: got {inputs} and {outputs}")
    return Passes(inputs, outputs)


def _check_layout(layout: str) -> None:
    if layout not in ("numerator", "denominator"):
        raise ValueError(f"layout must be numerator or denominator: got {layout!r}")
