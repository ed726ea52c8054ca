"""Hyperplane arrangements: into how many regions do m hyperplanes cut R^n (Zaslavsky 1975)?

A hidden layer of ReLUs cuts its inputs along the hyperplanes {x : w_i x + b_i = 0}; its cells are the regions
of their arrangement. They are counted in three ways: by the formula for general position, by the
characteristic polynomial, and one by one.

Activation patterns: where the same units are on, the network is affine. Montufar, Pascanu, Cho and Bengio
(2014), Section 2: the pattern kappa(x) = 1[Wx + b > 0] is constant on the regions of the arrangement of the
hyperplanes {x : w_i x + b_i = 0}.

Of deep networks: Montufar et al. build weights by which each layer folds its input onto itself, so
that what the later layers cut is repeated; Serra, Tjandraatmadja and Ramalingam (2018) bound every network.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.core.deadline import check_deadline

MOST_HYPERPLANES = 14
"""For the characteristic polynomial, a sum over all 2^m sets of hyperplanes."""

THIN = 1e-9
"""Radius of the largest ball in a region, in units of the arrangement, at and below which it is none."""


class Cells(NamedTuple):
    """The regions of an arrangement: on which side of each hyperplane, +1 or -1, and a point of each."""

    signs: Int[Tensor, "cells hyperplanes"]
    points: Float[Tensor, "cells dim"]


def most_regions(hyperplanes: int, dim: int) -> int:
    r"""The number of regions of m hyperplanes in general position in R^n, the most that m can have.

    .. math:: R(m) = \sum_{i=0}^{\min(n, m)} \binom{m}{i}

    Args:
        hyperplanes: m >= 0.
        dim: n >= 0.

    Raises:
        ValueError: A number is negative.

    Reference: Zaslavsky 1975, Theorem A; Stanley 2004, Proposition 2.4 (general position; Schlaefli 1901).
    """
    if hyperplanes < 0 or dim < 0:
        raise ValueError(f"hyperplanes and dim must be at least 0: got {hyperplanes} and {dim}")
    return sum(math.comb(hyperplanes, i) for i in range(min(dim, hyperplanes) + 1))


def characteristic_polynomial(
    W: Float[Tensor, "hyperplanes dim"], b: Float[Tensor, " hyperplanes"]
) -> list[int]:
    r"""The characteristic polynomial of the arrangement {x : w_i x + b_i = 0}, by Whitney's theorem.

    .. math:: \chi(t) = \sum_{B \text{ central}} (-1)^{|B|}\, t^{n - \mathrm{rank}(B)}

    over the sets B of hyperplanes with a common point, the empty set among them. Its coefficients are the
    Moebius function summed over the flats of each rank.

    Args:
        W: A normal a row, none 0.
        b: The offsets.

    Returns:
        The coefficients of 1, t, ..., t^n.

    Raises:
        ValueError: A normal is 0, something is not finite, or there are more than 14 hyperplanes.

    Reference: Stanley 2004, Theorem 2.4 (Whitney); Zaslavsky 1975.
    """
    normals, offsets = _unit(W, b)
    count, dim = normals.shape
    if count > MOST_HYPERPLANES:
        raise ValueError(f"the polynomial sums over 2^m sets, m at most {MOST_HYPERPLANES}: got m={count}")
    chosen = (torch.arange(2**count)[:, None] >> torch.arange(count)) & 1
    taken = chosen[:, :, None] * normals
    with_offsets = torch.cat((taken, (chosen * offsets)[:, :, None]), 2)
    rank, joint = (torch.linalg.matrix_rank(m, rtol=1e-9) for m in (taken, with_offsets))
    coefficients = torch.zeros(dim + 1, dtype=torch.long)
    central = rank == joint
    signs = 1 - 2 * (chosen.sum(1) % 2)
    coefficients.index_add_(0, dim - rank[central], signs[central])
    return coefficients.tolist()


def count_regions(W: Float[Tensor, "hyperplanes dim"], b: Float[Tensor, " hyperplanes"]) -> int:
    r"""The number of regions of any arrangement of few hyperplanes, :math:`R = |\chi(-1)|`.

    Args:
        W: A normal a row, none 0.
        b: The offsets.

    Raises:
        ValueError: As :func:`characteristic_polynomial`.

    Reference: Zaslavsky 1975, Theorem A; Stanley 2004, Theorem 2.5.
    """
    return abs(sum(c * (-1) ** power for power, c in enumerate(characteristic_polynomial(W, b))))


def cells(W: Float[Tensor, "hyperplanes dim"], b: Float[Tensor, " hyperplanes"]) -> Cells:
    """All regions of the arrangement {x : w_i x + b_i = 0} on all of R^n, one linear program a candidate.

    Hyperplane by hyperplane: each region so far keeps a point of it, which is on one side of the next
    hyperplane; whether the region has a part on the other is asked of a linear program, which looks for the
    largest ball there, of radius 1 at most.

    Args:
        W: A normal a row, none 0.
        b: The offsets.

    Returns:
        Every region whose largest ball exceeds 1e-9 in the unit of the largest offset.

    Raises:
        ValueError: A normal is 0 or something is not finite.
        ArithmeticError: A linear program was not solved.

    Reference: Serra, Tjandraatmadja and Ramalingam 2018, Section 5 (exact counting by optimization).
    """
    normals, offsets = (part.numpy() for part in _unit(W, b))
    count, dim = normals.shape
    found: list[tuple[list[int], np.ndarray]] = [([], np.zeros(dim))]
    for i in range(count):
        grown: list[tuple[list[int], np.ndarray]] = []
        for signs, point in found:
            value = float(normals[i] @ point + offsets[i])
            for side in (1, -1):
                if side * value > THIN:
                    grown.append(([*signs, side], point))
                    continue
                inside = _ball(np.array([*signs, side]), normals[: i + 1], offsets[: i + 1])
                if inside is not None:
                    grown.append(([*signs, side], inside))
        found = grown
    sides = torch.tensor([signs for signs, _ in found], dtype=torch.long).reshape(len(found), count)
    return Cells(sides, torch.from_numpy(np.stack([point for _, point in found])))


def _ball(signs: np.ndarray, normals: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
    """The middle of the largest ball, of radius 1 at most, on these sides; None where there is none."""
    check_deadline()
    # Without integer variables this is a linear program, at half the overhead of scipy's linprog.
    from scipy.optimize import Bounds, LinearConstraint, milp

    dim = normals.shape[1]
    sides = np.concatenate((-signs[:, None] * normals, np.ones((len(signs), 1))), 1)
    cost = np.append(np.zeros(dim), -1.0)
    bounds = Bounds(np.full(dim + 1, -np.inf), np.append(np.full(dim, np.inf), 1.0))
    solved = milp(cost, constraints=LinearConstraint(sides, -np.inf, signs * offsets), bounds=bounds)
    if solved.status != 0:
        raise ArithmeticError(f"a linear program was not solved: {solved.message}")
    return solved.x[:-1] if solved.x[-1] > THIN else None


def _unit(W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Normals of length 1, and offsets in units of the largest."""
    W, b = W.detach().cpu().double(), b.detach().cpu().double()
    norms = W.norm(dim=1)
    if not bool(W.isfinite().all() and b.isfinite().all()) or bool((norms == 0).any()):
        raise ValueError("the normals of an arrangement must be finite and not 0, its offsets finite")
    offsets = b / norms
    scale = float(offsets.abs().max()) if len(b) else 0.0
    return W / norms[:, None], offsets / scale if scale else offsets


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
