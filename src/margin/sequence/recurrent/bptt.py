"""Backpropagation through time (Werbos 1990), written out for an Elman network, whole or cut into windows.

Truncated (Williams and Peng 1990), of any recurrence: no derivative leaves its window.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Objective
from margin.engine.loop import GradientUpdate, Step, descent
from margin.nn.preprocessed import core_of
from margin.nn.recurrence import State, check_lengths
from margin.sequence.recurrent.captured import causal_ones
from margin.sequence.recurrent.layers import StepBatchNorm

Phi = Literal["tanh", "relu", "sigmoid"]

STEEPEST = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25}
"""alpha, the largest slope of each phi: attained at 0 by tanh and by the sigmoid, above 0 by relu."""

FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}

States = Float[Tensor, "batch states m"]
"""z_0 .. z_T, one more than there are steps."""


class Gradients(NamedTuple):
    """What a loss that reads the states z_1 .. z_T changes by.

    Args:
        U: dL/dU, (m, m).
        V: dL/dV, (m, n).
        bias: dL/db, (m,).
        x: dL/dx_t of each step, (batch, time, n).
        z: g_t = dL/dz_t of z_0 .. z_T in total, (batch, time + 1, m).
    """

    U: Tensor
    V: Tensor
    bias: Tensor
    x: Tensor
    z: Tensor


def slopes(z: Float[Tensor, "*batch m"], phi: str) -> Float[Tensor, "*batch m"]:
    """The slope where phi took the values z: 1 - z^2, z (1 - z) for a sigmoid, 1 or (at 0) 0 for relu.

    Raises:
        ValueError: There is no such phi.
    """
    if phi == "tanh":
        return 1 - z.square()
    if phi == "sigmoid":
        return z * (1 - z)
    if phi == "relu":
        return (z > 0).to(z.dtype)
    raise ValueError(f"phi must be 'tanh', 'relu' or 'sigmoid': got {phi!r}")


def states(
    U: Float[Tensor, "m m"],
    V: Float[Tensor, "m n"],
    bias: Float[Tensor, " m"],
    x: Float[Tensor, "batch time n"],
    start: Float[Tensor, "batch m"],
    phi: Phi,
) -> States:
    """z_0 = start and z_t = phi(U z_{t-1} + V x_t + b) for each step.

    Reference: Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9.
    """
    z = [start]
    for read in F.linear(x, V, bias).unbind(1):
        z.append(FUNCTIONS[phi](F.linear(z[-1], U) + read))
    return torch.stack(z, 1)


# the formula's seven symbols
def bptt(
    U: Float[Tensor, "m m"],
    V: Float[Tensor, "m n"],
    x: Float[Tensor, "batch time n"],
    z: States,
    partial: Float[Tensor, "batch time m"],
    phi: Phi,
    window: int = 0,
) -> Gradients:
    r"""The gradient of a loss of the states, by one recursion from the last step to the first.

    .. math:: g_t = \frac{\partial \ell}{\partial z_t} + J_{t+1}^\top g_{t+1}, \qquad J_t = D_t U, \qquad
        D_t = \mathrm{diag}(\varphi'(U z_{t-1} + V x_t + b))

    .. math:: \frac{dL}{dU} = \sum_t (D_t g_t) z_{t-1}^\top, \qquad \frac{dL}{dV} = \sum_t (D_t g_t) x_t^\top,
        \qquad \frac{dL}{db} = \sum_t D_t g_t

    Truncated, the sequence is cut into windows of k steps, and no derivative goes from one to that before:
    the term J_{t+1}^T g_{t+1} is left out where T - t is a multiple of k, so that the last window is whole.
    With k >= T nothing is left out.

    Args:
        U: The recurrent matrix.
        V: The matrix of the inputs.
        x: x_1 .. x_T.
        z: The states z_0 .. z_T of these inputs.
        partial: The derivative of the loss by each of z_1 .. z_T with the other states held.
        phi: The nonlinearity.
        window: k, at least 1; 0 never cuts.

    Raises:
        ValueError: The window is negative, or there is no such phi.

    Reference:
        Werbos 1990, Section III; Goodfellow, Bengio and Courville 2016, Equations 10.18 to 10.28; Williams
        and Peng 1990, Section 3 (truncated).
    """
    if window < 0:
        raise ValueError(f"window must be at least 1, or 0 for none: got {window}")
    time = x.shape[1]
    slope = slopes(z[:, 1:], phi)
    g, before = [], torch.zeros_like(z[:, 0])
    for t in range(time, 0, -1):
        g.append(partial[:, t - 1] + before)
        cut = window > 0 and t > 1 and (time - t + 1) % window == 0
        before = torch.zeros_like(before) if cut else (slope[:, t - 1] * g[-1]) @ U
    total = torch.stack([before, *reversed(g)], 1)
    read = slope * total[:, 1:]  # D_t g_t: what reaches the sum inside phi
    return Gradients(
        U=torch.einsum("bti,btj->ij", read, z[:, :-1]),
        V=torch.einsum("bti,btj->ij", read, x),
        bias=read.sum((0, 1)),
        x=read @ V,
        z=total,
    )


Forward = Callable[[Tensor, Tensor | None, State | None], tuple[Tensor, State]]


def windowed(
    x: Tensor,
    lengths: Tensor | None = None,
    state: State | None = None,
    *,
    forward: Forward,
    window: int,
) -> tuple[Tensor, State]:
    """What a recurrence gives, with the graph of its state cut k, 2 k, .. steps before the end of time.

    The last window is whole, so that what reads the last step alone sees k steps of every sequence that is as
    long as its tensor.

    Args:
        x: The sequences.
        lengths: Steps of each; None is all of them.
        state: The state to go on from, whose graph is kept; None is the initial one.
        forward: The recurrence's, ``(x, lengths, state) -> (outputs, state)``.
        window: k, at least 1.

    Raises:
        ValueError: The lengths disagree with x.
    """
    if lengths is not None:
        check_lengths(lengths, x)
    outputs, start, first = [], 0, x.shape[1] % window
    for piece in x.split([*([first] if first else []), *[window] * (x.shape[1] // window)] or [0], 1):
        own = None if lengths is None else (lengths - start).clamp(0, piece.shape[1])
        if start and state is not None:
            state = tuple(part.detach() for part in state)
        y, state = forward(piece, own, state)
        outputs.append(y)
        start += piece.shape[1]
    return torch.cat(outputs, 1), () if state is None else state


def check_window(model: nn.Module, window: int) -> None:
    """Refuse a window below one step, or a model in which nothing recurs.

    Raises:
        ValueError: The window is below 1, or there is no causal recurrence.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1: got {window}")
    if not causal_ones(model):
        raise ValueError(
            f"a window needs a model with a causal recurrence: {type(core_of(model)).__name__} has none"
        )


@contextmanager
def truncated(model: nn.Module, window: int) -> Iterator[list[str]]:
    """For a while the outermost causal recurrences of a model send no derivative beyond a window of steps.

    What the model says is the same. Yields the names of these recurrences.

    Args:
        model: One with a causal recurrence.
        window: Steps of a window, at least 1: a state's graph is cut where one ends.

    Raises:
        ValueError: The window is below 1, or there is no causal recurrence.
    """
    check_window(model, window)
    found = causal_ones(model)
    for _, recurrence in found:
        # nn.Module calls what its instance names forward, hooks and all, before what its class does
        recurrence.forward = partial(windowed, forward=recurrence.forward, window=window)  # type: ignore[method-assign]
    try:
        yield [name for name, _ in found]
    finally:
        for _, recurrence in found:
            del recurrence.forward


@dataclass(frozen=True, slots=True)
class Windowed:
    """An objective whose derivatives reach back no further than a window of steps.

    Args:
        objective: The loss of each term.
        window: Steps of a window.
    """

    objective: Objective
    window: int

    def __call__(self, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each term."""
        with truncated(model, self.window):
            return self.objective(model, batch, generator)


def truncated_bptt(
    objective: Objective, descend: GradientUpdate, model: nn.Module, *, window: int = 35
) -> Step:
    """One optimizer step along the gradient of truncated backpropagation through time.

    The sequences are cut into windows of k steps, counted from the last step of a batch. States go from one
    to the next, derivatives do not: of the gradient the part is left out by which an earlier window changes a
    later loss, so it is biased, and what takes longer than k steps to show is not learned. With k of the
    sequences' length it is plain descent. All windows of a batch make one step.

    Args:
        objective: The loss of each term.
        descend: How the gradient moves the optimizer.
        model: What is trained.
        window: k, steps of a window, at least 1.

    Raises:
        ValueError: The window is below 1, or the model has no causal recurrence, or one that normalizes over
            the steps of a batch, of which a window has others than the whole.

    Reference: Williams and Peng 1990, Section 3; Williams and Zipser 1995, Section 4 (BPTT(h; h') with
    h' = h, but that the windows of a batch are summed before the weights move).
    """
    check_window(model, window)
    if any(isinstance(m, StepBatchNorm) for _, one in causal_ones(model) for m in one.modules()):
        raise ValueError(
            "a window needs a norm that reads one step: got norm='batch'; set --model.norm layer"
        )
    return descent(Windowed(objective, window), descend)
