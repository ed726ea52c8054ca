"""Logistic regression (Cox 1958) and its extension to several classes."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores


class LogisticRegression(nn.Module):
    r"""Class probabilities that are log-linear in the features.

    Two classes share one hyperplane, p(1 | x) = 1 / (1 + exp(-(w . x + b))), written as the logits
    (0, w . x + b); more classes have one row of weights each, p(k | x) = softmax(W x + b)_k. The
    training loss is convex; on separable data it has no minimum and the weights grow without bound.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes, at least 2.

    Raises:
        ValueError: There are fewer than two classes.

    Reference:
        Cox 1958, Section 2; Hastie, Tibshirani and Friedman 2009, Eq. 4.17-4.18.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2: got {num_classes}")
        self.linear = nn.Linear(in_features, 1 if num_classes == 2 else num_classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        z = self.linear(x.flatten(1))
        return torch.cat((torch.zeros_like(z), z), -1) if self.linear.out_features == 1 else z
