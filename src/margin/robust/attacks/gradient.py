"""Gradient attacks: one signed step (Goodfellow et al., 2015) and projected ascent (Madry et al., 2018).

Both ask the model in evaluation mode and leave no trace in it; every output is checked to lie in the
ball and in the domain.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Objective, PerExample
from margin.engine.evaluation import eval_mode
from margin.engine.loop import NonFiniteError
from margin.robust.attacks.goals import Goal
from margin.robust.attacks.threat_models import Threat


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How projected gradient ascent searches the ball.

    Args:
        steps: Gradient steps of one ascent, >= 1.
        step_size: Length of a step in the units of eps; None takes 2.5 eps / steps, with which an ascent
            can cross the ball and move along its boundary (Madry et al., 2018, Section 3).
        restarts: Ascents, >= 1.
        start: Each ascent begins at a random point of the ball, or at the input itself.

    Raises:
        ValueError: A number is out of range.
    """

    steps: int = 10
    step_size: float | None = None
    restarts: int = 1
    start: Literal["random", "clean"] = "random"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise ValueError(
                f"steps and restarts must be at least 1: got steps={self.steps}, restarts={self.restarts}"
            )
        if self.step_size is not None and not self.step_size > 0:
            raise ValueError(f"step_size must be positive: got {self.step_size}")

    def length(self, eps: float) -> float:
        """The length of a step in a ball of radius eps."""
        return 2.5 * eps / self.steps if self.step_size is None else self.step_size


class Attack(NamedTuple):
    """What an attack found: its inputs, their loss, and where the adversary's goal is reached."""

    inputs: Tensor
    loss: PerExample
    broken: Bool[Tensor, " batch"]


class Slope(NamedTuple):
    """The loss of each example and its gradient by the example's input."""

    loss: PerExample
    gradient: Tensor


def fgsm(model: nn.Module, batch: Batch, objective: Objective, threat: Threat) -> Tensor:
    r"""The maximizer of the linearized loss over the ball, by one step from the input.

    .. math:: x + \epsilon\, \mathrm{sign}(\nabla_x \ell(x))

    in the l-infinity ball, and :math:`x + \epsilon\, g / \|g\|_2` in the l2 ball, clamped to the domain. With
    eps = 0 it is x bit for bit.

    Args:
        model: Asked in evaluation mode.
        batch: One real input, with targets where the objective reads them.
        objective: The loss of each term; the terms of an example are summed.
        threat: The ball and the domain.

    Returns:
        The attacked inputs.

    Raises:
        ValueError: The batch has not one real input, or an input lies outside the domain.
        NonFiniteError: A loss is NaN or a gradient is not finite.

    Reference: Goodfellow, Shlens & Szegedy (2015), "Explaining and harnessing adversarial examples",
    Section 4.
    """
    x = moved_input(batch)
    threat.check_inputs(x)
    with eval_mode(model) as generator:
        slope = input_gradient(model, batch, objective, generator)
    return stepped(x, slope.gradient, threat)


def stepped(x: Float[Tensor, "batch ..."], direction: Float[Tensor, "batch ..."], threat: Threat) -> Tensor:
    """The point of the ball that is farthest along a direction, by one step of length eps from x."""
    moved = threat.project(x + threat.eps * threat.steepest(direction), x)
    threat.check(moved, x)
    return moved


def pgd(
    model: nn.Module,
    batch: Batch,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    *,
    search: Search | None = None,
    goal: Goal | None = None,
) -> Attack:
    r"""The best point met by projected gradient ascent on the loss, example by example.

    .. math:: y \leftarrow \Pi_{B(x, \epsilon) \cap D}\bigl(y + \alpha\, s(\nabla_y \ell(y))\bigr)

    with s the sign in the l-infinity ball and :math:`g / \|g\|_2` in the l2 ball. Of all iterates the first
    that reaches the goal is kept, else the one of largest loss. An example whose goal is reached
    without moving it comes back as it is. With eps = 0 the inputs are x bit for bit.

    Args:
        model: Asked in evaluation mode.
        batch: One real input, with targets where the objective reads them.
        objective: The loss of each term; the terms of an example are summed.
        threat: The ball and the domain.
        generator: Draws the starting points.
        search: Steps, restarts, start; None takes :class:`Search`'s defaults.
        goal: When the adversary has won; None never.

    Returns:
        The attacked inputs, their loss, and which of them reach the goal.

    Raises:
        ValueError: The batch has not one real input, or an input lies outside the domain.
        NonFiniteError: A loss is NaN or a gradient is not finite.

    Reference: Madry, Makelov, Schmidt, Tsipras & Vladu (2018), "Towards deep learning models resistant to
    adversarial attacks", Section 2.1. The kept iterate is the best, not the last.
    """
    search = search or Search()
    x = moved_input(batch)
    threat.check_inputs(x)
    with eval_mode(model):
        best = _clean(model, batch, objective, generator, goal)
        if threat.eps > 0:
            # Any iterate beats an unmoved input that has not reached the goal.
            best = best._replace(loss=best.loss.masked_fill(~best.broken, -torch.inf))
            for _ in range(search.restarts):
                begin = threat.random_point(x, generator) if search.start == "random" else x
                hunt = _Ascent(model, batch, objective, threat, generator, goal)
                best = hunt.run(begin, search, best)
    threat.check(best.inputs, x)
    return best


@dataclass(frozen=True, slots=True, eq=False)
class _Ascent:
    model: nn.Module
    batch: Batch
    objective: Objective
    threat: Threat
    generator: Generator
    goal: Goal | None

    def run(self, y: Tensor, search: Search, best: Attack) -> Attack:
        length, confine = search.length(self.threat.eps), self.threat.around(moved_input(self.batch))
        for step in range(search.steps + 1):
            batch, last = self.batch._replace(inputs=(y,)), step == search.steps
            ask = _loss if last else input_gradient
            loss, gradient = ask(self.model, batch, self.objective, self.generator)
            if step > 0 or search.start == "random":
                best = self.better(batch, loss, best)
            if last or best.broken.all():
                break
            y = confine(y + length * self.threat.steepest(gradient))
        return best

    def better(self, batch: Batch, loss: PerExample, best: Attack) -> Attack:
        y, broken = batch.inputs[0], _reached(self.model, batch, self.goal)
        take = ~best.broken & (broken | (loss > best.loss))
        inputs = torch.where(take.reshape(-1, *(1,) * (y.ndim - 1)), y, best.inputs)
        return Attack(inputs, torch.where(take, loss, best.loss), best.broken | broken)


def input_gradient(model: nn.Module, batch: Batch, objective: Objective, generator: Generator) -> Slope:
    """The loss of each example and its gradient by the example's own input.

    The losses are summed before they are differentiated, so the gradient does not shrink with the
    batch. It is 0 where the loss does not depend on the input through differentiable operations.

    Raises:
        NonFiniteError: A loss is NaN or a gradient is not finite.
        ValueError: The objective does not give terms for each example.
    """
    y = moved_input(batch).detach().requires_grad_()
    with torch.enable_grad():
        loss = _terms(objective(model, batch._replace(inputs=(y,)), generator), len(y))
        gradient = None
        if loss.requires_grad:
            (gradient,) = torch.autograd.grad(loss.sum(), y, allow_unused=True)
    gradient = torch.zeros_like(y) if gradient is None else gradient
    _refuse(loss.isnan(), "the loss is NaN")
    _refuse(~gradient.flatten(1).isfinite().all(1), "the gradient of the loss by the input is not finite")
    return Slope(loss.detach(), gradient.detach())


def moved_input(batch: Batch) -> Float[Tensor, "batch ..."]:
    """The one input that an adversary moves.

    Raises:
        ValueError: There are several inputs, or it is not of real numbers.
    """
    if len(batch.inputs) != 1 or not batch.inputs[0].is_floating_point():
        kinds = ", ".join(str(x.dtype) for x in batch.inputs)
        raise ValueError(f"an attack moves one input of real numbers: got {kinds}")
    return batch.inputs[0]


@torch.no_grad()
def _loss(model: nn.Module, batch: Batch, objective: Objective, generator: Generator) -> Slope:
    """The loss of each example, with no slope."""
    x = batch.inputs[0]
    loss = _terms(objective(model, batch, generator), len(x))
    _refuse(loss.isnan(), "the loss is NaN")
    return Slope(loss, torch.zeros_like(x))


@torch.no_grad()
def _reached(model: nn.Module, batch: Batch, goal: Goal | None) -> Bool[Tensor, " batch"]:
    x = batch.inputs[0]
    if goal is None or batch.targets is None:
        return torch.zeros(len(x), dtype=torch.bool, device=x.device)
    return goal(model(x), batch.targets)


def _clean(
    model: nn.Module, batch: Batch, objective: Objective, generator: Generator, goal: Goal | None
) -> Attack:
    loss = _loss(model, batch, objective, generator).loss
    return Attack(moved_input(batch).clone(), loss, _reached(model, batch, goal))


def _terms(terms: Tensor, count: int) -> PerExample:
    if terms.ndim == 0 or len(terms) != count:
        raise ValueError(
            f"an attack needs the loss of each of the {count} examples: got shape {tuple(terms.shape)}"
        )
    return terms.reshape(count, -1).sum(1)


def _refuse(bad: Bool[Tensor, " batch"], what: str) -> None:
    if bad.any():
        raise NonFiniteError(f"{what} at example {int(bad.nonzero()[0])} of the batch")
