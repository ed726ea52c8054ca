"""The examples of a series: windows that are views of its rows, a context and the horizon that follows it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch

MOST_NUMBERS = 2**24
"""Numbers a batch of an evaluation, at most: of long windows it holds fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Examples that are views of one series: rows ``origin - context .. origin - 1``, then ``horizon`` more.

    Args:
        values: The series, one row a time.
        origins: The first row of each forecast; None of ``targets`` follow the last where ``known`` is False.
        context: Rows that a forecast reads.
        horizon: Rows that it foretells.
        columns: The columns that are foretold.
        known: Whether the rows of the horizon are in the series.
        times: The time of each row of ``values`` and of ``horizon`` more, in words; () where rows are
            counted.
        names: The names of the columns that are foretold.
        season: Rows of a season, by the times; 1 where none is known.
        notes: What was assumed in reading new rows.
    """

    values: Float[Tensor, "time columns"]
    origins: Int[Tensor, " windows"]
    context: int
    horizon: int
    columns: tuple[int, ...]
    known: bool = True
    times: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    season: int = 1
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def targets(self) -> Float[Tensor, "windows horizon targets"] | None:
        """The rows that follow each origin, of the columns that are foretold."""
        return self._ahead(self.origins) if self.known else None

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        numbers = (self.context + self.horizon) * self.values.shape[1]
        return max(1, min(512, MOST_NUMBERS // numbers))

    @property
    def rows(self) -> dict[str, list[Any]]:
        """Of each number that is forecast, by window, then step: after which row, when, which column.

        A row is its time, or its number, counted from 1.
        """
        stamps: Sequence[Any] = self.times or range(1, len(self.values) + self.horizon + 1)
        places = [
            (stamps[origin - 1], stamps[origin + step], name)
            for origin in self.origins.tolist()
            for step in range(self.horizon)
            for name in self.names
        ]
        after, time, column = (list(each) for each in zip(*places, strict=True))
        return {"after": after, "time": time, "column": column}

    def ahead(self) -> "Windows":
        """The same windows and the one after the last row, whose horizon nobody knows: without targets."""
        end, origins = len(self.values), self.origins
        if not len(origins) or int(origins[-1]) < end:
            origins = torch.cat((origins, torch.tensor([end])))
        return replace(self, origins=origins, known=False)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The windows at ``index``; nothing is drawn."""
        origins = self.origins.index_select(0, index)
        context = self.values[origins[:, None] + torch.arange(-self.context, 0)]
        return Batch((context,), self._ahead(origins) if self.known else None)

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads: the rows in use, and the origins."""
        return [self.values, self.origins]

    def _ahead(self, origins: Tensor) -> Tensor:
        rows = self.values[origins[:, None] + torch.arange(self.horizon)]
        return rows if self.columns == tuple(range(rows.shape[2])) else rows[:, :, list(self.columns)]
