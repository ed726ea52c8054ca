"""From the tensors of a source to Data: parts, what they dictate to a model, a fitted first layer."""

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from margin.core.types import Domain, shortest
from margin.data.arrays import (
    Array,
    as_numpy,
    fit_shape,
    inputs_of,
    known_targets,
    renamed_in,
    seen_as,
    targets_of,
    wide_of,
)
from margin.data.examples import PARTS_OF_DATA, Arrays, Data, fingerprint
from margin.data.files.archives import GROUPS
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split, TargetKind, coded, group_parts, grouped, parts_of

T = TypeVar("T")
"""What holds the inputs: a tensor, or rows of several lengths."""

_ROWS = 1024
"""Inputs that are checked at a time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Raw(Generic[T]):
    """The examples of a source before they are cut into parts.

    Args:
        name: The source's name or the file's.
        inputs: (N, d) or (N, C, H, W), in the user's units, may still be integers; or sequences.
        targets: Labels 0 .. K-1 (int64), or real values, of shape (N,); of shape (N, 0) where there are none.
        task: Whether the targets are classes or values, or there are none.
        classes: Names of the classes, in the order of the labels; () for values.
        dtype: Type of the real tensors of the Data.
        domain: Where every coordinate of an input may lie, in the user's units.
        official: Inputs and targets of the source's own test part, which is kept as it is.
        indicators: Which features are the 0/1 columns of a category.
        encoding: What the source adds to the encoding.
        notes: What was assumed.
        wide: Whether a feature or a target needs float64 (see :func:`margin.data.arrays.is_wide`).
        groups: The group of each example, counted from 0, none of which may lie in two parts.
    """

    name: str
    inputs: T
    targets: Tensor
    task: TargetKind
    classes: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float32
    domain: tuple[float, float] | None = None
    official: tuple[T, Tensor] | None = None
    indicators: Tensor | None = None
    encoding: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wide: bool = False
    groups: Tensor | None = None

    def typed(self, targets: Tensor) -> Tensor | None:
        """Targets as labels, or as values in the type of the inputs; None where there are none."""
        if self.task == "none":
            return None
        return targets.long() if self.task == "classes" else targets.to(self.dtype)


def raw_arrays(
    name: str,
    x: Array,
    y: Array | None,
    *,
    task: TargetKind | None,
    domain: tuple[float, float] | None,
    test_arrays: tuple[Array, Array | None] | None,
    classes: Sequence[str] = (),
) -> Raw[Tensor]:
    """The checked examples of arrays, before they are cut; ``classes`` names them where names are known."""
    seen = seen_as(inputs_of(x, name, copy=False))  # what is cut into parts is copied then
    inputs, notes = seen.inputs, list(seen.notes)
    targets, kind, classes = _targets_if(y, len(inputs), name, task, classes)
    notes += [*renamed_in(y), *_amounts_in(x, inputs)]
    wide, said = wide_of(inputs, targets, kind)
    official = None
    if test_arrays is not None:
        test_name = f"{name}, test part"
        test_inputs = fit_shape(inputs_of(test_arrays[0], test_name), inputs.shape[1:], test_name)
        official = (test_inputs, _known_if(test_arrays[1], len(test_inputs), test_name, kind, classes))
        notes.append("the official test part is kept")
    return Raw(
        name=name,
        inputs=inputs,
        targets=targets,
        task=kind,
        classes=tuple(classes),
        dtype=torch.float64 if wide or inputs.dtype == torch.float64 else torch.float32,
        wide=wide,
        domain=seen.domain if domain is None else domain,
        official=official,
        encoding=seen.encoding if domain is None else {},
        notes=(*notes, *said),
    )


def _amounts_in(x: Array, inputs: Tensor) -> list[str]:
    """What is said of rows of whole numbers, which may be tokens: that they are read as amounts."""
    kind = getattr(getattr(x, "dtype", None), "kind", "") or str(getattr(x, "dtype", ""))
    if inputs.ndim != 2 or kind not in ("i", "torch.int64", "torch.int32") or inputs.shape[1] < 2:
        return []
    low, high = (end.item() for end in inputs.aminmax())
    if low < 0 or high < 2:
        return []
    return [
        f"the inputs are whole numbers, {low:g} .. {high:g}: they are read as amounts; if they are tokens, "
        "write them with their targets y into an .npz and read texts:FILE, or sequences:FILE with "
        "--data.whole tokens"
    ]


def _targets_if(
    y: Array | None, count: int, name: str, task: TargetKind | None, classes: Sequence[str] = ()
) -> tuple[Tensor, TargetKind, Sequence[str]]:
    """As :func:`margin.data.arrays.targets_of`; of shape (count, 0) where none are there or wanted."""
    if y is None or task == "none":
        return torch.empty(count, 0), "none", ()
    return targets_of(y, count, name, task, classes)


def _known_if(y: Array | None, count: int, name: str, task: TargetKind, classes: Sequence[str]) -> Tensor:
    """As :func:`margin.data.arrays.known_targets`; of shape (count, 0) where none are wanted."""
    if task == "none":
        return torch.empty(count, 0)
    if y is None:
        raise ValueError(f"{name}: it needs targets, as the training part has them: got none")
    return known_targets(y, count, name, task, classes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schema:
    """What is recorded of data, by which new data are read: it is kept as JSON (``Data.encoding``).

    Args:
        format: The format in which new data come.
        task: What the targets are.
        shape: Of one input; 0 where a length is free.
        dtype: Type of the real tensors.
        classes: Names of the classes, in the order of the labels; () where there are none.
        split: How the parts were cut.
        kind: What an example is, where it is no vector and no image.
        own: What the format adds; in its place it may name the split too.
    """

    format: str
    task: str
    shape: Sequence[int]
    dtype: torch.dtype
    classes: Sequence[str]
    split: Mapping[str, Any]
    kind: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The record, in its order."""
        head = {
            "format": self.format,
            **({"kind": self.kind} if self.kind else {}),
            "task": self.task,
            "shape": list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
            "classes": list(self.classes),
        }
        return {**head, **({} if "split" in self.own else {"split": dict(self.split)}), **self.own}

    @classmethod
    def from_json(cls, encoding: Mapping[str, Any]) -> "Schema":
        """The schema of a record of numbers."""
        head = ("format", "task", "shape", "dtype", "classes", "split", "kind")
        return cls(
            format=encoding["format"],
            task=encoding["task"],
            shape=tuple(encoding["shape"]),
            dtype=getattr(torch, encoding["dtype"]),
            classes=tuple(encoding["classes"]),
            split=encoding.get("split", {}),
            kind=encoding.get("kind", ""),
            own={key: value for key, value in encoding.items() if key not in head},
        )

    def targets(self, y: Array, count: int, name: str) -> Tensor:
        """The targets of ``count`` new examples: labels of the classes, or values in the record's type.

        Raises:
            ValueError: As :func:`margin.data.arrays.known_targets`.
        """
        known = known_targets(y, count, name, "values" if self.task == "values" else "classes", self.classes)
        return known.to(self.dtype) if self.task == "values" else known

    def targets_if(self, y: Array | None, count: int, name: str) -> Tensor | None:
        """As :meth:`targets`; None where there are none, or the record knows of none."""
        return None if y is None or self.task == "none" else self.targets(y, count, name)


def tokens_schema(
    *, format: str, shape: Sequence[int], own: Mapping[str, Any], kind: str = "tokens"
) -> Schema:
    """The schema of tokens, whose vocabularies and split are among what the format adds."""
    return Schema(
        format=format,
        kind=kind,
        task="tokens",
        shape=shape,
        dtype=torch.int64,
        classes=(),
        split=own.get("split", {}),
        own=own,
    )


def cut(
    name: str,
    targets: Sized,
    task: str,
    split: Split,
    classes: Sequence[str] = (),
    *,
    own: Mapping[str, Tensor | None] = MappingProxyType({}),
    groups: Tensor | None = None,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The examples of each part of a source, and the record of the split.

    Args:
        name: What messages call the source.
        targets: One for each example; classes are shared out class by class.
        task: What they are.
        split: Fractions and seed.
        classes: Names of the classes.
        own: The source's own parts, which are kept: the examples of each, None where it lies apart. The
            others are cut from its training part, else from all.
        groups: The group of each example, none of which may lie in two parts.

    Raises:
        ValueError: The examples cannot be cut (see :func:`margin.data.splits.parts_of`).
    """
    test, val = (0.0 if part in own else share for part, share in (("test", split.test), ("val", split.val)))
    asked = replace(split, test=test, val=val)
    among = own.get("train")
    labels = targets if task == "classes" and isinstance(targets, Tensor) else None
    if labels is not None and among is not None:
        labels = labels[among]
    try:
        if groups is not None:
            found = group_parts(groups, labels, asked, classes)
        else:
            found = parts_of(len(targets if among is None else among), labels, asked, classes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    parts = {part: index for part, index in own.items() if index is not None}
    parts |= {part: index if among is None else among[index] for part, index in found.items()}
    record = split.as_json(official="test" in own) | ({"val": None} if "val" in own else {})
    return {part: parts[part] for part in PARTS_OF_DATA if part in parts}, record


def raw_of_first(
    name: str,
    first: Array,
    y: Array | None,
    count: int,
    task: TargetKind | None,
    domain: tuple[float, float] | None,
) -> Raw[Tensor]:
    """As :func:`raw_arrays` of inputs that stay where they are: all targets, and the first input alone."""
    seen = seen_as(inputs_of(first, name))
    targets, kind, classes = _targets_if(y, count, name, task)
    return Raw(
        name=name,
        inputs=seen.inputs,
        targets=targets,
        task=kind,
        classes=tuple(classes),
        dtype=seen.inputs.dtype if seen.inputs.dtype == torch.float64 else torch.float32,
        domain=seen.domain if domain is None else domain,
        encoding=seen.encoding if domain is None else {},
        notes=(*seen.notes, *renamed_in(y)),
    )


def with_groups(
    raw: Raw[T], groups: Array | None, split: Split, called: str = GROUPS
) -> tuple[Raw[T], dict[str, Tensor] | None]:
    """The examples with their groups, and the parts that these allow; None where there are no groups.

    Raises:
        ValueError: There is not one group for each example, the groups are neither numbers nor names, or a
            name is empty.
    """
    if groups is None:
        return raw, None
    found = as_numpy(groups, raw.name, "groups")
    if found.shape != (len(raw.targets),) or found.dtype.kind == "f":
        raise ValueError(
            f"{raw.name}: groups must be whole numbers or names, of shape ({len(raw.targets)},): got "
            f"{found.dtype} of shape {found.shape}"
        )
    if found.dtype.kind == "U" and len(empty := np.flatnonzero(found == "")):
        raise ValueError(
            f"{raw.name}: every example needs its group: the name at index {empty[0]} of {called!r} is empty "
            f"({len(empty)} in all); fill it in, or give each such example a group of its own"
        )
    codes = torch.from_numpy(np.unique(found, return_inverse=True)[1])
    own, notes = {}, (*raw.notes, *renamed_in(groups))
    if raw.official is not None:
        own = {"test": None}
        notes += ("the groups of the official test part are not known: its examples count as independent",)
    parts, _ = cut(raw.name, raw.targets, raw.task, split, raw.classes, own=own, groups=codes)
    encoding = {**raw.encoding, "group": grouped(called, codes, parts)}
    return replace(raw, groups=codes, encoding=encoding, notes=notes), parts


def assemble(raw: Raw[Tensor], split: Split, parts: Mapping[str, Tensor] | None = None) -> Data:
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
    own = {} if raw.official is None else {"test": None}
    if parts is None:
        parts, _ = cut(raw.name, raw.targets, raw.task, split, raw.classes, own=own, groups=raw.groups)
    splits = {
        name: replace(_arrays(raw, raw.inputs[index], raw.targets[index]), groups=coded(raw.groups, index))
        for name, index in parts.items()
    }
    if raw.official is not None:
        splits["test"] = _arrays(raw, *raw.official)
    train = splits["train"].inputs[0]
    fit = fit_standardize(train, per="channel" if train.ndim == 4 else "feature", indicators=raw.indicators)
    domain = box_of(raw.name, raw.domain, raw.dtype, {name: part.inputs[0] for name, part in splits.items()})
    record = split.as_json(official=bool(own))
    return replace(data_of(raw, splits, record, fit, domain), fingerprint=fingerprint(splits))


def data_of(
    raw: Raw[Tensor],
    splits: Mapping[str, Any],
    record: Mapping[str, Any],
    preprocess: nn.Module,
    domain: Domain | None,
) -> Data:
    """The Data of arrays whose parts are at hand, without a fingerprint.

    Args:
        raw: The examples, or all targets and the first input alone.
        splits: The parts.
        record: Of the split.
        preprocess: Fitted on the training part.
        domain: In which the inputs of every part lie.
    """
    shape = raw.inputs.shape[1:]
    schema = Schema(
        format="arrays",
        task=raw.task,
        shape=shape,
        dtype=raw.dtype,
        classes=raw.classes,
        split=record,
        own={**({"wide": True} if raw.wide else {}), **raw.encoding},
    )
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec_of(shape, len(splits["train"]), len(raw.classes)),
        encoding=schema.as_json(),
        preprocess=preprocess,
        domain=domain,
        notes=raw.notes,
    )


def _arrays(raw: Raw[Tensor], inputs: Tensor, targets: Tensor) -> Arrays:
    typed = raw.typed(targets)
    inputs = inputs.to(raw.dtype)
    pieces = (*inputs.split(_ROWS), *([] if typed is None else [typed]))  # all at once would be a copy
    if not all(bool(piece.isfinite().all()) for piece in pieces):
        raise ValueError(f"{raw.name}: every number must be finite in {raw.dtype}: one is too large")
    return Arrays((inputs,), typed)


def spec_of(shape: Sequence[int], count: int, classes: int) -> dict[str, Any]:
    """What a training part of ``count`` inputs of a shape dictates; ``classes`` is 0 for values."""
    spec: dict[str, Any] = {"in_features": math.prod(shape), "num_examples": count}
    if classes:
        spec["num_classes"] = classes
    if len(shape) == 3:
        spec |= {"channels": shape[0], "image_size": tuple(shape[1:])}
    return spec


def box_of(
    name: str, ends: tuple[float, float] | None, dtype: torch.dtype, inputs: Mapping[str, Tensor]
) -> Domain | None:
    """The box in which the inputs of every part lie; None where it is not known.

    Raises:
        ValueError: As :func:`domain_of`.
    """
    if ends is None:
        return None
    held = {part: x for part, x in inputs.items() if len(x)}
    return domain_of(
        name,
        ends,
        dtype,
        {f"the {part} part lies": (x.min().item(), x.max().item()) for part, x in held.items()},
    )


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
                f"{name}: domain must contain every input: got [{shortest(low)}, {shortest(high)}], "
                f"{where} in [{shortest(least)}, {shortest(largest)}]"
            )
    return domain
