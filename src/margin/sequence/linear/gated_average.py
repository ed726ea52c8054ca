r"""Averages over time whose forgetting depends on the input alone (Feng et al. 2024): gates and scan in one.

It is the scan of a_t = s_t and b_t = (1 - s_t) v_t, done together: gates and b live in the cache a segment of
time at a time, so that neither is written to memory. That is most of what a scan of so wide a state costs.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from margin.nn.recurrence import Lengths, Sequences, State, Steps, kept, last, wide_type, without_padding
from margin.nn.scan import adjoint, adjoint_segment, advance, mapped, one_axis, scan, segments, shifted


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
