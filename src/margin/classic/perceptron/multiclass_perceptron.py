"""The multiclass perceptron (Nilsson 1965, Kesler's construction): one row of weights a class."""

from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from margin.classic.perceptron.model import rows_of, visit
from margin.core.types import Batch, ClassScores, Metrics
from margin.engine.loop import State, Step

Update = Literal["highest", "uniform"]


class MulticlassPerceptron(nn.Module):
    """The scores W x + b, one a class.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes, at least 2.

    Raises:
        ValueError: There are fewer than two classes.

    Reference:
        Duda, Hart and Stork 2001, Section 5.12 (Kesler's construction).
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2: got {num_classes}")
        self.weight = nn.Parameter(torch.zeros(num_classes, in_features))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The score of each class."""
        return x.flatten(1) @ self.weight.T + self.bias


def multiclass_mistakes_of_pass(
    weight: Float[Tensor, "classes features"],
    bias: Float[Tensor, " classes"],
    x: Float[Tensor, "rows features"],
    labels: Int[Tensor, " rows"],
    size: Float[Tensor, " rows"],
    update: Update = "highest",
) -> Int[Tensor, " mistakes"]:
    """One pass of the multiclass rule in the order of the rows, moving ``weight`` and ``bias`` in place.

    A row is a mistake where a rival scores as much as its label y: then w_y <- w_y + x, and the rivals give
    as much in all. *highest*: the first of the highest rivals gives it; with two classes this is Rosenblatt's
    rule. *uniform*: all rivals that score as much as the label give equal parts.

    Args:
        weight: Changed in place.
        bias: Changed in place.
        x: Rows of features, finite.
        labels: The class of each row.
        size: By how much a mistake at each row moves; 1 in the rule.
        update: Which rivals give.

    Returns:
        The rows at which a mistake was made, in order.

    Reference:
        Duda, Hart and Stork 2001, Section 5.12 (highest); Crammer and Singer 2003 (uniform).
    """
    W, b, X, y, c = (tensor.detach().cpu().numpy() for tensor in (weight, bias, x, labels, size))

    def wrong(start: int, stop: int) -> NDArray[np.bool_]:
        scores = X[start:stop] @ W.T
        scores += b
        own = np.take_along_axis(scores, y[start:stop, None], 1)
        np.put_along_axis(scores, y[start:stop, None], -np.inf, 1)
        mistake: NDArray[np.bool_] = (scores >= own).any(1)
        return mistake

    def move(row: int) -> None:
        scores = X[row : row + 1] @ W.T
        scores = scores[0] + b
        own, scores[y[row]] = scores[y[row]], -np.inf
        rivals = np.flatnonzero(scores >= own) if update == "uniform" else scores.argmax(keepdims=True)
        part = c[row] / len(rivals)
        W[y[row]] += c[row] * X[row]
        W[rivals] -= part * X[row]
        b[y[row]] += c[row]
        b[rivals] -= part

    made = visit(len(X), wrong, move)
    if weight.device.type != "cpu":
        weight.copy_(torch.from_numpy(W))
        bias.copy_(torch.from_numpy(b))
    return torch.tensor(made, dtype=torch.long)


def multiclass_mistake_rule(*, update: Update = "highest") -> Step:
    """One pass of the multiclass rule over the batch, in its order; the weight of an example scales its step.

    Args:
        update: Which rivals give what the label gets: the highest, or all that score as much, equally.

    Raises:
        ValueError: There is no such update.
    """
    if update not in get_args(Update):
        raise ValueError(f"update must be one of {', '.join(get_args(Update))}: got {update!r}")

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        rows = rows_of(state, batch)
        model: Any = state.core
        made = multiclass_mistakes_of_pass(model.weight, model.bias, rows.x, rows.labels, rows.weight, update)
        return {"mistakes": float(len(made))}

    return step


def kesler_points(
    x: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"], num_classes: int
) -> Float[Tensor, "comparisons weights"]:
    """Kesler's points: for each row and rival r, (x, 1) in the block of its label and -(x, 1) in that of r.

    (W, b), flattened class by class, ranks every label first exactly if it separates these points from 0. The
    longest has length sqrt(2) max |(x, 1)|.

    Reference: Duda, Hart and Stork 2001, Section 5.12.
    """
    augmented = torch.cat((x, torch.ones_like(x[:, :1])), 1)
    rows, width = augmented.shape
    rival = torch.arange(num_classes).expand(rows, -1)
    rival = rival[rival != labels[:, None]].reshape(rows, num_classes - 1)
    points = x.new_zeros(rows, num_classes - 1, num_classes, width)
    row, place = torch.arange(rows)[:, None], torch.arange(num_classes - 1)[None]
    points[row, place, labels[:, None]] = augmented[:, None]
    points[row, place, rival] = -augmented[:, None]
    return points.reshape(rows * (num_classes - 1), num_classes * width)
