r"""APGD: projected ascent whose step is halved where it does not pay (Croce & Hein, 2020, Algorithm 1).

.. math:: z = \Pi\bigl(y_k + \eta\, s(\nabla\ell(y_k))\bigr), \quad
    y_{k+1} = \Pi\bigl(y_k + \tfrac34 (z - y_k) + \tfrac14 (y_k - y_{k-1})\bigr)

The step begins at 2 eps. At a checkpoint it is halved, and the walk goes on from the best point, where the
loss rose in at most 3/4 of the steps since the last, or where neither step nor best loss changed. In the l1
ball (Croce & Hein, 2021, Section 3.3) a share of the coordinates moves, without the momentum: 2/3 of the
share that the best point has moved; the step begins at eps, is divided by 1.5, and begins anew where that
point grew sparser.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Objective, PerExample
from margin.engine.evaluation import eval_mode, rows_of
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.gradient import (
    Attack,
    Goal,
    Slope,
    input_gradient,
    loss_of_input,
    moved_input,
    reached,
    unmoved,
)
from margin.robust.attacks.threat_models import Threat, wide

MOMENTUM = 0.25
"""Share of the last displacement that a step keeps."""

RISES = 0.75
"""Share of the steps between two checkpoints in which the loss must rise."""

FIRST_SHARE = 0.2
"""Share of the coordinates that a first step moves in the l1 ball."""

SPARSER = 0.95
"""Below this ratio of the coordinates that the best point has moved, it has grown sparser."""


def checkpoints(steps: int) -> list[int]:
    """The steps ceil(p_j n) after which the length is checked; p_{j+1} - p_j falls from .22 to .06."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return sorted({math.ceil(share * steps) for share in shares[1:] if share <= 1})


# Seven parameters, as every attack: the model, what is attacked, how far, how long.
def apgd(
    model: nn.Module,
    batch: Batch,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    *,
    steps: int = 100,
    restarts: int = 1,
    goal: Goal | None = None,
) -> Attack:
    """The best point met by projected ascent with momentum and a step that adapts to each example.

    An example whose goal is reached leaves the batch. With eps = 0 the inputs are x bit for bit.

    Args:
        model: Asked in evaluation mode.
        batch: One real input, with targets where the objective reads them.
        objective: The loss of each term; the terms of an example are summed.
        threat: The ball and the domain.
        generator: Draws the starting points, uniform in the ball.
        steps: Gradient steps of one ascent, >= 1.
        restarts: Ascents, >= 1.
        goal: When the adversary has won; None never.

    Returns:
        The attacked inputs, their loss, and which of them reach the goal.

    Raises:
        ValueError: A number is below 1, the batch has not one real input, or one lies outside the domain.
        NonFiniteError: A loss is NaN or a gradient is not finite.

    Reference: Croce & Hein (2020), Algorithm 1 and Section 3; Croce & Hein (2021), Algorithm 1. Checkpoints
    count the first loss; the authors' code compares it with 0.
    """
    if steps < 1 or restarts < 1:
        raise ValueError(f"steps and restarts must be at least 1: got steps={steps}, restarts={restarts}")
    x = moved_input(batch)
    threat.check_inputs(x)
    with eval_mode(model), kept_memory():
        best = unmoved(model, batch, objective, threat, generator, goal)
        for _ in range(restarts if threat.eps > 0 else 0):
            live = (~best.broken).nonzero().flatten()
            if len(live) == 0:
                break
            part = rows_of(batch, live)
            begin = threat.random_point(moved_input(part), generator)
            walk = _Walk.begun(part, begin, live, threat)
            best = _walked(walk, model, objective, threat, generator, steps=steps, goal=goal, best=best)
    threat.check(best.inputs, x)
    return best


# Eight parameters: those of the attack, and where it stands.
def _walked(
    walk: "_Walk",
    model: nn.Module,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    *,
    steps: int,
    goal: Goal | None,
    best: Attack,
) -> Attack:
    checks, last, confine = checkpoints(steps), 0, threat.around(moved_input(walk.batch))
    for step in range(steps + 1):
        here = walk.batch._replace(inputs=(threat.valid(walk.y, moved_input(walk.batch)),))
        ask = loss_of_input if step == steps else input_gradient
        slope = ask(model, here, objective, generator)
        broken = reached(model, here, goal, slope.outputs)
        walk.absorb(slope, broken, here.inputs[0], first=step == 0)
        if broken.any() or step == steps:
            best = walk.told(best, broken)
            left = (~broken).nonzero().flatten()
            walk, confine = walk.at(left), confine.at(left)
        if step == steps or len(walk.live) == 0:
            break
        if threat.norm == "l1" and step > 0 and step % max(int(0.04 * steps), 1) == 0:
            walk.check_sparse(threat.eps)
        elif threat.norm != "l1" and step in checks:
            walk.check(step - last)
            last = step
        walk.advance(threat, confine, first=step == 0)
    return best


@dataclass(slots=True, eq=False)
class _Walk:
    """Where the ascents of some examples stand: each field but the batch has one row an example."""

    batch: Batch
    live: Tensor
    y: Tensor
    before: Tensor
    gradient: Tensor
    reach: PerExample
    loss: PerExample
    rises: PerExample
    top: Tensor
    shown: Tensor
    top_gradient: Tensor
    top_loss: PerExample
    checked_loss: PerExample
    halved: Tensor
    share: PerExample
    moved: PerExample

    @staticmethod
    def begun(batch: Batch, y: Tensor, live: Tensor, threat: Threat) -> "_Walk":
        one = torch.ones(len(y), dtype=torch.float64, device=y.device)
        low = torch.full_like(y[:, :1].flatten(1)[:, 0], -torch.inf)
        reach = threat.eps * (1 if threat.norm == "l1" else 2) * one
        yes, full = torch.ones_like(one, dtype=torch.bool), one * y[0].numel()
        held = (y, y, torch.zeros_like(y), low, low)
        return _Walk(
            batch, live, y, y, torch.zeros_like(y), reach, low, 0 * one, *held, yes, FIRST_SHARE * one, full
        )

    def at(self, index: Tensor) -> "_Walk":
        """The examples at ``index``."""
        if len(index) == len(self.live):
            return self
        rest = [getattr(self, field.name)[index] for field in fields(self)[1:]]
        return _Walk(rows_of(self.batch, index), *rest)

    def absorb(self, slope: Slope, broken: Tensor, shown: Tensor, *, first: bool) -> None:
        """Take in the loss and gradient at y; ``shown`` is its valid point, which the model was asked of."""
        self.rises += 0.0 if first else (slope.loss > self.loss)
        self.loss, self.gradient = slope.loss, slope.gradient
        take = broken | (slope.loss > self.top_loss)
        here = wide(take, self.y)
        self.top = torch.where(here, self.y, self.top)
        self.shown = torch.where(here, shown, self.shown)
        self.top_gradient = torch.where(here, slope.gradient, self.top_gradient)
        self.top_loss = torch.where(take, slope.loss, self.top_loss)
        if first:
            self.checked_loss = self.top_loss

    def told(self, best: Attack, broken: Tensor) -> Attack:
        """The best of each example, with what this walk has found."""
        take = (broken | (self.top_loss > best.loss[self.live])).nonzero().flatten()
        at = (self.live[take],)
        return Attack(
            best.inputs.index_put(at, self.shown[take]),
            best.loss.index_put(at, self.top_loss[take].to(best.loss)),
            best.broken.index_put((self.live,), broken),
        )

    def advance(self, threat: Threat, confine: Callable[[Tensor], Tensor], *, first: bool) -> None:
        """One step, with the momentum of the last one except at the first and in the l1 ball."""
        reach = wide(self.reach, self.y).to(self.y)
        moved = confine(self.y + reach * threat.steepest(self.gradient, self.share))
        if not (first or threat.norm == "l1"):
            moved = confine(self.y + (1 - MOMENTUM) * (moved - self.y) + MOMENTUM * (self.y - self.before))
        self.y, self.before = moved, self.y

    def check(self, steps: int) -> None:
        """Halve the step and go back to the best point where the last steps did not pay."""
        stalled = ~self.halved & (self.checked_loss >= self.top_loss)
        halve = (self.rises <= RISES * steps) | stalled
        self.halved, self.checked_loss = halve, self.top_loss
        self.reach = torch.where(halve, self.reach / 2, self.reach)
        self.rises = torch.zeros_like(self.rises)
        self._back(halve)

    def check_sparse(self, eps: float) -> None:
        """In the l1 ball: move as many coordinates as the best point, and shorten the step or begin anew."""
        now = (self.top != moved_input(self.batch)).flatten(1).sum(1).double()
        sparser = now < SPARSER * self.moved
        self.reach = torch.where(sparser, eps, (self.reach / 1.5).clamp(min=eps / 10))
        self.share, self.moved = now / self.y[0].numel() / 1.5, now
        self._back(sparser)

    def _back(self, chosen: Tensor) -> None:
        here = wide(chosen, self.y)
        self.y = torch.where(here, self.top, self.y)
        self.before = torch.where(here, self.top, self.before)
        self.gradient = torch.where(here, self.top_gradient, self.gradient)
