"""The simple recurrent network (Elman 1990): a hidden state fed back into the units that made it.

With a deep transition (Pascanu et al. 2014) the next state is a perceptron of the state and the input.
"""

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
from margin.sequence.recurrent.layers import RecurrentInit, TorchRecurrence, initialize_recurrent

Nonlinearity = Literal["tanh", "relu"]


def elman(
    z: Float[Tensor, "batch m"], x: Float[Tensor, "batch n"], U: Float[Tensor, "m m"], V: Float[Tensor, "m n"]
) -> Float[Tensor, "batch m"]:
    r"""One step without biases, z_t = tanh(U z_{t-1} + V x_t).

    Reference: Elman 1990; Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9.
    """
    return torch.tanh(F.linear(z, U) + F.linear(x, V))


def recurrence(
    input_size: int,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    nonlinearity: Nonlinearity = "tanh",
    recurrent_init: RecurrentInit = "uniform",
) -> TorchRecurrence:
    r"""Torch's nn.RNN as a recurrence: z_t = phi(U z_{t-1} + b' + V x_t + b), y_t = z_t.

    Args:
        input_size: n, numbers of a step, or of a token's vector; at least 1.
        hidden: m, units of each layer, at least 1.
        layers: Layers on top of each other, at least 1.
        dropout: Probability with which a number is dropped in training, in [0, 1): between layers, of what a
            classifier or regressor reads, and of a language model's token vectors and outputs.
        nonlinearity: phi, tanh or relu.
        recurrent_init: How the recurrent matrices begin: uniform as torch draws, orthogonal or identity.

    Raises:
        ValueError: A size is below 1, or the dropout is not in [0, 1).

    Reference: Elman 1990; Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9.
    """
    check_layers(hidden, layers, dropout)
    layer = nn.RNN(
        input_size,
        hidden,
        layers,
        nonlinearity=nonlinearity,
        batch_first=True,
        dropout=dropout if layers > 1 else 0.0,  # torch warns of dropout between the layers of one
    )
    initialize_recurrent(layer, recurrent_init)
    return TorchRecurrence(layer)


classifier = readouts.classifier(recurrence, "An Elman network to class logits.")
regressor = readouts.regressor(recurrence, "An Elman network to one real number.")
texts = readouts.texts(recurrence, "An Elman network that reads a text, to class logits.")
tagger = readouts.tagger(recurrence, "An Elman network to the class of each token.")
language = readouts.language(recurrence, "An Elman network to the distribution of the next token.")

FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu}


class DeepTransition(Recurrence):
    r"""A recurrence whose next state is a perceptron of D layers of the state and the input.

    .. math:: a^1_t = \varphi(U z_{t-1} + V x_t + b_1), \quad a^l_t = \varphi(W_l a^{l-1}_t + b_l),
        \qquad z_t = a^D_t, \quad y_t = z_t

    With D = 1 it is an Elman network. The way from z_{t-k} to z_t goes through k D layers.

    Args:
        input_size: n, numbers of a step.
        hidden: m, units of the state and of every layer, at least 1.
        depth: D, layers from one state to the next, at least 1; 1 is an Elman network.
        nonlinearity: phi, tanh or relu.

    Raises:
        ValueError: The depth is below 1, or the nonlinearity is another.

    Reference:
        Pascanu, Gulcehre, Cho and Bengio 2014, Section 3.3.1 (deep transition), without shortcuts.
    """

    def __init__(
        self,
        input_size: int,
        *,
        hidden: int = 64,
        depth: int = 2,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
    ) -> None:
        super().__init__(input_size, hidden)
        if depth < 1:
            raise ValueError(f"depth must be at least 1: got {depth}")
        if nonlinearity not in FUNCTIONS:
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu': got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        self.read = nn.Linear(input_size, hidden)
        self.recur = nn.Linear(hidden, hidden, bias=False)
        self.rest = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth - 1))

    def initial(self, x: Tensor) -> State:
        """Zeros (batch, m)."""
        return (x.new_zeros(x.shape[0], self.output_size),)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output z_t, which is the new state."""
        return self._after(self.read(x), state)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """The outputs of all steps, 0 at padding, and the state after each example's own last step."""
        state = self.initial(x) if state is None else state
        # one product for all steps: only what depends on the state is left to the loop
        return unrolled(self._after, self.read(without_padding(x, lengths)), lengths, state)

    def _after(self, read: Steps, state: State) -> tuple[Steps, State]:
        phi = FUNCTIONS[self.nonlinearity]
        z = phi(read + self.recur(state[0]))
        for layer in self.rest:
            z = phi(layer(z))
        return z, (z,)


deep_transition = readouts.classifier(
    DeepTransition, "A recurrence with a deep transition to class logits.", without=("dropout",)
)
