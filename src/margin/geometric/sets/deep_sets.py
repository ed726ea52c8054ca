"""Deep Sets (Zaheer et al. 2017): a function of a set as a function of a sum over its elements."""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from margin.geometric.sets.pooling import Codes, Elements, Mask, Pool, SetPool, without_padding
from margin.nn.activations import Activation, activation_of


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
