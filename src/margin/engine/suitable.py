"""Which entries of the catalog learn to predict classes, or values, from the rows of a matrix."""

import inspect
from typing import Any

from margin.core.catalog import Entry, data_parameters, find, heads_of, models, resolve, user_options
from margin.core.tasks import HALFSPACE, Task

SPEC = ("in_features", "num_classes", "num_examples", "channels", "image_size")
"""What a matrix dictates to a model; the last two only where its rows have a shape."""


def known(model: Any) -> Entry | None:
    """The entry that a model's name means; None where it means none."""
    try:
        return find(models(), model, "model") if isinstance(model, str) else None
    except ValueError:
        return None


def defaults_of(entry: Entry | None) -> dict[str, Any]:
    """The options of an entry's constructor, by name."""
    if entry is None:
        return {}
    build = resolve(entry.build)
    return {name: inspect.signature(build).parameters[name].default for name in user_options(build)}


def kind_of(entry: Entry) -> str:
    """What an entry's task predicts: classes, values, or what its name says."""
    task: Task = resolve(entry.task)
    return "classes" if task.classes is not None else task.name


def suitable(kind: str, *, many: bool = False) -> list[str]:
    """The names of the entries that predict ``kind`` from the rows of a matrix.

    Args:
        kind: classes or values.
        many: Whether an entry that separates but two classes is left out.
    """
    fit = [entry for entry in models().values() if kind_of(entry) == kind and not _strange(entry)]
    return [entry.name for entry in fit if not (many and resolve(entry.task) is HALFSPACE)]


def _strange(entry: Entry) -> set[str]:
    return set(data_parameters(resolve(entry.build))) - set(SPEC)


def entry_for(kind: str, model: Any, shape: Any) -> Entry:
    """The entry of that name, which predicts ``kind`` from the rows of a matrix.

    Raises:
        ValueError: There is none, it predicts something else, or its rows need a shape.
    """
    if not isinstance(model, str):
        raise ValueError(f"model must be the name of an entry: got {model!r}")
    named = find(models(), model, "model")
    heads = (head for head in heads_of(named) if kind_of(head) == kind and not _strange(head))
    entry = next(heads, named)
    if kind_of(entry) != kind or _strange(entry):
        such = ", ".join(suitable(kind))
        raise ValueError(
            f"model must predict {kind} from the rows of a matrix: got {entry.name}; such: {such}"
        )
    if shape is None and {"channels", "image_size"} & set(data_parameters(resolve(entry.build))):
        raise ValueError(f"{entry.name} takes images: pass shape=(channels, height, width), got shape=None")
    return entry
