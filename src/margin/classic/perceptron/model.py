"""Rosenblatt's perceptron (1958): a halfspace, learned from its mistakes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import NonFiniteError, State, Step

SMALLEST_BLOCK = 16
OVERHEAD = 300
"""What a product costs besides its rows, in rows of a hundred features."""


class Perceptron(nn.Module):
    """The halfspace {x : w . x + b > 0}, as the signed score w . x + b of each row.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Must be 2: class 1 is the positive side.

    Raises:
        ValueError: There are not two classes.

    Reference:
        Rosenblatt 1958; Novikoff 1962, Section 1.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        if num_classes != 2:
            raise ValueError(f"a perceptron separates two classes: got num_classes={num_classes}")
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The signed score of each row; its sign is the side."""
        return x.flatten(1) @ self.weight + self.bias


def geometric_margin(
    weight: Float[Tensor, " features"],
    bias: Float[Tensor, ""],
    x: Float[Tensor, "rows features"],
    sign: Float[Tensor, " rows"],
) -> Float[Tensor, " rows"]:
    """The signed distance y (w . x + b) / |w| of each row to the hyperplane; the set's is the least.

    Args:
        weight: Normal of the hyperplane, not 0.
        bias: Its offset.
        x: Rows of features.
        sign: The side y of each row, -1 or +1.
    """
    return sign * (x @ weight + bias) / weight.norm()


def visit(
    rows: int, wrong: Callable[[int, int], NDArray[np.bool_]], move: Callable[[int], None]
) -> list[int]:
    """Visit the rows in order, moving the weights at each that is wrong when it is reached; at which it was.

    The weights change at mistakes only, so the rows up to the next mistake are scored by one product. With c
    rows' worth of overhead a product and g rows between mistakes, blocks of sqrt(c g) rows waste least.

    Args:
        rows: Number of rows.
        wrong: ``(start, stop) -> whether each of these rows is a mistake`` under the weights of now.
        move: Changes the weights at a row.
    """
    made: list[int] = []
    start, last, gap = 0, 0, 1.0
    while start < rows:
        stop = start + max(SMALLEST_BLOCK, int(math.sqrt(OVERHEAD * (gap + start - last))))
        mistake = wrong(start, min(stop, rows))
        first = int(mistake.argmax())
        if not mistake[first]:
            start = stop
            continue
        row = start + first
        move(row)
        made.append(row)
        gap, last, start = (gap + row - last) / 2, row, row + 1
    return made


def mistakes_of_pass(
    weight: Float[Tensor, " features"],
    bias: Float[Tensor, ""] | None,
    x: Float[Tensor, "rows features"],
    sign: Float[Tensor, " rows"],
) -> Int[Tensor, " mistakes"]:
    """One pass of Rosenblatt's rule in the order of the rows, moving ``weight`` and ``bias`` in place.

    At each row with y (w . x + b) <= 0, a point on the boundary included: w <- w + y x, b <- b + y.
    The rule is sequential: it runs on the CPU, in NumPy, whose calls cost a third of torch's.

    Args:
        weight: Changed in place.
        bias: Changed in place; None: the hyperplane goes through the origin.
        x: Rows of features, finite.
        sign: The side y of each row, -1 or +1; of another size, a mistake there moves by so much more.

    Returns:
        The rows at which a mistake was made, in order.

    Reference:
        Rosenblatt 1958; Novikoff 1962, Section 1.
    """
    offset = weight.new_zeros(()) if bias is None else bias
    w, b, X, y = (tensor.detach().cpu().numpy() for tensor in (weight, offset, x, sign))

    def wrong(start: int, stop: int) -> NDArray[np.bool_]:
        score = X[start:stop] @ w
        score += b
        score *= y[start:stop]
        mistake: NDArray[np.bool_] = score <= 0
        return mistake

    def move(row: int) -> None:
        nonlocal b
        w[:] += y[row] * X[row]
        if bias is not None:
            b += y[row]

    made = visit(len(X), wrong, move)
    if weight.device.type != "cpu":
        weight.copy_(torch.from_numpy(w))
        offset.copy_(torch.from_numpy(b))
    return torch.tensor(made, dtype=torch.long)


class Rows(NamedTuple):
    """The rows of a batch that count: features as the catalog's model sees them, labels, weights, places."""

    x: Float[Tensor, "rows features"]
    labels: Int[Tensor, " rows"]
    weight: Float[Tensor, " rows"]
    places: Int[Tensor, " rows"]

    @property
    def sign(self) -> Float[Tensor, " rows"]:
        """The side y = 2 label - 1 of each of two classes, times the weight.

        Raises:
            ValueError: A label is neither 0 nor 1.
        """
        if bool((odd := (self.labels != 0) & (self.labels != 1)).any()):
            k = int(odd.nonzero()[0])
            got = f"{self.labels[k].item():g} in row {int(self.places[k])}"
            raise ValueError(f"the labels of a halfspace must be 0 or 1: got {got}")
        return (2 * self.labels - 1).to(self.x.dtype) * self.weight


def rows_of(state: State, batch: Batch) -> Rows:
    """The rows of a batch whose weight is not 0.

    Raises:
        ValueError: There are no targets, or a weight is negative or not finite.
        NonFiniteError: A feature is not finite.
    """
    if batch.targets is None:
        raise ValueError("the perceptron rule needs targets: the data have none")
    x = state.features(batch).flatten(1)
    weight = x.new_ones(len(x)) if batch.weight is None else batch.weight.to(x)
    if not bool((sound := weight.isfinite() & (weight >= 0)).all()):
        row = int((~sound).nonzero()[0])
        got = f"{float(weight[row]):g} in row {row}"
        raise ValueError(f"weights of examples must be finite and at least 0: got {got}")
    places = weight.nonzero()[:, 0]
    if batch.weight is not None:
        x, weight = x[places], weight[places]
    if not bool(x.isfinite().all()):
        row, column = (~x.isfinite()).nonzero()[0].tolist()
        where = f"feature {column} of row {int(places[row])} at step {state.step}"
        raise NonFiniteError(f"features must be finite: got {float(x[row, column])} in {where}")
    return Rows(x, batch.targets[places], weight, places)


def mistake_rule() -> Step:
    """One pass of Rosenblatt's rule over the batch, in its order; an example's weight scales its step."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        rows = rows_of(state, batch)
        model: Any = state.core
        return {"mistakes": float(len(mistakes_of_pass(model.weight, model.bias, rows.x, rows.sign)))}

    return step
