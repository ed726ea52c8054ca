"""From the tensors of a source to Data: parts, what they dictate to a model, a fitted first layer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from margin.data.examples import Arrays, Data, fingerprint
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split, parts_of
from margin.types import Domain

TaskName = Literal["classes", "values"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Raw:
    """The examples of a source before they are cut into parts.

    Args:
        name: The source's name or the file's.
        inputs: (N, d) or (N, C, H, W), in the user's units; may still be integers.
        targets: Labels 0 .. K-1 (int64), or real values, of shape (N,).
        task: Whether the targets are classes or values.
        classes: Names of the classes, in the order of the labels; () for values.
        dtype: Type of the real tensors of the Data.
        domain: Where every coordinate of an input may lie, in the user's units.
        official: Inputs and targets of the source's own test part, which is kept as it is.
        indicators: Which features are the 0/1 columns of a category.
        encoding: What the source adds to the encoding.
        notes: What was assumed.
    """

    name: str
    inputs: Tensor
    targets: Tensor
    task: TaskName
    classes: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float32
    domain: tuple[float, float] | None = None
    official: tuple[Tensor, Tensor] | None = None
    indicators: Tensor | None = None
    encoding: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def assemble(raw: Raw, split: Split, parts: Mapping[str, Tensor] | None = None) -> Data:
    """The Data of a source: cut, described, with a standardization fitted on the training part.

    Args:
        raw: The examples.
        split: Fractions and seed; with an official test part the validation part alone is cut.
        parts: The indices of the parts, where the source had to cut before it could encode.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: The labels cannot be cut (see :func:`margin.data.splits.parts_of`), a number is
            too large for the type, or an input lies outside the domain.
    """
    parts = cut(raw, split) if parts is None else parts
    splits = {name: _arrays(raw, raw.inputs[index], raw.targets[index]) for name, index in parts.items()}
    if raw.official is not None:
        splits["test"] = _arrays(raw, *raw.official)
    train = splits["train"].inputs[0]
    image = train.ndim == 4
    return Data(
        name=raw.name,
        splits=splits,
        spec=_spec(raw, train),
        encoding=_encoding(raw, split, train.shape[1:]) | dict(raw.encoding),
        preprocess=fit_standardize(train, per="channel" if image else "feature", indicators=raw.indicators),
        domain=None if raw.domain is None else _domain(raw, splits, *raw.domain),
        fingerprint=fingerprint(splits),
        notes=raw.notes,
    )


def cut(raw: Raw, split: Split) -> dict[str, Tensor]:
    """The indices of the parts of a source, stratified where the targets are classes."""
    if raw.official is not None:
        split = replace(split, test=0.0)
    labels = raw.targets if raw.task == "classes" else None
    try:
        return parts_of(len(raw.targets), labels, split, raw.classes)
    except ValueError as error:
        raise ValueError(f"{raw.name}: {error}") from None


def _arrays(raw: Raw, inputs: Tensor, targets: Tensor) -> Arrays:
    targets = targets.long() if raw.task == "classes" else targets.to(raw.dtype)
    inputs = inputs.to(raw.dtype)
    if not bool(inputs.isfinite().all() and targets.isfinite().all()):
        raise ValueError(f"{raw.name}: every number must be finite in {raw.dtype}: one is too large")
    return Arrays((inputs,), targets)


def _spec(raw: Raw, train: Tensor) -> dict[str, Any]:
    shape = tuple(train.shape[1:])
    spec: dict[str, Any] = {"in_features": math.prod(shape), "num_examples": len(train)}
    if raw.task == "classes":
        spec["num_classes"] = len(raw.classes)
    if len(shape) == 3:
        spec |= {"channels": shape[0], "image_size": shape[1:]}
    return spec


def _encoding(raw: Raw, split: Split, shape: Sequence[int]) -> dict[str, Any]:
    return {
        "format": "arrays",
        "task": raw.task,
        "shape": list(shape),
        "dtype": str(raw.dtype).removeprefix("torch."),
        "classes": list(raw.classes),
        "split": split.as_json(official=raw.official is not None),
    }


def _domain(raw: Raw, splits: Mapping[str, Arrays], low: float, high: float) -> Domain:
    if not low < high:
        raise ValueError(f"domain must have low < high: got {low}, {high}")
    domain = Domain(torch.tensor(low, dtype=raw.dtype), torch.tensor(high, dtype=raw.dtype))
    for name, arrays in splits.items():
        x = arrays.inputs[0]
        if not domain.contains(x):
            raise ValueError(
                f"{raw.name}: domain must contain every input: got [{low:g}, {high:g}], "
                f"the {name} part lies in [{x.min().item():g}, {x.max().item():g}]"
            )
    return domain
