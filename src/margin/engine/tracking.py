"""Tracks: what is measured of a model at every evaluation of its training, beside its loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from margin.core.catalog import Part, find, parts, resolve
from margin.core.options import Training
from margin.core.types import Batch, Objective
from margin.engine.loop import State

Track = Callable[[State, Objective, Sequence[Batch]], dict[str, float]]
"""``(state, objective, training batches) -> columns of the history``; leaves no trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """Several tracks as one.

    Args:
        functions: By name.
        batches: The training part, in order.
    """

    functions: Mapping[str, Track]
    batches: Sequence[Batch] = ()

    def __call__(self, state: State, objective: Objective) -> dict[str, float]:
        """The columns of all tracks."""
        columns: dict[str, float] = {}
        for track in self.functions.values():
            columns |= track(state, objective, self.batches)
        return columns


def tracks() -> dict[str, Part]:
    """The parts that are tracks, by name."""
    return {name: part for name, part in parts().items() if part.kind == "track"}


def tracks_of(training: Training, batches: Callable[[], Sequence[Batch]]) -> Tracks:
    """The tracks that a training names.

    Args:
        training: Its options.
        batches: Makes the training part, in order, where it is needed.

    Raises:
        ValueError: There is no such track, or the weights lie in shares.
    """
    if not training.track:
        return Tracks({})
    if training.strategy == "fsdp" and (training.processes or 1) > 1:
        raise ValueError("a track measures whole weights: leave out --track, or set --strategy ddp")
    rows = [find(tracks(), name, "track") for name in training.track]
    return Tracks({row.name: resolve(row.target) for row in rows}, batches())
