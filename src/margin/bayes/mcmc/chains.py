"""Markov chains whose stationary law is given by an energy: Metropolis-Hastings, Hamiltonian, Langevin.

States are (chains, dim): many chains advance at once. The energy is E = -log p up to a constant, one number a
chain. Neal (2011); Welling and Teh (2011); Chen, Fox and Guestrin (2014).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.autograd.graph import _engine_run_backward

States = Float[Tensor, "chains dim"]
Energy = Callable[[Tensor], Tensor]
Transition = Float[Tensor, "states states"]


def metropolis_hastings(law: Float[Tensor, " states"], proposal: Transition) -> Transition:
    r"""The transition matrix that accepts a proposal with min(1, p(b) Q(a|b) / (p(a) Q(b|a))), else stays.

    Args:
        law: p, positive; it need not be normalized.
        proposal: Q(b|a) in row a, column b; rows sum to 1.

    Raises:
        ValueError: A probability of the law is not positive.

    Reference: Hastings 1970, Section 2; here with the mass of what is rejected on the diagonal.
    """
    if not bool((law > 0).all()):
        raise ValueError("every state must have a positive probability: got one that has not")
    flow = law[:, None] * proposal
    accepted = torch.where(flow > 0, flow.T / flow.where(flow > 0, 1), 0).clamp(max=1)
    P = proposal * accepted
    P = P - torch.diag(P.diagonal())
    return P + torch.diag(1 - P.sum(1))


def imbalance(law: Float[Tensor, " states"], transition: Transition) -> Float[Tensor, ""]:
    """The largest |q(a) P(b|a) - q(b) P(a|b)|: 0 makes q stationary, but not the only stationary law.

    Args:
        law: q, normalized.
        transition: P(b|a) in row a, column b.

    Reference: Levin and Peres 2017, Proposition 1.20.
    """
    flow = law[:, None] * transition
    return (flow - flow.T).abs().max()


class Point(NamedTuple):
    """Where chains are, with their energies and gradients there: neither is computed twice."""

    theta: States
    energy: Float[Tensor, " chains"]
    slope: States


def point_at(energy: Energy, theta: States) -> Point:
    """The energies and gradients at some positions."""
    with torch.enable_grad():
        value, slope = _slope(energy, theta, None)
    return Point(theta.detach(), value.detach(), slope)


def _slope(energy: Energy, theta: States, ones: Tensor | None) -> tuple[Tensor, States]:
    """The energies and their gradients, where gradients are enabled."""
    at = theta.detach().requires_grad_()
    value = energy(at)
    ones = torch.ones_like(value) if ones is None else ones
    # torch.autograd.grad without its checks of arguments, which last a quarter of a small model's gradient
    (slope,) = _engine_run_backward((value,), (ones,), False, False, (at,), False, accumulate_grad=False)
    return value, slope


def trajectory(
    energy: Energy, start: Point, momentum: States, inverse: Float[Tensor, " dim"], step: float, steps: int
) -> tuple[Point, States]:
    """Where chains are after so many steps of Stormer and Verlet, and their momenta: a gradient a step.

    Args:
        energy: E.
        start: Where they begin.
        momentum: v.
        inverse: The diagonal of the inverse of M.
        step: Step size.
        steps: Number of steps, at least 1.

    Reference: Neal 2011, Equations 2.28 to 2.30.
    """
    theta, value, slope = start
    ones, momentum = torch.ones_like(value), torch.add(momentum, slope, alpha=-step / 2)
    with torch.enable_grad():  # once, for a step takes as long as its operations are many
        for i in range(steps):
            theta = torch.addcmul(theta, momentum, inverse, value=step)
            value, slope = _slope(energy, theta, ones)
            momentum = torch.add(momentum, slope, alpha=-step if i < steps - 1 else -step / 2)
    return Point(theta, value.detach(), slope), momentum


def leapfrog(
    energy: Energy, theta: States, momentum: States, mass: Float[Tensor, " dim"], step: float, steps: int
) -> tuple[States, States]:
    """Positions and momenta after a :func:`trajectory`, which is reversible and keeps volume.

    Args:
        energy: E.
        theta: Positions.
        momentum: v.
        mass: The diagonal of M.
        step: Step size.
        steps: Number of steps, at least 1.
    """
    end, momentum = trajectory(energy, point_at(energy, theta), momentum, 1 / mass, step, steps)
    return end.theta, momentum


class Moved(NamedTuple):
    """What one proposal came to.

    Args:
        at: Where the chains are now.
        acceptance: The probability with which each was accepted; of several states, their mean.
        divergent: Whether its energy rose by more than 1000 or was no number.
        steps: Leapfrog steps of each, which are gradients.
    """

    at: Point
    acceptance: Float[Tensor, " chains"]
    divergent: Bool[Tensor, " chains"]
    steps: Float[Tensor, " chains"]


DIVERGENT = 1000.0
"""A rise of the energy, in nats, that no exact trajectory of a step size that serves would come near."""


def transition(  # more than 7 parameters: a law, where chains are, and the three numbers of a trajectory
    energy: Energy,
    at: Point,
    *,
    inverse: Float[Tensor, " dim"],
    step: float,
    steps: int,
    generator: Generator,
) -> Moved:
    """One trajectory from a momentum v ~ N(0, M), accepted with min(1, exp(-rise of the energy)).

    Args:
        energy: E.
        at: Where the chains are.
        inverse: The diagonal of the inverse of M.
        step: Step size.
        steps: Leapfrog steps.
        generator: Draws the momenta and the acceptances.

    Reference: Neal 2011, Section 3.
    """
    unit = torch.randn(at.theta.shape, generator=generator, dtype=at.theta.dtype)
    v = unit.to(at.theta.device) / inverse.sqrt()
    end, w = trajectory(energy, at, v, inverse, step, steps)
    kinetic = ((w.square() - v.square()) * inverse).sum(1) / 2
    rise = (end.energy - at.energy + kinetic).nan_to_num(torch.inf, torch.inf)
    accept = (-rise).exp().clamp(max=1)
    moved = torch.rand(len(v), generator=generator, dtype=v.dtype).to(v.device) < accept
    kept = Point(
        *(torch.where(moved if a.ndim == 1 else moved[:, None], a, b) for a, b in zip(end, at, strict=True))
    )
    return Moved(kept, accept, rise > DIVERGENT, torch.full_like(accept, steps))


class Draws(NamedTuple):
    """What chains gave.

    Args:
        states: (draws, chains, dim).
        acceptance: Of each chain, the mean probability with which a proposal was accepted.
        divergent: Of each chain, the proposals whose energy rose by more than 1000 or was no number.
        steps: Of each chain, the leapfrog steps of all its trajectories.
    """

    states: Float[Tensor, "draws chains dim"]
    acceptance: Float[Tensor, " chains"]
    divergent: Float[Tensor, " chains"]
    steps: Float[Tensor, " chains"]


def chained(move: Callable[[Point], Moved], at: Point, draws: int) -> Draws:
    """So many transitions, one after the other.

    Args:
        move: A transition of all chains.
        at: Where they begin.
        draws: Transitions.
    """
    found = []
    for _ in range(draws):
        found.append(move(at))
        at = found[-1].at
    acceptance, divergent, steps = (
        torch.stack(rows).to(at.energy) for rows in list(zip(*found, strict=True))[1:]
    )
    states = torch.stack([moved.at.theta for moved in found])
    return Draws(states, acceptance.mean(0), divergent.sum(0), steps.sum(0))


def hamiltonian(  # more than 7 parameters: a law, where chains begin, and the three numbers of a trajectory
    energy: Energy,
    theta: States,
    *,
    draws: int,
    step: float,
    steps: int,
    mass: Float[Tensor, " dim"] | None = None,
    jitter: float = 0.2,
    generator: Generator,
) -> Draws:
    """Draws of exp(-E) by Hamiltonian Monte Carlo: v ~ N(0, M), a leapfrog trajectory, accept or stay.

    Args:
        energy: E.
        theta: Where the chains begin.
        draws: Draws of each chain.
        step: Step size.
        steps: Leapfrog steps of a trajectory.
        mass: The diagonal of M; 1 if not given.
        jitter: A trajectory's step size is uniform within this share of ``step``: a fixed length resonates.
        generator: Draws momenta, step sizes and acceptances.

    Raises:
        ValueError: The step size is not positive, or there are no leapfrog steps.

    Reference: Neal 2011, Section 3 (the algorithm) and Section 4.2 (the jitter).
    """
    if not step > 0 or steps < 1:
        raise ValueError(f"a trajectory needs a step size above 0 and a step: got {step} and {steps}")
    inverse = torch.ones_like(theta[0]) if mass is None else 1 / mass

    def move(at: Point) -> Moved:
        share = float(torch.rand((), generator=generator, dtype=theta.dtype))
        size = step * (1 + jitter * (2 * share - 1))
        return transition(energy, at, inverse=inverse, step=size, steps=steps, generator=generator)

    return chained(move, point_at(energy, theta), draws)


def underdamped_langevin(
    slope: Energy, theta: States, *, draws: int, step: float, friction: float, generator: Generator
) -> Float[Tensor, "draws chains dim"]:
    r"""Positions under v <- (1 - eta g) v - eta grad E + sqrt(2 g eta) xi, theta <- theta + eta v.

    No step is rejected: the stationary law is that of exp(-E) but for O(eta).

    Args:
        slope: The gradient of E, or an unbiased estimate of it.
        theta: Where the chains begin.
        draws: Steps.
        step: eta > 0.
        friction: g, with 0 < eta g < 1.
        generator: Draws the noise.

    Raises:
        ValueError: eta g is not in (0, 1).

    Reference: Chen, Fox and Guestrin 2014, Equation 15.
    """
    if not 0 < step * friction < 1:
        raise ValueError(f"step times friction must be in (0, 1): got {step * friction}")
    v, kept = torch.zeros_like(theta), []
    for _ in range(draws):
        noise = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        v = (1 - step * friction) * v - step * slope(theta) + (2 * friction * step) ** 0.5 * noise
        theta = theta + step * v
        kept.append(theta)
    return torch.stack(kept)


def overdamped_langevin(
    slope: Energy, theta: States, *, draws: int, step: float, generator: Generator
) -> Float[Tensor, "draws chains dim"]:
    """Positions under theta <- theta - (eps / 2) grad E + sqrt(eps) xi.

    Of E = lam theta^2 / 2 the stationary variance is 1 / (lam (1 - eps lam / 4)), for eps lam < 4.

    Args:
        slope: The gradient of E, or an unbiased estimate of it.
        theta: Where the chains begin.
        draws: Steps.
        step: eps > 0.
        generator: Draws the noise.

    Raises:
        ValueError: eps is not positive.

    Reference: Welling and Teh 2011, Equation 4.
    """
    if not step > 0:
        raise ValueError(f"step must be positive: got {step}")
    kept = []
    for _ in range(draws):
        noise = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        theta = theta - step / 2 * slope(theta) + step**0.5 * noise
        kept.append(theta)
    return torch.stack(kept)
