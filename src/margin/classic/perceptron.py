"""Rosenblatt's perceptron (1958): a halfspace, learned from its mistakes."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.engine.state import State, Step
from margin.types import Batch, Metrics

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


def mistakes_of_pass(
    weight: Float[Tensor, " features"],
    bias: Float[Tensor, ""],
    x: Float[Tensor, "rows features"],
    sign: Float[Tensor, " rows"],
) -> Int[Tensor, " mistakes"]:
    """One pass of Rosenblatt's rule in the order of the rows, moving ``weight`` and ``bias`` in place.

    At each row with y (w . x + b) <= 0, a point on the boundary included: w <- w + y x, b <- b + y.
    The weights change at mistakes only, so the rows up to the next mistake are scored by one product.
    With c rows' worth of overhead a product and g rows between mistakes, blocks of sqrt(c g) rows
    waste least. The rule is sequential: it runs on the CPU, in NumPy, whose calls cost a third of torch's.

    Args:
        weight: Changed in place.
        bias: Changed in place.
        x: Rows of features.
        sign: The side y of each row, -1 or +1.

    Returns:
        The rows at which a mistake was made, in order.

    Reference:
        Rosenblatt 1958; Novikoff 1962, Section 1.
    """
    w, b, X, y = (tensor.detach().cpu().numpy() for tensor in (weight, bias, x, sign))
    made, start, last, gap = [], 0, 0, 1.0
    while start < len(X):
        stop = start + max(SMALLEST_BLOCK, int(math.sqrt(OVERHEAD * (gap + start - last))))
        score = X[start:stop] @ w
        score += b
        score *= y[start:stop]
        wrong = score <= 0
        first = int(wrong.argmax())
        if not wrong[first]:
            start = stop
            continue
        row = start + first
        w += y[row] * X[row]
        b += y[row]
        made.append(row)
        gap, last, start = (gap + row - last) / 2, row, row + 1
    if weight.device.type != "cpu":
        weight.copy_(torch.from_numpy(w))
        bias.copy_(torch.from_numpy(b))
    return torch.tensor(made, dtype=torch.long)


def mistake_rule() -> Step:
    """One pass of Rosenblatt's rule over the batch, in its order."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("the perceptron rule needs targets: the data have none")
        x = state.features(batch).flatten(1)
        sign = (2 * batch.targets - 1).to(x.dtype)
        model: Any = state.core
        return {"mistakes": float(len(mistakes_of_pass(model.weight, model.bias, x, sign)))}

    return step
