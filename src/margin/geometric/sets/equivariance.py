"""Functions that a group's actions leave alone, f(g x) = f(x), or follow, f(g x) = g f(x).

For sets X (M, k) the group permutes rows; for graphs nodes are renumbered, f(PX, P A P^T) = P f(X, A).
Equivariance reads f(X) = P^T f(PX); with P in place of P^T it would hold for involutions only.

Maps from sets to sets that follow a renumbering of the elements (Zaheer et al. 2017, Section 3).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.geometric.sets.deep_sets import Elements, Mask, Outputs, Pool, SetPool, networks, without_padding
from margin.math.groups.permutations import Permutation, drawn, inverse
from margin.nn.activations import Activation

Inputs = tuple[Tensor, ...]
Action = Callable[[Inputs], Inputs]
OnOutput = Callable[[Tensor], Tensor]
Function = Callable[..., Tensor]


class Act(NamedTuple):
    """What one element of a group does to inputs, and to outputs."""

    on_inputs: Action
    on_output: OnOutput


def same(output: Tensor) -> Tensor:
    """The trivial action: the output of an invariant function stays."""
    return output


def equivariance_error(f: Function, inputs: Inputs, acts: Iterable[Act]) -> float:
    """The largest |f(g x) - g f(x)| over elements g and entries, relative to the largest |f(x)| (or 1).

    Args:
        f: Takes the inputs one by one, returns one tensor.
        inputs: x.
        acts: What each g does.

    Returns:
        NaN where an output is no number.

    Raises:
        ValueError: f(g x) and g f(x) have different shapes, or there is no g.
    """
    before, worst = f(*inputs).detach(), []
    scale = max(float(before.abs().max()), 1.0) if before.numel() else 1.0
    for act in acts:
        moved, expected = f(*act.on_inputs(inputs)).detach(), act.on_output(before)
        if moved.shape != expected.shape:
            raise ValueError(
                f"f(g x) must have the shape of g f(x): got {tuple(moved.shape)} and {tuple(expected.shape)}"
            )
        worst.append((moved - expected).abs().max() if moved.numel() else moved.new_zeros(()))
    if not worst:
        raise ValueError("an error is taken over elements of a group: got none")
    return float(torch.stack(worst).max() / scale)  # max keeps NaN


def check_invariant(
    f: Function, x: Float[Tensor, "*batch elements features"], *, count: int = 10, seed: int = 0
) -> float:
    """The error |f(PX) - f(X)| of a function of sets, over ``count`` permutations of their elements.

    Args:
        f: Takes X, the elements on the axis before the last.
        x: X.
        count: Permutations, drawn.
        seed: Seed of what is drawn.
    """
    return equivariance_error(f, (x,), (Act(on_rows(pi), same) for pi in _drawn(x.shape[-2], count, seed)))


def check_equivariant(
    f: Function, x: Float[Tensor, "*batch elements features"], *, count: int = 10, seed: int = 0
) -> float:
    """The error |f(PX) - P f(X)| of a function from sets to sets, over ``count`` permutations.

    Args:
        f: Takes X and returns a tensor whose elements are on the axis before the last, too.
        x: X.
        count: Permutations, drawn.
        seed: Seed of what is drawn.
    """
    acts = (Act(on_rows(pi), permuting(pi)) for pi in _drawn(x.shape[-2], count, seed))
    return equivariance_error(f, (x,), acts)


def permuting(pi: Permutation) -> OnOutput:
    """Permute the elements of an output (..., M, q)."""
    return lambda output: output[..., pi, :]


def _drawn(size: int, count: int, seed: int) -> list[Permutation]:
    generator = Generator().manual_seed(seed)
    return [drawn(size, generator) for _ in range(count)]


def on_rows(pi: Permutation) -> Action:
    """Permute the elements of a set (..., M, k), and its mask (..., M) where there is one."""

    def act(inputs: Inputs) -> Inputs:
        x, *rest = inputs
        return (x[..., pi, :], *(mask[..., pi] for mask in rest))

    return act


def on_nodes(pi: Permutation) -> Action:
    """Renumber the nodes of one graph (x, edge_index, edge_attr, sizes): node m is what pi(m) was."""
    place: Int[Tensor, " nodes"] = inverse(pi)

    def act(inputs: Inputs) -> Inputs:
        x, edge_index, edge_attr, sizes = inputs
        return x[pi], place[edge_index], edge_attr, sizes

    return act


def on_edges(order: Permutation) -> Action:
    """List the edges of a graph in another order: a graph has none."""

    def act(inputs: Inputs) -> Inputs:
        x, edge_index, edge_attr, sizes = inputs
        return x, edge_index[:, order], edge_attr[order], sizes

    return act


MOST = 12
"""Elements for which the null space of all exchanges is computed at most: it takes the memory of M^5."""


def commuting(size: int) -> Float[Tensor, "dimension size size"]:
    r"""An orthonormal basis of the matrices A with P A = A P for every permutation matrix P of M elements.

    It is the null space of :math:`A \mapsto (P_t A - A P_t)_t` over the exchanges t of neighbors, which
    generate all permutations. Its dimension is 2 for M >= 2, spanned by I and 1 1^T; it is 1 for M = 1.

    Args:
        size: M, from 1 to 12.

    Returns:
        One matrix a row, in float64.

    Raises:
        ValueError: The size is out of range.

    Reference: Zaheer et al. 2017, Lemma 3.
    """
    if not 1 <= size <= MOST:
        raise ValueError(f"the basis is computed for 1 to {MOST} elements: got {size}")
    eye = torch.eye(size, dtype=torch.float64)
    rows = [torch.zeros(1, size * size, dtype=torch.float64)]
    for m in range(size - 1):
        order = torch.arange(size)
        order[m], order[m + 1] = m + 1, m
        P = eye[order]
        rows.append(torch.kron(P, eye) - torch.kron(eye, P.T.contiguous()))
    _, singular, right = torch.linalg.svd(torch.cat(rows), full_matrices=True)
    rank = int((singular > 1e-9).sum())
    return right[rank:].reshape(-1, size, size)


class EquivariantLinear(nn.Module):
    r"""The linear maps of sets of vectors that follow every renumbering, with a bias.

    .. math:: y_m = \Lambda x_m + \Gamma \sum_j x_j + b

    For numbers (widths 1) it is :math:`(\lambda I + \gamma 1 1^\top) x`, and nothing else is linear and
    equivariant. With the mean or the maximum in place of the sum, gamma does not depend on the size of a set.

    Args:
        in_width: Numbers of x_m.
        out_width: Numbers of y_m.
        pool: What stands for the set: sum, mean or max.

    Reference:
        Zaheer et al. 2017, Lemma 3 and Equation 4; with several numbers an element, Section 3.1.
    """

    def __init__(self, in_width: int, out_width: int, *, pool: Pool = "sum") -> None:
        super().__init__()
        self.own = nn.Linear(in_width, out_width)
        self.of_all = nn.Linear(in_width, out_width, bias=False)
        self.pool = SetPool(pool)

    def forward(self, x: Elements, mask: Mask | None = None) -> Outputs:
        """The element y_m for each x_m; 0 at padding."""
        y = self.own(without_padding(x, mask)) + self.of_all(self.pool(x, mask))[:, None]
        return without_padding(y, mask)


class EquivariantSets(nn.Module):
    r"""A network of each element and of the whole set, equivariant under every renumbering.

    .. math:: y_m = \rho\Big(x_m, \sum_j \phi(x_j)\Big)

    Args:
        phi: Maps elements (..., k) to codes (..., d), each alone.
        rho: Maps an element beside the pooled codes (..., k + d) to outputs.
        pool: sum, mean or max.

    Reference:
        Zaheer et al. 2017, Section 3.1; Segol and Lipman 2020, Theorem 2 (universal among equivariant maps).
    """

    elements_alone = True

    def __init__(self, phi: nn.Module, rho: nn.Module, *, pool: Pool = "sum") -> None:
        super().__init__()
        self.phi = phi
        self.pool = SetPool(pool)
        self.rho = rho

    def forward(self, x: Elements, mask: Mask | None = None) -> Outputs:
        """The outputs of each element; 0 at padding."""
        x = without_padding(x, mask)
        whole = self.pool(self.phi(x), mask)[:, None].expand(-1, x.shape[1], -1)
        return without_padding(self.rho(torch.cat((x, whole), -1)), mask)


def segmentation(
    element_size: int,
    num_classes: int,
    *,
    hidden: int = 64,
    features: int = 64,
    depth: int = 2,
    pool: Pool = "mean",
    activation: Activation = "relu",
) -> EquivariantSets:
    """An equivariant network of sets, to class logits of each element.

    Args:
        element_size: Numbers of an element.
        num_classes: Number of logits.
        hidden: Width of the hidden layers of phi and of rho.
        features: Numbers of an element's code.
        depth: Hidden layers of phi and of rho, at least 0.
        pool: How the codes of a set become one: sum, mean or max.
        activation: Between affine maps.
    """
    layers = {"hidden": hidden, "depth": depth}
    phi, _ = networks(element_size, 1, features=features, activation=activation, **layers)
    _, rho = networks(1, num_classes, features=element_size + features, activation=activation, **layers)
    return EquivariantSets(phi, nn.Sequential(*rho), pool=pool)
