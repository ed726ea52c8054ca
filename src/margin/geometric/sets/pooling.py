"""Symmetric pooling of a set: the sum, mean or maximum of its elements, blind to order (Zaheer et al. 2017).

The elements of a batch of sets are padded to one number; a mask says which are there. Padding is never read,
be it NaN. A set without elements has sum 0, and by convention mean 0 and maximum 0.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Pool = Literal["sum", "mean", "max"]

Elements = Float[Tensor, "batch elements width"]
Mask = Bool[Tensor, "batch elements"]
PerSet = Float[Tensor, "batch width"]
Codes = Float[Tensor, "batch codes"]
Outputs = Float[Tensor, "batch elements outputs"]


def without_padding(x: Elements, mask: Mask | None, value: float = 0.0) -> Elements:
    """The elements, with ``value`` in place of what the mask says is padding.

    Args:
        x: Elements of each set.
        mask: True where an element is; None: all are there.
        value: What is put at the others.
    """
    return x if mask is None else torch.where(mask[..., None], x, value)


def pooled_sets(x: Elements, mask: Mask | None = None, *, how: Pool) -> PerSet:
    r"""One vector a set, the same in whatever order its elements are listed.

    .. math:: \sum_m x_m, \qquad \tfrac1M \sum_m x_m, \qquad \max_m x_m \text{ (number by number)}

    Args:
        x: Elements x_m of each set.
        mask: True where an element is; None: all are there.
        how: Which one.

    Returns:
        A row for each set: 0 for a set without elements, whichever is taken.

    Raises:
        ValueError: ``how`` is something else.

    Reference:
        Zaheer et al. 2017, Theorem 2 (the sum); Qi, Su, Mo and Guibas 2017, Section 4.2 (the maximum).
    """
    if how not in get_args(Pool):
        raise ValueError(f"sets are pooled by their sum, mean or max: got {how!r}")
    if x.shape[1] == 0:
        return x.sum(1)
    if how == "max":
        top = without_padding(x, mask, -torch.inf).max(1).values
        return top if mask is None else torch.where(mask.any(1, keepdim=True), top, 0.0)
    total = without_padding(x, mask).sum(1)
    if how == "sum":
        return total
    count = x.shape[1] if mask is None else mask.sum(1, keepdim=True).clamp(min=1)
    return total / count


class SetPool(nn.Module):
    """The layer of :func:`pooled_sets`: what a question to a model listens to.

    Args:
        how: sum, mean or max.

    Raises:
        ValueError: ``how`` is something else.
    """

    reads_sets = True

    def __init__(self, how: Pool) -> None:
        super().__init__()
        if how not in get_args(Pool):
            raise ValueError(f"sets are pooled by their sum, mean or max: got {how!r}")
        self.how: Pool = how

    def forward(self, x: Elements, mask: Mask | None = None) -> PerSet:
        """One vector a set."""
        return pooled_sets(x, mask, how=self.how)

    def extra_repr(self) -> str:
        """The pooling, as the printed module shows it."""
        return self.how
