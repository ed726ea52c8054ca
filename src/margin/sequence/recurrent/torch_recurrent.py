"""Torch's recurrent layers, nn.RNN, nn.LSTM and nn.GRU, as recurrences: of any lengths, zero included."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, check_lengths

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
def begin(layer: nn.RNNBase, how: RecurrentInit) -> None:
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
