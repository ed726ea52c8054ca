"""Time series as data: windows of a table's rows, a context and the horizon that follows it.

The parts are cut in time, training first. A window belongs to the part in which its whole horizon lies; its
context may reach back into the part before, as it would when the forecast is made, but no training window
reads a row of another part.
"""

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from margin.data.assembly import Schema
from margin.data.examples import Data
from margin.data.formats.series.clock import Clock
from margin.data.formats.series.step import Irregular, check_step, season_of
from margin.data.formats.series.table import Missing, Steps, columns_of, load_steps
from margin.data.formats.series.windows import Windows
from margin.data.options import option_groups
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split

CUT = "the parts are cut in time; the first held-out windows have contexts in the part before"
"""What is said of every series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a series is cut into windows, each number at least 1.

    Args:
        context: Rows that a forecast reads.
        horizon: Rows that it foretells.
        stride: Rows from a window to the next.

    Raises:
        ValueError: One of them is below 1.
    """

    context: int = 96
    horizon: int = 24
    stride: int = 1

    def __post_init__(self) -> None:
        for name in ("context", "horizon", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 row: got {getattr(self, name)}")


@option_groups("split_seed")
def read_series(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    target: Sequence[str] | str | None = None,
    time_column: str | None = None,
    ignore: Sequence[str] | str = (),
    window: Window = Window(),
    rows: int | None = None,
    missing: Missing = "error",
    time_format: str = "",
    irregular: Irregular = "error",
    split: Split = Split(test=0.2, val=0.2),
) -> Data:
    """Windows of the rows of a file: CSV, TSV or Parquet, ``.gz`` too, one row a time, in order.

    Args:
        path: The file.
        target: The columns to foretell, names or one text with commas between; by default all that are read.
        time_column: The column of times or dates; by default the one called date, time, datetime, timestamp,
            year, month, day or week that holds them, else one of text that is dates, if there is one. It is
            checked, and is no feature. Where the newest row is the first, rows are read from the last one up.
        ignore: Columns that are left out.
        window: How many rows a window has, and how many lie between two.
        rows: How many rows are used, from the first; all if not given.
        missing: What a missing cell gets: an error that names row, column and time; or the last value before
            it (the training of a forecast then reads no future).
        time_format: How dates are written, as "%d/%m/%Y %H:%M" where the day comes first; found out where
            they are ISO 8601, as 2016-07-01 00:00:00, or one of them has one reading, as 13/01/2016.
        irregular: What happens where times leave the grid of the usual step, or the rate changes: an error
            that names the row; the rows read one after another; or the last row before each time of the grid.
        split: Test and validation part, seed.
        test: Share of the test part, the last rows.
        val: Share of the validation part, the rows before it.

    Returns:
        Contexts (B, context, columns) and targets (B, horizon, targets), in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: Times fall or come twice, a cell is missing or no number, or a part has no window.
    """
    clock = Clock(time_format, irregular)
    steps = load_steps(
        Path(path),
        time_column=time_column,
        ignore=ignore,
        missing=missing,
        clock=clock,
        ahead=window.horizon,
    )
    return windows_of(
        steps if rows is None else _first(steps, rows),
        target=target,
        window=window,
        split=split,
    )


@option_groups("split_seed")
def from_series(
    x: Any,
    *,
    names: Sequence[str] | None = None,
    name: str = "series",
    target: Sequence[str] | str | None = None,
    window: Window = Window(),
    split: Split = Split(test=0.2, val=0.2),
) -> Data:
    """Windows of a series in memory, (T,) or (T, n), in order of time.

    Args:
        x: The series; float64 stays float64, all else becomes float32.
        names: The columns' names; column_1, column_2, ... if not given.
        name: What messages and records call the data.
        target: The columns to foretell; by default all.
        window: How many rows a window has, and how many lie between two.
        split: Test and validation part, seed.
        test: Share of the test part, the last rows.
        val: Share of the validation part, the rows before it.

    Raises:
        ValueError: The shape is another, a number is not finite, or a part has no window.
    """
    values = torch.as_tensor(x)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.numel() == 0:
        raise ValueError(f"{name}: a series must be (T,) or (T, n): got {tuple(values.shape)}")
    values = values.clone() if values.dtype == torch.float64 else values.float()
    columns = tuple(names or (f"column_{k}" for k in range(1, values.shape[1] + 1)))
    if len(columns) != values.shape[1]:
        raise ValueError(f"{name}: every column must have a name: got {len(columns)} of {values.shape[1]}")
    if len(bad := (~values.isfinite()).nonzero()):
        row, column = bad[0].tolist()
        raise ValueError(
            f"{name}: every value must be finite: got {values[row, column].item()} at time {row}, column "
            f"{columns[column]!r} ({len(bad)} in all)"
        )
    steps = Steps(name=name, values=values, columns=columns)
    return windows_of(steps, target=target, window=window, split=split)


def windows_of(steps: Steps, *, target: Sequence[str] | str | None, window: Window, split: Split) -> Data:
    """The Data of a series: windows of each part, a standardization fitted on the rows of the training part.

    Raises:
        ValueError: A target is no column, or a part has no window.
    """
    columns = columns_of(steps, target)
    ends = borders(len(steps.values), split)
    every = Windows(
        steps.values,
        torch.arange(0),
        window.context,
        window.horizon,
        columns,
        times=_stamped(steps, window.horizon),
        names=tuple(steps.columns[k] for k in columns),
        season=season_of(steps.step)[0],
    )
    splits = {part: replace(every, origins=_origins(*place, window)) for part, place in ends.items()}
    if empty := [part for part, windows in splits.items() if len(windows) == 0]:
        start, end = ends[empty[0]]
        raise ValueError(
            f"{steps.name}: every part ({', '.join(splits)}) needs a window of {window.context} + "
            f"{window.horizon} rows: the {empty[0]} part is rows {start + 1} .. {end} of {len(steps.values)}"
            "; set --data.context or --data.horizon lower"
        )
    preprocess = fit_standardize(steps.values[: ends["train"][1]], per="feature")
    scale = [(k, float(preprocess.mean[k]), float(preprocess.std[k])) for k in columns]
    return Data(
        name=Path(steps.name).name,
        splits=splits,
        spec={
            "input_size": len(steps.columns),
            "time": window.context,
            "horizon": window.horizon,
            "num_targets": len(columns),
            "target_scale": scale,
            "season": every.season,
            "num_examples": len(splits["train"]),
        },
        encoding=_encoding(steps, ends, window, split, [steps.columns[k] for k in columns]),
        preprocess=preprocess,
        fingerprint=_fingerprint(splits),
        notes=(*steps.notes, CUT),
    )


def borders(count: int, split: Split) -> dict[str, tuple[int, int]]:
    """The first row and the end of each part that is kept, in order of time: train, val, test."""
    ends: dict[str, tuple[int, int]] = {}
    begin = 0
    total = sum(split.shares().values())
    run = total - total
    for part in ("train", "val", "test"):
        if part not in split.shares():
            continue
        run += split.shares()[part]
        done = math.floor(count * run + total / 2)
        ends[part] = (begin, done)
        begin = done
    return ends


def encode_series(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Windows:
    """The windows of a file by the record of a finished run.

    Of a file of a context but no whole window there is one, without targets: what comes after its last row.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A column of the run is missing, its rows are another time apart than those of the run, or
            there are fewer rows than a context.
    """
    path = Path(source)
    if encoding["format"] != "series":
        raise ValueError(
            f"{path}: the run must have been trained on a series: it was on {encoding['format']}"
        )
    steps = load_steps(
        path,
        time_column=encoding["time_column"],
        missing=encoding["missing"],
        wanted={name: encoding.get("written", {}).get(name, {}) for name in encoding["columns"]},
        clock=Clock(*encoding.get("clock", ("", "read"))),
        ahead=encoding["horizon"],
    )
    check_step(f"{steps.name}, column {steps.time_column!r}", steps.step, encoding.get("step"))
    context, horizon = encoding["shape"][0], encoding["horizon"]
    values = steps.values.to(getattr(torch, encoding["dtype"]))
    columns = tuple(encoding["columns"].index(name) for name in encoding["targets"])
    count = len(values)
    if count < context:
        raise ValueError(f"{path}: a forecast reads {context} rows: got {count}")
    windows = Windows(
        values,
        _origins(context, count, Window(context=context, horizon=horizon, stride=encoding["stride"])),
        context,
        horizon,
        columns,
        times=_stamped(steps, horizon),
        names=tuple(encoding["targets"]),
        season=season_of(steps.step)[0],
        notes=steps.notes,
    )
    return windows if len(windows) else windows.ahead()


def _origins(start: int, end: int, window: Window) -> Int[Tensor, " windows"]:
    """The first row of each forecast whose horizon lies in the rows ``start .. end - 1``; perhaps none."""
    first = max(start, window.context)
    return torch.arange(first, max(first, end - window.horizon + 1), window.stride)


def _first(steps: Steps, rows: int) -> Steps:
    if not 1 <= rows <= len(steps.values):
        raise ValueError(f"{steps.name}: rows must be in 1 .. {len(steps.values)}, the file's: got {rows}")
    note = f"the first {rows:,} of {len(steps.values):,} rows are used"
    times, later = steps.times[:rows], (*steps.times[rows:], *steps.later)
    return replace(steps, values=steps.values[:rows], times=times, later=later, notes=(*steps.notes, note))


def _stamped(steps: Steps, horizon: int) -> tuple[str, ...]:
    """The time of each row and of ``horizon`` more; () where rows are counted, or one row says no step."""
    return (*steps.times, *steps.later[:horizon]) if len(steps.later) >= horizon else ()


def _encoding(
    steps: Steps,
    ends: Mapping[str, tuple[int, int]],
    window: Window,
    split: Split,
    targets: Sequence[str],
) -> dict[str, Any]:
    """All that new rows must fit."""
    own = {
        "columns": list(steps.columns),
        "targets": list(targets),
        "horizon": window.horizon,
        "stride": window.stride,
        "time_column": steps.time_column,
        "step": None if steps.step is None else list(steps.step[:2]),
        "missing": steps.missing,
        "clock": list(steps.clock),
        **({"written": dict(steps.written)} if steps.written else {}),
        "about": _about(steps, ends, window, targets),
    }
    return Schema(
        format="series",
        kind="series",
        task="series",
        shape=(window.context, len(steps.columns)),
        dtype=steps.values.dtype,
        classes=(),
        split=split.as_json(official=False),
        own=own,
    ).as_json()


def _about(
    steps: Steps, ends: Mapping[str, tuple[int, int]], window: Window, targets: Sequence[str]
) -> list[list[str]]:
    """Lines of what was understood, for a reader."""
    parts = ", ".join(f"{part} {start + 1:,} .. {end:,}" for part, (start, end) in ends.items())
    lines = [["rows", f"{len(steps.values):,}: {parts}"]]
    if steps.spacing:
        lines.append(["time", steps.spacing])
        rows, cycle = season_of(steps.step)
        known = f"{rows} rows, a {cycle}: the period of seasonal_naive"
        lines.append(["season", known if rows > 1 else "none known of such times"])
    lines.append(
        ["window", f"{window.context} rows, then {window.horizon} to foretell, every {window.stride}"]
    )
    width = max(len(name) for name in steps.columns)
    for k, name in enumerate(steps.columns):
        column = steps.values[:, k]
        span = f"in [{column.min():.6g}, {column.max():.6g}]"
        lines.append(["column", f"{name:<{width}}  {span}{', foretold' if name in targets else ''}"])
    return lines


def _fingerprint(splits: Mapping[str, Windows]) -> str:
    digest = hashlib.sha256()
    for part, windows in splits.items():
        cut = f"{part} {windows.context} {windows.horizon} {windows.columns}"
        digest.update(cut.encode() + windows.origins.numpy().tobytes())
    digest.update(windows.values.contiguous().numpy().tobytes())
    return digest.hexdigest()
