r"""Minimal-norm attacks: how little an input must change before its class does.

DeepFool (Moosavi-Dezfooli, Fawzi & Frossard, 2016) goes to the nearest of the linearized boundaries again and
again, until the class changes. The fast adaptive boundary attack (Croce & Hein, 2020) then pulls the point
back: it steps onto the boundary that is linearized there, a little towards the input, and beyond it, and
keeps the nearest adversarial point met.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.gradient import classes_of, labels_of, missed, moved_input
from margin.robust.attacks.linear_models import across, nearest_boundary, other_classes, rival_slopes
from margin.robust.attacks.threat_models import Threat, project_box, wide

RIVALS = 9
"""Classes of largest score that are compared with the example's own; each costs one gradient."""

OVERSHOOT = 0.02
"""Share by which DeepFool's displacement is lengthened, to be across the boundary and not upon it."""

HALVINGS = 6
"""Points asked about on the way from an input to the nearest adversarial point, at the end of FAB."""

TOWARDS, BEYOND, BACK = 0.1, 1.05, 0.9
"""FAB's weight of the input's own projection, its extrapolation, and what is kept of an adversarial point."""


class Moved(NamedTuple):
    """What a minimal-norm attack found: inputs, the norm of each displacement (inf: none), and where."""

    inputs: Tensor
    distance: Float[Tensor, " batch"]
    broken: Bool[Tensor, " batch"]

    def accuracy(self, eps: Float[Tensor, " radii"]) -> Float[Tensor, " radii"]:
        """The share of examples that no displacement of norm <= eps was found for."""
        return (self.distance > eps[:, None].to(self.distance)).double().mean(1)


# Seven parameters, as every attack has: the model, what is attacked, how far it may go, how long.
def deepfool(
    model: nn.Module,
    batch: Batch,
    task: Task,
    threat: Threat,
    *,
    steps: int = 50,
    rivals: int = RIVALS,
    overshoot: float = OVERSHOOT,
) -> Moved:
    r"""Steps to the nearest linearized boundary until the class changes.

    .. math:: r_i = \frac{|f_j - f_y|}{\|\nabla f_j - \nabla f_y\|_2^2} (\nabla f_j - \nabla f_y), \quad
        x_{i+1} = x + (1 + \eta) \sum_{k \le i} r_k

    and the nearest point of the plane in the norm of the threat where that is another, within the domain. Of
    a linear model one step is the least displacement. An example that is wrong already is left as it is, at
    the distance 0.

    Args:
        model: Asked in evaluation mode.
        batch: One real input with its labels.
        task: How its outputs are read.
        threat: The norm, the domain and the radius: what lies beyond it is not found.
        steps: Steps at most, >= 1.
        rivals: Classes of largest score that are looked at, >= 1.
        overshoot: The share eta by which the sum is lengthened, >= 0.

    Returns:
        The moved inputs with their distances; an example whose class did not change comes back as it was.

    Raises:
        ValueError: An option is out of range, or an input lies outside the domain.
        NonFiniteError: A score or its gradient is not finite.

    Reference: Moosavi-Dezfooli, Fawzi & Frossard (2016), Algorithm 2 and Section 3.3 (other norms).
    """
    walk = _Walk(model, batch, task, threat, steps, rivals)
    with eval_mode(model), kept_memory():
        for _ in range(steps):
            if not (live := walk.live()).numel():
                break
            x, y = walk.x[live], walk.at[live]
            y = walk.inside(y + walk.nearest(live, y), x)
            walk.move(live, y, walk.inside(x + (1 + overshoot) * (y - x), x))
    return walk.found()


def boundary_attack(
    model: nn.Module,
    batch: Batch,
    task: Task,
    threat: Threat,
    *,
    steps: int = 50,
    rivals: int = RIVALS,
) -> Moved:
    r"""The nearest adversarial point met by steps onto linearized boundaries, pulled back to the input.

    With the plane linearized at x_i and p(z) the nearest point of it to z in the domain,

    .. math:: x_{i+1} = (1 - a)\,(x_i + 1.05\,(p(x_i) - x_i)) + a\,(x + 1.05\,(p(x) - x)), \quad
        a = \min\Bigl(\frac{\|p(x_i) - x_i\|}{\|p(x_i) - x_i\| + \|p(x) - x\|}, 0.1\Bigr)

    and an adversarial x_{i+1} that is nearer than those before is kept, and drawn back by a tenth. The
    first point is the input itself; at the end the way from there to the nearest point is halved a few times.

    Args:
        model: Asked in evaluation mode.
        batch: One real input with its labels.
        task: How its outputs are read.
        threat: The norm, the domain and the radius: what lies beyond it is not found.
        steps: Steps, >= 1.
        rivals: Classes of largest score that are looked at, >= 1.

    Returns:
        The nearest adversarial inputs with their distances; else the input as it was, at the distance inf.

    Raises:
        ValueError: An option is out of range, or an input lies outside the domain.
        NonFiniteError: A score or its gradient is not finite.

    Reference: Croce & Hein (2020), "Minimally distorted adversarial examples with a fast adaptive boundary
    attack", Algorithm 1.
    """
    walk = _Walk(model, batch, task, threat, steps, rivals)
    with eval_mode(model), kept_memory():
        rows = walk.live()
        for _ in range(steps if len(rows) else 0):
            x, y = walk.x[rows], walk.at[rows]
            here = walk.nearest(rows, y)
            there = walk.projected(x)
            near, far = threat.size(y + here, y), threat.size(x + there, x)
            share = wide((near / (near + far)).nan_to_num(0.0).clamp(max=TOWARDS), y).to(y)
            mixed = walk.inside(torch.lerp(y + BEYOND * here, x + BEYOND * there, share), x)
            won = walk.move(rows, mixed, mixed)
            drawn = walk.inside(x + BACK * (mixed - x), x)
            walk.at[rows] = torch.where(wide(won, y), drawn, mixed)
        walk.halve(HALVINGS)
    return walk.found()


class _Walk:
    """The points of all examples on their way, and the nearest adversarial one of each.

    Args:
        model: In evaluation mode.
        batch: One real input with its labels.
        task: How outputs are read.
        threat: Norm, domain, radius.
        steps: For the check of its range.
        rivals: Classes that are looked at.
    """

    # Seven parameters with the walk itself: those of the attacks.
    def __init__(
        self, model: nn.Module, batch: Batch, task: Task, threat: Threat, steps: int, rivals: int
    ) -> None:
        if steps < 1 or rivals < 1:
            raise ValueError(f"steps and rivals must be at least 1: got steps={steps}, rivals={rivals}")
        self.model, self.batch, self.task, self.threat, self.rivals = model, batch, task, threat, rivals
        self.x = moved_input(batch)
        threat.check_inputs(self.x)
        self.labels, self.lost = labels_of(batch), missed(task)
        one = torch.ones((), dtype=torch.float64) if threat.unit is None else threat.unit.double()
        self.unit = one.to(self.x.device).expand(self.x.shape[1:])
        with eval_mode(model), torch.no_grad():
            wrong = self.lost(model(self.x), self.labels)
        self.at, self.best = self.x.clone(), self.x.clone()
        self.distance = torch.where(wrong, 0.0, torch.inf).double()
        self.plane = torch.zeros(0), torch.zeros(0)  # of the last boundary: its slopes, and their value on it

    def live(self) -> Tensor:
        """The examples for which nothing is found yet."""
        return self.distance.isinf().nonzero().flatten()

    def nearest(self, rows: Tensor, y: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """The least displacement of y onto the nearest linearized boundary, which is remembered."""
        here = Batch((y,), self.labels[rows])
        with torch.no_grad():
            others = other_classes(classes_of(self.task)(self.model(y)), self.labels[rows], self.rivals)
        gaps, slopes = rival_slopes(self.model, here, self.task, others)
        slopes = slopes.double() * self.unit.flatten()
        near = nearest_boundary(gaps, slopes, others, self.threat.norm, self._room(y))
        row = torch.arange(len(rows), device=y.device)
        chosen = (others == near.rival[:, None]).int().argmax(1)
        slope = slopes[row, chosen]
        self.plane = slope, (slope * (y / self.unit).flatten(1)).sum(1) - gaps[row, chosen]
        return (near.delta.reshape(y.shape) * self.unit).to(y)

    def projected(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """The least displacement of x onto the plane that was remembered."""
        slope, level = self.plane
        shift = level - (slope * (x / self.unit).flatten(1)).sum(1)
        delta = across(slope, shift, *self._room(x), self.threat.norm)
        return (delta.reshape(x.shape) * self.unit).to(x)

    def halve(self, times: int) -> None:
        """Halve the way from the inputs to the points that were found, where a nearer one is wrong too."""
        rows = (self.distance.isfinite() & (self.distance > 0)).nonzero().flatten()
        x, far = self.x[rows], self.best[rows]
        near = x.clone()
        for _ in range(times if len(rows) else 0):
            middle = self.inside((near + far) / 2, x)
            wrong = wide(self.move(rows, middle, middle), x)
            near, far = torch.where(wrong, near, middle), torch.where(wrong, middle, far)

    def inside(self, y: Tensor, x: Tensor) -> Tensor:
        """The nearest point of the domain, valid in every feature."""
        return self.threat.valid(project_box(y, *(side.to(y) for side in self.threat.box(x))), x)

    def move(self, rows: Tensor, y: Tensor, asked: Tensor) -> Bool[Tensor, " batch"]:
        """Go to y, and remember the points asked about that are wrong and nearer than those before."""
        with torch.no_grad():
            wrong = self.lost(self.model(asked), self.labels[rows])
        size = self.threat.size(asked, self.x[rows])
        better = wrong & (size < self.distance[rows]) & (size <= self.threat.eps)
        self.distance[rows] = torch.where(better, size, self.distance[rows])
        self.best[rows] = torch.where(wide(better, y), asked, self.best[rows])
        self.at[rows] = y
        return wrong

    def found(self) -> Moved:
        """What was found, checked against the threat."""
        self.threat.check(self.best, self.x)
        return Moved(self.best, self.distance, self.distance.isfinite())

    def _room(self, y: Tensor) -> tuple[Tensor, Tensor]:
        low, high = (((side - y.double()) / self.unit).flatten(1) for side in self.threat.box(y))
        return low.clamp(max=0), high.clamp(min=0)
