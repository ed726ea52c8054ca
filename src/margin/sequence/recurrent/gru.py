"""Gated recurrent units (Cho et al. 2014): torch's, and the published one, which resets before the matrix."""

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
Reset = Literal["after", "before"]
Gate = Literal["keeps", "renews"]


def gru(
    reads: Gates,
    z: Float[Tensor, "batch m"],
    recur: Float[Tensor, "two_m m"],
    candidate: Float[Tensor, "m m"],
    gate: Gate = "keeps",
) -> Steps:
    r"""One step of the published GRU, whose reset gate acts on the state before the candidate's matrix.

    .. math:: r = \sigma(\cdot), \quad s = \sigma(\cdot), \qquad
        \tilde z = \tanh(V_x x + b + V_z (r \odot z_{t-1})), \qquad
        z_t = s \odot z_{t-1} + (1 - s) \odot \tilde z

    Args:
        reads: What the input adds to r, s and the candidate, in torch's order (batch, 3 m).
        z: The state z_{t-1}.
        recur: The matrices by which r and s read the state (2 m, m).
        candidate: V_z.
        gate: What s = 1 does: it keeps the old state, or it renews it, z_t = (1 - s) z_{t-1} + s z~.

    Reference: Cho, van Merrienboer, Gulcehre, Bahdanau, Bougares, Schwenk and Bengio 2014, Equations 5-8
        ("keeps"); Chung, Gulcehre, Cho and Bengio 2014, Section 3.2 ("renews").
    """
    m = z.shape[-1]
    r, s = (reads[..., : 2 * m] + F.linear(z, recur)).sigmoid().chunk(2, -1)
    new = torch.tanh(reads[..., 2 * m :] + F.linear(r * z, candidate))
    one, other = (z, new) if gate == "keeps" else (new, z)
    return s * one + (1 - s) * other


class ResetBeforeGRU(Recurrence):
    """The published GRU: its reset gate acts before the candidate's recurrent matrix, torch's after it.

    It is a loop: a step is several small operations, where torch's layer is one call for a sequence.

    Args:
        input_size: n, numbers of a step.
        hidden: m, units, at least 1.
        gate: Whether the update gate at 1 keeps the old state or renews it.
        recurrent_init: How the recurrent matrices of gates and candidate begin.

    Raises:
        ValueError: A size is below 1, or the gate is another.

    Reference:
        Cho, van Merrienboer, Gulcehre, Bahdanau, Bougares, Schwenk and Bengio 2014, Equations 5-8.
    """

    def __init__(
        self,
        input_size: int,
        *,
        hidden: int = 64,
        gate: Gate = "keeps",
        recurrent_init: RecurrentInit = "uniform",
    ) -> None:
        super().__init__(input_size, hidden)
        if gate not in ("keeps", "renews"):
            raise ValueError(f"gate must be 'keeps' or 'renews': got {gate!r}")
        self.gate: Gate = gate
        drawn = nn.GRU(input_size, hidden)
        initialize_recurrent(drawn, recurrent_init)
        read, recur, bias, _ = (p.detach().clone() for p in drawn.parameters())
        self.read, self.bias = nn.Parameter(read), nn.Parameter(bias)
        self.recur = nn.Parameter(recur[: 2 * hidden].clone())
        self.candidate = nn.Parameter(recur[2 * hidden :].clone())

    def initial(self, x: Tensor) -> State:
        """Zeros (batch, m)."""
        return (x.new_zeros(x.shape[0], self.output_size),)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output z_t, which is the new state."""
        return self._after(F.linear(x, self.read, self.bias), state)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the state after each example's own last step."""
        state = self.initial(x) if state is None else state
        # one product for all steps: only what depends on the state is left to the loop
        reads = F.linear(without_padding(x, lengths), self.read, self.bias)
        return unrolled(self._after, reads, lengths, state)

    def _after(self, reads: Gates, state: State) -> tuple[Steps, State]:
        z = gru(reads, state[0], self.recur, self.candidate, self.gate)
        return z, (z,)


# a constructor's parameters: they are the layer's options
def recurrence(
    input_size: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    reset: Reset = "after",
    gate: Gate = "keeps",
    recurrent_init: RecurrentInit = "uniform",
) -> Recurrence:
    """Torch's nn.GRU as a recurrence, or layers of :class:`ResetBeforeGRU`.

    Args:
        input_size: n, numbers of a step, or of a token's vector; at least 1.
        hidden: m, units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between layers, of what a
            classifier or regressor reads, and of a language model's token vectors and outputs.
        reset: Whether the reset gate acts after the candidate's recurrent matrix, as torch's, or before.
        gate: What the update gate at 1 does with the old state: it keeps or renews it; torch's keeps it.
        recurrent_init: How the recurrent matrices begin: uniform, orthogonal or identity.

    Raises:
        ValueError: A size is below 1, the dropout is not in [0, 1), an option has another value, or torch's
            reset meets gate "renews".

    Reference: Cho, van Merrienboer, Gulcehre, Bahdanau, Bougares, Schwenk and Bengio 2014, Equations 5-8.
    """
    check_layers(hidden, layers, dropout)
    if reset == "before":
        stack = [
            ResetBeforeGRU(size, hidden=hidden, gate=gate, recurrent_init=recurrent_init)
            for size in widths(input_size, hidden, layers)
        ]
        return Stacked(stack, dropout=dropout)
    if reset != "after" or gate != "keeps":
        raise ValueError(
            f"reset must be 'after' with gate 'keeps', or 'before': got reset {reset!r}, gate {gate!r}"
        )
    layer = nn.GRU(input_size, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
    initialize_recurrent(layer, recurrent_init)
    return TorchRecurrence(layer)


classifier = readouts.classifier(recurrence, "A GRU to class logits.")
regressor = readouts.regressor(recurrence, "A GRU to one real number.")
texts = readouts.texts(recurrence, "A GRU that reads a text, to class logits.")
tagger = readouts.tagger(recurrence, "A GRU to the class of each token.")
language = readouts.language(recurrence, "A GRU to the distribution of the next token.")
forecaster = readouts.forecaster(
    recurrence,
    "The next values of each target by gated recurrent units that have read the context.",
    without=("reset", "gate", "recurrent_init"),
)
quantiles = readouts.forecaster(
    recurrence,
    "The quantiles .1, .5 and .9 of the next values of each target, by gated recurrent units.",
    outputs="quantiles",
    without=("reset", "gate", "recurrent_init"),
)
