r"""The no-U-turn sampler: Hamiltonian trajectories that double until they turn back on themselves.

Hoffman and Gelman (2014), "The No-U-Turn sampler", in the form of Betancourt (2017), "A conceptual
introduction to Hamiltonian Monte Carlo", Appendix A: the next state is drawn from all states of the
trajectory, each by its weight exp(-H), and a trajectory has turned where the sum of its momenta no longer
points along both of its ends. All chains grow their trees side by side; one whose tree is done asks for no
further gradient.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from margin.bayes.mcmc.chains import (
    DIVERGENT,
    Draws,
    Energy,
    Moved,
    Point,
    States,
    chained,
    point_at,
    trajectory,
)

MAX_DEPTH = 10
"""Doublings of a trajectory: 1,023 leapfrog steps."""


class Span(NamedTuple):
    """The momenta of some consecutive states of a trajectory: what tells whether they turn back.

    Args:
        total: Their sum.
        first: Of the earliest state.
        last: Of the latest.
    """

    total: States
    first: States
    last: States


class Branch(NamedTuple):
    """So many further states beyond an end of a trajectory, in the direction in which it was extended.

    Args:
        end: The outermost state.
        span: The momenta.
        chosen: One of the states, by its weight.
        weight: The logarithm of the sum of their weights.
        whole: Whether it neither turns back anywhere nor diverges.
        divergent: Whether a state's energy is more than 1000 above the beginning's, or no number.
        acceptance: Of its states, the sum of min(1, exp(-rise of the energy)).
        steps: Its states, as many as were visited.
    """

    end: Point
    span: Span
    chosen: Point
    weight: Float[Tensor, " chains"]
    whole: Bool[Tensor, " chains"]
    divergent: Bool[Tensor, " chains"]
    acceptance: Float[Tensor, " chains"]
    steps: Float[Tensor, " chains"]


def where(mask: Bool[Tensor, " chains"], a: Point, b: Point) -> Point:
    """The first where the mask is set, else the second, chain by chain."""
    rows = (torch.where(mask if x.ndim == 1 else mask[:, None], x, y) for x, y in zip(a, b, strict=True))
    return Point(*rows)


def facing(forward: Bool[Tensor, " chains"], span: Span) -> Span:
    """The span as it is passed forward, or, reversed in time, backward; of that, the span again."""
    sides = zip(span, (-span.total, -span.last, -span.first), strict=True)
    return Span(*(torch.where(forward[:, None], a, b) for a, b in sides))


def turns(span: Span, inverse: Float[Tensor, " dim"]) -> Bool[Tensor, " chains"]:
    r"""Whether the first or the last momentum has :math:`p^\top M^{-1} \rho \le 0`, rho the sum of all.

    Reference: Betancourt 2017, Appendix A.4.2.
    """
    along = inverse * span.total
    return ((span.first * along).sum(1) <= 0) | ((span.last * along).sum(1) <= 0)


def joined(one: Span, other: Span, inverse: Float[Tensor, " dim"]) -> tuple[Span, Bool[Tensor, " chains"]]:
    """Two spans, of which the second follows the first, as one, and whether that turns back.

    Each is also asked with the nearest state of the other: a trajectory that has just gone around looks
    straight from its ends alone (as Stan does since its version 2.21).
    """
    whole = Span(one.total + other.total, one.first, other.last)
    across = Span(one.total + other.first, one.first, other.first)
    back = Span(one.last + other.total, one.last, other.last)
    return whole, turns(whole, inverse) | turns(across, inverse) | turns(back, inverse)


def extended(  # more than 7 parameters: a law, an end of each trajectory, and how far to go from it
    energy: Energy,
    at: Point,
    momentum: States,
    begun: Float[Tensor, " chains"],
    growing: Bool[Tensor, " chains"],
    *,
    inverse: Float[Tensor, " dim"],
    step: float,
    count: int,
    generator: Generator,
) -> Branch:
    """That many states beyond the end of each trajectory that grows; it ends where it turns or diverges.

    Args:
        energy: E.
        at: The end of each trajectory.
        momentum: There, in the direction in which to go.
        begun: H where each trajectory began.
        growing: The chains to extend.
        inverse: The diagonal of the inverse of M.
        step: Step size.
        count: States, a power of two.
        generator: Draws which state is chosen.
    """
    at, v, going = Point(*(x.clone() for x in at)), momentum.clone(), growing.clone()
    chosen, weight = at, torch.full_like(begun, -torch.inf)
    accepted, steps, divergent = torch.zeros_like(begun), torch.zeros_like(begun), torch.zeros_like(going)
    spans: list[tuple[int, Span]] = []  # whole subtrees, each shorter than the one before
    for _ in range(count):
        rows = going.nonzero()[:, 0]
        if not len(rows):
            break
        moved, w = trajectory(energy, Point(*(x[rows] for x in at)), v[rows], inverse, step, 1)
        at, v = (
            Point(*(x.index_copy(0, rows, y) for x, y in zip(at, moved, strict=True))),
            v.index_copy(0, rows, w),
        )
        rise = (at.energy + (v.square() * inverse).sum(1) / 2 - begun).nan_to_num(torch.inf, torch.inf)
        accepted, steps = accepted + going * (-rise).exp().clamp(max=1), steps + going
        divergent |= going & (rise > DIVERGENT)
        weight = torch.where(going, torch.logaddexp(weight, -rise), weight)
        draw = torch.rand(len(v), generator=generator, dtype=v.dtype).to(v.device)
        chosen = where(going & (draw < (-rise - weight).exp()), at, chosen)
        size, span = 1, Span(v, v, v)
        while spans and spans[-1][0] == size:
            span, turned = joined(spans.pop()[1], span, inverse)
            size, going = 2 * size, going & ~turned
        spans.append((size, span))
        going &= ~divergent
    return Branch(at, spans[0][1], chosen, weight, going, divergent, accepted, steps)


def no_u_turn_transition(  # more than 7 parameters: as a transition of a fixed length
    energy: Energy,
    at: Point,
    *,
    inverse: Float[Tensor, " dim"],
    step: float,
    depth: int = MAX_DEPTH,
    generator: Generator,
) -> Moved:
    """One trajectory from a momentum v ~ N(0, M), doubled forward or backward until it turns; a state of it.

    Of the newest half a state replaces the present one with probability min(1, its weight / that of all
    before it); within it, each is as probable as its weight says.

    Args:
        energy: E.
        at: Where the chains are.
        inverse: The diagonal of the inverse of M.
        step: Step size.
        depth: Doublings, at most.
        generator: Draws the momenta, the directions and the states.

    Reference: Hoffman and Gelman 2014, Algorithm 3; Betancourt 2017, Appendix A.3.2 (the weights).
    """
    like = at.energy
    unit = torch.randn(at.theta.shape, generator=generator, dtype=at.theta.dtype)
    v = unit.to(at.theta.device) / inverse.sqrt()
    begun = like + (v.square() * inverse).sum(1) / 2
    first, last, span, chosen = at, at, Span(v, v, v), at
    weight, growing = torch.zeros_like(like), torch.ones_like(like, dtype=torch.bool)
    accepted, steps, divergent = torch.zeros_like(like), torch.zeros_like(like), torch.zeros_like(growing)
    for level in range(depth):
        if not bool(growing.any()):
            break
        draws = torch.rand(2, len(v), generator=generator, dtype=v.dtype).to(v.device)
        forward = draws[0] < 0.5
        passed = facing(forward, span)
        found = extended(
            energy,
            where(forward, last, first),
            passed.last,
            begun,
            growing,
            inverse=inverse,
            step=step,
            count=2**level,
            generator=generator,
        )
        accepted, steps = accepted + found.acceptance, steps + found.steps
        divergent |= found.divergent
        taken = found.whole & (draws[1] < (found.weight - weight).exp())
        chosen, weight = where(taken, found.chosen, chosen), torch.logaddexp(weight, found.weight)
        last, first = where(forward, found.end, last), where(forward, first, found.end)
        passed, turned = joined(passed, found.span, inverse)
        span, growing = facing(forward, passed), found.whole & ~turned
    return Moved(chosen, accepted / steps, divergent, steps)


def no_u_turn(  # more than 7 parameters: as Hamiltonian chains of a fixed length
    energy: Energy,
    theta: States,
    *,
    draws: int,
    step: float,
    depth: int = MAX_DEPTH,
    mass: Float[Tensor, " dim"] | None = None,
    generator: Generator,
) -> Draws:
    """Draws of exp(-E) by the no-U-turn sampler: the length of each trajectory is its own.

    Args:
        energy: E.
        theta: Where the chains begin.
        draws: Draws of each chain.
        step: Step size.
        depth: Doublings of a trajectory, at most: 2^depth - 1 steps.
        mass: The diagonal of M; 1 if not given.
        generator: Draws momenta, directions and states.

    Raises:
        ValueError: The step size is not positive, or there is no doubling.

    Reference: Hoffman and Gelman 2014, Algorithm 3; Betancourt 2017, Appendix A.
    """
    if not step > 0 or depth < 1:
        raise ValueError(f"a trajectory needs a step size above 0 and a doubling: got {step} and {depth}")
    inverse = torch.ones_like(theta[0]) if mass is None else 1 / mass
    return chained(
        lambda at: no_u_turn_transition(
            energy, at, inverse=inverse, step=step, depth=depth, generator=generator
        ),
        point_at(energy, theta),
        draws,
    )
