"""Layers of recurrent networks: torch's nn.RNN, nn.LSTM and nn.GRU as recurrences, stacks, normalization.

:class:`TorchRecurrence` takes sequences of any lengths, zero included. :class:`Stacked` puts recurrences on
top of each other (El Hihi and Bengio 1995; Graves 2013). :class:`StepBatchNorm` is batch normalization over
the steps of a batch of sequences, without padding (Ioffe and Szegedy 2015).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from margin.nn.recurrence import (
    Lengths,
    Recurrence,
    Sequences,
    State,
    Steps,
    check_dropout,
    check_lengths,
    valid,
)

RecurrentInit = Literal["uniform", "orthogonal", "identity"]
"""How the recurrent matrix of a gate begins: torch's U(-1/sqrt m, 1/sqrt m), an orthogonal matrix, or I."""


class TorchRecurrence(Recurrence):
    """One of torch's recurrent layers, whose streamed step has the parameters of its fast whole.

    The state holds what the layer calls h_0 (and c_0), with the examples first: (batch, layers, hidden).

    Args:
        layer: An nn.RNN, nn.LSTM or nn.GRU of one direction with ``batch_first``.

    Raises:
        ValueError: The layer is of another form.
    """

    def __init__(self, layer: nn.RNNBase) -> None:
        if not layer.batch_first or layer.bidirectional or layer.proj_size:
            raise ValueError("a recurrence needs a layer of one direction, examples first, no projection")
        super().__init__(layer.input_size, layer.hidden_size)
        self.layer = layer

    def initial(self, x: Tensor) -> State:
        """Zeros: h, and for an LSTM c, each (batch, layers, hidden)."""
        # not len(x), which torch.export would take for a constant
        h = x.new_zeros(x.shape[0], self.layer.num_layers, self.output_size)
        return (h, torch.zeros_like(h)) if isinstance(self.layer, nn.LSTM) else (h,)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output y_t and the new state."""
        outputs, state = whole(self.layer, x.unsqueeze(1), state)
        return outputs.squeeze(1), state

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the state after each example's own last step."""
        state = self.initial(x) if state is None else state
        if lengths is None:
            return whole(self.layer, x, state)
        check_lengths(lengths, x)
        some = (lengths > 0).nonzero()[:, 0]
        if len(some) == len(x):
            return packed(self.layer, x, lengths, state)
        # torch packs no sequence of length 0: those keep their state, the others go on without them
        outputs, new = packed(self.layer, x[some], lengths[some], tuple(s[some] for s in state))
        kept = tuple(old.index_copy(0, some, s) for old, s in zip(state, new, strict=True))
        return outputs.new_zeros(*x.shape[:2], self.output_size).index_copy(0, some, outputs), kept


def whole(layer: nn.RNNBase, x: Sequences, state: State) -> tuple[Sequences, State]:
    """A layer over sequences of one length, from a state to a state."""
    if 0 in x.shape[:2]:  # which torch refuses
        return x.new_zeros(*x.shape[:2], layer.hidden_size), state
    outputs, hidden = layer(x, _layers_first(layer, state))
    return outputs, _examples_first(hidden)


def packed(layer: nn.RNNBase, x: Sequences, lengths: Lengths, state: State) -> tuple[Sequences, State]:
    """A layer over sequences of several lengths, each at least 1, from a state to a state."""
    if 0 in x.shape[:2]:
        return x.new_zeros(*x.shape[:2], layer.hidden_size), state
    sequences = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    outputs, hidden = layer(sequences, _layers_first(layer, state))
    y, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    return y, _examples_first(hidden)


def _layers_first(layer: nn.RNNBase, state: State) -> Tensor | State:
    hidden = tuple(s.transpose(0, 1).contiguous() for s in state)
    return hidden if isinstance(layer, nn.LSTM) else hidden[0]


def _examples_first(hidden: Tensor | State) -> State:
    return tuple(h.transpose(0, 1) for h in (hidden if isinstance(hidden, tuple) else (hidden,)))


@torch.no_grad()
def initialize_recurrent(layer: nn.RNNBase, how: RecurrentInit) -> None:
    """Draw the recurrent matrix of every layer and gate; the other parameters stay as they are.

    Args:
        layer: The layer.
        how: "uniform" leaves torch's draw; "orthogonal" keeps lengths; "identity" copies the state.

    Raises:
        ValueError: The name is none of these.

    Reference:
        Saxe, McClelland and Ganguli 2014, Section 3 (orthogonal); Le, Jaitly and Hinton 2015, Section 3
        (identity).
    """
    draws: dict[str, Callable[[Tensor], Tensor]] = {
        "orthogonal": nn.init.orthogonal_,
        "identity": nn.init.eye_,
    }
    if how == "uniform":
        return
    if how not in draws:
        raise ValueError(f"recurrent_init must be 'uniform', 'orthogonal' or 'identity': got {how!r}")
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_hh"):
            for gate in parameter.split(layer.hidden_size):
                draws[how](gate)


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


class StepBatchNorm(nn.Module):
    r"""Each number of a step, less its mean over all steps of all sequences, over its deviation there.

    .. math:: y_{tk} = a_k \frac{x_{tk} - \mu_k}{\sqrt{\sigma_k^2 + \epsilon}} + b_k

    While training, mu and sigma are the batch's, over its T_1 + ... + T_N steps: padding does not count,
    and a step reads the others, later ones included. In evaluation they are the running statistics: a step
    then reads itself alone, so a causal model stays one, and can be streamed.

    Args:
        width: Numbers of each step.

    Reference: Ioffe and Szegedy 2015, Algorithm 1 and Section 3.2 (positions of a map counted as examples).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.over_rows = nn.BatchNorm1d(width)

    def forward(
        self, x: Float[Tensor, "batch *time width"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch *time width"]:
        """The normalized steps; those at padding have no meaning.

        Args:
            x: Sequences, or a step of each.
            lengths: Steps of each sequence; None is all of them.

        Raises:
            ValueError: It is training and the batch has a single step, which has no deviation.
        """
        if lengths is None or not self.training:
            return self._of_rows(x.flatten(0, -2)).view_as(x)
        here = valid(lengths, x.shape[1])
        return torch.zeros_like(x).masked_scatter(here.unsqueeze(-1), self._of_rows(x[here]))

    def _of_rows(self, rows: Float[Tensor, "steps width"]) -> Float[Tensor, "steps width"]:
        if self.training and len(rows) == 1:
            raise ValueError(
                "batch normalization needs two steps in a batch that is learned from: got 1; set a larger "
                "--batch-size, or --model.norm layer"
            )
        return self.over_rows(rows) if len(rows) else rows
