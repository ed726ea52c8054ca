"""Critics: one number for each example, by which an adversary tells real ones from generated ones."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.core.types import PerExample
from margin.generative.gan.minibatch_discrimination import MinibatchDiscrimination


class Critic(nn.Module):
    r"""Features of an example, and an affine map of them to one number; with classes, one for each class.

    .. math:: D(x, y) = w^\top f(x) + b + v_y^\top f(x)

    Without labels, where there are classes, it is the largest over the classes: the class that suits x best.

    Args:
        network: f, to ``features`` numbers; the last activation is applied here.
        features: Numbers of f.
        num_classes: Classes; 0 for none.
        minibatch: Kernels of minibatch discrimination that are appended to the features; 0 for none.

    Raises:
        ValueError: A number is negative.

    Reference:
        Goodfellow et al. 2014, Section 3; Miyato and Koyama 2018, Equation 3 (classes: the projection).
    """

    def __init__(
        self, network: nn.Module, features: int, *, num_classes: int = 0, minibatch: int = 0
    ) -> None:
        super().__init__()
        if minibatch < 0:
            raise ValueError(f"minibatch must be at least 0: got {minibatch}")
        self.network = network
        self.batchwise = MinibatchDiscrimination(features, minibatch) if minibatch else None
        self.head = nn.Linear(features + minibatch, 1)
        self.classes = nn.Linear(features, num_classes, bias=False) if num_classes else None

    def features(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch numbers"]:
        """f(x), which feature matching compares."""
        return nn.functional.leaky_relu(self.network(x), 0.2)

    def judge(
        self, f: Float[Tensor, "batch numbers"], labels: Int[Tensor, " batch"] | None = None
    ) -> PerExample:
        """The number of each row of features, of the class of each label where there are classes."""
        score: Tensor = self.head(f if self.batchwise is None else self.batchwise(f))[:, 0]
        if self.classes is None:
            return score
        own = self.classes(f)
        return score + (own.amax(1) if labels is None else own.gather(1, labels.long()[:, None])[:, 0])

    def forward(
        self, x: Float[Tensor, " batch *features"], labels: Int[Tensor, " batch"] | None = None
    ) -> PerExample:
        """The number of each example."""
        return self.judge(self.features(x), labels)


def classes_in_turn(count: int, num_classes: int, label: int | None, device: torch.device) -> Tensor:
    """The labels of ``count`` samples: all ``label``, or 0, 1, 2, ... in turn.

    Raises:
        ValueError: There is no such class.
    """
    if label is None:
        return torch.arange(count, device=device) % num_classes
    if not 0 <= label < num_classes:
        raise ValueError(f"label must be from 0 to {num_classes - 1}: got {label}")
    return torch.full((count,), label, device=device)
