"""Gradient attacks: one signed step (Goodfellow et al., 2015) and projected ascent (Madry et al., 2018).

Both ask the model in evaluation mode and leave no trace in it; every output is checked to lie in the
ball and in the domain.

The adversary's goal: untargeted, f(x + d) != y; targeted, f(x + d) = t. The margin loss max_{j != y} f_j -
f_y (Carlini & Wagner, 2017, Section V.A, f_6) has a gradient wherever the scores have one, also where the
training loss is flat; divided by a difference of sorted scores (Croce & Hein, 2020, Section 4.2) it does not
change when all scores are scaled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from margin.core.tasks import Task, class_accuracy, class_margins
from margin.core.types import Batch, Objective, PerExample
from margin.engine.evaluation import eval_mode, rows_of
from margin.engine.loop import NonFiniteError, Risk
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.pullbacks import few_channels, pullback
from margin.robust.attacks.threat_models import Threat

TINY = 1e-12
"""What keeps a quotient of equal scores finite."""

Goal = Callable[[Tensor, Tensor], Tensor]
"""``(outputs, targets) -> whether the adversary has won``, for each example."""


def missed(task: Task) -> Goal:
    """The untargeted goal f(x + d) != y: some term of the example is not right.

    Raises:
        ValueError: The task has no classes.
    """
    classes = classes_of(task)
    score = task.scores.get("accuracy", lambda outputs, labels: class_accuracy(classes(outputs), labels))

    def goal(outputs: Tensor, targets: Tensor) -> Bool[Tensor, " batch"]:
        right = score(outputs, targets) > 0
        return ~right.reshape(len(right), -1).all(1)

    return goal


def hit(task: Task, target: int) -> Goal:
    """The targeted goal f(x + d) = t: the class ``target`` has the largest score.

    Raises:
        ValueError: The task has no classes.
    """
    classes = classes_of(task)

    def goal(outputs: Tensor, targets: Tensor) -> Bool[Tensor, " batch"]:
        return class_accuracy(classes(outputs), torch.full_like(targets, target)) > 0

    return goal


@dataclass(frozen=True, slots=True)
class Criterion:
    """An objective that reads the model's outputs alone, so that one pass gives the loss and the prediction.

    Args:
        of_outputs: ``(outputs, labels) -> the loss of each term``.
    """

    of_outputs: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each term."""
        return self.of_outputs(model(*batch.inputs), labels_of(batch))


def margin_loss(task: Task) -> Criterion:
    """The loss max_{j != y} f_j - f_y of each example: positive where another class has the larger score.

    Raises:
        ValueError: The task has no classes.
    """
    classes = classes_of(task)
    return Criterion(lambda outputs, labels: -class_margins(classes(outputs), labels))


def target_loss(task: Task, target: int) -> Criterion:
    """The loss f_t - max_{j != t} f_j of each example, which a targeted attack raises.

    Raises:
        ValueError: The task has no classes.
    """
    classes = classes_of(task)
    return Criterion(lambda outputs, y: class_margins(classes(outputs), torch.full_like(y, target)))


def ratio_loss(task: Task) -> Criterion:
    r"""The difference of logits ratio: the margin loss over the spread of the sorted scores, at least -1.

    .. math:: -\frac{f_y - \max_{j \ne y} f_j}{f_{(1)} - f_{(3)}}

    with :math:`f_{(k)}` the k-th largest score. It is the same for f and for a f + b, a > 0.

    Raises:
        ValueError: The task has no classes; later, there are fewer than three.

    Reference: Croce & Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble of diverse
    parameter-free attacks", Equation 6.
    """
    classes = classes_of(task)

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        scores = classes(outputs)
        top = _largest(scores, 3)
        return -class_margins(scores, labels) / (top[..., 0] - top[..., 2] + TINY)

    return Criterion(loss)


def targeted_ratio_loss(task: Task) -> Criterion:
    r"""The difference of logits ratio towards one other class of each example.

    .. math:: -\frac{f_y - f_t}{f_{(1)} - (f_{(3)} + f_{(4)}) / 2}

    Of three classes :math:`f_{(4)}` is :math:`f_{(3)}`. The targets of a batch are pairs (y, t).

    Raises:
        ValueError: The task has no classes; later, there are fewer than three.

    Reference: Croce & Hein (2020), Equation 7.
    """
    classes = classes_of(task)

    def loss(outputs: Tensor, pairs: Tensor) -> Tensor:
        scores = classes(outputs)
        top = _largest(scores, 4)
        gap = (scores.gather(-1, pairs.long()) * scores.new_tensor([-1.0, 1.0])).sum(-1)
        return gap / (top[..., 0] - (top[..., 2] + top[..., -1]) / 2 + TINY)

    return Criterion(loss)


def _largest(scores: Tensor, most: int) -> Tensor:
    if scores.shape[-1] < 3:
        raise ValueError(f"the ratio of logits needs three classes: got {scores.shape[-1]}")
    return scores.topk(min(most, scores.shape[-1]), dim=-1).values


def classes_of(task: Task) -> Callable[[Tensor], Tensor]:
    """The map from a model's outputs to a score for each class.

    Raises:
        ValueError: The task has no classes.
    """
    if task.classes is None:
        raise ValueError(f"an adversary needs classes: the task {task.name!r} has none")
    return task.classes


def labels_of(batch: Batch) -> Tensor:
    """The labels of a batch.

    Raises:
        ValueError: The batch has no targets.
    """
    if batch.targets is None:
        raise ValueError("an adversary needs labels: the batch has no targets")
    return batch.targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How projected gradient ascent searches the ball.

    Args:
        steps: Gradient steps of one ascent, >= 1.
        step_size: Length of a step in the units of eps; None takes 2.5 eps / steps, with which an ascent
            can cross the ball and move along its boundary (Madry et al., 2018, Section 3).
        restarts: Ascents, >= 1.
        start: Each ascent begins at a random point of the ball, or at the input itself.
        momentum: Share of the sum of the gradients before that a step keeps, each divided by its mean size; 0
            follows the last alone (Dong et al., 2018, Algorithm 1).

    Raises:
        ValueError: A number is out of range.
    """

    steps: int = 10
    step_size: float | None = None
    restarts: int = 1
    start: Literal["random", "clean"] = "random"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise ValueError(
                f"steps and restarts must be at least 1: got steps={self.steps}, restarts={self.restarts}"
            )
        if self.step_size is not None and not self.step_size > 0:
            raise ValueError(f"step_size must be positive: got {self.step_size}")
        if not self.momentum >= 0:
            raise ValueError(f"momentum must be at least 0: got {self.momentum}")

    def length(self, eps: float) -> float:
        """The length of a step in a ball of radius eps."""
        return 2.5 * eps / self.steps if self.step_size is None else self.step_size


class Attack(NamedTuple):
    """What an attack found: its inputs, their loss, and where the adversary's goal is reached."""

    inputs: Tensor
    loss: PerExample
    broken: Bool[Tensor, " batch"]


class Slope(NamedTuple):
    """The loss of each example, its gradient by the input, and the outputs where the loss is of them."""

    loss: PerExample
    gradient: Tensor
    outputs: Tensor | None = None


def fgsm(model: nn.Module, batch: Batch, objective: Objective, threat: Threat) -> Tensor:
    r"""The maximizer of the linearized loss over the ball, by one step from the input.

    .. math:: x + \epsilon\, \mathrm{sign}(\nabla_x \ell(x))

    in the l-infinity ball, and :math:`x + \epsilon\, g / \|g\|_2` in the l2 ball, clamped to the domain. In
    the l1 ball the steepest coordinates go to the domain's ends until eps is spent. With eps = 0 it is x bit
    for bit.

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
    moved = threat.project(threat.advanced(x, direction, threat.eps), x)
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

    with s the sign in the l-infinity ball and :math:`g / \|g\|_2` in the l2 ball; in the l1 ball the steepest
    coordinates move. Of all iterates the first that reaches the goal is kept, else the one of largest loss.
    An example whose goal is reached leaves the batch; without moving, it comes back as it is. Features that
    are whole or of a category are asked about at their nearest valid value, whose gradient is followed
    (straight through). With eps = 0 the inputs are x bit for bit.

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
    with eval_mode(model), kept_memory():
        best = unmoved(model, batch, objective, threat, generator, goal)
        for _ in range(search.restarts if threat.eps > 0 else 0):
            if best.broken.all():
                break
            begin = threat.random_point(x, generator) if search.start == "random" else x
            hunt = _Ascent(model, batch, objective, threat, generator, goal)
            hunt.run(begin, search, best)
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

    def run(self, y: Tensor, search: Search, best: Attack) -> None:
        """Ascend from y, and write what is found into the best."""
        live = (~best.broken).nonzero().flatten()
        batch, y, velocity = self.at(live), y[live], torch.zeros(())
        x = moved_input(batch)
        reach, confine = search.length(self.threat.eps), self.threat.around(x)
        for step in range(search.steps + 1):
            here, last = batch._replace(inputs=(self.threat.valid(y, x),)), step == search.steps
            ask = loss_of_input if last else input_gradient
            slope = ask(self.model, here, self.objective, self.generator)
            left = torch.ones_like(live, dtype=torch.bool)
            if step > 0 or search.start == "random":
                left = self.better(here, slope, best, live)
            if last or not left.any():
                break
            velocity = _followed(slope.gradient, velocity, search.momentum)
            if not left.all():
                live, batch, y = live[left], rows_of(batch, left.nonzero().flatten()), y[left]
                velocity, x, confine = velocity[left], moved_input(batch), confine.at(left)
            y = confine(self.threat.advanced(y, velocity, reach))

    def at(self, index: Tensor) -> Batch:
        """The examples that are still attacked; the batch itself, where these are all."""
        return self.batch if len(index) == len(moved_input(self.batch)) else rows_of(self.batch, index)

    def better(self, batch: Batch, slope: Slope, best: Attack, live: Tensor) -> Tensor:
        """Write into the best what the examples at ``live`` have now; which of these are not broken yet."""
        broken = reached(self.model, batch, self.goal, slope.outputs)
        take = (broken | (slope.loss > best.loss[live])).nonzero().flatten()
        at = live[take]
        best.inputs[at], best.loss[at] = batch.inputs[0][take], slope.loss[take].to(best.loss)
        best.broken[live] = broken
        return ~broken


def _followed(gradient: Tensor, velocity: Tensor, momentum: float) -> Tensor:
    """The direction of a step: the gradient, or the sum of the gradients before with it."""
    if momentum == 0:
        return gradient
    mean = gradient.flatten(1).abs().mean(1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return momentum * velocity + gradient / mean.reshape(-1, *(1,) * (gradient.ndim - 1))


def input_gradient(model: nn.Module, batch: Batch, objective: Objective, generator: Generator) -> Slope:
    """The loss of each example and its gradient by the example's own input.

    The losses are summed before they are differentiated, so the gradient does not shrink with the
    batch. It is 0 where the loss does not depend on the input through differentiable operations.

    Raises:
        NonFiniteError: A loss is NaN or a gradient is not finite.
        ValueError: The objective does not give terms for each example.
    """
    y = moved_input(batch).detach().requires_grad_()
    with torch.enable_grad(), few_channels(model):
        terms, outputs = _asked(model, batch._replace(inputs=(y,)), objective, generator)
        loss = _terms(terms, len(y))
        gradient = pullback(loss.sum(), y)
    _refuse(loss.isnan(), "the loss is NaN")
    if not gradient.sum().isfinite():  # in one pass; of finite numbers the sum may overflow
        _refuse(~gradient.flatten(1).isfinite().all(1), "the gradient of the loss by the input is not finite")
    return Slope(loss.detach(), gradient.detach(), None if outputs is None else outputs.detach())


def _asked(
    model: nn.Module, batch: Batch, objective: Objective, generator: Generator
) -> tuple[Tensor, Tensor | None]:
    """The terms of the loss, and the outputs where the objective reads them alone."""
    of_outputs = None
    if isinstance(objective, Criterion):
        of_outputs = objective.of_outputs
    elif isinstance(objective, Risk) and batch.targets is not None:
        of_outputs = objective.task.loss
    if of_outputs is None:
        return objective(model, batch, generator), None
    outputs = model(*batch.inputs)
    return of_outputs(outputs, labels_of(batch)), outputs


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
def loss_of_input(model: nn.Module, batch: Batch, objective: Objective, generator: Generator) -> Slope:
    """The loss of each example, with no slope."""
    x = batch.inputs[0]
    terms, outputs = _asked(model, batch, objective, generator)
    loss = _terms(terms, len(x))
    _refuse(loss.isnan(), "the loss is NaN")
    return Slope(loss, torch.zeros_like(x), outputs)


@torch.no_grad()
def reached(
    model: nn.Module, batch: Batch, goal: Goal | None, outputs: Tensor | None
) -> Bool[Tensor, " batch"]:
    """Which examples reach the goal; the outputs are asked for where they are not known."""
    x = batch.inputs[0]
    if goal is None or batch.targets is None:
        return torch.zeros(len(x), dtype=torch.bool, device=x.device)
    return goal(model(x) if outputs is None else outputs, batch.targets)


@torch.no_grad()
def unmoved(
    model: nn.Module,
    batch: Batch,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    goal: Goal | None,
) -> Attack:
    """Where an attack begins: the inputs as they are, which any iterate beats unless they reach the goal.

    In a ball of radius 0 they keep their loss.
    """
    slope = loss_of_input(model, batch, objective, generator)
    broken = reached(model, batch, goal, slope.outputs)
    loss = slope.loss.masked_fill(~broken & (threat.eps > 0), -torch.inf)
    return Attack(moved_input(batch).clone(), loss, broken)


def _terms(terms: Tensor, count: int) -> PerExample:
    if terms.ndim == 0 or len(terms) != count:
        raise ValueError(
            f"an attack needs the loss of each of the {count} examples: got shape {tuple(terms.shape)}"
        )
    return terms.reshape(count, -1).sum(1)


def _refuse(bad: Bool[Tensor, " batch"], what: str) -> None:
    if bad.any():
        raise NonFiniteError(f"{what} at example {int(bad.nonzero()[0])} of the batch")
