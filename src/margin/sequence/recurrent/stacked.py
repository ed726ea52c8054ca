"""Recurrences on top of each other (El Hihi and Bengio 1995; Graves 2013): each reads the one below."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, check_dropout


def widths(input_size: int, width: int, layers: int) -> list[int]:
    """How many numbers each of L layers reads: the lowest the input's, the others what the one below gives.

    Args:
        input_size: n, numbers of a step.
        width: Numbers that a layer gives.
        layers: L, at least 1.

    Raises:
        ValueError: There is no layer.
    """
    if layers < 1:
        raise ValueError(f"layers must be at least 1: got {layers}")
    return [input_size, *[width] * (layers - 1)]


class Stacked(Recurrence):
    r"""Recurrences of which each reads, at each step, the output of the one below at the same step.

    .. math:: z_{t,l} = F_l(z_{t-1,l}, y_{t,l-1}), \qquad y_{t,0} = x_t, \qquad y_t = y_{t,L}

    The depth axis is vertical: within a step, information rises from layer to layer. The state is the layers'
    states in a row, the lowest first. With L = 1 it is its one layer.

    Args:
        layers: The recurrences, the lowest first; each reads as many numbers as the one below gives.
        dropout: Probability with which a number between two layers is dropped in training, in [0, 1).

    Raises:
        ValueError: There is no layer, the sizes of two neighbors differ, or the dropout is not in [0, 1).

    Reference:
        El Hihi and Bengio 1995; Graves 2013, Section 2.
    """

    def __init__(self, layers: Sequence[Recurrence], *, dropout: float = 0.0) -> None:
        if not layers:
            raise ValueError("a stack needs at least 1 layer: got 0")
        for i, (low, high) in enumerate(pairwise(layers)):
            if low.output_size != high.input_size:
                raise ValueError(
                    f"each layer must read what the one below gives: layer {i} gives {low.output_size} "
                    f"numbers, layer {i + 1} reads {high.input_size}"
                )
        super().__init__(layers[0].input_size, layers[-1].output_size)
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.causal = all(layer.causal for layer in layers)
        self.parts = [len(layer.initial(torch.empty(0, 1))) for layer in layers]

    def initial(self, x: Tensor) -> State:
        """The initial states of all layers, the lowest first."""
        return tuple(part for layer in self.layers for part in cast(Recurrence, layer).initial(x))

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step of every layer, from below: the highest one's output, and the new states."""
        after: State = ()
        for i, (layer, own) in enumerate(self._with(state)):
            x, new = layer.step(self.dropout(x) if i else x, own)
            after += new
        return x, after

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The highest layer's outputs, 0 at padding, and all layers' states after the last step."""
        after: State = ()
        for i, (layer, own) in enumerate(self._with(self.initial(x) if state is None else state)):
            x, new = layer(self.dropout(x) if i else x, lengths, own)
            after += new
        return x, after

    def final(self, outputs: Sequences, lengths: Lengths | None = None) -> Steps:
        """The highest layer's output that has read each whole sequence; 0 for one of length 0."""
        return cast(Recurrence, self.layers[-1]).final(outputs, lengths)

    def _with(self, state: State) -> Iterator[tuple[Recurrence, State]]:
        start = 0
        for layer, parts in zip(self.layers, self.parts, strict=True):
            yield cast(Recurrence, layer), state[start : start + parts]
            start += parts
