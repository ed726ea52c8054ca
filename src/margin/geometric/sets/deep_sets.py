"""Deep Sets (Zaheer et al. 2017): a function of a set as a function of a sum over its elements.

Symmetric pooling of a set: the sum, mean or maximum of its elements, blind to order (Zaheer et al. 2017).

The elements of a batch of sets are padded to one number; a mask says which are there. Padding is never read,
be it NaN. A set without elements has sum 0, and by convention mean 0 and maximum 0.
"""

from itertools import pairwise
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from margin.nn.activations import Activation, activation_of

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


class DeepSets(nn.Module):
    r"""A function of the sum, mean or maximum of what a network says of each element alone.

    .. math:: f(\{x_1, \dots, x_M\}) = \rho\Big(\sum_m \phi(x_m)\Big)

    The order of the elements has no influence but on rounding, and padding none at all. The sum knows the
    number of elements (phi = 1 gives M); the mean of a set and of the set with every element twice are
    equal, and so are their maxima, so these know it not. A set without elements gets rho(0).

    Args:
        phi: Maps elements (..., k) to codes (..., d), each alone.
        rho: Maps the pooled codes (B, d) to outputs.
        pool: sum, mean or max.

    Raises:
        ValueError: ``pool`` is something else.

    Reference:
        Zaheer et al. 2017, Theorem 2 and Section 3.1 (invariant model); there the sum.
    """

    elements_alone = True

    def __init__(self, phi: nn.Module, rho: nn.Module, *, pool: Pool = "sum") -> None:
        super().__init__()
        self.phi = phi
        self.pool = SetPool(pool)
        self.rho = rho

    def code(self, x: Elements, mask: Mask | None = None) -> Codes:
        """What rho reads of each set: the pooled codes of its elements."""
        return self.pool(self.phi(without_padding(x, mask)), mask)

    def forward(self, x: Elements, mask: Mask | None = None) -> Float[Tensor, " batch *outputs"]:
        """The outputs for each set; ``mask`` is True where an element is, None where all are there."""
        return self.rho(self.code(x, mask))


def perceptron(sizes: list[int], activation: Activation) -> list[nn.Module]:
    """Affine maps from each size to the next, an activation between any two.

    Raises:
        ValueError: A size is below 1.
    """
    if min(sizes) < 1:
        raise ValueError(f"every width must be at least 1: got {sizes}")
    maps = [nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
    return [layer for affine in maps[:-1] for layer in (affine, activation_of(activation))] + [maps[-1]]


def networks(
    element_size: int, outputs: int, *, hidden: int, features: int, depth: int, activation: Activation
) -> tuple[nn.Sequential, list[nn.Module]]:
    """The network phi from elements to codes, and the layers of rho from codes to outputs.

    Args:
        element_size: k, numbers of an element.
        outputs: Numbers that rho gives.
        hidden: Width of the hidden layers of both.
        features: d, numbers of a code.
        depth: Hidden layers of each.
        activation: Between affine maps.

    Raises:
        ValueError: A width is below 1, or the depth is below 0.
    """
    if depth < 0:
        raise ValueError(f"depth must be at least 0: got {depth}")
    inner = [hidden] * depth
    phi = perceptron([element_size, *inner, features], activation)
    return nn.Sequential(*phi), perceptron([features, *inner, outputs], activation)


def classifier(
    element_size: int,
    num_classes: int,
    *,
    hidden: int = 64,
    features: int = 64,
    depth: int = 2,
    pool: Pool = "sum",
    activation: Activation = "relu",
) -> DeepSets:
    """Deep Sets to class logits of a set.

    Args:
        element_size: Numbers of an element.
        num_classes: Number of logits.
        hidden: Width of the hidden layers of phi and of rho.
        features: Numbers d of an element's code: continuous networks represent every continuous function of
            sets of M real numbers where d >= M, and of no smaller d.
        depth: Hidden layers of phi and of rho, at least 0.
        pool: How the codes of a set become one: sum, mean or max.
        activation: Between affine maps.
    """
    phi, rho = networks(
        element_size, num_classes, hidden=hidden, features=features, depth=depth, activation=activation
    )
    return DeepSets(phi, nn.Sequential(*rho), pool=pool)


def regressor(
    element_size: int,
    *,
    hidden: int = 64,
    features: int = 64,
    depth: int = 2,
    pool: Pool = "sum",
    activation: Activation = "relu",
) -> DeepSets:
    """Deep Sets to one real number of a set.

    Args:
        element_size: Numbers of an element.
        hidden: Width of the hidden layers of phi and of rho.
        features: Numbers d of an element's code: continuous networks represent every continuous function of
            sets of M real numbers where d >= M, and of no smaller d.
        depth: Hidden layers of phi and of rho, at least 0.
        pool: How the codes of a set become one: sum, mean or max.
        activation: Between affine maps.
    """
    phi, rho = networks(element_size, 1, hidden=hidden, features=features, depth=depth, activation=activation)
    return DeepSets(phi, nn.Sequential(*rho, nn.Flatten(0)), pool=pool)
