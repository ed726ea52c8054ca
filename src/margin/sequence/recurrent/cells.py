"""Recurrences by name: Elman's (1990), LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014)."""

from typing import Literal

from margin.nn.recurrence import Recurrence
from margin.sequence.recurrent import elman, gru, lstm

Cell = Literal["elman", "lstm", "gru"]


def one(cell: Cell, input_size: int, hidden: int) -> Recurrence:
    """A layer of that kind, with its defaults.

    Args:
        cell: The kind.
        input_size: n, numbers of a step.
        hidden: m, units.

    Raises:
        ValueError: The kind is another, or a size is below 1.
    """
    if cell == "elman":
        return elman.recurrence(input_size, hidden=hidden)
    if cell == "lstm":
        return lstm.recurrence(input_size, hidden=hidden)
    if cell == "gru":
        return gru.recurrence(input_size, hidden=hidden)
    raise ValueError(f"cell must be 'elman', 'lstm' or 'gru': got {cell!r}")
