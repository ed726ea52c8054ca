"""Sequences of real vectors in memory, of one length or of several, each with a class or a value.

A sequence is (T, n): T steps of n numbers. Lengths may differ, and 0 is a length. Nothing is padded until a
batch is taken.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.arrays import Array, known_targets, renamed_in, targets_of
from margin.data.assembly import Raw, Schema, box_of, cut, with_groups
from margin.data.examples import Data
from margin.data.files.archives import GROUPS
from margin.data.formats.sequences.files import Found, load_sequences
from margin.data.formats.sequences.rows import Ragged, Sequences, fingerprint_of
from margin.data.formats.sequences.values import (
    AS_NUMBERS,
    Given,
    Missing,
    Whole,
    are_whole,
    fit_width,
    one_hot,
    rows_of,
    tokens_in,
)
from margin.data.options import option_groups
from margin.data.preprocess import fit_standardize
from margin.data.sampling.length_batches import padding_line
from margin.data.splits import Split, TaskName


@option_groups()
def from_sequences(  # more than 7 parameters: they are the options of the source
    x: Given,
    y: Array,
    *,
    lengths: Array | None = None,
    name: str = "sequences",
    task: TaskName | None = None,
    domain: tuple[float, float] | None = None,
    missing: Missing = "error",
    whole: Whole = "numbers",
    split: Split = Split(),
    test_sequences: tuple[Given, Array] | None = None,
    groups: Array | None = None,
) -> Data:
    """Examples from sequences and their targets in memory.

    Integers, strings and booleans mean classes, floats mean values. Integer labels must be 0 .. K-1,
    each of them present. The standardization is fitted on the steps of the training part, never on padding.

    Args:
        x: Sequences (N, T) or (N, T, n), or a list of arrays (T_i,) or (T_i, n); float64 stays float64, all
            else becomes float32.
        y: Targets (N,).
        lengths: The number of steps of each sequence of a padded array, 0 .. T; what comes after is not read.
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        domain: Least and largest value that a number of a sequence may take, in its own unit.
        missing: "error" refuses every NaN; "end" ends a sequence after its last number, as the UCR archive
            pads.
        whole: Whether whole numbers are amounts, or tokens: names, each of which gets a 0/1 number of its own
            a step.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        test_sequences: Sequences and targets of an official test part, which is kept.
        groups: The group of each sequence, as a patient, numbers or names (N,): no group lies in two of the
            parts that are cut.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: Shapes do not fit, a number is not finite (its row and time are named), a length disagrees
            with the sequences, or labels are out of range.
    """
    rows = rows_of(x, name, lengths=lengths, missing=missing)
    targets, task, classes = targets_of(y, len(rows), name, task)
    official = None
    if test_sequences is not None:
        where = f"{name}, test part"
        held_out = fit_width(rows_of(test_sequences[0], where, missing=missing), rows.steps.shape[1], where)
        official = held_out, known_targets(test_sequences[1], len(held_out), where, task, classes)
    raw = Raw(
        name=name,
        inputs=rows,
        targets=targets,
        task=task,
        classes=tuple(classes),
        domain=domain,
        official=official,
        encoding={"missing": missing},
        notes=renamed_in(y),
    )
    raw, parts = with_groups(_as_whole(raw, whole), groups, split)
    return assemble_sequences(raw, split, parts)


@option_groups()
def read_sequences(
    path: str | os.PathLike[str],
    *,
    task: TaskName | None = None,
    domain: tuple[float, float] | None = None,
    missing: Missing = "error",
    whole: Whole = "numbers",
    group: str = GROUPS,
    split: Split = Split(),
) -> Data:
    """Examples from a file of sequences: ``.npz``, or text as the UCR and UEA archives have it (``.gz`` too).

    An ``.npz`` holds y and x, (N, T) or (N, T, n), with ``lengths`` where it is padded; or x (steps, n) of
    all sequences one after the other, with ``offsets`` (N + 1,) or ``lengths``. It may hold x_test, y_test
    and lengths_test or offsets_test, classes, and groups, none of which lies in two parts. Text is a sequence
    a line with its class first (``.tsv``, ``.txt``, ``.csv``), ``.ts``, or ``.arff``. Beside NAME_TRAIN,
    NAME_TEST is its official test part, which is kept.

    Args:
        path: The file.
        task: Whether targets are classes or values, where their type does not say what is wanted; in text
            they are classes unless the file or this says otherwise.
        domain: Least and largest value that a number of a sequence may take, in its own unit.
        missing: "error" refuses every NaN; "end" ends a sequence after its last number, as the UCR archive
            pads.
        whole: Whether whole numbers are amounts, or tokens: names, each of which gets a 0/1 number of its own
            a step.
        group: The array of an ``.npz`` that says the group of each sequence, as a patient; groups by default.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no file of sequences, or as :func:`from_sequences`.
    """
    path = Path(path)
    raw, groups = raw_of_file(path, task=task, domain=domain, missing=missing, group=group)
    raw, parts = with_groups(_as_whole(raw, whole), groups, split, group)
    return replace(assemble_sequences(raw, split, parts), name=path.name)


def raw_of_file(
    path: Path,
    *,
    task: TaskName | None,
    domain: tuple[float, float] | None = None,
    missing: Missing = "error",
    group: str = GROUPS,
) -> tuple[Raw[Ragged], Array | None]:
    """The checked sequences of a file with their targets, and the group of each where the file says it.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As :func:`read_sequences`.
    """
    found = load_sequences(path, missing, task, group)
    rows, y = found.train
    if y is None:
        raise ValueError(f"{path}: training needs targets, an array 'y' in it: got none")
    targets, task, classes = _targets(y, found, str(path), task)
    official, notes = None, (*found.notes, *renamed_in(y))
    if found.test is not None and found.test[1] is not None:
        where = f"{path}, test part"
        held_out = fit_width(found.test[0], rows.steps.shape[1], where)
        official = held_out, known_targets(found.test[1], len(held_out), where, task, classes)
        notes = (*notes, "the official test part is kept")
    raw = Raw(
        name=str(path),
        inputs=rows,
        targets=targets,
        task=task,
        classes=tuple(classes),
        domain=domain,
        official=official,
        encoding={"missing": missing},
        notes=notes,
    )
    return raw, found.groups


def assemble_sequences(raw: Raw[Ragged], split: Split, parts: Mapping[str, Tensor] | None = None) -> Data:
    """The Data of sequences: cut, described, with a standardization fitted on the steps of the training part.

    Args:
        raw: The sequences.
        split: Fractions and seed; with an official test part the validation part alone is cut.
        parts: The indices of the parts, where the source knows them.

    Raises:
        ValueError: The labels cannot be cut, no training sequence has a step, or a number is outside the
            domain.
    """
    splits = _in_parts(raw, split, parts)
    train = splits["train"].ragged
    if len(train.steps) == 0:
        raise ValueError(f"{raw.name}: training needs at least one step: every training sequence is empty")
    width, time = train.steps.shape[1], splits["train"].time
    indicators = torch.ones(width, dtype=torch.bool) if "tokens" in raw.encoding else None
    schema = Schema(
        format="sequences",
        kind="sequences",
        task=raw.task,
        shape=(time or 0, width),
        dtype=train.steps.dtype,
        classes=raw.classes,
        split=split.as_json(official=raw.official is not None),
        own={"about": about(splits, width)},
    )
    steps = {part: held.ragged.steps for part, held in splits.items()}
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec_of(train, width, time, len(raw.classes)),
        encoding=schema.as_json() | dict(raw.encoding),
        preprocess=fit_standardize(train.steps, per="feature", indicators=indicators),
        domain=box_of(raw.name, raw.domain, train.steps.dtype, steps),
        fingerprint=fingerprint_of(splits),
        notes=raw.notes,
    )


def _in_parts(raw: Raw[Ragged], split: Split, parts: Mapping[str, Tensor] | None) -> dict[str, Sequences]:
    """The examples of each part, of one length where all sequences have one."""
    official, everything = raw.official, raw.inputs.lengths
    if official is not None:
        everything = torch.cat((everything, official[0].lengths))
    one = int(everything[0]) > 0 and bool((everything == everything[0]).all())
    time = int(everything[0]) if one else None
    targets = raw.targets if raw.task == "classes" else raw.targets.to(raw.inputs.steps.dtype)
    whole = Sequences(raw.inputs, targets, time, groups=raw.groups)
    if parts is None:
        own = {} if official is None else {"test": None}
        parts, _ = cut(raw.name, raw.targets, raw.task, split, raw.classes, own=own, groups=raw.groups)
    splits = {part: whole.part(index) for part, index in parts.items()}
    if official is not None:
        splits["test"] = Sequences(official[0], official[1].to(targets.dtype), time)
    return splits


def spec_of(train: Ragged, width: int, time: int | None, classes: int) -> dict[str, Any]:
    """What a training part dictates: numbers a step; the length, or the longest; classes (0 for values)."""
    spec: dict[str, Any] = {"input_size": width, "num_examples": len(train)}
    if time is None:
        spec["longest"] = int(train.lengths.max())
    else:
        spec |= {"time": time, "in_features": time * width}
    return spec | ({"num_classes": classes} if classes else {})


def about(splits: Mapping[str, Sequences], width: int) -> list[list[str]]:
    """What is said of the sequences before anything is trained: lengths, values, what padding costs."""
    lengths = torch.cat([part.ragged.lengths for part in splits.values()])
    steps = [part.ragged.steps for part in splits.values() if len(part.ragged.steps)]
    low, high = min(x.min().item() for x in steps), max(x.max().item() for x in steps)
    numbers = "1 number" if width == 1 else f"{width} numbers"
    text = [
        ["sequences", f"{numbers} a step, in [{low:.6g}, {high:.6g}]"],
        ["lengths", lengths_line(lengths)],
    ]
    if splits["train"].time is None:
        text.append(["padding", padding_line(splits["train"].ragged.lengths)])
    return text


def lengths_line(lengths: Tensor, unit: str = "steps") -> str:
    """The lengths in words: all the same, or least, median and longest."""
    low, high = int(lengths.min()), int(lengths.max())
    if low == high:
        return f"{high:,} {unit} each"
    empty = int((lengths == 0).sum())
    none = f", {empty:,} empty" if empty else ""
    return f"{low:,} .. {high:,} {unit}, median {int(lengths.median()):,}{none}"


def encode_sequences(source: Any, encoding: Mapping[str, Any]) -> Sequences:
    """New sequences by a run's record: a path (of two parts the test part), sequences, or a pair ``(x, y)``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A step has another number of numbers, a length is not the run's where all had one, a label
            is unknown, or a number is not finite.
    """
    missing: Missing = encoding.get("missing", "error")
    if isinstance(source, str | os.PathLike):
        name, found = str(source), load_sequences(Path(source), missing, encoding["task"])
        rows, y = found.test or found.train
    else:
        name = "sequences"
        x, y = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
        rows = rows_of(x, name, missing=missing)
    schema = Schema.from_json(encoding)
    time, width = schema.shape
    if "tokens" in encoding:
        rows = one_hot(rows, encoding["tokens"], name)
    rows = fit_width(rows, width, name)
    rows = replace(rows, steps=rows.steps.to(schema.dtype))
    if time and len(wrong := (rows.lengths != time).nonzero()[:, 0]):
        raise ValueError(
            f"{name}: every sequence must have {time} steps, as in training: got "
            f"{int(rows.lengths[wrong[0]])} in row {int(wrong[0])} ({len(wrong)} in all)"
        )
    return Sequences(rows, schema.targets_if(y, len(rows), name), time or None)


def _as_whole(raw: Raw[Ragged], whole: Whole) -> Raw[Ragged]:
    """Sequences of whole numbers as tokens, or as amounts with a note that says so."""
    if whole == "numbers":
        if not are_whole(raw.inputs):
            return raw
        ends = [f"{end.item():g}" for end in raw.inputs.steps.aminmax()]
        return replace(raw, notes=(*raw.notes, AS_NUMBERS.format(low=ends[0], high=ends[1])))
    tokens = tokens_in(raw.inputs, raw.name)
    official = raw.official and (one_hot(raw.official[0], tokens, f"{raw.name}, test part"), raw.official[1])
    note = f"whole numbers are read as {len(tokens)} tokens, a 0/1 number for each"
    return replace(
        raw,
        inputs=one_hot(raw.inputs, tokens, raw.name),
        official=official,
        encoding={**raw.encoding, "tokens": tokens},
        notes=(*raw.notes, note),
    )


def _targets(
    y: NDArray[Any], found: Found, name: str, task: TaskName | None
) -> tuple[Tensor, TaskName, Sequence[str]]:
    """The targets of a file; names of classes keep the order in which the file has them."""
    if found.classes and y.dtype.kind == "U":
        return known_targets(y, len(y), name, "classes", found.classes), "classes", found.classes
    return targets_of(y, len(found.train[0]), name, found.task or task, found.classes)
