"""Examples of another source, of which an audit asks whether the model is less sure than of its own.

Their targets are not read. A run's are read as its own data were, a module's are handed over as its held-out
ones are, or as inputs alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from margin.auditing.subject.named_inputs import Naming
from margin.auditing.subject.user_data import batches_of, read
from margin.core.findings import Subject
from margin.core.types import Batch
from margin.data.examples import Data, InOrder, evaluation_batch, held_out_part
from margin.data.formats.arrays.sources import load_arrays
from margin.data.open import encode, open_data
from margin.data.source import Source, is_frame
from margin.engine.plan import cut_of
from margin.engine.runs import Run
from margin.nn.preprocessed import dtype_of

WHAT = "the data of another source"


def with_other_source(subject: Subject, ood: Any, run: Run | None = None) -> Subject:
    """The subject with examples of another source.

    Args:
        subject: The model under audit.
        ood: Inputs alone, or what held-out data may be; of a run a path, a name or arrays; a name or a path
            of arrays or images for a module.
        run: Whose model it is, where it is a run's.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: They do not fit the model.
    """
    try:
        found = _of_run(subject, ood, run) if run is not None else _of_module(subject, ood)
    except ValueError as error:
        raise ValueError(f"{WHAT} must be read as the held-out ones are: {error}") from error
    own, other = ([tuple(x.shape[1:]) for x in part[0].inputs] for part in (subject.test, found))
    if len(own) != len(other) or (subject.independent and own != other and _fixed(subject)):
        raise ValueError(f"{WHAT} must have the shape of the held-out ones, {_told(own)}: got {_told(other)}")
    return replace(subject, ood=found)


def _of_run(subject: Subject, ood: Any, run: Run) -> Sequence[Batch]:
    """By the run's record, without its target: a class that it does not know is no error here."""
    record = run.record
    encoding = {name: value for name, value in record["data"]["encoding"].items() if name != "target"}
    pair = isinstance(ood, tuple | list) and len(ood) == 2
    inputs: Any = ood[0] if pair and not isinstance(ood, Data) else ood
    if isinstance(inputs, str | Data) and Source.of(inputs).form in ("data", "name"):
        inputs = open_data(inputs, {})
        encoding |= {name: inputs.encoding.get(name) for name in ("task", "classes")}  # they may be others
    examples = cut_of(run.entry, record["recipe"]["options"])(encode(inputs, encoding))
    return InOrder(examples, evaluation_batch(examples), dtype=dtype_of(subject.model))


def _of_module(subject: Subject, ood: Any) -> Sequence[Batch]:
    if isinstance(ood, str | Path):
        ood = _opened(str(ood))
    if isinstance(ood, Data):
        ood = ood.splits[held_out_part(ood.splits) or "train"]
    if isinstance(ood, torch.Tensor | np.ndarray) or is_frame(ood):
        ood = (ood, None)
    return batches_of(read(ood, (), WHAT, Naming(subject.model)), subject.model)


def _opened(path: str) -> Any:
    """The arrays of a file, or the test part of a set by name, or all of a file of another form."""
    if Path(path).suffix in (".npz", ".npy"):
        arrays = load_arrays(Path(path))
        return arrays["x_test" if "x_test" in arrays else "x"]
    return open_data(path, {"test": 0.0, "val": 0.0} if Path(path).exists() else {})


def _fixed(subject: Subject) -> bool:
    """Whether every example has one size: sequences and sets may be of others."""
    return subject.test[0].inputs[0].is_floating_point()


def _told(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join("(" + ", ".join(["N", *map(str, shape)]) + ")" for shape in shapes)
