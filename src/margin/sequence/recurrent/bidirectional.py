"""Bidirectional recurrences (Schuster and Paliwal 1997): one reads the past, one the future."""

import torch
from torch import Tensor

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, last, reversed_in_time
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.cells import Cell, one
from margin.sequence.recurrent.layers import Stacked, widths


class Bidirectional(Recurrence):
    r"""Two recurrences over one sequence, the second from its end to its start, side by side.

    .. math:: y_t = (\overrightarrow{y}_t, \overleftarrow{y}_t), \qquad
        \overleftarrow{y} = reverse(R_2(reverse(x)))

    Each example is reversed within its own length. Every y_t depends on every x_s, so there is no step of it.
    The state holds the first recurrence's state and then the second's; the second began at the end of time.

    Args:
        ahead: The recurrence from the first step to the last.
        back: The one from the last step to the first; it reads as many numbers.

    Raises:
        ValueError: One of them is not causal, or they read different numbers.

    Reference:
        Schuster and Paliwal 1997, Section II.
    """

    causal = False

    def __init__(self, ahead: Recurrence, back: Recurrence) -> None:
        if not (ahead.causal and back.causal):
            raise ValueError("the two directions must be causal each: got one that reads the future already")
        if ahead.input_size != back.input_size:
            raise ValueError(
                "the two directions must read the same numbers: "
                f"got input sizes {ahead.input_size} and {back.input_size}"
            )
        super().__init__(ahead.input_size, ahead.output_size + back.output_size)
        self.ahead, self.back = ahead, back

    def initial(self, x: Tensor) -> State:
        """The initial states of both."""
        return self.ahead.initial(x) + self.back.initial(x)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """There is none.

        Raises:
            ValueError: Always.
        """
        raise ValueError("a bidirectional recurrence has no step: each output reads the whole sequence")

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """Both outputs of each step side by side, 0 at padding, and both last states."""
        state = self.initial(x) if state is None else state
        parts = len(self.ahead.initial(x))
        past, ahead = self.ahead(x, lengths, state[:parts])
        future, back = self.back(reversed_in_time(x, lengths), lengths, state[parts:])
        return torch.cat((past, reversed_in_time(future, lengths)), -1), ahead + back

    def final(self, outputs: Sequences, lengths: Lengths | None = None) -> Steps:
        """The outputs that have read each whole sequence: ahead's at the last step, back's at the first."""
        past, future = outputs.split((self.ahead.output_size, self.back.output_size), -1)
        return torch.cat((last(past, lengths), last(reversed_in_time(future, lengths), lengths)), -1)


def recurrence(
    input_size: int, *, cell: Cell = "gru", hidden: int = 64, layers: int = 1, dropout: float = 0.0
) -> Recurrence:
    """Bidirectional layers of one kind on top of each other, each over both outputs of the one below.

    Args:
        input_size: n, numbers of a step.
        cell: The kind of each direction: elman, lstm or gru.
        hidden: Units of each direction of each layer, at least 1; a layer gives twice as many numbers.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between two layers, and of
            what a classifier reads.

    Raises:
        ValueError: A size is below 1, or the cell is another.
    """
    sizes = widths(input_size, 2 * hidden, layers)
    stack = [Bidirectional(one(cell, size, hidden), one(cell, size, hidden)) for size in sizes]
    return Stacked(stack, dropout=dropout)


classifier = readouts.classifier(recurrence, "Bidirectional recurrences to class logits.")
texts = readouts.texts(recurrence, "Bidirectional recurrences that read a text, to class logits.")
tagger = readouts.tagger(recurrence, "Bidirectional recurrences to the class of each token.")
