"""Padding: what stands behind the end of a sequence changes nothing that a model says of it."""

import inspect
import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import SPANS
from margin.engine.evaluation import drawn_rows, eval_mode, in_double
from margin.nn.positions import LearnedPositions
from margin.nn.preprocessed import core_of
from margin.nn.recurrence import valid
from margin.sequence.convolution.tcn import classifier
from margin.sequence.recurrent.captured import example, first_inputs

EXAMPLES, MORE = 16, 5
"""Held-out examples that are asked, and the steps that are put behind them."""

ROUNDING = 1e-10
"""In parts of the largest output, in float64."""


def lengths_input(subject: Subject) -> tuple[int, bool] | None:
    """Which input holds sequences whose lengths the model takes, and whether the lengths are an input.

    That is the input before one of shape (batch,) that holds integers, or the only one of a model whose
    second argument is called lengths. None where there is neither.
    """
    if not subject.test:
        return None
    inputs = subject.test[0].inputs
    for place in range(1, len(inputs)):
        lengths, before = inputs[place], inputs[place - 1]
        if lengths.shape == before.shape[:1] and lengths.dtype == torch.int64 and before.ndim >= 2:
            return (place - 1, True) if bool((lengths <= before.shape[1]).all()) else None
    names = list(inspect.signature(core_of(subject.model).forward).parameters)
    alone = len(inputs) == 1 and inputs[0].ndim >= 2 and names[1:2] == ["lengths"]
    return (0, False) if alone else None


def takes_lengths(subject: Subject) -> bool:
    """Whether the model knows where each sequence ends."""
    return lengths_input(subject) is not None


def padded(x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
    """Sequences with five steps more, and all that is behind their ends drawn anew.

    Numbers are drawn ten times as wide as the sequences are, tokens among those that occur.
    """
    shape = (len(x), x.shape[1] + MORE, *x.shape[2:])
    if x.is_floating_point():
        scale = 10 * (1 + (x.abs().amax() if x.numel() else 0))
        drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) * float(scale)).to(x)
    else:
        top = int(x.amax()) + 1 if x.numel() else 1
        drawn = torch.randint(top, shape, generator=generator).to(x)
    own = valid(lengths, shape[1])
    whole = torch.cat((x, drawn[:, x.shape[1] :]), 1)
    return torch.where(own.view(*own.shape, *(1,) * (x.ndim - 2)), whole, drawn)


def cut(
    inputs: list[Tensor], weight: Tensor | None, place: int, room: int | None
) -> tuple[list[Tensor], Tensor | None]:
    """The inputs with no more steps than a model of learned positions has room for beside what is added."""
    shape = inputs[place].shape[:2]
    if room is None or shape[1] <= room:
        return inputs, weight
    short = [one[:, : max(room, 0)] if one.shape[:2] == shape else one for one in inputs]
    short[place + 1] = inputs[place + 1].clamp_max(max(room, 0))
    return short, weight[:, : max(room, 0)] if weight is not None and weight.ndim > 1 else weight


def by_step(subject: Subject, outputs: Tensor) -> Tensor:
    """The outputs with steps on the second axis: those of a span have them on the last."""
    return outputs.transpose(1, 2) if subject.task.name == SPANS.name else outputs


def counted_changes(before: Tensor, after: Tensor, lengths: Tensor, weight: Tensor | None) -> Tensor:
    """Changes of the outputs that say something: of one output a step, those of the sequences' own steps.

    Outputs are one a step where there are more of them of longer sequences.

    Args:
        before: The outputs, of shape (batch, ...).
        after: Those of the longer sequences.
        lengths: Steps of each sequence.
        weight: Weights of the terms; a step of weight 0 is padding.
    """
    steps = before.shape[:2]
    counts = torch.ones(steps, dtype=torch.bool, device=before.device)
    if after.shape != before.shape:
        after = after[:, : before.shape[1]]
        counts = valid(lengths, before.shape[1])
    if weight is not None and weight.ndim == 2 and weight.shape == steps:
        counts = counts & (weight > 0)
    return (after - before)[counts]


@torch.no_grad()
def invariance(subject: Subject) -> Finding:
    """The largest change of an output where other numbers, and more, stand behind each sequence's end.

    What a model says at a step that is padding itself is not asked for.

    Args:
        subject: A model that takes the lengths of its sequences.
    """
    found = lengths_input(subject)
    if found is None:
        raise ValueError("this is asked of a model that takes the lengths of its sequences")
    place, given = found
    model, drawn = in_double(subject.model), drawn_rows(subject.test, EXAMPLES)
    parts, largest = [], 1.0
    room = min((m.longest - MORE for m in model.modules() if isinstance(m, LearnedPositions)), default=None)
    with eval_mode(model):
        for batch in drawn.batches:
            inputs = list(first_inputs(batch, EXAMPLES))
            x, weight = inputs[place], None if batch.weight is None else batch.weight[:EXAMPLES]
            if not given:
                inputs.append(torch.full((len(x),), x.shape[1], dtype=torch.int64, device=x.device))
            inputs, weight = cut(inputs, weight, place, room)
            x, lengths = inputs[place : place + 2]
            before = by_step(subject, model(*inputs))
            inputs = [F.pad(one, (0, MORE)) if one.shape == x.shape[:2] else one for one in inputs]
            inputs[place] = padded(x, lengths, Generator().manual_seed(0))
            after = by_step(subject, model(*inputs))
            parts.append(counted_changes(before, after, lengths, weight).abs().flatten())
            largest = max(largest, float(before.abs().amax()))
    changes, zero = torch.cat(parts), torch.zeros((), dtype=torch.float64)
    return Finding(
        statement=f"No output changes where {MORE} steps more, and other padding, stand behind the "
        f"sequences: the largest change, over {drawn.words()}.",
        value=changes.amax().cpu() if changes.numel() else torch.full((), math.nan),
        unit="output units",
        range=(0.0, math.inf),
        equals=zero,
        tolerance=ROUNDING * largest,
        failure="" if changes.numel() else "no held-out sequence has a step",
    )


def demo() -> Subject:
    """A small TCN that classifies sequences of 0 to 9 steps."""
    return example(lambda: classifier(2, 2, hidden=4, layers=2), (4, 9, 2), (0, 3, 9, 1))
