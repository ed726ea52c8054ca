"""Truncated backpropagation through time (Williams and Peng 1990): no derivative leaves its window."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Objective
from margin.engine.loop import GradientUpdate, Step, descent
from margin.nn.preprocessed import core_of
from margin.nn.recurrence import State, check_lengths
from margin.sequence.recurrent.heard import causal_ones
from margin.sequence.recurrent.step_norm import StepBatchNorm

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
