"""The minimal gated recurrent unit (Feng et al. 2024): its gate reads the input alone, so time is a scan.

It averages its input: :func:`gated_average` is the scan of a_t = s_t and b_t = (1 - s_t) v_t, done together.
Gates and b live in the cache a segment of time at a time, so that neither is written to memory. That is most
of what a scan of so wide a state costs.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function

from margin.nn.recurrence import (
    Lengths,
    Recurrence,
    Sequences,
    State,
    Steps,
    gate_bias,
    kept,
    last,
    wide_type,
    without_padding,
)
from margin.nn.scan import adjoint, adjoint_segment, advance, mapped, one_axis, scan, segments, shifted
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.layers import Stacked, widths


def gated_average(
    logits: Float[Tensor, "*logits"],
    values: Float[Tensor, "batch time features"],
    initial: Float[Tensor, "*state"],
) -> Float[Tensor, "batch time features"]:
    r"""The states z_1 .. z_T of a gated average, differentiable in all arguments at will.

    .. math:: z_t = s_t \odot z_{t-1} + (1 - s_t) \odot v_t, \qquad s_t = \sigma(l_t)

    Each coordinate of z_t is a convex combination of that coordinate of z_0, v_1 .. v_t. Numbers of 16 bits
    are averaged in float32: bfloat16 knows no share between 0.996 and 1, so a memory of 1000 steps is lost.

    Args:
        logits: l_t, (batch, time, features); the share s_t = sigmoid(l_t) of the old state is kept.
        values: v_t, what is averaged.
        initial: z_0, (batch, features).

    Returns:
        z_1 .. z_T, in the promoted type of the values and z_0.

    Raises:
        ValueError: The shapes differ.

    Reference:
        Feng, Tung, Ahmed, Bengio and Hajimirsadeghi 2024, Section 3.1.
    """
    if logits.shape != values.shape or initial.shape != (values.shape[0], values.shape[2]):
        raise ValueError(
            "logits and values must have one shape (batch, time, features), the initial state (batch, "
            f"features): got {tuple(logits.shape)}, {tuple(values.shape)}, {tuple(initial.shape)}"
        )
    dtype = torch.promote_types(values.dtype, initial.dtype)
    logits, values, initial = (x.to(wide_type(dtype)) for x in (logits, values, initial))
    if logits.shape[1] == 0 or torch.compiler.is_compiling():
        gates = logits.sigmoid()
        return scan(gates, (1 - gates) * values, initial).to(dtype)
    states: Tensor = _GatedAverage.apply(logits, values, initial)
    return states.to(dtype)


def gated_step(logits: Steps, values: Steps, old: Steps) -> Steps:
    """One step of :func:`gated_average`, in the types of its.

    Args:
        logits: l, (batch, features).
        values: v.
        old: The state before.
    """
    dtype = torch.promote_types(values.dtype, old.dtype)
    logits, values, old = (x.to(wide_type(dtype)) for x in (logits, values, old))
    return torch.lerp(values, old, logits.sigmoid()).to(dtype)


def averaged(
    logits: Sequences, values: Sequences, start: Steps, lengths: Lengths | None
) -> tuple[Sequences, State]:
    """The gated average as a recurrence returns it: outputs, 0 at padding, and the state after the last step.

    Args:
        logits: l_t.
        values: v_t.
        start: z_0.
        lengths: Steps of each example; None is all of them.
    """
    states = gated_average(logits, values, start)
    if states.shape[1] == 0:
        return states, (start,)
    if lengths is None:
        return states, (states[:, -1],)
    return without_padding(states, lengths), (kept(lengths > 0, last(states, lengths), start),)


class _GatedAverage(Function):
    """The states of logits, values and z_0."""

    @staticmethod
    def forward(logits: Tensor, values: Tensor, initial: Tensor) -> Tensor:
        states = torch.empty_like(values, memory_format=torch.contiguous_format)
        for part in segments(values):
            gates = logits[:, part].sigmoid()
            initial = advance(gates, (1 - gates).mul_(values[:, part]), initial, states[:, part])
        return states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, values, initial, states = ctx.saved_tensors
        if not (torch.is_grad_enabled() or mapped(grad)):
            return _gradients(logits, values, initial, states, grad)
        gates = logits.sigmoid()
        g = adjoint(gates, grad)
        by_values = (1 - gates) * g
        by_logits = by_values * gates * (shifted(states, initial) - values)
        return by_logits, by_values, gates[:, 0] * g[:, 0]

    @staticmethod
    def jvp(
        ctx: Any, logits_dot: Tensor | None, values_dot: Tensor | None, initial_dot: Tensor | None
    ) -> Tensor:
        logits, values, initial, states = ctx.saved_tensors
        gates = logits.sigmoid()
        moved = torch.zeros_like(states) if values_dot is None else (1 - gates) * values_dot
        if logits_dot is not None:
            moved = moved + (1 - gates) * gates * (shifted(states, initial) - values) * logits_dot
        return scan(gates, moved, initial_dot)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        moved = (one_axis(x, dim, info.batch_size) for x, dim in zip(inputs, dims, strict=True))
        states: Tensor = _GatedAverage.apply(*(x.flatten(0, 1) for x in moved))
        return states.unflatten(0, (info.batch_size, -1)), 0


def _gradients(
    logits: Tensor, values: Tensor, initial: Tensor, states: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by logits, values and z_0, one segment after the other while it is in the cache."""
    by_logits, by_values = torch.empty_like(states), torch.empty_like(states)
    coming = torch.zeros_like(initial)
    for part in segments(states, -1):
        gates, g = logits[:, part].sigmoid(), torch.empty_like(grad[:, part])
        coming = adjoint_segment(gates, grad[:, part], coming, g)
        torch.mul(1 - gates, g, out=by_values[:, part])
        before = shifted(states[:, part], states[:, part.start - 1] if part.start else initial)
        torch.sub(before, values[:, part], out=by_logits[:, part])
        by_logits[:, part] *= gates.mul_(by_values[:, part])
    return by_logits, by_values, coming


Gate = Literal["keeps", "renews"]


class GatedAverage(Recurrence, ABC):
    r"""A recurrence that averages its input over time, with shares that the input sets.

    .. math:: z_t = s_t \odot z_{t-1} + (1 - s_t) \odot (V x_t + b), \qquad s_t = \sigma(l(x_t))

    Neither share nor candidate reads the state, so all steps are one scan.
    """

    candidate: nn.Module
    """V x + b."""

    @abstractmethod
    def logits(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch hidden"]:
        """l: the logit of the share of the old state that x keeps."""

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


class MinGRU(GatedAverage):
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
    recurrence,
    "The next values of each target by minimal gated recurrent units that have read the context.",
    defaults={"layers": 2},
    without=("gate", "memory"),
)
