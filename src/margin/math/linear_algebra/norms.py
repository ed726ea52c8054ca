"""The chain of vector norms, each at most the next (Golub and Van Loan 2013, Section 2.2.2)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


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
