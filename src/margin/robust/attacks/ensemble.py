r"""An ensemble of attacks, each on the examples that those before it left: the worst case of each.

APGD on the cross-entropy, APGD on the targeted difference of logits ratio, FAB and Square (Croce & Hein,
2020, Section 5: AutoAttack). What one attack misses another finds; what a black-box attack finds that reads
no gradient, though those that follow gradients did not, tells that these are masked (Athalye, Carlini &
Wagner, 2018, Section 3.1; Carlini et al., 2019, Section 5).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Generator, Tensor, nn

from margin.core.tasks import Task, halfspace_classes
from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, rows_of
from margin.engine.loop import NonFiniteError
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.apgd import apgd
from margin.robust.attacks.gradient import (
    Criterion,
    classes_of,
    labels_of,
    margin_loss,
    missed,
    moved_input,
    targeted_ratio_loss,
)
from margin.robust.attacks.linear_models import other_classes
from margin.robust.attacks.masking import Careful, gradients_of
from margin.robust.attacks.minimal import RIVALS, boundary_attack
from margin.robust.attacks.square import square
from margin.robust.attacks.threat_models import Threat

FEW = 0.02
"""Share of the right examples that gradients may miss: more, and they are masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long each attack of the ensemble searches; 0 leaves an attack out.

    Args:
        steps: Steps of an ascent of APGD.
        restarts: Ascents of APGD on the cross-entropy.
        targets: Classes towards which APGD goes, one after another, those of largest score first.
        boundary: Steps of FAB.
        queries: Queries of Square.

    Raises:
        ValueError: A number is negative, or none of them is above 0.
    """

    steps: int = 100
    restarts: int = 1
    targets: int = RIVALS
    boundary: int = 100
    queries: int = 5000

    def __post_init__(self) -> None:
        numbers = (self.steps, self.restarts, self.targets, self.boundary, self.queries)
        if min(numbers) < 0 or not (self.steps or self.boundary or self.queries):
            raise ValueError(f"a budget needs numbers >= 0, and an attack that is asked: got {self}")


class Attacker(NamedTuple):
    """One attack of the ensemble.

    Args:
        name: In messages.
        move: ``(threat, batch) -> moved inputs``.
        reads_gradients: Whether it follows gradients.
    """

    name: str
    move: Callable[[Threat, Batch], Tensor]
    reads_gradients: bool = True


class Struck(NamedTuple):
    """What an ensemble found.

    Args:
        inputs: For each example an input of the ball that is wrong, or the input as it was.
        clean: Examples that are right as they are; the others are clean errors, no attack's success.
        broken: Examples that are wrong after some attack, clean errors included.
        by: The attack that broke each example, by its number; -1: none, or a clean error.
        names: The attacks.
        remarks: What a reader must know: masked gradients, a model that ends in a softmax.
    """

    inputs: Tensor
    clean: Bool[Tensor, " batch"]
    broken: Bool[Tensor, " batch"]
    by: Int[Tensor, " batch"]
    names: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """The share of the examples that are right after every attack."""
        return float((~self.broken).double().mean())


def ensemble(
    model: nn.Module,
    batch: Batch,
    task: Task,
    threat: Threat,
    generator: Generator,
    *,
    budget: Budget | None = None,
) -> Struck:
    """The examples that survive every attack of an ensemble, and what broke the others.

    An example that is broken leaves the batch. Outputs that are probabilities are attacked through their
    logarithms, which are logits.

    Args:
        model: Asked in evaluation mode.
        batch: One real input with its labels.
        task: How outputs are read.
        threat: The ball and the domain.
        generator: Draws starting points and proposals.
        budget: How long each attack searches; None takes :class:`Budget`'s defaults.

    Raises:
        ValueError: The batch has not one real input, one lies outside the domain, or the task has no classes.
        NonFiniteError: An output is NaN.

    Reference: Croce & Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble of diverse
    parameter-free attacks", Section 5. FAB is :func:`~margin.robust.attacks.minimal.boundary_attack`.
    """
    x, labels, lost = moved_input(batch), labels_of(batch), missed(task)
    threat.check_inputs(x)
    with eval_mode(model) as own, kept_memory(), torch.no_grad():
        outputs = model(x)
        task, remarks = in_logits(task, outputs)
        found = gradients_of(model, batch, (margin_loss(task),), own)
        attackers = attackers_of(found.model, task, outputs, budget or Budget(), generator)
        clean = ~wrong(lost, outputs, labels)
        inputs, alive, by = x.clone(), clean.clone(), torch.full_like(labels, -1)
        for number, attacker in enumerate(attackers if threat.eps > 0 else ()):
            rows = alive.nonzero().flatten()
            if len(rows) == 0:
                break
            part = rows_of(Batch((x,), labels), rows)
            moved = attacker.move(threat, part)
            fallen = wrong(lost, model(moved), labels[rows])
            hit = rows[fallen]
            inputs[hit], by[hit], alive[hit] = moved[fallen], number, False
    threat.check(inputs, x)
    blind = sum(int((by == k).sum()) for k, one in enumerate(attackers) if not one.reads_gradients)
    said = masked(
        int(clean.sum()), int((clean & found.blind).sum()), int((clean & found.broken).sum()), blind
    )
    remarks += (
        *([NOT_DIFFERENTIABLE.format(found.lacking)] if found.lacking else []),
        *([said] if said else []),
    )
    return Struck(inputs, clean, ~alive, by, tuple(a.name for a in attackers), remarks)


NOT_DIFFERENTIABLE = "the model cannot be differentiated by its input ({}): black-box attacks alone"

SOFTMAX = "the outputs are probabilities (rows >= 0 that sum to 1): attacks follow their logarithms"


def masked(right: int, blind: int, broken: int, found_blindly: int) -> str:
    """What is said of gradients that lead nowhere, "" of those that lead somewhere.

    Args:
        right: Examples that are right as they are.
        blind: Of these: with an input gradient of exactly 0.
        broken: With an input gradient that is not finite.
        found_blindly: Broken by an attack that reads no gradient, after all that do.
    """
    allowed, reasons = FEW * right, []
    if blind > allowed:
        reasons.append(f"exactly 0 at {blind} of {right} right examples")
    if broken > allowed:
        reasons.append(f"not finite at {broken} of {right}")
    if found_blindly > max(1, allowed):
        reasons.append(f"beaten by an attack that reads none, which broke {found_blindly} more of {right}")
    return f"the gradients are masked: {', '.join(reasons)}" if reasons else ""


def in_logits(task: Task, outputs: Tensor) -> tuple[Task, tuple[str, ...]]:
    """The task whose scores are the logarithms of what is taken for scores and is probabilities.

    A row of scores that are >= 0 and sum to 1 comes of a softmax: its logarithm is the logits, less a number
    that all classes share. Float64, for in float32 two probabilities may have one logarithm.
    """
    classes = classes_of(task)
    scores = classes(outputs)
    ends = bool((scores >= 0).all()) and bool(((scores.sum(-1) - 1).abs() < 1e-3).all())
    if not (ends and len(scores)):
        return task, ()
    tiny = torch.finfo(scores.dtype).tiny
    return replace(task, classes=lambda o: classes(o).double().clamp_min(tiny).log()), (SOFTMAX,)


def as_they_stand(task: Task, outputs: Tensor) -> Task:
    """The task whose scores are the outputs themselves, also where these are no probabilities."""
    one = outputs.ndim == 1 or outputs.shape[-1] == 1
    return replace(task, classes=(lambda o: halfspace_classes(o.reshape(len(o)))) if one else lambda o: o)


def wrong(lost: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, labels: Tensor) -> Bool[Tensor, " n"]:
    """Which examples are wrong.

    Raises:
        NonFiniteError: An output is NaN.
    """
    if bool(outputs.isnan().any()):
        raise NonFiniteError("the model's outputs are NaN inside the domain")
    return lost(outputs, labels)


def attackers_of(
    model: Careful, task: Task, outputs: Tensor, budget: Budget, generator: Generator
) -> tuple[Attacker, ...]:
    """The attacks of a budget, the cheapest first; those that read gradients only where there are any.

    Of one class there are none: it is predicted everywhere.
    """
    classes, lost = classes_of(task), missed(task)
    count, made = classes(outputs).shape[-1], []
    if count < 2:
        return ()
    run = partial(_ascent, model, generator, budget.steps, lost)
    if budget.steps and not model.blocked:
        if budget.restarts:
            made.append(Attacker("APGD-CE", partial(run, cross_entropy(task), budget.restarts)))
        if count < 3 and budget.targets:
            made.append(Attacker("APGD-margin", partial(run, margin_loss(task), 1)))
        elif budget.targets:
            targeted = partial(
                _targeted, model, generator, budget.steps, task, min(budget.targets, count - 1)
            )
            made.append(Attacker("APGD-DLR", targeted))
    if budget.boundary and not model.blocked:
        made.append(Attacker("FAB", partial(_boundary, model, task, budget)))
    if budget.queries:
        blind = partial(_square, model.model, generator, budget.queries, task)
        made.append(Attacker("Square", blind, reads_gradients=False))
    return tuple(made)


def cross_entropy(task: Task) -> Criterion:
    """The cross-entropy -log softmax(f)[y] of the scores of the classes, whatever the task's own loss is."""
    classes = classes_of(task)

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(classes(outputs), labels.long(), reduction="none")

    return Criterion(loss)


# Eight parameters: an attack's, bound one after another.
def _ascent(
    model: nn.Module,
    generator: Generator,
    steps: int,
    lost: Callable[[Tensor, Tensor], Tensor],
    loss: Objective,
    restarts: int,
    threat: Threat,
    batch: Batch,
) -> Tensor:
    goal = lost
    return apgd(model, batch, loss, threat, generator, steps=steps, restarts=restarts, goal=goal).inputs


# Seven parameters: an attack's, bound one after another.
def _targeted(
    model: nn.Module,
    generator: Generator,
    steps: int,
    task: Task,
    targets: int,
    threat: Threat,
    batch: Batch,
) -> Tensor:
    """APGD towards one rival after another, on the examples that are left."""
    x, labels, lost = moved_input(batch).clone(), labels_of(batch), missed(task)
    with torch.no_grad():
        rivals = other_classes(classes_of(task)(model(x)), labels, targets)
    rows, loss = torch.arange(len(x), device=x.device), targeted_ratio_loss(task)
    for k in range(rivals.shape[1]):
        pairs = torch.stack((labels[rows], rivals[rows, k]), 1)
        found = apgd(
            model,
            Batch((moved_input(batch)[rows],), pairs),
            loss,
            threat,
            generator,
            steps=steps,
            goal=lambda outputs, pairs: lost(outputs, pairs[:, 0]),
        )
        x[rows] = found.inputs
        rows = rows[~found.broken]
        if len(rows) == 0:
            break
    return x


def _boundary(model: nn.Module, task: Task, budget: Budget, threat: Threat, batch: Batch) -> Tensor:
    return boundary_attack(
        model, batch, task, threat, steps=budget.boundary, rivals=max(budget.targets, 1)
    ).inputs


# Six parameters: an attack's, bound one after another.
def _square(
    model: nn.Module, generator: Generator, queries: int, task: Task, threat: Threat, batch: Batch
) -> Tensor:
    loss, goal = margin_loss(task), missed(task)
    return square(model, batch, loss, threat, generator, queries=queries, goal=goal).inputs
