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
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.ensemble import in_logits
from margin.robust.attacks.gradient import classes_of, labels_of, missed, moved_input
from margin.robust.attacks.masking import Careful
from margin.robust.attacks.minimal import Moved
from margin.robust.attacks.pullbacks import few_channels, pullback
from margin.robust.attacks.threat_models import Threat, project_box, wide

MOST = 1e10
"""The largest weight of the margin."""

EDGE = 0.99
"""How near to an end of the domain the search begins, -1 and 1 the ends. At an end tanh has no slope: from
the authors' .999999 hundreds of steps at their rate move nothing, and most pixels of a drawing lie there."""

HALVINGS = 12
"""Of the way from an input to the examples that were found, after the last descent."""


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
    Steps are never broken off; c counts as enough where the second half of the steps wins, as Adam's first
    ones overshoot whatever c is; the search begins :data:`EDGE` of the way to the ends of the domain; and at
    the end the way from each input to the points that were found is halved, which takes no gradients.
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
    with eval_mode(model), kept_memory():
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
        """The nearest points of another class, and how far they are; inf where the radius has none."""
        x, labels = moved_input(batch), labels_of(batch)
        near, crossed = _Kept(x), _Kept(x)
        low = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        high, weight = torch.full_like(low, MOST), torch.full_like(low, self.descent.constant)
        for _ in range(self.descent.searches):
            won = self.descended(batch, weight, near, crossed)
            high = torch.where(won, torch.minimum(high, weight), high)
            low = torch.where(won, low, torch.maximum(low, weight))
            weight = torch.where(high < MOST, (low + high) / 2, weight * 10).clamp(max=MOST)
        best = _Kept(x)
        for kept in (near, crossed):
            point = self.pulled_back(x, kept.point, labels)
            size = self.threat.size(point, x)
            best.keep(point, size, kept.rank.isfinite() & (size <= self.threat.eps))
        return best.point, best.rank

    def descended(
        self, batch: Batch, weight: PerExample, near: "_Kept", crossed: "_Kept"
    ) -> Bool[Tensor, " n"]:
        """Descend for a weight and keep the points that win: the nearest, and that of the nearest crossing.

        Its crossing is where the line from the input would win if the margin were linear on it.
        """
        x, labels = moved_input(batch), labels_of(batch)
        low, high = (side.expand(x.shape).to(x) for side in self.threat.box(x))
        middle, half = (low + high) / 2, (high - low) / 2
        begin = torch.where(half > 0, (x - middle) / half.clamp(min=torch.finfo(x.dtype).tiny), 0.0)
        w = (begin.clamp(-1, 1) * EDGE).atanh().requires_grad_()
        optimizer = torch.optim.Adam([w], lr=self.descent.lr)
        unit = 1.0 if self.threat.unit is None else self.threat.unit.to(x)
        scale, kappa = unit * self.threat.domain.width, self.descent.confidence
        won = torch.zeros_like(weight, dtype=torch.bool)
        with torch.no_grad():
            most = self.margins(self.model(x), labels) + kappa
        for step in range(self.descent.steps):
            with torch.enable_grad(), few_channels(self.model):
                y = project_box(middle + half * w.tanh(), low, high)
                outputs = self.model(y)
                margin = self.margins(outputs, labels)
                length = ((y - x) / scale).square().flatten(1).sum(1)
                loss = length + weight * margin.clamp(min=-kappa)
                w.grad = pullback(loss.sum(), w)
            with torch.no_grad():
                fallen, size = self.won(outputs, labels, margin), self.threat.size(y, x)
                near.keep(y, size, fallen)
                crossed.keep(y, size * most / (most - margin - kappa), fallen)
                if 2 * step + 2 > self.descent.steps:  # the first steps overshoot, whatever c is
                    won = won | fallen
            optimizer.step()
        return won

    @torch.no_grad()
    def pulled_back(self, x: Tensor, far: Tensor, labels: Tensor) -> Tensor:
        """The ends of the ways from the inputs, halved where a nearer point wins too."""
        low, high = (side.to(x) for side in self.threat.box(x))
        near = x
        for _ in range(HALVINGS):
            middle = project_box((near + far) / 2, low, high)
            outputs = self.model(middle)
            won = wide(self.won(outputs, labels, self.margins(outputs, labels)), x)
            near, far = torch.where(won, near, middle), torch.where(won, middle, far)
        return far

    def margins(self, outputs: Tensor, labels: Tensor) -> PerExample:
        """f_y - max_{j != y} f_j of each example."""
        return class_margins(classes_of(self.task)(outputs), labels)

    def won(self, outputs: Tensor, labels: Tensor, margin: PerExample) -> Bool[Tensor, " n"]:
        """Whether another class is predicted, by the margin that is asked."""
        return missed(self.task)(outputs, labels) & (margin <= -self.descent.confidence)


class _Kept:
    """Of the points that were met the one of least rank, for each example; at first the input itself.

    Args:
        x: The inputs.
    """

    def __init__(self, x: Tensor) -> None:
        self.point = x.clone()
        self.rank = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)

    def keep(self, point: Tensor, rank: PerExample, won: Bool[Tensor, " n"]) -> None:
        """Take the points that win and rank lower than those before."""
        take = won & (rank < self.rank)
        self.point = torch.where(wide(take, point), point, self.point)
        self.rank = torch.where(take, rank.to(self.rank), self.rank)
