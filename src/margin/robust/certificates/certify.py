"""Which examples are proved right in which ball, and by what; the largest ball in which each one is.

Cheap bounds are asked first, dearer ones of what they leave open: intervals, then Lipschitz constants in
another norm than l-infinity, then CROWN with interval bounds inside (first against the strongest rival class
alone, which settles most failures), then with all layers bounded by affine forms where inputs have few
coordinates, then with the bounds of small layers tightened, then, of the few examples that lack least, with
slopes that gradients move. What is not proved in a ball is not tried in a larger one, so the certified
accuracy never rises with the ball. A bound that is not a number proves nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.core.deadline import check_deadline
from margin.core.types import Labels
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.affine_forms import Ball
from margin.robust.certificates.interval_arithmetic import NoIntervalRule
from margin.robust.certificates.intervals import all_beaten, bounds, margin_bounds
from margin.robust.certificates.linear_bounds import alpha_crown_margins, crown_margins
from margin.robust.certificates.lipschitz import lipschitz_margins
from margin.robust.certificates.tape import Tape

METHODS = (
    "intervals",
    "CROWN",
    "CROWN with affine forms",
    "CROWN with tightened layers",
    "Lipschitz constants",
    "alpha-CROWN",
)
ORDER = (0, 4, 1, 2, 3, 5)
"""In which they are asked; what one has failed to prove in a ball, it is not asked in a larger one."""

UNITS = 512
"""Units of a layer at most that are bounded one by one."""

COLUMNS = 64
"""Coordinates of an input at most in which affine forms are carried."""

STEPS = 20
"""Gradient steps on the slopes of each bound."""

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

    def by_ball(self) -> str:
        """How many proofs each method gave in each ball: "intervals 31/19, CROWN 0/8"."""
        counts = [(name, (self.method == i).sum(1)) for i, name in enumerate(METHODS)]
        return ", ".join(f"{name} {'/'.join(map(str, n.tolist()))}" for name, n in counts if bool(n.any()))


# Eight parameters: what is certified, and what it may cost.
@torch.no_grad()
@kept_memory()
def certified(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    labels: Labels,
    threats: Sequence[Threat],
    classes: Classes = lambda outputs: outputs,
    *,
    hopeful: Bool[Tensor, "balls n"] | None = None,
    units: int = UNITS,
    ascents: int = 0,
) -> Certificates:
    """Which examples are right everywhere in each of the growing balls, and by which bound.

    Args:
        model: Any module of one input; left as it is.
        x: Inputs inside the domain.
        labels: Their classes.
        threats: Balls, each inside the next.
        classes: ``outputs -> one score per class``.
        hopeful: Where the dearer bounds are worth their cost: examples that no attack broke. None is all.
        units: Units of a layer at most that the dearer bounds tighten; 0 leaves these out.
        ascents: Examples at most for which gradients move the slopes of the bounds, each a hundred times as
            dear as the tightened ones; over all balls, and in each ball those that lack least.

    Raises:
        NoIntervalRule: A layer or function has no interval rule; the message names it.
    """
    left_out = {2} if x[0].numel() > COLUMNS else set()
    left_out |= {3, 5} if not units else {5} if not ascents else set()
    order = [kind for kind in ORDER if kind not in left_out]
    work = {3: (units, COLUMNS), 2: (0, COLUMNS), 1: (0, 0)}
    first, rows = torch.zeros_like(labels), []  # where each example's next proof is looked for
    for number, threat in enumerate(threats):
        ball = ball_of(x, threat)
        method = torch.full_like(labels, -1)
        for step, kind in enumerate(order):
            at = ((method < 0) & (first <= step)).nonzero().flatten()
            if kind in (2, 3, 5) and hopeful is not None:
                at = at[hopeful[number].to(at.device)[at]]
            if kind == 0 and len(at):
                below = margin_bounds(model, ball.low[at], ball.high[at], labels[at], classes)
                at = at[all_beaten(below, labels[at])]
            elif kind == 4:
                at = _by_constants(model, ball, labels, classes, at)
            elif kind == 5:
                at = _nearest_to_proof(model, ball, labels, classes, at, units, ascents)
                ascents -= len(at)
                at = _by_ascents(model, ball, labels, classes, at, units)
            elif kind:
                try:
                    at = _by_crown(model, ball, labels, classes, at, *work[kind])
                except NoIntervalRule:  # intervals follow what dearer bounds do not, as a conversion
                    at = at[:0]
            method[at], first[at] = kind, step
        first[method < 0] = len(order)
        rows.append(method)
    return Certificates(torch.stack(rows) >= 0, torch.stack(rows))


def ball_of(x: Float[Tensor, "n ..."], threat: Threat) -> Ball:
    """The balls of a threat model around inputs."""
    low, high = threat.hull(x)
    one = torch.ones((), dtype=torch.float64, device=x.device)
    return Ball(
        x.double(), low, high, threat.eps, threat.norm, one if threat.unit is None else threat.unit.to(one)
    )


def _by_constants(
    model: nn.Module, ball: Ball, labels: Labels, classes: Classes, at: Tensor
) -> Int[Tensor, " proved"]:
    """Those of the examples that Lipschitz constants prove right; of l-infinity intervals are never worse."""
    if len(at) == 0 or ball.norm == "linf":
        return at[:0]
    try:
        below = lipschitz_margins(model, ball.rows(at), labels[at], classes)
    except NoIntervalRule:  # a function has no constant, though it has an interval
        return at[:0]
    return at[all_beaten(below, labels[at])]


# Seven parameters: what is bounded, and by how much work.
def _by_crown(
    model: nn.Module,
    ball: Ball,
    labels: Labels,
    classes: Classes,
    at: Tensor,
    units: int = 0,
    columns: int = 0,
) -> Int[Tensor, " proved"]:
    """Those of the examples at the positions that linear bounds prove right."""
    if len(at) == 0:
        return at
    tape = Tape()
    few = ball.rows(at[:2])
    bounds(model, few.low, few.high, classes, tape)
    if len(at) > 1 and not tape.separable():
        return at[:0]  # its examples are bounded one by one, which takes as many passes as there are
    held = sum(box.low.numel() for box in tape.boxes)
    if few.x[0].numel() <= columns:
        held = max(held, few.x[0].numel() * max(box.low.numel() for box in tape.boxes))
    many = max(1, len(few.x) * HELD // held)
    found = []
    for part in at.split(many):
        own = ball.rows(part)
        scores = bounds(model, own.x, own.x, classes).high.scatter(1, labels[part, None], -torch.inf)
        plain = not units and not columns  # else the boxes are the dear part, and serve all classes
        if plain:
            rival = scores.argmax(1, keepdim=True)
            first = crown_margins(model, own, labels[part], classes, rivals=rival)
            part = part[first.gather(1, rival)[:, 0] > 0]
        if len(part) and not (plain and scores.shape[1] == 2):
            every = crown_margins(model, ball.rows(part), labels[part], classes, units=units, columns=columns)
            part = part[all_beaten(every, labels[part])]
        found.append(part)
    return torch.cat(found)


# Seven parameters: those of the bound, and how many are wanted.
def _nearest_to_proof(
    model: nn.Module, ball: Ball, labels: Labels, classes: Classes, at: Tensor, units: int, most: int
) -> Int[Tensor, " examples"]:
    """Of the examples at the positions at most so many, those whose tightened bounds lack least."""
    if not most or len(at) <= most:
        return at[:most]
    below = crown_margins(model, ball.rows(at), labels[at], classes, units=units, columns=COLUMNS)
    least = below.scatter(1, labels[at, None], torch.inf).amin(1).nan_to_num(-torch.inf)
    return at[least.argsort(descending=True)[:most]]


def _by_ascents(
    model: nn.Module, ball: Ball, labels: Labels, classes: Classes, at: Tensor, units: int
) -> Int[Tensor, " proved"]:
    """Those of the examples that linear bounds of moved slopes prove right, one by one."""
    proved = torch.zeros_like(at, dtype=torch.bool)
    for number, row in enumerate(at):
        check_deadline()
        one = row[None]
        below = alpha_crown_margins(
            model, ball.rows(one), labels[one], classes, units=units, columns=COLUMNS, steps=STEPS
        )
        proved[number] = all_beaten(below, labels[one])
    return at[proved]


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

    def held(eps: float, at: Tensor) -> Tensor:
        asked = [replace(threat, eps=eps)]
        return certified(model, x[at], labels[at], asked, classes, units=units).proved[0]

    return bisected(held, threat.eps, len(x), steps).to(x.device)


def bisected(
    held: Callable[[float, Tensor], Tensor], most: float, count: int, steps: int
) -> Float[Tensor, " count"]:
    """The largest radius up to ``most`` at which a proof of each example was found, by bisection.

    Args:
        held: ``(radius, positions of examples) -> whether each is proved in that ball``.
        most: The largest radius.
        count: Number of examples.
        steps: Halvings.
    """
    whole = held(most, torch.arange(count)).cpu()
    proved = torch.where(whole, most, 0.0).double()
    failed = torch.full_like(proved, most)
    for _ in range(steps):
        middle = (proved + failed) / 2
        for eps in middle[~whole].unique().tolist():
            at = ((middle == eps) & ~whole).nonzero().flatten()
            sure = held(eps, at).cpu()
            proved[at[sure]], failed[at[~sure]] = eps, eps
    return proved
