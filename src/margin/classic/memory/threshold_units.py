"""McCulloch and Pitts' threshold unit (1943): it fires when enough of its inputs are active."""

from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Inhibition = Literal["subtractive", "absolute"]


def threshold_unit(
    x: Int[Tensor, "rows inputs"],
    sign: Int[Tensor, " inputs"],
    threshold: float,
    *,
    inhibition: Inhibition = "subtractive",
) -> Bool[Tensor, " rows"]:
    r"""Whether the unit fires on each row of inputs.

    .. math:: f(x) = 1[\sigma^\top x \ge \theta]

    Args:
        x: Inputs 0 (silent) and 1 (active), one row an example.
        sign: sigma: +1 where an input excites, -1 where it inhibits.
        threshold: theta.
        inhibition: subtractive: an active inhibitory input cancels an active excitatory one. absolute:
            it vetoes; the unit fires if none is active and at least theta excitatory inputs are.

    Raises:
        ValueError: An input is neither 0 nor 1, or a sign neither -1 nor +1; the message says where.

    Reference: McCulloch and Pitts 1943, Section 2, whose inhibition is absolute; Rojas 1996, Section 2.2.
    """
    if bool(((x != 0) & (x != 1)).any()):
        row, column = ((x != 0) & (x != 1)).nonzero()[0].tolist()
        raise ValueError(f"inputs must be 0 or 1: got {x[row, column].item()} (row {row}, input {column})")
    if bool((sign.abs() != 1).any()):
        column = int((sign.abs() != 1).nonzero()[0])
        raise ValueError(f"signs must be -1 or +1: got {sign[column].item()} (input {column})")
    excited = (x * (sign == 1)).sum(1)
    inhibited = (x * (sign == -1)).sum(1)
    if inhibition == "absolute":
        return (inhibited == 0) & (excited >= threshold)
    return torch.ge(excited - inhibited, threshold)
