"""Associative memories: patterns are stored once, and a probe retrieves the pattern nearest to it.

What Hopfield networks (1982), dense memories (2016) and continuous ones (2021) share: a table of stored
patterns, the step that stores, and the error of a retrieval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Examples, Metrics
from margin.engine.loop import State, Step
from margin.nn.preprocessed import Preprocessed

Inputs = Literal["real", "signs"]
"""What a memory of -1 and +1 is given: numbers that it compares with a threshold, or -1 and +1 as such."""


class AssociativeMemory(Protocol):
    """What the step and the objectives below ask of a memory.

    Attributes:
        patterns: Room for so many patterns, one a row; those from ``stored`` on are 0.
        stored: How many are stored.
    """

    patterns: Tensor
    stored: Tensor

    def read(self, x: Tensor) -> Tensor:
        """Inputs in the model's units as states of the memory, one a row."""
        ...

    def store(self, x: Tensor, preprocess: Callable[[Tensor], Tensor]) -> None:
        """Add patterns given in the user's units; ``preprocess`` maps these to the model's."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class WithoutTargets:
    """The examples of a split as patterns: their targets are left out."""

    split: Examples

    def __len__(self) -> int:
        return len(self.split)

    def take(self, index: Tensor, generator: Generator) -> Batch:
        """The inputs of the examples at ``index``."""
        return self.split.take(index, generator)._replace(targets=None)


def store() -> Step:
    """Store the batch's examples, in their order, as long as there is room.

    The metrics are how many patterns are stored and for how many more there is room.
    """

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        memory: Any = state.core
        x = batch.inputs[0] if batch.weight is None else batch.inputs[0][batch.weight != 0]
        room = len(memory.patterns) - int(memory.stored)
        if room and len(x):
            memory.store(x[:room], _parts(state.model)[0])
        return {"stored": float(memory.stored), "room": float(len(memory.patterns) - int(memory.stored))}

    return step


def stored_patterns(memory: Any) -> Float[Tensor, "patterns units"]:
    """The patterns that a memory holds.

    Raises:
        ValueError: It holds none.
    """
    count = int(memory.stored)
    if count == 0:
        raise ValueError("a memory must hold a pattern before it is judged: it holds none; train it first")
    patterns: Tensor = memory.patterns[:count]
    return patterns


def nearest(
    patterns: Float[Tensor, "patterns units"], x: Float[Tensor, "probes units"]
) -> Float[Tensor, "probes units"]:
    """The pattern at the least Euclidean distance from each probe; of several, the first stored."""
    return patterns[(x @ patterns.T - patterns.square().sum(1) / 2).argmax(1)]


def wrong_units(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, " batch"]:
    """The share of units in which what is retrieved differs from the stored pattern nearest to the probe."""
    retrieved, wanted = _retrieved_and_wanted(model, batch)
    return (retrieved != wanted).to(retrieved.dtype).mean(1)


def squared_distance(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, " batch"]:
    """The mean square, over units, of retrieved state less the stored pattern nearest to the probe."""
    retrieved, wanted = _retrieved_and_wanted(model, batch)
    return (retrieved - wanted).square().mean(1)


def memory_of(model: nn.Module) -> Any:
    """The memory itself, without the preprocessing in front of it."""
    return _parts(model)[1]


def states_of(model: nn.Module, batch: Batch) -> Float[Tensor, "probes units"]:
    """The batch's inputs as states of the memory."""
    preprocess, memory = _parts(model)
    states: Tensor = memory.read(preprocess(batch.inputs[0]))
    return states


def _parts(model: nn.Module) -> tuple[nn.Module, Any]:
    return (model.preprocess, model.model) if isinstance(model, Preprocessed) else (nn.Identity(), model)


def _retrieved_and_wanted(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    patterns = stored_patterns(memory_of(model))
    return model(*batch.inputs), nearest(patterns, states_of(model, batch))


# states of -1 and +1


def signs(x: Float[Tensor, "rows units"], threshold: Float[Tensor, " units"]) -> Float[Tensor, "rows units"]:
    """+1 where an input reaches its threshold, else -1.

    Raises:
        ValueError: An input is not finite; the message names row and unit.
    """
    if not torch.compiler.is_exporting():  # a program cannot raise
        check_finite(x)
    return torch.where(x >= threshold, 1.0, -1.0).to(x.dtype)


def check_finite(x: Float[Tensor, "rows units"]) -> None:
    """Refuse what is infinite or not a number.

    Raises:
        ValueError: An entry is not finite; the message names row and unit.
    """
    if not bool(x.isfinite().all()):
        row, unit = (~x.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"inputs must be finite: got {x[row, unit].item()} (row {row}, unit {unit})")


def check_signs(x: Float[Tensor, "rows units"]) -> None:
    """Refuse patterns of anything but -1 and +1.

    Raises:
        ValueError: An entry is neither; the message names row and unit.
    """
    wrong = x.abs() != 1
    if bool(wrong.any()):
        row, unit = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"patterns must consist of -1 and +1: got {x[row, unit].item():g} (row {row}, unit {unit}); "
            "real inputs are binarized at a threshold (inputs='real')"
        )


def chosen_cut(inputs: Inputs, threshold: float | None) -> float | None:
    """The threshold in the user's units that options ask for; None: 0 in the model's units.

    Raises:
        ValueError: Inputs of signs are given a threshold, or it is not finite.
    """
    if threshold is not None and not math.isfinite(threshold):
        raise ValueError(f"threshold must be finite: got {threshold}")
    if inputs == "signs" and threshold is not None:
        raise ValueError(f"inputs of signs have no threshold: got threshold={threshold}; leave it out")
    return 0.0 if inputs == "signs" else threshold


def binarized(memory: Any, x: Tensor, preprocess: Callable[[Tensor], Tensor]) -> Tensor:
    """Patterns in the user's units as states of -1 and +1; sets the memory's threshold in its own units.

    Raises:
        ValueError: A pattern given as signs is not of -1 and +1.
    """
    if memory.inputs == "signs":
        check_signs(x.flatten(1))
    if memory.cut is not None:
        memory.threshold.copy_(preprocess(torch.full_like(x[:1], memory.cut)).flatten())
    states: Tensor = memory.read(preprocess(x))
    return states


def keep(memory: Any, states: Float[Tensor, "patterns units"]) -> None:
    """Write states into the table of stored patterns."""
    first = int(memory.stored)
    memory.patterns[first : first + len(states)] = states
    memory.stored += len(states)


def room_for(num_patterns: int, num_examples: int) -> int:
    """How many patterns a memory makes room for: no more than there are examples.

    Raises:
        ValueError: ``num_patterns`` is not positive.
    """
    if num_patterns < 1:
        raise ValueError(f"num_patterns must be at least 1: got {num_patterns}")
    return min(num_patterns, num_examples)
