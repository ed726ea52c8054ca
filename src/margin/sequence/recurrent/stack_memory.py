"""Recurrences with differentiable stacks (Joulin and Mikolov 2015): push, pop or neither, by soft choice."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.nn.recurrence import Recurrence, State, Steps
from margin.sequence.recurrent import readouts

Stacks = Float[Tensor, "batch stacks capacity"]
EMPTY = -1.0
"""What an empty place of a stack holds; what is pushed lies in (0, 1)."""


def moved(
    stacks: Stacks, action: Float[Tensor, "batch stacks 3"], pushed: Float[Tensor, "batch stacks"]
) -> Stacks:
    r"""Stacks after a soft choice among pushing, popping and leaving them as they are.

    .. math:: s_t[0] = a_{push} v + a_{pop} s_{t-1}[1] + a_{no} s_{t-1}[0], \qquad
        s_t[i] = a_{push} s_{t-1}[i-1] + a_{pop} s_{t-1}[i+1] + a_{no} s_{t-1}[i]

    Below the last place lies what is empty, -1, and what is pushed out there is lost.

    Args:
        stacks: s, the top first.
        action: a, three weights of each stack, each at least 0, which sum to 1: push, pop, neither.
        pushed: v, what a push puts on top of each.

    Reference: Joulin and Mikolov 2015, Equations 3 to 5.
    """
    down = torch.cat((pushed.unsqueeze(-1), stacks[..., :-1]), -1)
    up = F.pad(stacks[..., 1:], (0, 1), value=EMPTY)
    push, pop, stay = action.unsqueeze(-1).unbind(-2)
    return push * down + pop * up + stay * stacks


class StackMemory(Recurrence):
    r"""A recurrence that reads the tops of its stacks, and pushes on each of them, pops it or leaves it.

    .. math:: h_t = \sigma(V x_t + U h_{t-1} + P\, top(s_{t-1}) + b), \qquad
        a_t = \mathrm{softmax}(A h_t), \qquad v_t = \sigma(D h_t), \qquad y_t = h_t

    With the weights of the actions at 0 or 1 it is a pushdown automaton. A stack holds ``capacity`` numbers,
    so what it can count is finite; what lies deeper is lost.

    Args:
        input_size: n, numbers of a step, or of a token's vector; at least 1.
        hidden: m, units, at least 1.
        stacks: Number of stacks, at least 1.
        capacity: Numbers that a stack holds, at least 2.
        reads: How many of the top numbers of each stack h_t reads, from 1 to capacity.
        recurrent: Whether h_t also reads h_{t-1} ("hidden"), or its memory is the stacks alone ("none").

    Raises:
        ValueError: A size is out of range.

    Reference:
        Joulin and Mikolov 2015, Section 3.2, Equations 2 to 6.
    """

    def __init__(
        self,
        input_size: int,
        *,
        hidden: int = 32,
        stacks: int = 2,
        capacity: int = 64,
        reads: int = 2,
        recurrent: Literal["hidden", "none"] = "hidden",
    ) -> None:
        super().__init__(input_size, hidden)
        if stacks < 1 or capacity < 2 or not 1 <= reads <= capacity:
            raise ValueError(
                "a stack memory needs stacks >= 1, capacity >= 2 and reads in 1 .. capacity: "
                f"got {stacks}, {capacity} and {reads}"
            )
        if recurrent not in ("hidden", "none"):
            raise ValueError(f"recurrent must be 'hidden' or 'none': got {recurrent!r}")
        self.stacks, self.capacity, self.reads = stacks, capacity, reads
        self.read = nn.Linear(input_size, hidden)
        self.recur = nn.Linear(hidden, hidden, bias=False) if recurrent == "hidden" else None
        self.top = nn.Linear(stacks * reads, hidden, bias=False)
        self.action = nn.Linear(hidden, 3 * stacks)
        self.push = nn.Linear(hidden, stacks)

    def initial(self, x: Tensor) -> State:
        """The units at 0, (batch, m), and empty stacks, (batch, stacks, capacity)."""
        empty = x.new_full((x.shape[0], self.stacks, self.capacity), EMPTY)
        return x.new_zeros(x.shape[0], self.output_size), empty

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output h_t and the new (h_t, s_t)."""
        h, stacks = state
        seen = self.read(x) + self.top(stacks[..., : self.reads].flatten(1))
        h = torch.sigmoid(seen if self.recur is None else seen + self.recur(h))
        action = self.action(h).unflatten(-1, (self.stacks, 3)).softmax(-1)
        return h, (h, moved(stacks, action, torch.sigmoid(self.push(h))))


classifier = readouts.classifier(
    StackMemory,
    "A recurrence with stacks to class logits.",
    without=("reads", "recurrent", "dropout"),
)
language = readouts.language(
    StackMemory,
    "A recurrence with stacks to the distribution of the next token.",
    defaults={"embedding": 16},
    without=("reads", "readout", "dropout"),
)
