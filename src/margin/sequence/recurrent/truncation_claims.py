"""The bias of truncated backpropagation through time (Williams and Peng 1990), measured by its window."""

import math

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double
from margin.sequence.recurrent.bptt_claims import NONE_COUNTED, demo, first_counted, mean_loss_of, part_of
from margin.sequence.recurrent.heard import causal_ones, listening
from margin.sequence.recurrent.truncated_bptt import truncated

__all__ = ["demo", "truncation_bias"]

GROUPS, GROUP = 8, 8
"""Parts of the held-out batch over which a truncated gradient is averaged, and examples of each at most."""

PIECES = 256
"""Windows in a sequence at most."""

ROUNDING = 1e-10
"""In parts of the gradient's norm, in float64."""


def gradient(subject: Subject, model: nn.Module, batch: Batch, window: int = 0) -> Tensor:
    """The gradient of a batch's mean loss by the parameters of the causal recurrences, in a row.

    Args:
        subject: Whose objective it is.
        model: In float64.
        batch: Real numbers in float64.
        window: Steps of a window beyond which no derivative goes, at least 1; 0 is none.
    """
    with eval_mode(model) as generator, torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        model.requires_grad_()
        if window:
            with truncated(model, window):
                loss = mean_loss_of(subject, model, batch, generator)
        else:
            loss = mean_loss_of(subject, model, batch, generator)
        parameters = [p for _, one in causal_ones(model) for p in one.parameters()]
        grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return torch.cat([g.flatten() for g in grads])


def longest_call(model: nn.Module, batch: Batch) -> int:
    """The most steps that a causal recurrence of the model is given at once; 0 where it is given none."""
    with torch.no_grad(), eval_mode(model), listening(causal_ones(model)) as calls:
        model(*batch.inputs)
    made = [call for each in calls.values() for call in each]
    return max((c.x.shape[1] for c in made if c.lengths is None or bool((c.lengths > 0).any())), default=0)


def windows_of(time: int) -> list[int]:
    """Powers of two below the sequences' length that cut it into :data:`PIECES` at most, and the length."""
    powers = [2**i for i in range(time.bit_length()) if 2**i < time <= PIECES * 2**i]
    return [*powers, max(time, 1)]


def errors_by_window(subject: Subject, model: nn.Module, first: Batch, windows: list[int]) -> Tensor:
    """The relative error of the gradient of each group of examples, by the window: (groups, windows).

    Args:
        subject: Whose objective it is.
        model: In float64.
        first: Examples of which each counts.
        windows: Steps of each window.
    """
    count = min(len(first.inputs[0]), GROUPS * GROUP)
    size = -(-count // GROUPS)
    rows = []
    for i in range(0, count, size):
        batch = part_of(first, i, min(i + size, count))
        whole = gradient(subject, model, batch)
        apart = torch.stack([(gradient(subject, model, batch, k) - whole).norm() for k in windows])
        rows.append(torch.where(apart == 0, apart, apart / whole.norm()))
    return torch.stack(rows).cpu()


def truncation_bias(subject: Subject) -> Finding:
    """How far the gradient of truncated backpropagation through time is from the whole one, by its window.

    The value is ||g_k - g|| / ||g||, g by the parameters of the causal recurrences, the mean over groups of
    held-out examples that count with its error. Nothing is promised below the sequences' length; from there
    on nothing is cut, and it is 0.

    Args:
        subject: A model with a causal recurrence.
    """
    model, first = in_double(subject.model), first_counted(subject)
    count = min(len(first.inputs[0]), GROUPS * GROUP)
    time = longest_call(model, part_of(first, 0, count)) if count else 0
    windows = windows_of(time)
    errors = errors_by_window(subject, model, first, windows) if count else torch.full((1, 1), math.nan)
    value = errors.mean(0).double()
    stderr = errors.std(0) / math.sqrt(len(errors)) if len(errors) > 1 else None
    failure = "" if time else "the model calls its recurrences step by step, or on no step"
    failure = failure if count else NONE_COUNTED
    free = torch.full_like(value, math.inf)
    free[-1] = 0.0
    return Finding(
        statement="The relative error of the gradient by the recurrences' parameters where no derivative "
        f"leaves a window of k of {time} steps, the mean over {len(errors)} groups of held-out examples.",
        value=value,
        unit="1",
        range=(0.0, math.inf),
        kind="exact" if stderr is None else "estimate",
        stderr=stderr,
        low=-free,
        high=free,
        tolerance=ROUNDING,
        labels=tuple(f"window {k}" for k in windows),
        premises=(),
        reference="Williams and Peng 1990, Section 3",
        failure=failure,
        curves={"window": torch.tensor(windows), "relative error of the gradient": value},
    )
