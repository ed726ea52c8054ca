"""The words every room shares: a batch, examples, an objective, the domain of an input."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

Metrics = dict[str, float | Tensor]
"""What a step reports, by name: scalars, detached from the graph."""

Spec = Mapping[str, Any]
"""What the data dictate to a model: ``in_features``, ``num_classes``, ``channels``, ..."""

ClassScores = Float[Tensor, "batch classes"]
Labels = Int[Tensor, " batch"]
PerExample = Float[Tensor, " batch"]


class Batch(NamedTuple):
    """Terms of a risk: ``model(*inputs)`` is compared with ``targets``, each term counted ``weight`` times.

    A weight of 0 says padding, a node of another part, or a filler that evens out processes.
    ``weight=None`` is a weight of 1 everywhere.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor | None = None
    weight: Tensor | None = None

    def to(self, *, dtype: torch.dtype, device: torch.device | str) -> "Batch":
        """The batch on ``device``, real tensors in ``dtype``; labels and ids keep their integer type."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

        targets = None if self.targets is None else move(self.targets)
        weight = None if self.weight is None else move(self.weight)
        return Batch(tuple(move(x) for x in self.inputs), targets, weight)

    @property
    def divisible(self) -> bool:
        """Whether every tensor has one row an example, so that a batch can be cut: joined graphs have not."""
        return len({len(x) for x in (*self.inputs, self.targets, self.weight) if x is not None}) <= 1


Objective = Callable[[nn.Module, Batch, Generator], Tensor]
"""``(model, batch, generator) -> the loss of each term``, not reduced."""


@runtime_checkable
class Examples(Protocol):
    """Random access to examples, a batch of indices at a time."""

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; what is drawn (noise, a crop) is drawn from ``generator``."""
        ...


WARMING = "warming"
"""What a step reports, above 0, while the model does not yet learn what it is judged by.

Then no weights are the best, and no patience runs out.
"""


TERMS = "terms"
"""What a step reports that knows it: the sum of the weights of the terms whose mean its loss is."""


def shortest(value: float) -> str:
    """The shortest text that reads back to the same number: an end of a domain that is rounded is another."""
    return repr(float(value)).removesuffix(".0")


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The box in which one input may lie, in the user's units.

    Args:
        low: Least value of each coordinate; broadcasts against one input (no batch axis).
        high: Largest value of each coordinate.
    """

    low: Tensor
    high: Tensor

    def __post_init__(self) -> None:
        if not bool((self.low < self.high).all()):
            raise ValueError("a domain needs low < high in every coordinate")

    def clamp(self, x: Tensor) -> Tensor:
        """The nearest point of the box to each input."""
        return x.clamp(self.low.to(x), self.high.to(x))

    def contains(self, x: Tensor) -> bool:
        """Whether every input lies in the box."""
        return bool(((x >= self.low.to(x)) & (x <= self.high.to(x))).all())

    @property
    def width(self) -> float:
        """The longest side of the box: the unit in which a claim states its epsilons."""
        return float((self.high - self.low).max())


def unseen(x: Tensor) -> bool:
    """Whether no value can be looked at: inside of torch.func.vmap, or of a graph that is compiled."""
    return torch.compiler.is_compiling() or torch._C._functorch.is_batchedtensor(x)
