"""Streaming: a recurrence over a whole sequence is its step, applied to one input after the other."""

import math

import torch
from torch import Generator, Tensor

from margin.engine.descent import risk
from margin.findings import Finding, Subject
from margin.sequence.gru import classifier
from margin.sequence.heard import Heard, causal_ones, from_the_front, heard
from margin.sequence.recurrence import unrolled
from margin.tasks import CLASSES
from margin.types import Batch

ROUNDING = 1e-10
"""In parts of the largest number where that is above 1, in float64."""


def streams(subject: Subject) -> bool:
    """Whether the model has a causal recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and len(causal_ones(subject.model)) > 0


@torch.no_grad()
def difference(one: Heard) -> Tensor:
    """The largest difference between a whole pass and its steps: of outputs and of the state they leave.

    Args:
        one: A causal recurrence and what it was given.
    """
    start = one.recurrence.initial(one.x) if one.state is None else one.state
    whole, after = one.recurrence(one.x, one.lengths, start)
    apiece, state = unrolled(one.recurrence.step, one.x, one.lengths, start)
    pairs = [(whole, apiece), *zip(after, state, strict=True)]
    apart = torch.stack([_largest(a - b) for a, b in pairs]).amax()
    return (apart / torch.stack([_largest(b) for _, b in pairs]).amax().clamp_min(1)).cpu()


def _largest(x: Tensor) -> Tensor:
    return x.abs().double().amax() if x.numel() else x.abs().new_zeros(()).double()


def streaming(subject: Subject) -> Finding:
    """Whether each causal recurrence over whole sequences is its own step, applied to one input at a time.

    Compared are all outputs and the state after each example's own last step. It is what makes a model that
    was trained on whole sequences one that answers as they come.

    Args:
        subject: A model with causal recurrences; they are asked on the inputs that the held-out examples give
            them, in float64.
    """
    layers = heard(subject, causal_ones)
    zero = torch.zeros((), dtype=torch.float64)
    steps = max((one.x.shape[1] for one in layers), default=0)
    return Finding(
        statement=f"Over {steps} steps, outputs and last state of each recurrence are those of its step, one "
        "input at a time: the largest difference, in parts of the largest number.",
        value=torch.stack([difference(one) for one in layers]) if layers else torch.full((1,), math.nan),
        unit="1",
        range=(0.0, math.inf),
        low=zero,
        high=zero,
        tolerance=ROUNDING,
        labels=tuple(one.name.removeprefix("model.") for one in layers),
        premises=tuple(from_the_front(one.name, one.recurrence) for one in layers),
        reference="Goodfellow, Bengio and Courville 2016, Section 10.1",
        failure="" if layers else "the model calls its recurrences step by step, not on whole sequences",
    )


def demo() -> Subject:
    """A small GRU that classifies sequences of 0 to 9 steps."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 2, hidden=4, layers=2)
    x = torch.randn(4, 9, 2, generator=Generator().manual_seed(0))
    batch = Batch((x, torch.tensor([0, 3, 9, 1])), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
