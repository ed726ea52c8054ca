"""Which examples are proved right in which ball, and by what; the largest ball in which each one is.

Cheap bounds are asked first, dearer ones of what they leave open: intervals, then CROWN with interval bounds
inside (first against the strongest rival class alone, which settles most failures), then CROWN with the
bounds of small layers tightened. What is not proved in a ball is not tried in a larger one, so the certified
accuracy never rises with the ball. A bound that is not a number proves nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.core.types import Labels
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.intervals import all_beaten, bounds, margin_bounds
from margin.robust.certificates.linear_bounds import Ball, crown_margins
from margin.robust.certificates.tape import Tape

METHODS = ("intervals", "CROWN", "CROWN with tightened layers")
UNITS = 512
"""Units of a layer at most that are bounded one by one."""

HELD = 1 << 23
"""Elements of all results together, over the examples that are bounded at once."""

Classes = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Certificates:
    """What is proved; the first axis is the ball.

    Args:
        proved: Whether each example is right everywhere in each ball.
        method: By which of :data:`METHODS`, the cheapest that does; -1 where nothing is proved.
    """

    proved: Bool[Tensor, "balls n"]
    method: Int[Tensor, "balls n"]

    def words(self) -> str:
        """How many proofs each method gave, over all balls."""
        counts = [(name, int((self.method == i).sum())) for i, name in enumerate(METHODS)]
        return ", ".join(f"{name}: {count}" for name, count in counts if count)


# Six of the seven parameters are what is certified, the last what it may cost.
@torch.no_grad()
def certified(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    labels: Labels,
    threats: Sequence[Threat],
    classes: Classes = lambda outputs: outputs,
    *,
    hopeful: Bool[Tensor, "balls n"] | None = None,
    units: int = UNITS,
) -> Certificates:
    """Which examples are right everywhere in each of the growing balls, and by which bound.

    Args:
        model: Any module of one input; left as it is.
        x: Inputs inside the domain.
        labels: Their classes.
        threats: Balls, each inside the next.
        classes: ``outputs -> one score per class``.
        hopeful: Where the dearest bound is worth its cost: examples that no attack has broken. None is all.
        units: Units of a layer at most that the dearest bound tightens; 0 leaves it out.

    Raises:
        NoIntervalRule: A layer or function has no interval rule; the message names it.
    """
    alive = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
    rows = []
    for number, threat in enumerate(threats):
        ball = ball_of(x, threat)
        method = torch.full_like(labels, -1)
        at = alive.nonzero().flatten()
        if len(at):
            below = margin_bounds(model, ball.low[at], ball.high[at], labels[at], classes)
            method[at[all_beaten(below, labels[at])]] = 0
            left = at[method[at] < 0]
            method[_by_crown(model, ball, labels, classes, left, 0)] = 1
            left = at[method[at] < 0]
            if hopeful is not None:
                left = left[hopeful[number].to(left.device)[left]]
            if units:
                method[_by_crown(model, ball, labels, classes, left, units)] = 2
        alive = method >= 0
        rows.append(method)
    return Certificates(torch.stack(rows) >= 0, torch.stack(rows))


def ball_of(x: Float[Tensor, "n ..."], threat: Threat) -> Ball:
    """The balls of a threat model around inputs."""
    low, high = threat.hull(x)
    one = torch.ones((), dtype=torch.float64, device=x.device)
    return Ball(
        x.double(), low, high, threat.eps, threat.norm, one if threat.unit is None else threat.unit.to(one)
    )


def _by_crown(
    model: nn.Module, ball: Ball, labels: Labels, classes: Classes, at: Tensor, units: int
) -> Int[Tensor, " proved"]:
    """Those of the examples at the positions that linear bounds prove right."""
    if len(at) == 0:
        return at
    tape = Tape()
    few = ball.rows(at[:2])
    bounds(model, few.low, few.high, classes, tape)
    if len(at) > 1 and not tape.separable():
        return at[:0]  # its examples are bounded one by one, which takes as many passes as there are
    many = max(1, len(few.x) * HELD // sum(box.low.numel() for box in tape.boxes))
    found = []
    for part in at.split(many):
        own = ball.rows(part)
        scores = bounds(model, own.x, own.x, classes).high.scatter(1, labels[part, None], -torch.inf)
        rival = scores.argmax(1, keepdim=True)
        first = crown_margins(model, own, labels[part], classes, units=units, rivals=rival)
        part = part[first.gather(1, rival)[:, 0] > 0]
        if len(part) and scores.shape[1] > 2:
            every = crown_margins(model, ball.rows(part), labels[part], classes, units=units)
            part = part[all_beaten(every, labels[part])]
        found.append(part)
    return torch.cat(found)


# Six of the seven parameters are what is certified, the last what it may cost.
@torch.no_grad()
def certified_radii(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    labels: Labels,
    threat: Threat,
    classes: Classes = lambda outputs: outputs,
    *,
    units: int = 0,
    steps: int = 8,
) -> Float[Tensor, " n"]:
    """The largest radius up to the threat's at which each example is proved right, found by bisection.

    Args:
        model: Any module of one input; left as it is.
        x: Inputs inside the domain.
        labels: Their classes.
        threat: Its norm, unit and domain, and the largest radius that is asked.
        classes: ``outputs -> one score per class``.
        units: Units of a layer at most that are tightened.
        steps: Halvings of the interval, so that a radius is exact to eps / 2^steps.

    Returns:
        A radius at which the proof was found; 0 where none was, also of an example that is wrong.

    Raises:
        NoIntervalRule: A layer or function has no interval rule; the message names it.
    """
    proved = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    failed = torch.full_like(proved, threat.eps)
    whole = certified(model, x, labels, [threat], classes, units=units).proved[0]
    proved[whole] = threat.eps
    for _ in range(steps):
        middle = (proved + failed) / 2
        for eps in middle[~whole].unique().tolist():
            at = ((middle == eps) & ~whole).nonzero().flatten()
            asked = [replace(threat, eps=eps)]
            held = certified(model, x[at], labels[at], asked, classes, units=units).proved[0]
            proved[at[held]], failed[at[~held]] = eps, eps
    return proved
