r"""The attack of Carlini & Wagner (2017) in l2: distance and margin weighed against each other, by Adam.

.. math:: \min_w \|x(w) - x\|_2^2 + c\, \max(f_y - \max_{j \ne y} f_j, -\kappa), \quad
    x(w) = \tfrac12 (a + b) + \tfrac12 (b - a) \tanh w

with the domain [a, b], which x(w) never leaves, and for each example the smallest c that is found by binary
search to change its class.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from margin.core.tasks import Task, class_margins
from margin.core.types import Batch, PerExample
from margin.engine.evaluation import eval_mode, rows_of
from margin.robust.attacks.ensemble import in_logits
from margin.robust.attacks.gradient import classes_of, labels_of, missed, moved_input
from margin.robust.attacks.masking import Careful
from margin.robust.attacks.minimal import Moved
from margin.robust.attacks.threat_models import Threat, project_box, wide

MOST = 1e10
"""The largest weight of the margin."""

EDGE = 1 - 1e-6
"""How near to an end of the domain the search begins: at the end itself tanh has no slope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """How the attack searches.

    Args:
        steps: Steps of Adam for one weight c, >= 1.
        searches: Weights tried, by binary search, >= 1.
        constant: The first weight c, > 0.
        lr: Learning rate of Adam in the space of tanh, > 0.
        confidence: The margin kappa by which the other class must win, >= 0.

    Raises:
        ValueError: A number is out of range.
    """

    steps: int = 1000
    searches: int = 9
    constant: float = 1e-3
    lr: float = 0.01
    confidence: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.searches < 1:
            raise ValueError(
                f"steps and searches must be at least 1: got steps={self.steps}, searches={self.searches}"
            )
        if not (self.constant > 0 and self.lr > 0 and self.confidence >= 0):
            raise ValueError(
                "constant and lr must be positive, confidence at least 0: got "
                f"constant={self.constant}, lr={self.lr}, confidence={self.confidence}"
            )


def carlini_wagner(
    model: nn.Module, batch: Batch, task: Task, threat: Threat, *, descent: Descent | None = None
) -> Moved:
    """The nearest inputs of another class that descent on distance and margin meets.

    It is minimal-norm: the radius of the threat only hides what lies beyond it. Distances are measured in
    the longest side of the domain, in which the constants of the paper are meant. An example that is wrong
    already is left as it is, at the distance 0.

    Args:
        model: Asked in evaluation mode.
        batch: One real input with its labels.
        task: How its outputs are read; probabilities by their logarithms.
        threat: The domain, which must be bounded, the units, and the radius; its norm must be l2.
        descent: Steps, weights; None takes :class:`Descent`'s defaults, those of the authors' code.

    Returns:
        The nearest adversarial inputs with their distances; else the input as it was, at the distance inf.

    Raises:
        ValueError: The norm is not l2, the domain is unbounded, or an input lies outside it.

    Reference: Carlini & Wagner (2017), "Towards evaluating the robustness of neural networks", Section VI.A.
    Steps are never broken off.
    """
    descent = descent or Descent()
    x, labels, lost = moved_input(batch), labels_of(batch), missed(task)
    threat.check_inputs(x)
    low, high = threat.box(x)
    if threat.norm != "l2" or not bool((low.isfinite() & high.isfinite()).all()):
        raise ValueError(
            "this attack needs the norm l2 and a bounded domain: "
            f"got {threat.norm}, sides up to {threat.domain.width}"
        )
    if threat.features is not None and (threat.features.groups or threat.features.whole is not None):
        raise ValueError("this attack needs real features: got some that are whole or of a category")
    best, distance = x.clone(), torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    with eval_mode(model):
        with torch.no_grad():
            outputs = model(x)
            wrong = lost(outputs, labels)
        distance[wrong] = 0.0
        rows = (~wrong).nonzero().flatten()
        search = _Search(Careful(model), in_logits(task, outputs)[0], threat, descent)
        if len(rows):
            best[rows], distance[rows] = search.run(rows_of(Batch((x,), labels), rows))
    threat.check(best, x)
    return Moved(best, distance, distance.isfinite())


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    model: nn.Module
    task: Task
    threat: Threat
    descent: Descent

    def run(self, batch: Batch) -> tuple[Tensor, PerExample]:
        """The nearest points of another class, and how far they are: inf where none is known."""
        x = moved_input(batch)
        best, distance = x.clone(), torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
        low, high = torch.zeros_like(distance), torch.full_like(distance, MOST)
        weight = torch.full_like(distance, self.descent.constant)
        for _ in range(self.descent.searches):
            found, size, won = self.descended(batch, weight)
            near = size < distance
            best, distance = torch.where(wide(near, x), found, best), torch.where(near, size, distance)
            high = torch.where(won, torch.minimum(high, weight), high)
            low = torch.where(won, low, torch.maximum(low, weight))
            weight = torch.where(high < MOST, (low + high) / 2, weight * 10).clamp(max=MOST)
        return best, distance

    def descended(self, batch: Batch, weight: PerExample) -> tuple[Tensor, PerExample, Bool[Tensor, " n"]]:
        """The nearest point of another class met for a weight, within the radius; whether any was met."""
        x, labels, goal = moved_input(batch), labels_of(batch), missed(self.task)
        low, high = (side.expand(x.shape).to(x) for side in self.threat.box(x))
        middle, half = (low + high) / 2, (high - low) / 2
        begin = torch.where(half > 0, (x - middle) / half.clamp(min=torch.finfo(x.dtype).tiny), 0.0)
        w = (begin.clamp(-1, 1) * EDGE).atanh().requires_grad_()
        optimizer = torch.optim.Adam([w], lr=self.descent.lr)
        unit = 1.0 if self.threat.unit is None else self.threat.unit.to(x)
        scale = unit * self.threat.domain.width
        best, distance = x.clone(), torch.full_like(weight, torch.inf)
        won = torch.zeros_like(weight, dtype=torch.bool)
        for _ in range(self.descent.steps):
            with torch.enable_grad():
                y = project_box(middle + half * w.tanh(), low, high)
                outputs = self.model(y)
                margin = class_margins(classes_of(self.task)(outputs), labels)
                near = ((y - x) / scale).square().flatten(1).sum(1)
                loss = near + weight * margin.clamp(min=-self.descent.confidence)
                (w.grad,) = torch.autograd.grad(loss.sum(), w)
            with torch.no_grad():
                fallen = goal(outputs, labels) & (margin <= -self.descent.confidence)
                size = self.threat.size(y, x)
                take = fallen & (size < distance) & (size <= self.threat.eps)
                best, distance = torch.where(wide(take, x), y, best), torch.where(take, size, distance)
                won = won | fallen
            optimizer.step()
        return best, distance, won
