"""Inputs that a model takes for probabilities or shares: numbers from 0 to 1, and nothing else."""

import torch
from jaxtyping import Float
from torch import Tensor

EDGE = 1e-6
"""How far rounding may carry a number out of [0, 1]."""


def unseen(x: Tensor) -> bool:
    """Whether no value can be looked at: inside of torch.func.vmap, or of a graph that is compiled."""
    return torch.compiler.is_compiling() or torch._C._functorch.is_batchedtensor(x)


def unit_inputs(x: Float[Tensor, "*shape"], what: str) -> Float[Tensor, "*shape"]:
    """The inputs as they are, once it is seen that they lie in [0, 1].

    Inside of torch.func.vmap or a compiled graph no value can be looked at, and none is.

    Args:
        x: The inputs.
        what: What needs them, as a message calls it.

    Raises:
        ValueError: A number is outside of [0, 1], or NaN.
    """
    if x.numel() == 0 or unseen(x):
        return x
    low, high = (float(end) for end in x.detach().aminmax())
    if not (low >= -EDGE and high <= 1 + EDGE):
        raise ValueError(
            f"{what} needs inputs in [0, 1]: got from {low:.3g} to {high:.3g}; train with --scale unit"
        )
    return x
