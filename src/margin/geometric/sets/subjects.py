"""What a model of sets is asked with: its held-out sets one by one, without padding, in float64."""

from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.geometric.graphs.subjects import is_set_input
from margin.geometric.sets.deep_sets import DeepSets
from margin.geometric.sets.pooling import SetPool

EXAMPLES = 16
"""Held-out sets that a question is put to."""


def is_sets(batch: Batch) -> bool:
    """Whether a batch's inputs are sets (batch, elements, k) of real numbers, with or without a mask."""
    return is_set_input(batch.inputs)


def sets_of(subject: Subject, most: int = EXAMPLES) -> list[Tensor]:
    """The first held-out sets that have elements, each (elements, k), in float64 and the user's units."""
    found: list[Tensor] = []
    for batch in subject.test:
        x, *rest = (one.detach() for one in batch.inputs)
        for k, elements in enumerate(x):
            own = elements[rest[0][k]] if rest else elements
            if len(own):
                found.append(own.double())
            if len(found) == most:
                return found
    return found


def pools(model: nn.Module) -> dict[str, SetPool]:
    """The poolings of a model by name."""
    named = model.named_modules()
    return {name.removeprefix("model."): one for name, one in named if isinstance(one, SetPool)}


def has_sets(subject: Subject) -> bool:
    """Whether the held-out inputs are sets of vectors of real numbers, at least one of them not empty."""
    return bool(subject.test) and is_sets(subject.test[0]) and bool(sets_of(subject, 1))


def has_pooling(subject: Subject) -> bool:
    """Whether the model pools sets."""
    return has_sets(subject) and bool(pools(subject.model))


def has_maxima(subject: Subject) -> bool:
    """Whether the model pools sets, by the maximum alone."""
    return has_pooling(subject) and all(one.how == "max" for one in pools(subject.model).values())


def is_deep_sets(subject: Subject) -> bool:
    """Whether the model is a :class:`~margin.geometric.sets.deep_sets.DeepSets`."""
    core = subject.model.model if hasattr(subject.model, "model") else subject.model
    return has_sets(subject) and isinstance(core, DeepSets)
