r"""Linear models: the nearest point across a hyperplane, in closed form, also where a box cuts the way.

A point x with score :math:`f(x) = w \cdot x + b` is :math:`|f(x)| / \|w\|_q` from the boundary in the norm p,
1/p + 1/q = 1, so an adversary of radius eps turns its sign if and only if
:math:`\epsilon \|w\|_q \ge |f(x)|`.
Of several classes the nearest of the hyperplanes f_y = f_j counts.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError
from margin.robust.attacks.gradient import classes_of, labels_of, moved_input
from margin.robust.attacks.pullbacks import few_channels, pullback
from margin.robust.attacks.threat_models import ORDER, Norm


def dual_length(weight: Float[Tensor, "*rows features"], norm: Norm) -> Float[Tensor, "*rows"]:
    """The norm ||w||_q of each row with 1/p + 1/q = 1: how fast a linear function rises in the norm p."""
    order = {"linf": 1.0, "l2": 2.0, "l1": math.inf}[norm]
    return torch.linalg.vector_norm(weight, order, dim=-1)


def linear_distance(
    x: Float[Tensor, "batch features"], weight: Float[Tensor, " features"], bias: Tensor, norm: Norm
) -> Float[Tensor, " batch"]:
    """The distance |w.x + b| / ||w||_q of each point from the hyperplane w.x + b = 0; inf where w is 0."""
    return (x @ weight + bias).abs() / dual_length(weight, norm)


def across(
    slope: Float[Tensor, "batch features"],
    shift: Float[Tensor, " batch"],
    low: Tensor,
    high: Tensor,
    norm: Norm,
) -> Float[Tensor, "batch features"]:
    r"""The least displacement d with slope . d = shift and low <= d <= high, low <= 0 <= high.

    On the side of sign(shift w), with r the room of a coordinate: :math:`|d_i| = \min(t, r_i)` for linf,
    :math:`\min(t |w_i|, r_i)` for l2, with the t that reaches the shift, found by sorting the breakpoints;
    for l1 the coordinates of largest :math:`|w_i|` go to their ends first. Where the box does not reach so
    far it is the corner that reaches farthest.

    Args:
        slope: w of each example.
        shift: By how much each linear function must change.
        low: Least displacement, broadcasting against ``slope``; may be -inf.
        high: Largest displacement; may be inf.
        norm: linf, l2 or l1.

    Returns:
        The displacements, in float64.

    Reference: Croce & Hein (2020), "Minimally distorted adversarial examples with a fast adaptive boundary
    attack", Equation 3 and Appendix A (written for the l-infinity, l2 and l1 norms there).
    """
    w = slope.double() * torch.where(shift < 0, -1.0, 1.0).double()[:, None]
    size, goal = w.abs(), shift.double().abs()[:, None]
    room = torch.where(w > 0, high, -low).double().expand_as(w).clamp(min=0)
    # No coordinate goes farther than to the plane by itself: an infinite room is as good as that.
    room = torch.where(size > 0, torch.minimum(room, goal / size), 0)
    if norm == "l1":
        order = size.argsort(1, descending=True)
        gain = (size * room).gather(1, order)
        part = ((goal - gain.cumsum(1) + gain) / gain).clamp(0, 1).nan_to_num(0.0)
        return w.sign() * torch.zeros_like(w).scatter(1, order, part) * room
    rate = torch.ones_like(size) if norm == "linf" else size
    knots, order = torch.where(size > 0, room / rate, 0).nan_to_num(0.0).sort(1)
    gain, pace = (size * room).gather(1, order), (size * rate).gather(1, order)
    filled = gain.cumsum(1) - gain
    open_ = pace.flip(1).cumsum(1).flip(1)
    first = (filled + knots * open_ < goal).sum(1, keepdim=True)
    at = first.clamp(max=w.shape[1] - 1)
    reach = (goal - filled.gather(1, at)) / open_.gather(1, at)
    reach = torch.where((first == w.shape[1]) | (open_.gather(1, at) == 0), torch.inf, reach)
    return w.sign() * torch.minimum(torch.where(size > 0, reach * rate, 0), room)


class Nearest(NamedTuple):
    """For each example the displacement across the nearest plane, its norm, and the class behind it."""

    delta: Float[Tensor, "batch features"]
    distance: Float[Tensor, " batch"]
    rival: Int[Tensor, " batch"]


def nearest_boundary(
    gaps: Float[Tensor, "batch rivals"],
    slopes: Float[Tensor, "batch rivals features"],
    rivals: Int[Tensor, "batch rivals"],
    norm: Norm,
    box: tuple[Tensor, Tensor] | None = None,
) -> Nearest:
    r"""The least displacement after which some gap, affine in it, is 0: the nearest of the hyperplanes.

    Without a box it has the norm :math:`\min_j (f_y - f_j) / \|w_y - w_j\|_q`, and for l2 it is
    :math:`(f_y - f_j) / \|w_j - w_y\|^2 (w_j - w_y)` (the difference in brackets).

    Args:
        gaps: f_j - f_y at the examples, <= 0 where they are right.
        slopes: Their gradients w_j - w_y.
        rivals: The classes j.
        norm: linf, l2 or l1.
        box: Least and largest displacement; None is no box.

    Returns:
        The displacement to the plane itself, where the two classes are equal. Where a box holds no point of
        any plane the distance is inf.
    """
    end = gaps.new_tensor(torch.inf)
    count, rows = gaps.shape[1], (len(gaps), slopes.shape[2])
    low, high = (side.expand(rows) for side in ((-end, end) if box is None else box))
    needed = -gaps.double()
    # Without a box no plane is farther: most rivals need not be looked at within it.
    least, order = (needed.abs() / dual_length(slopes.double(), norm)).nan_to_num(torch.inf).sort(1)
    delta = torch.zeros(rows, dtype=torch.float64, device=gaps.device)
    size, rival = torch.full_like(least[:, 0], torch.inf), torch.zeros_like(order[:, 0])
    for k in range(count):
        at = ((least[:, k] < size) | (k == 0)).nonzero().flatten()
        if len(at) == 0:
            break
        which = order[at, k]
        slope, goal = slopes[at, which].double(), needed[at, which]
        moved = across(slope, goal, low[at], high[at], norm)
        far = torch.linalg.vector_norm(moved, ORDER[norm], dim=1)
        far = torch.where((slope * moved).sum(1) < goal - 1e-9 * goal.abs(), torch.inf, far)
        nearer = (far < size[at]) | (k == 0)
        delta[at[nearer]], size[at[nearer]] = moved[nearer], far[nearer]
        rival[at[nearer]] = which[nearer]
    row = torch.arange(len(gaps), device=gaps.device)
    return Nearest(delta, size, rivals[row, rival])


class RivalSlopes(NamedTuple):
    """Of each example: the gaps f_j - f_y to other classes, and their gradients by the input as a row."""

    gaps: Float[Tensor, "batch rivals"]
    slopes: Float[Tensor, "batch rivals features"]


def other_classes(scores: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], most: int) -> Tensor:
    """The classes besides the label's, the largest score first, at most so many."""
    rest = scores.scatter(1, labels[:, None].long(), -torch.inf)
    return rest.argsort(1, descending=True)[:, : min(most, scores.shape[1] - 1)]


def rival_slopes(
    model: nn.Module, batch: Batch, task: Task, rivals: Int[Tensor, "batch rivals"]
) -> RivalSlopes:
    """The gaps to ``rivals`` at the batch's inputs and their gradients: one pass forward, one back a rival.

    Raises:
        ValueError: The task has no classes, or there is not one real input with a label.
        NonFiniteError: A score is NaN or a gradient is not finite.
    """
    y = moved_input(batch).detach().requires_grad_()
    labels = labels_of(batch)[:, None].long()
    with torch.enable_grad(), few_channels(model):
        scores = classes_of(task)(model(y))
        gaps = scores.gather(1, rivals) - scores.gather(1, labels)
        each = (pullback(gaps[:, j].sum(), y, retain_graph=True) for j in range(rivals.shape[1]))
        slopes = [slope.detach().flatten(1) for slope in each]
    found = RivalSlopes(gaps.detach(), torch.stack(slopes, 1))
    if not (found.gaps.isfinite().all() and found.slopes.isfinite().all()):
        raise NonFiniteError("a score or its gradient by the input is not finite")
    return found
