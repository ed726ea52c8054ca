"""Data frames in memory, polars' and pandas', as tables whose columns have types."""

from typing import Any

import polars as pl

from margin.data.formats.tables.delimited import Table


def to_table(frame: Any, name: str, missing: tuple[str, ...] = ()) -> Table:
    """The table of a DataFrame; rows are counted from 1, an index is no column.

    Args:
        frame: Of polars or pandas.
        name: What messages call it.
        missing: Cells of text, or numbers, that mean a missing value.

    Raises:
        ValueError: There are no rows, or two columns have one name.
    """
    names = [str(column) for column in frame.columns]
    if len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        raise ValueError(f"{name}: every column must have a name of its own: {twice!r} names two")
    if len(frame) == 0:
        raise ValueError(f"{name}: the table has no rows")
    if not isinstance(frame, pl.DataFrame):
        frame = pl.DataFrame([_series(frame.iloc[:, k], names[k]) for k in range(len(names))])
    return Table(name, frame, range(1, len(frame) + 1), typed=True, missing=missing)


def _series(column: Any, name: str) -> pl.Series:
    """A pandas column by its values: numbers and booleans keep their type, all else is text."""
    missing = column.isna().to_numpy()
    cells = [None if gone else cell for gone, cell in zip(missing, column.tolist(), strict=True)]
    present = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, bool) for cell in present):
        return pl.Series(name, cells, dtype=pl.Boolean)
    if all(isinstance(cell, int) for cell in present):
        return pl.Series(name, cells, dtype=_integer(present))
    if all(isinstance(cell, int | float) for cell in present):
        return pl.Series(name, cells, dtype=pl.Float64, strict=False)
    return pl.Series(name, [None if cell is None else str(cell) for cell in cells], dtype=pl.String)


def _integer(cells: list[int]) -> Any:
    """The type that holds whole numbers exactly."""
    low, high = min(cells, default=0), max(cells, default=0)
    if low >= -(2**63) and high < 2**63:
        return pl.Int64
    return pl.UInt64 if low >= 0 and high < 2**64 else pl.Int128
