"""What a user hands over as data (arrays, tensors, frames, loaders, batches) becomes examples.

Nothing is guessed: text needs class names, and a pair is a pair ``(x, y)``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, Dataset

from margin.auditing.subject.named_inputs import Naming
from margin.core.types import Batch, Examples
from margin.data.examples import Arrays, InOrder
from margin.data.formats.objects.survey import batch_of, drawing
from margin.data.source import converted, is_frame
from margin.engine.evaluation import expand_weight

BATCH_SIZE = 256

UserData = Examples | list[Batch]


def read(data: Any, names: Sequence[str], what: str, naming: Naming) -> UserData:
    """Examples, or the batches themselves where batches were given.

    Args:
        data: ``(x, y)`` arrays, tensors or frames, x perhaps a tuple of inputs and y perhaps None; batches;
            Examples; a torch Dataset or DataLoader of such pairs; a dict, or a loader of dicts, of inputs
            by name with the target.
        names: The class names, by which targets that are text become labels.
        what: How a message calls the data.
        naming: How a dict is read.

    Raises:
        ValueError: They are empty, of another form, or no numbers.
    """
    if isinstance(data, Batch):
        data = [data]
    if isinstance(data, DataLoader | Dataset):
        data = _loaded(data, what, naming)
    if isinstance(data, Mapping) and not is_frame(data):
        *inputs, target = naming.columns(data, what)
        data = (tuple(inputs), target)
    if isinstance(data, list | tuple) and len(data) > 0 and all(isinstance(batch, Batch) for batch in data):
        handed: UserData = list(data)
    elif hasattr(data, "take") and not hasattr(data, "shape"):
        handed = data
    else:
        handed = _arrays(data, names, what)
    if (sum(len(b.inputs[0]) for b in handed) if isinstance(handed, list) else len(handed)) == 0:
        raise ValueError(f"{what} must have at least one example: they are empty")
    return handed


def batches_of(handed: UserData, model: nn.Module) -> Sequence[Batch]:
    """Batches in the model's type, on its device: that of its first real parameter or buffer."""
    tensors = (t for group in (model.parameters(), model.buffers()) for t in group)
    first = next((t for t in tensors if t.is_floating_point()), torch.empty(0))
    if isinstance(handed, list):
        return [batch.to(dtype=first.dtype, device=first.device) for batch in handed]
    return InOrder(handed, BATCH_SIZE, dtype=first.dtype, device=first.device)


def retyped(handed: UserData, dtype: torch.dtype, ignored: int | None = None) -> UserData:
    """The same with targets of another type; Examples of the user's own keep theirs.

    Args:
        handed: Examples or batches.
        dtype: The type.
        ignored: The label that says that a term is left out: it weighs 0, and its label is 0.
    """

    def changed(batch: Batch) -> Batch:
        if batch.targets is None:
            return batch
        if ignored is None:
            return batch._replace(targets=batch.targets.to(dtype))
        left_out = batch.targets == ignored
        weight = expand_weight(torch.ones(left_out.shape), batch.weight).masked_fill(left_out, 0)
        return batch._replace(targets=batch.targets.masked_fill(left_out, 0).to(dtype), weight=weight)

    if isinstance(handed, list):
        return [changed(batch) for batch in handed]
    if isinstance(handed, Arrays):
        made = changed(Batch(handed.inputs, handed.targets, handed.weight))
        return replace(handed, targets=made.targets, weight=made.weight)
    return handed if ignored is None else Changed(handed, changed)


@dataclass(frozen=True, slots=True)
class Changed:
    """Examples of the user's own, each batch changed by a function."""

    examples: Examples
    change: Callable[[Batch], Batch]

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, index: Tensor, generator: Generator) -> Batch:
        """The examples at ``index``, changed."""
        return self.change(self.examples.take(index, generator))


def _loaded(data: Any, what: str, naming: Naming) -> list[Batch]:
    """The batches of a loader, whose sampler may have chosen what is held out; drawn at one seed."""
    loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=BATCH_SIZE)
    batches: list[Batch] = []
    with drawing(0):
        try:
            for columns in loader:
                where = f"{what}, batch {len(batches)}"
                batches.append(batch_of(naming.columns(columns, where), where, None))
        except (TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{what}, batch {len(batches)}: items must become tensors: {reason}") from error
    if not batches:
        raise ValueError(f"{what} must have at least one example: they are empty")
    return batches


def _arrays(data: Any, names: Sequence[str], what: str) -> Arrays:
    if not isinstance(data, tuple | list) or len(data) != 2:
        size = f" of {len(data)}" if isinstance(data, tuple | list) else ""
        got = f"{type(data).__name__}{size}"
        if is_frame(data):
            got += (
                "; of a module's data the columns that it takes must be said: (frame[inputs], frame[target])"
            )
        got += converted(data)
        raise ValueError(f"{what} must be a pair (x, y), batches, Examples or Data: got {got}")
    x, y = data
    inputs = tuple(_tensor(column, f"x of {what}") for column in (x if isinstance(x, tuple) else (x,)))
    targets = None if y is None else _targets(y, names, f"y of {what}")
    for tensor in (*inputs, *([] if targets is None else [targets])):
        if tensor.ndim == 0:
            raise ValueError(f"{what} must have a first axis, the examples: got a single number")
    return Arrays(inputs, targets)


def _array(values: Any) -> Any:
    import numpy as np

    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def _tensor(values: Any, what: str) -> Tensor:
    import numpy as np

    if isinstance(values, Tensor):
        return values.detach()
    array = _array(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be numbers: got an array of type {array.dtype}")
    narrow = array.dtype.kind == "u" and array.dtype.itemsize > 1
    return torch.from_numpy(np.array(array, copy=True, dtype=np.int64 if narrow else array.dtype))


def _targets(values: Any, names: Sequence[str], what: str) -> Tensor:
    """Targets as numbers; text by its place among the class names."""
    if isinstance(values, Tensor) or _array(values).dtype.kind not in "OUS":
        return _tensor(values, what)
    array = _array(values)
    if not names:
        raise ValueError(f"{what} is text ({array.flat[0]!s}): give class_names in the order of the outputs")
    places = {name: i for i, name in enumerate(names)}
    if unknown := next((value for value in array.tolist() if value not in places), ""):
        raise ValueError(f"{what} must name a class of {', '.join(names)}: got {unknown!r}")
    return torch.tensor([places[value] for value in array.tolist()])
