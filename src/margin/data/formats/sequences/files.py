"""Files of sequences: ``.npz`` archives, and the text formats of the UCR and UEA archives (Dau et al., 2019).

Of text, a line is a sequence: its class and its numbers (``.tsv``, ``.txt``, ``.csv``); in ``.ts`` and
``.arff``, the numbers of each channel, then the class. NaN and ``?`` are missing numbers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from margin.data.examples import offsets_of
from margin.data.files.archives import GROUPS, unread_in
from margin.data.files.reading import classes_of, plain, regular, renamed, text_of
from margin.data.formats.arrays.sources import ARRAYS, SAME, load_arrays, official_of
from margin.data.formats.sequences.rows import Ragged
from margin.data.formats.sequences.values import Missing, rows_of
from margin.data.splits import TaskName

Part = tuple[Ragged, NDArray[Any] | None]
"""Sequences and their targets, None where the file has none."""


class Found(NamedTuple):
    """What a file holds: the sequences, an official test part, the classes' names, notes, groups."""

    train: Part
    test: Part | None = None
    classes: tuple[str, ...] = ()
    task: TaskName | None = None
    notes: tuple[str, ...] = ()
    groups: NDArray[Any] | None = None


def load_sequences(path: Path, missing: Missing, task: TaskName | None, group: str = GROUPS) -> Found:
    """The sequences of a file, checked; of text NAME_TRAIN with those of NAME_TEST beside it.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no file of sequences; the message names the line, or row and time.
    """
    regular(path)
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending in (".npz", ".npy"):
        return _archive(path, missing, group)
    if ending not in PARSERS:
        raise ValueError(
            f"{path}: sequences are read from .npz, {', '.join(PARSERS)}: got {ending or 'no'} ending"
        )
    if group != GROUPS:
        raise ValueError(f"{path}: groups are read from an .npz: a text of sequences has no {group!r}")
    read = _text(path, PARSERS[ending], missing, task)
    beside = path.with_name(re.sub("_TRAIN(?=[.])", "_TEST", path.name))
    if beside == path or not beside.is_file():
        return read
    test = _text(beside, PARSERS[ending], missing, task)
    return read._replace(test=test.train)


class Lines(NamedTuple):
    """The sequences of a text: numbers (n, T), targets as written, the classes if it names them."""

    numbers: list[NDArray[np.float64]]
    targets: list[str]
    classes: tuple[str, ...] = ()
    task: TaskName | None = None


def _text(path: Path, parse: Callable[[str, str], Lines], missing: Missing, task: TaskName | None) -> Found:
    read = parse(text_of(path), str(path))
    if not read.numbers:
        raise ValueError(f"{path}: there must be at least one sequence: got none")
    rows = rows_of([channels.T for channels in read.numbers], str(path), missing=missing)
    if absent := [row for row, target in enumerate(read.targets) if target in ("", "?")]:
        raise ValueError(
            f"{path}: every sequence needs a target: none is in row {absent[0]} (from 0), "
            f"{len(absent)} in all"
        )
    kind = task or read.task or "classes"
    if kind == "values":
        return Found((rows, _values(read.targets, str(path))), task=kind)
    y = [_plain(target) for target in read.targets]
    classes = tuple(map(_plain, read.classes)) or tuple(sorted(set(y), key=_by_number))
    return Found((rows, np.array(y)), classes=classes, task=kind, notes=renamed(read.targets))


def _columns(text: str, name: str) -> Lines:
    """A sequence a line, its target first; tabs, commas or blanks between; an empty cell is missing."""
    numbers: list[NDArray[np.float64]] = []
    targets: list[str] = []
    for line, content in _numbered(text):
        between = next((mark for mark in "\t," if mark in content), None)
        cells = [cell.strip() for cell in content.split(between)]
        if len(cells) < 2 and not targets:
            raise ValueError(f"{name}, line {line}: a line must be a class and numbers: got {content[:40]!r}")
        targets.append(cells[0])
        numbers.append(_floats(cells[1:], name, line)[None])
    return Lines(numbers, targets)


def _ts(text: str, name: str) -> Lines:
    """Channels between colons, each its numbers between commas, the target last."""
    numbers, targets, data = [], [], False
    classes: tuple[str, ...] = ()
    task: TaskName | None = None
    for line, content in _numbered(text, "#"):
        if not data:
            word, *rest = content.split()
            if word.lower() == "@classlabel" and rest[:1] == ["true"]:
                classes = tuple(rest[1:])
            if word.lower() == "@targetlabel" and rest[:1] == ["true"]:
                task = "values"
            data = word.lower() == "@data"
            continue
        *channels, target = content.split(":")
        targets.append(target.strip())
        numbers.append(_channels([channel.split(",") for channel in channels], name, line))
    return Lines(numbers, targets, classes, task)


def _arff(text: str, name: str) -> Lines:
    r"""Numbers between commas, the class last; several channels in quotes with ``\n`` between them."""
    numbers, targets, data = [], [], False
    classes: tuple[str, ...] = ()
    for line, content in _numbered(text, "%"):
        if not data:
            if content.lower().startswith("@attribute") and (named := re.search("{(.*)}", content)):
                classes = tuple(part.strip().strip("'\"") for part in named.group(1).split(","))
            data = content.lower().startswith("@data")
            continue
        if relational := re.fullmatch(r"""(['"])(.*)\1\s*,(.*)""", content):
            channels, target = relational.group(2).split("\\n"), relational.group(3)
        else:
            cells, _, target = content.rpartition(",")
            channels = [cells]
        targets.append(target.strip().strip("'\""))
        numbers.append(_channels([channel.split(",") for channel in channels], name, line))
    return Lines(numbers, targets, classes)


PARSERS: dict[str, Callable[[str, str], Lines]] = {
    ".tsv": _columns,
    ".txt": _columns,
    ".csv": _columns,
    ".ts": _ts,
    ".arff": _arff,
}
"""What reads a text of each ending."""


def _numbered(text: str, comment: str = "") -> list[tuple[int, str]]:
    """The lines that are not blank and no comment, with their numbers from 1."""
    lines = [(line, content.strip()) for line, content in enumerate(text.split("\n"), 1)]
    return [(n, c) for n, c in lines if c and not (comment and c.startswith(comment))]


def _channels(cells: Sequence[Sequence[str]], name: str, line: int) -> NDArray[np.float64]:
    # An empty channel is one of length 0
    rows = [_floats([] if list(row) == [""] else row, name, line) for row in cells]
    lengths = sorted({len(row) for row in rows})
    if len(lengths) != 1:
        raise ValueError(f"{name}, line {line}: the channels must be of one length: got {lengths}")
    return np.stack(rows)


def _floats(cells: Sequence[str], name: str, line: int) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if cell.strip() in ("?", "") else float(cell) for cell in cells], float)
    except ValueError:
        column, cell = next((k, cell) for k, cell in enumerate(cells) if not _is_number(cell))
        raise ValueError(
            f"{name}, line {line}: a sequence must be numbers: got {cell.strip()!r} at time {column}"
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float("nan" if cell.strip() in ("?", "") else cell)
    except ValueError:
        return False
    return True


def _values(targets: Sequence[str], name: str) -> NDArray[np.float64]:
    for row, target in enumerate(targets):
        if not _is_number(target):
            raise ValueError(f"{name}: values must be numbers: got {target!r} in row {row}")
    return np.array([float(target) for target in targets])


def _plain(label: str) -> str:
    """A class as a name: 2.0000000e+00 and 2 are one."""
    if _is_number(label) and float(label).is_integer():
        return str(int(float(label)))
    return plain(label)


def _by_number(name: str) -> tuple[float, str]:
    return (float(name) if _is_number(name) else np.inf, name)


CUTS = ("lengths", "offsets", "lengths_test", "offsets_test")
"""Arrays that say where sequences end."""


def _archive(path: Path, missing: Missing, group: str) -> Found:
    found = load_arrays(path, group=group, more=CUTS)
    official = official_of(found, path)
    parts = {"": (found["x"], found.get("y")), **({} if official is None else {"_test": official})}
    read = {part: (_rows(x, found, part, str(path), missing), y) for part, (x, y) in parts.items()}
    return Found(
        read[""],
        read.get("_test"),
        classes_of(found.get("classes", ()), path),
        notes=unread_in(path, (*ARRAYS, *CUTS, group), SAME),
        groups=found.get(group),
    )


def _rows(
    x: NDArray[Any], cuts: Mapping[str, NDArray[Any]], part: str, name: str, missing: Missing
) -> Ragged:
    """The rows of an archive: an array, a padded array with lengths, steps with offsets or lengths."""
    lengths, offsets = cuts.get(f"lengths{part}"), cuts.get(f"offsets{part}")
    if lengths is not None and offsets is not None:
        raise ValueError(f"{name}: lengths or offsets say where sequences end: got both")
    if lengths is not None:
        lengths = _whole(lengths, f"lengths{part}", name)
        if len(negative := np.flatnonzero(lengths < 0)):
            row = negative[0]
            raise ValueError(f"{name}: lengths{part} must be at least 0: got {lengths[row]} in row {row}")
        if len(x) != len(lengths):
            offsets = np.concatenate(([0], np.cumsum(lengths)))
    if offsets is None:
        return rows_of(x, name, lengths=lengths, missing=missing)
    offsets = _whole(offsets, f"offsets{part}", name)
    if not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        shown = ", ".join(map(str, offsets[:10])) + (", ..." if len(offsets) > 10 else "")
        raise ValueError(f"{name}: offsets{part} must rise from 0: got {shown or 'none'}")
    if offsets[-1] != len(x):
        raise ValueError(
            f"{name}: the lengths must add up to the steps of x, or be one a row of x: got {offsets[-1]} "
            f"for x of shape {x.shape}"
        )
    steps = torch.from_numpy(x.astype(x.dtype.newbyteorder("=")))
    return rows_of(Ragged(steps, offsets_of(torch.from_numpy(np.diff(offsets)))), name, missing=missing)


def _whole(numbers: NDArray[Any], what: str, name: str) -> NDArray[np.int64]:
    """Whole numbers in one row, of whatever type they were saved in."""
    if numbers.ndim != 1 or numbers.dtype.kind not in "uif":
        got = f"shape {numbers.shape} of {numbers.dtype}"
        raise ValueError(f"{name}: {what} must be whole numbers in one row: got {got}")
    if len(wrong := np.flatnonzero(~np.isfinite(numbers) | (numbers != np.round(numbers)))):
        row = wrong[0]
        raise ValueError(f"{name}: {what} must be whole numbers: got {numbers[row]} in row {row}")
    return numbers.astype(np.int64)
