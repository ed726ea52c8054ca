"""How many linear regions can a deep ReLU network have: bounds for some weights, and for all.

Montufar, Pascanu, Cho and Bengio (2014) build weights by which each layer folds its input onto itself, so
that what the later layers cut is repeated; Serra, Tjandraatmadja and Ramalingam (2018) bound every network.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from margin.theory.regions.arrangements import most_regions


def montufar_bound(dim: int, width: int, depth: int) -> int:
    r"""A number of linear regions that SOME network of L hidden layers of m ReLUs on R^n reaches or exceeds.

    .. math:: \left\lfloor \frac{m}{n} \right\rfloor^{n (L - 1)} \sum_{i=0}^{n} \binom{m}{i}

    It is a lower bound of the maximum over weights and promises nothing of a given network: with all weights
    0 there is one region.

    Args:
        dim: n >= 1.
        width: m >= n.
        depth: L >= 1.

    Raises:
        ValueError: A number is out of range.

    Reference: Montufar, Pascanu, Cho and Bengio 2014, Theorem 5 and Corollary 6.
    """
    if dim < 1 or depth < 1 or width < dim:
        raise ValueError(
            f"dim and depth must be at least 1, width at least dim: "
            f"got dim={dim}, width={width}, depth={depth}"
        )
    return (width // dim) ** (dim * (depth - 1)) * most_regions(width, dim)


def product_bound(dim: int, widths: Sequence[int]) -> int:
    r"""At most so many regions has EVERY network with these hidden layers on R^n, layer by layer.

    .. math:: \prod_{l=1}^{L} \sum_{j=0}^{d_l} \binom{m_l}{j}, \quad d_l = \min(n, m_1, ..., m_{l-1})

    since the image of a region has dimension d_l at most and each layer cuts it along m_l hyperplanes. It
    holds for activation regions, and for any activation with one kink.

    Args:
        dim: n >= 1.
        widths: m_1, ..., m_L, each at least 1; () for an affine map.

    Raises:
        ValueError: A number is below 1.

    Reference: Serra, Tjandraatmadja and Ramalingam 2018, Section 3 (the bound of Montufar 2017).
    """
    _check(dim, widths)
    bound, image = 1, dim
    for width in widths:
        bound *= most_regions(width, image)
        image = min(image, width)
    return bound


def serra_bound(dim: int, widths: Sequence[int]) -> int:
    r"""At most so many regions has EVERY network with these hidden ReLU layers on R^n: less than the product.

    .. math:: \sum_{(j_1, ..., j_L) \in J} \prod_{l=1}^{L} \binom{m_l}{j_l}, \quad
        J = \{0 \le j_l \le \min(n, m_1 - j_1, ..., m_{l-1} - j_{l-1}, m_l)\}

    A region on which m_l - j_l ReLUs of layer l are active has an image of that dimension at most.

    Args:
        dim: n >= 1.
        widths: m_1, ..., m_L, each at least 1.

    Raises:
        ValueError: A number is below 1.

    Reference: Serra, Tjandraatmadja and Ramalingam 2018, Theorem 1.
    """
    _check(dim, widths)
    by_image = {dim: 1}
    for width in widths:
        after: dict[int, int] = {}
        for image, count in by_image.items():
            for j in range(min(image, width) + 1):
                left = min(image, width - j)
                after[left] = after.get(left, 0) + count * math.comb(width, j)
        by_image = after
    return sum(by_image.values())


def _check(dim: int, widths: Sequence[int]) -> None:
    if dim < 1 or any(width < 1 for width in widths):
        raise ValueError(f"dim and widths must be at least 1: got dim={dim}, widths={list(widths)}")


def folding_network(dim: int, width: int, depth: int) -> nn.Sequential:
    r"""Weights that reach Montufar's bound on [0, 1]^n, for n = 1 or 2 inputs, in float64.

    With p = floor(m / n), each layer but the last folds every coordinate p times,

    .. math:: t(x) = p\,x_+ + \sum_{k=1}^{p-1} (-1)^k\, 2p\,(x - k/p)_+,

    which maps each of p intervals onto [0, 1]; the last layer cuts [0, 1]^n along m hyperplanes in general
    position that meet inside: points evenly spaced, or tangents of a circle.

    Args:
        dim: n, 1 or 2.
        width: m >= n; units that m / n leaves over are constant.
        depth: L >= 1.

    Returns:
        Linear and ReLU layers with one output, which feels every kink.

    Raises:
        ValueError: A number is out of range.

    Reference: Montufar, Pascanu, Cho and Bengio 2014, Section 3.1 and Theorem 5.
    """
    if dim not in (1, 2) or depth < 1 or width < dim:
        raise ValueError(
            f"dim must be 1 or 2, width at least dim, depth at least 1: "
            f"got dim={dim}, width={width}, depth={depth}"
        )
    pieces = width // dim
    before, shift = torch.eye(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    made: list[nn.Module] = []
    knots = torch.arange(pieces, dtype=torch.float64) / pieces
    for _ in range(depth - 1):
        weight = torch.zeros(width, dim, dtype=torch.float64)
        bias = torch.full((width,), -1.0, dtype=torch.float64)
        fold = torch.zeros(dim, width, dtype=torch.float64)
        for axis in range(dim):
            own = slice(axis * pieces, (axis + 1) * pieces)
            weight[own, axis], bias[own] = 1.0, -knots
            fold[axis, own] = 2.0 * pieces * (-1.0) ** torch.arange(pieces)
            fold[axis, axis * pieces] = pieces
        made += [_linear(weight @ before, weight @ shift + bias), nn.ReLU()]
        before, shift = fold, torch.zeros_like(shift)
    weight, bias = _general_position(dim, width)
    made += [_linear(weight @ before, weight @ shift + bias), nn.ReLU()]
    top = torch.arange(1.0, width + 1, dtype=torch.float64).sqrt()
    return nn.Sequential(*made, _linear(top[None], top.new_zeros(1)))


def sawtooth_network(depth: int) -> nn.Sequential:
    r"""The tent map t(x) = 2 x_+ - 4 (x - 1/2)_+ composed L times: 2^L pieces on [0, 1], of slope 2^L.

    Args:
        depth: L >= 1.

    Raises:
        ValueError: The depth is below 1.

    Reference: Telgarsky 2015, Section 2; Montufar, Pascanu, Cho and Bengio 2014, Section 3.1.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1: got {depth}")
    one = torch.ones(2, 1, dtype=torch.float64)
    bias = torch.tensor([0.0, -0.5], dtype=torch.float64)
    tent = torch.tensor([[2.0, -4.0]], dtype=torch.float64)
    made: list[nn.Module] = [_linear(one, bias), nn.ReLU()]
    for _ in range(depth - 1):
        made += [_linear(one @ tent, bias), nn.ReLU()]
    return nn.Sequential(*made, _linear(tent, tent.new_zeros(1)))


def _general_position(dim: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Hyperplanes that cut [0, 1]^n in as many parts as they cut R^n."""
    steps = (torch.arange(width, dtype=torch.float64) + 0.5) / width
    # Units that are on to one side and to the other in turn: next to a fold some are, so it is felt.
    side = 1.0 - 2.0 * (torch.arange(width) % 2).double()
    if dim == 1:
        return side[:, None], -side * steps
    angle = math.pi * steps
    normal = torch.stack((angle.cos(), angle.sin()), 1)
    # Two tangents meet at radius / cos(half the angle between them), at most 0.4 from the middle.
    radius = 0.4 * math.sin(math.pi / (2 * width))
    return side[:, None] * normal, -side * (normal.sum(1) / 2 + radius)


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer
