"""A stranger: a model that is not ours, what is said of it, and what its audit must say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PREDICTION = (
    "risk.accuracy", "confusion.*", "ranking.*", "calibration.*", "residuals.*", "margins.distribution",
)  # fmt: skip
"""Claims about the outputs alone: what each stranger is asked."""

SLOPES = ("gradient_noise.scale", "curvature.along_gradient", "linf.fgsm")
"""A gradient of each example, a second derivative, a gradient by the input: what breaks on odd models."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stranger:
    """A model under audit.

    Args:
        model: The module.
        data: Held-out examples, as they are handed over.
        options: What else ``margin.audit`` is told.
        read: What the model returns -> its outputs, a row per label, by hand.
        predict: The model's outputs -> the labels, or the values, that it stands for; by hand.
        probabilities: The outputs -> a probability for each class, by hand; None where it states none.
        labels: The true labels or values, where the data hold them otherwise.
        claims: What is asked; () for every default claim.
        says: Parts of sentences that must be among what was assumed.
        status: The exit status.
        cannot: Parts of the reasons for which claims could not be asked.
        rtol: How far numbers may differ, coarser where the outputs are of a coarse type.
    """

    model: nn.Module
    data: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Any], Tensor] = lambda returned: returned
    predict: Callable[[Tensor], Tensor] = lambda outputs: outputs.argmax(1)
    probabilities: Callable[[Tensor], Tensor] | None = lambda outputs: outputs.double().softmax(1)
    labels: Tensor | None = None
    claims: tuple[str, ...] = PREDICTION + SLOPES
    says: tuple[str, ...] = ()
    status: int = 0
    cannot: tuple[str, ...] = ()
    rtol: float = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class Refused:
    """A model that is not audited as it is, and the way on that the one line of refusal names."""

    model: nn.Module
    data: Any
    way: str
    options: Mapping[str, Any] = field(default_factory=dict)


@cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scans of digits in [0, 1]: 400 to train on, 150 held out, and their labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = torch.from_numpy(x / 16).float(), torch.from_numpy(y)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    x, y = x[order], y[order]
    return x[:400], y[:400], x[400:550], y[400:550]


def table(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two thirds and one third of a table of scikit-learn's, standardized by the first."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))
    x, y = torch.from_numpy(x[order]).float(), torch.from_numpy(y[order])
    cut = 2 * len(x) // 3
    return x[:cut], y[:cut], x[cut:], y[cut:]


def trained(
    model: nn.Module, x: Any, y: Tensor, *, steps: int = 60, lr: float = 0.02, loss: Any = None
) -> nn.Module:
    """The model after some steps of Adam on all examples at once, in evaluation mode."""
    loss = loss or nn.functional.cross_entropy
    optimizer = torch.optim.Adam(model.parameters(), lr)
    inputs = x if isinstance(x, tuple) else (x,)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(*inputs), y).backward()
        optimizer.step()
    return model.eval()


def mlp(*sizes: int, seed: int = 0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A perceptron with layers of these sizes."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


class Around(nn.Module):
    """A module around another."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
