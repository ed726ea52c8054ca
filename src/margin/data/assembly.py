"""From the tensors of a source to Data: parts, what they dictate to a model, a fitted first layer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from margin.core.types import Domain
from margin.data.arrays import Array, fit_shape, inputs_of, known_targets, seen_as, targets_of, wide_of
from margin.data.examples import Arrays, Data, fingerprint
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split, TaskName, group_parts, parts_of


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
        wide: Whether a feature or a target needs float64 (see :mod:`margin.data.formats.tables.wide`).
        groups: The group of each example, counted from 0, none of which may lie in two parts.
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
    wide: bool = False
    groups: Tensor | None = None


def raw_arrays(
    name: str,
    x: Array,
    y: Array,
    *,
    task: TaskName | None,
    domain: tuple[float, float] | None,
    test_arrays: tuple[Array, Array] | None,
    classes: Sequence[str] = (),
) -> Raw:
    """The checked examples of arrays, before they are cut; ``classes`` names them where names are known."""
    seen = seen_as(inputs_of(x, name))
    inputs, notes = seen.inputs, list(seen.notes)
    targets, task, classes = targets_of(y, len(inputs), name, task, classes)
    wide, said = wide_of(inputs, targets, task)
    official = None
    if test_arrays is not None:
        test_name = f"{name}, test part"
        test_inputs = fit_shape(inputs_of(test_arrays[0], test_name), inputs.shape[1:], test_name)
        official = (test_inputs, known_targets(test_arrays[1], len(test_inputs), test_name, task, classes))
        notes.append("the official test part is kept")
    return Raw(
        name=name,
        inputs=inputs,
        targets=targets,
        task=task,
        classes=tuple(classes),
        dtype=torch.float64 if wide or inputs.dtype == torch.float64 else torch.float32,
        wide=wide,
        domain=seen.domain if domain is None else domain,
        official=official,
        encoding=seen.encoding if domain is None else {},
        notes=(*notes, *said),
    )


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
    if raw.groups is not None:
        splits = {
            name: replace(part, groups=raw.groups[parts[name]].unique(return_inverse=True)[1])
            for name, part in splits.items()
        }
    if raw.official is not None:
        splits["test"] = _arrays(raw, *raw.official)
    train = splits["train"].inputs[0]
    image = train.ndim == 4
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec_of(train.shape[1:], len(train), len(raw.classes)),
        encoding=encoding_of(
            raw.task,
            train.shape[1:],
            raw.dtype,
            raw.classes,
            split.as_json(official=raw.official is not None),
        )
        | ({"wide": True} if raw.wide else {})
        | dict(raw.encoding),
        preprocess=fit_standardize(train, per="channel" if image else "feature", indicators=raw.indicators),
        domain=None if raw.domain is None else _domain(raw, splits, raw.domain),
        fingerprint=fingerprint(splits),
        notes=raw.notes,
    )


def cut(raw: Raw, split: Split) -> dict[str, Tensor]:
    """The indices of the parts of a source, stratified where the targets are classes."""
    if raw.official is not None:
        split = replace(split, test=0.0)
    labels = raw.targets if raw.task == "classes" else None
    try:
        if raw.groups is not None:
            return group_parts(raw.groups, labels, split, raw.classes)
        return parts_of(len(raw.targets), labels, split, raw.classes)
    except ValueError as error:
        raise ValueError(f"{raw.name}: {error}") from None


def _arrays(raw: Raw, inputs: Tensor, targets: Tensor) -> Arrays:
    targets = targets.long() if raw.task == "classes" else targets.to(raw.dtype)
    inputs = inputs.to(raw.dtype)
    if not bool(inputs.isfinite().all() and targets.isfinite().all()):
        raise ValueError(f"{raw.name}: every number must be finite in {raw.dtype}: one is too large")
    return Arrays((inputs,), targets)


def spec_of(shape: Sequence[int], count: int, classes: int) -> dict[str, Any]:
    """What a training part of ``count`` inputs of a shape dictates; ``classes`` is 0 for values."""
    spec: dict[str, Any] = {"in_features": math.prod(shape), "num_examples": count}
    if classes:
        spec["num_classes"] = classes
    if len(shape) == 3:
        spec |= {"channels": shape[0], "image_size": tuple(shape[1:])}
    return spec


def encoding_of(
    task: TaskName,
    shape: Sequence[int],
    dtype: torch.dtype,
    classes: Sequence[str],
    split: Mapping[str, Any],
) -> dict[str, Any]:
    """The encoding of arrays of a shape: all that new arrays must fit."""
    return {
        "format": "arrays",
        "task": task,
        "shape": list(shape),
        "dtype": str(dtype).removeprefix("torch."),
        "classes": list(classes),
        "split": dict(split),
    }


def _domain(raw: Raw, splits: Mapping[str, Arrays], ends: tuple[float, float]) -> Domain:
    inputs = {f"the {name} part lies": arrays.inputs[0] for name, arrays in splits.items()}
    spans = {where: (x.min().item(), x.max().item()) for where, x in inputs.items()}
    return domain_of(raw.name, ends, raw.dtype, spans)


def domain_of(
    name: str, ends: tuple[float, float], dtype: torch.dtype, spans: Mapping[str, tuple[float, float]]
) -> Domain:
    """The box [low, high] in every coordinate.

    Args:
        name: What messages call the data.
        ends: Low and high.
        dtype: The type of the inputs.
        spans: Least and largest coordinate, by the words that say of which inputs.

    Raises:
        ValueError: Low is not less than high, or an input lies outside.
    """
    low, high = ends
    if not low < high:
        raise ValueError(f"domain must have low < high: got {low}, {high}")
    domain = Domain(torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype))
    for where, (least, largest) in spans.items():
        if not (domain.low <= least and largest <= domain.high):
            raise ValueError(
                f"{name}: domain must contain every input: got [{low:g}, {high:g}], "
                f"{where} in [{least:g}, {largest:g}]"
            )
    return domain
