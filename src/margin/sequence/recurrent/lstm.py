"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000)."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import (
    Lengths,
    Recurrence,
    Sequences,
    State,
    Steps,
    check_layers,
    gate_bias,
    unrolled,
    without_padding,
)
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.layers import (
    RecurrentInit,
    Stacked,
    TorchRecurrence,
    initialize_recurrent,
    widths,
)

Gates = Float[Tensor, "batch gates"]
CellOutput = Literal["cell", "matrix"]


def lstm(gates: Gates, c: Steps, U: Float[Tensor, "m m"] | None = None) -> tuple[Steps, Steps]:
    r"""One step from the pre-activations (i, f, g, o), each of m numbers, in torch's order.

    .. math:: c_t = \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \qquad
        h_t = \sigma(o) \odot \tanh(U c_t)

    The published LSTM has no U: None is U = I. Along the cell, with the gates held, dc_t / dc_{t-1} is the
    forget gate.

    Args:
        gates: (batch, 4 m).
        c: The cell (batch, m).
        U: An extra matrix through which the output reads the cell.

    Returns:
        h_t and c_t.

    Reference: Gers, Schmidhuber and Cummins 2000, Section 3; U is no published LSTM's.
    """
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * torch.tanh(c if U is None else F.linear(c, U)), c


class CellMatrixLSTM(Recurrence):
    r"""An LSTM whose output reads its cell through a fifth matrix U, h_t = sigma(o) tanh(U c_t).

    U begins as I, with which it is the LSTM. It is a loop: a step takes as long as a cell of torch's.

    Args:
        input_size: n, numbers of a step.
        hidden: m, units, at least 1.
        forget_bias: Where the forget gate's bias begins, without a memory; None is 1.
        memory: Steps that the longest memories last at the beginning, at least 2; 0 leaves it to the forget
            bias alone.
        recurrent_init: How the recurrent matrices of the four gates begin.

    Raises:
        ValueError: A size is below 1, the memory is 1 or negative, or has a forget bias beside it.

    Reference:
        Gers, Schmidhuber and Cummins 2000, Section 3, with U added.
    """

    def __init__(
        self,
        input_size: int,
        *,
        hidden: int = 64,
        forget_bias: float | None = None,
        memory: int = 0,
        recurrent_init: RecurrentInit = "uniform",
    ) -> None:
        super().__init__(input_size, hidden)
        drawn = nn.LSTM(input_size, hidden)
        initialize_recurrent(drawn, recurrent_init)
        initialize_gates(drawn, forget_bias, memory)
        read, recur, bias, other = (p.detach().clone() for p in drawn.parameters())
        self.read, self.recur, self.bias = nn.Parameter(read), nn.Parameter(recur), nn.Parameter(bias + other)
        self.output = nn.Parameter(torch.eye(hidden))

    def initial(self, x: Tensor) -> State:
        """Zeros: h and c, each (batch, m)."""
        h = x.new_zeros(x.shape[0], self.output_size)
        return h, torch.zeros_like(h)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output h_t and the new (h_t, c_t)."""
        return self._after(F.linear(x, self.read, self.bias), state)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the state after each example's own last step."""
        state = self.initial(x) if state is None else state
        # one product for all steps: only what depends on the state is left to the loop
        reads = F.linear(without_padding(x, lengths), self.read, self.bias)
        return unrolled(self._after, reads, lengths, state)

    def _after(self, read: Gates, state: State) -> tuple[Steps, State]:
        h, c = lstm(read + F.linear(state[0], self.recur), state[1], self.output)
        return h, (h, c)


@torch.no_grad()
def initialize_gates(layer: nn.LSTM, bias: float | None = None, memory: int = 0) -> None:
    """Begin every layer's forget gate at this bias: at 0 it would halve the cell at each step.

    With a memory each unit's forget gate begins at log u and its input gate at -log u, u uniform in
    [1, memory - 1]: it then forgets to 1/e in about u + 1 steps, and takes in as much as it forgets.
    Torch has two biases, which are summed: the one of the recurrence becomes 0 there.

    Args:
        layer: Torch's LSTM.
        bias: Of every forget gate, where there is no memory; None is 1.
        memory: Steps of the longest memory, at least 2; 0 is none.

    Raises:
        ValueError: The memory is 1 or negative, or has a bias beside it.

    Reference: Gers, Schmidhuber and Cummins 2000, Section 4; Jozefowicz, Zaremba and Sutskever 2015,
    Section 2.2 (1 or 2 recommended); Tallec and Ollivier 2018, Equation 16 (memory).
    """
    if memory and bias is not None:
        raise ValueError(
            "forget_bias must be left out beside a memory, by which the gates begin: "
            f"got forget_bias {bias:g}, memory {memory}"
        )
    m, begun = layer.hidden_size, 1.0 if bias is None else bias
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            own = name.startswith("bias_ih")
            if memory:
                long = gate_bias(memory, m) if own else torch.zeros(m)
                parameter[: 2 * m] = torch.cat((-long, long))
            else:
                parameter[m : 2 * m] = begun if own else 0.0


# a constructor's parameters: they are the layer's options
def recurrence(
    input_size: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    output: CellOutput = "cell",
    forget_bias: float | None = None,
    memory: int = 0,
    recurrent_init: RecurrentInit = "uniform",
) -> Recurrence:
    """Torch's nn.LSTM as a recurrence, or layers of :class:`CellMatrixLSTM`.

    Args:
        input_size: n, numbers of a step, or of a token's vector; at least 1.
        hidden: m, units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between layers, of what a
            classifier or regressor reads, and of a language model's token vectors and outputs.
        output: What the output gate reads: the cell, as published, or a matrix times the cell.
        forget_bias: Where the forget gates' biases begin; None is 1, torch draws around 0. A memory takes its
            place.
        memory: Steps that the longest memories last at the beginning, at least 2; 0 leaves it to the forget
            bias alone.
        recurrent_init: How the recurrent matrices begin: uniform, orthogonal or identity.

    Raises:
        ValueError: A size is below 1, the dropout is not in [0, 1), an option has another value, or a memory
            has a forget bias beside it.

    Reference: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000, Section 3.
    """
    check_layers(hidden, layers, dropout)
    if output == "matrix":
        stack = [
            CellMatrixLSTM(
                size, hidden=hidden, forget_bias=forget_bias, memory=memory, recurrent_init=recurrent_init
            )
            for size in widths(input_size, hidden, layers)
        ]
        return Stacked(stack, dropout=dropout)
    if output != "cell":
        raise ValueError(f"output must be 'cell' or 'matrix': got {output!r}")
    layer = nn.LSTM(input_size, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
    initialize_recurrent(layer, recurrent_init)
    initialize_gates(layer, forget_bias, memory)
    return TorchRecurrence(layer)


classifier = readouts.classifier(recurrence, "An LSTM to class logits.")
regressor = readouts.regressor(recurrence, "An LSTM to one real number.")
texts = readouts.texts(recurrence, "An LSTM that reads a text, to class logits.")
tagger = readouts.tagger(recurrence, "An LSTM to the class of each token.")
language = readouts.language(recurrence, "An LSTM to the distribution of the next token.")
forecaster = readouts.forecaster(
    recurrence,
    "The next values of each target by a long short-term memory that has read the context.",
    without=("output", "forget_bias", "memory", "recurrent_init"),
)
