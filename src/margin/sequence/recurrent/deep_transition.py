"""Recurrences with a deep transition (Pascanu et al. 2014): the next state is an MLP of state and input."""

from typing import Literal

import torch
from torch import Tensor, nn

from margin.nn.recurrence import Lengths, Recurrence, Sequences, State, Steps, unrolled, without_padding
from margin.sequence.recurrent import readouts

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


classifier = readouts.classifier(
    DeepTransition, "A recurrence with a deep transition to class logits.", options=("pool",)
)
