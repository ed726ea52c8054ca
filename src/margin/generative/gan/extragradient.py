r"""Steps of two-player games: simultaneous, alternating, extragradient (Korpelevich 1976), optimistic.

Each player descends on its own loss; F(w) holds the gradient of each by its own variables. For
min_theta max_phi l(theta, phi) it is F = (grad_theta l, -grad_phi l). On l = theta phi simultaneous steps
leave the solution at the rate sqrt(1 + eta^2) a step, alternating ones circle around it, and

.. math:: w_{t+1/2} = w_t - \eta F(w_t), \qquad w_{t+1} = w_t - \eta F(w_{t+1/2})

approaches it. The half-points of *both* players enter both last updates: with a player's own half-point and
the other's old place the rule is on this game the simultaneous one, and diverges.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Point = Sequence[Tensor]
"""The variables of all players."""

Field = Callable[[Point], Point]
"""The gradient of each player's loss by its own variables."""


def saddle_field(loss: Callable[[Tensor, Tensor], Tensor]) -> Field:
    """F = (grad_theta l, -grad_phi l) of min_theta max_phi l(theta, phi), l a scalar.

    Args:
        loss: l, differentiable by torch.
    """

    def field(w: Point) -> Point:
        theta, phi = torch.func.grad(loss, argnums=(0, 1))(*w)
        return theta, -phi

    return field


def moved(w: Point, along: Point, eta: float) -> list[Tensor]:
    """W - eta F, variable by variable."""
    return [x - eta * g for x, g in zip(w, along, strict=True)]


def simultaneous(field: Field, w: Point, eta: float) -> list[Tensor]:
    """W - eta F(w): both players at once."""
    return moved(w, field(w), eta)


def alternating(field: Field, w: Point, eta: float) -> list[Tensor]:
    """The last player first, each after it sees where those before it have gone."""
    w = list(w)
    for player in reversed(range(len(w))):
        w[player] = w[player] - eta * field(w)[player]
    return w


def extragradient(field: Field, w: Point, eta: float) -> list[Tensor]:
    """W - eta F(w - eta F(w)).

    Args:
        field: The gradient of each player's loss.
        w: Where the players are.
        eta: The rate, above 0.

    Reference: Korpelevich 1976, Section 2; Gidel et al. 2019, Section 3.
    """
    return moved(w, field(simultaneous(field, w, eta)), eta)


def optimistic(field: Field, w: Point, before: Point, eta: float) -> tuple[list[Tensor], Point]:
    """W - eta (2 F(w) - F_before), which asks for one gradient a step.

    Args:
        field: The gradient of each player's loss.
        w: Where the players are.
        before: F at the step before; at the first step F(w) itself.
        eta: The rate, above 0.

    Returns:
        Where the players go, and F(w) for the next step.

    Reference: Daskalakis, Ilyas, Syrgkanis and Zeng 2018, Section 2.
    """
    now = field(w)
    return moved(w, [2 * g - h for g, h in zip(now, before, strict=True)], eta), now
