r"""Functions that a group's actions leave alone, f(g x) = f(x), or follow, f(g x) = g f(x).

For sets X (M, k) the group permutes rows; for graphs nodes are renumbered, f(PX, P A P^T) = P f(X, A).
Equivariance reads f(X) = P^T f(PX); with P in place of P^T it would hold for involutions only.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.math.groups.permutations import Permutation, drawn, inverse

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
