"""The minimal gated recurrent unit (Feng et al. 2024): its gate reads the input alone, so time is a scan."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, gate_bias, without_padding
from margin.sequence.linear.gated_average import averaged, gated_step
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.layers import Stacked, widths

Gate = Literal["keeps", "renews"]


class MinGRU(Recurrence):
    r"""A recurrence that averages its input over time, with a gate that the input sets.

    .. math:: z_t = s_t \odot z_{t-1} + (1 - s_t) \odot (V x_t + b), \qquad s_t = \sigma(G x_t + c)

    Neither gate nor candidate reads the state, so all steps are one scan; and each coordinate of z_t stays
    in the range of that coordinate of z_0, V x_1 + b, .., V x_t + b. Shares in (0, 1) only forget: layers of
    them cannot tell the parity of long strings (Grazzi et al. 2024), which a GRU can.

    Args:
        input_size: n, numbers of a step.
        hidden: m, units, at least 1.
        gate: What s = 1 does: it keeps the old state, or it renews it, z_t = (1 - s_t) z_{t-1} + s_t (V x_t
            + b).
        memory: Steps that the longest memories last at the beginning (biases c = log u, u uniform in
            [1, memory - 1], negated where the gate renews), at least 2; 0 leaves torch's draw, with which
            they last about 2 steps.

    Raises:
        ValueError: A size is below 1, the memory is 1 or negative, or there is no such gate.

    Reference:
        Feng, Tung, Ahmed, Bengio and Hajimirsadeghi 2024, Section 3.1 ("renews"); its biases are optional.
        Tallec and Ollivier 2018, Section 2 (memory).
    """

    def __init__(self, input_size: int, *, hidden: int = 64, gate: Gate = "keeps", memory: int = 0) -> None:
        super().__init__(input_size, hidden)
        if gate not in ("keeps", "renews"):
            raise ValueError(f"gate must be 'keeps' or 'renews': got {gate!r}")
        self.sign = 1 if gate == "keeps" else -1
        self.gate = nn.Linear(input_size, hidden)
        self.candidate = nn.Linear(input_size, hidden)
        if memory:
            with torch.no_grad():
                self.gate.bias.copy_(self.sign * gate_bias(memory, hidden))

    def logits(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch hidden"]:
        """The logit of the share of the old state that x keeps."""
        return self.gate(x) if self.sign > 0 else -self.gate(x)

    def initial(self, x: Tensor) -> State:
        """The state 0."""
        return (x.new_zeros(x.shape[0], self.output_size),)  # len(x) would be fixed in an export

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the new state, twice."""
        z = gated_step(self.logits(x), self.candidate(x), state[0])
        return z, (z,)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """All steps by one scan; outputs 0 at padding and each example's state after its own last step."""
        x = without_padding(x, lengths)
        start = (self.initial(x) if state is None else state)[0]
        return averaged(self.logits(x), self.candidate(x), start, lengths)


def recurrence(
    input_size: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    gate: Gate = "keeps",
    memory: int = 0,
) -> Stacked:
    """Minimal gated recurrent units on top of each other.

    Args:
        input_size: n, numbers of a step, or of a token's vector; at least 1.
        hidden: Units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between layers, of what a
            classifier or regressor reads, and of a language model's token vectors and outputs.
        gate: What a gate of 1 does: it keeps the old state, or it renews it.
        memory: Steps that the longest memories last at the beginning, at least 2; 0 leaves torch's draw.
    """
    sizes = widths(input_size, hidden, layers)
    return Stacked([MinGRU(n, hidden=hidden, gate=gate, memory=memory) for n in sizes], dropout=dropout)


classifier = readouts.classifier(recurrence, "Minimal gated recurrent units to class logits.")
regressor = readouts.regressor(recurrence, "Minimal gated recurrent units to one real number.")
language = readouts.language(
    recurrence, "Minimal gated recurrent units to the distribution of the next token."
)
forecaster = readouts.forecaster(
    readouts.with_options(recurrence, ("hidden", "layers", "dropout")),
    "The next values of each target by minimal gated recurrent units that have read the context.",
    defaults={"layers": 2},
)
