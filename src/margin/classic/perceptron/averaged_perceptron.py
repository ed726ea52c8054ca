"""The averaged perceptron (Collins 2002): the mean of all weights that the mistake rule passes through."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.classic.perceptron.model import mistakes_of_pass, rows_of
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step


class AveragedPerceptron(nn.Module):
    """The halfspace whose (w, b) is the mean over all examples met of the rule's weights after each of them.

    It stands in for the vote of all the rule's halfspaces: where the data are not separable the last of them
    is an accident, their mean is not.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Must be 2: class 1 is the positive side.

    Raises:
        ValueError: There are not two classes.

    Reference:
        Freund and Schapire 1999, Section 2 (voting); Collins 2002, Section 2.3 (averaging).
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        if num_classes != 2:
            raise ValueError(f"a perceptron separates two classes: got num_classes={num_classes}")
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))
        self.current_weight: Tensor
        self.current_bias: Tensor
        self.met: Tensor
        self.register_buffer("current_weight", torch.zeros(in_features))
        self.register_buffer("current_bias", torch.zeros(()))
        self.register_buffer("met", torch.zeros((), dtype=torch.long))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The signed score of each row; its sign is the side."""
        return x.flatten(1) @ self.weight + self.bias


def mean_of_pass(
    before: Float[Tensor, " *shape"],
    steps: Float[Tensor, " mistakes *shape"],
    made: Int[Tensor, " mistakes"],
    rows: int,
) -> Float[Tensor, " *shape"]:
    """The mean of the weights after each of ``rows`` examples: a step at row i counts in rows - i of them.

    Args:
        before: The weights before the pass.
        steps: What each mistake added to them.
        made: The rows of the mistakes, from 0.
        rows: Rows of the pass.
    """
    share = (rows - made).to(before) / rows
    return before + (share.reshape(-1, *[1] * before.ndim) * steps).sum(0)


def averaged_mistake_rule() -> Step:
    """One pass of Rosenblatt's rule over the batch, in its order, and the mean of all weights until now."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        rows = rows_of(state, batch)
        model: Any = state.core
        before = model.current_weight.clone(), model.current_bias.clone()
        made = mistakes_of_pass(model.current_weight, model.current_bias, rows.x, rows.sign)
        count, sign = len(rows.x), rows.sign[made]
        if count:
            model.met += count
            pace = count / int(model.met)
            weight = mean_of_pass(before[0], sign[:, None] * rows.x[made], made, count)
            model.weight.lerp_(weight, pace)
            model.bias.lerp_(mean_of_pass(before[1], sign, made, count), pace)
        return {"mistakes": float(len(made))}

    return step
