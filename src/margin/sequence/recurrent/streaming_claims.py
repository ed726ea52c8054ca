"""Streaming: a recurrence over a whole sequence is its step, applied to one input after the other."""

import math

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.recurrence import State, unrolled
from margin.sequence.recurrent.gru import classifier
from margin.sequence.recurrent.heard import NOT_WHOLE, Heard, causal_ones, from_the_front, heard

ROUNDING = 1e-10
"""In parts of the largest number of an output or a state, in float64."""

EPS = torch.finfo(torch.float64).eps
FLOOR = torch.finfo(torch.float64).tiny / EPS
"""Where the largest number is below it, numbers underflow, and a difference is put in parts of this."""

GROWN = ROUNDING / 100
"""To which a move of 4 eps may grow: a step, a sum of many products, may round a hundred times as much."""


def streams(subject: Subject) -> bool:
    """Whether the model has a causal recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and len(causal_ones(subject.model)) > 0


@torch.no_grad()
def difference(one: Heard) -> Tensor:
    """The largest difference between a whole pass and its steps: of outputs and of the state they leave.

    Each is in parts of the largest number of that output or state.

    Args:
        one: A causal recurrence and what it was given.
    """
    start = _start(one)
    whole, after = one.recurrence(one.x, one.lengths, start)
    apiece, state = unrolled(one.recurrence.step, one.x, one.lengths, start)
    pairs = [(whole, apiece), *zip(after, state, strict=True)]
    return torch.stack([_largest(a - b) / _largest(b).clamp_min(FLOOR) for a, b in pairs]).amax().cpu()


def _start(one: Heard) -> State:
    return one.recurrence.initial(one.x) if one.state is None else one.state


def _largest(x: Tensor) -> Tensor:
    return x.abs().double().amax() if x.numel() else x.abs().new_zeros(()).double()


@torch.no_grad()
def growth(one: Heard) -> Tensor:
    """How far the steps move where each input and each state is off by 4 eps, after 1 .. T steps.

    It is the largest move of an output or a state, in parts of its largest number up to there: by so much two
    right computations may differ, since each rounds its states at every step.

    Args:
        one: A causal recurrence and what it was given.
    """
    start, generator = _start(one), Generator().manual_seed(0)
    moves, sizes = [], []

    def off(x: Tensor) -> Tensor:
        if not (x.is_floating_point() or x.is_complex()):
            return x
        ways = torch.randint(2, x.shape, generator=generator).double() * 2 - 1
        return x * (1 + 4 * EPS * ways).to(x.device)

    def both(x: Tensor, state: State) -> tuple[Tensor, State]:
        y, new = one.recurrence.step(x, state[: len(start)])
        y_off, new_off = one.recurrence.step(off(x), tuple(off(s) for s in state[len(start) :]))
        pairs = [(y_off, y), *zip(new_off, new, strict=True)]
        moves.append(torch.stack([_largest(a - b) for a, b in pairs]))
        sizes.append(torch.stack([_largest(b) for _, b in pairs]))
        return y, (*new, *new_off)

    unrolled(both, one.x, one.lengths, (*start, *start))
    largest = torch.stack(sizes).cummax(0).values.clamp_min(FLOOR)
    return (torch.stack(moves) / largest).amax(1)[: one.x.shape[1]].cpu()


def answer(one: Heard) -> tuple[Tensor, str]:
    """The difference of a recurrence, and why it says nothing; "" where it does.

    Where rounding alone may make the difference, the first steps are compared, over which it may not.

    Args:
        one: A causal recurrence and what it was given.
    """
    apart = difference(one)
    if not bool(apart > ROUNDING):
        return apart, ""
    grown = growth(one)
    late = (grown > GROWN).nonzero()
    if not len(late):
        return apart, ""
    steps, lengths = int(late[0]), one.lengths
    early = one._replace(x=one.x[:, :steps], lengths=None if lengths is None else lengths.clamp_max(steps))
    apart = difference(early)
    if bool(apart > ROUNDING):
        return apart, ""
    return apart, (
        f"rounding grows to {float(grown.amax()):.1g} of the largest number over the {len(grown)} steps of "
        f"{one.name.removeprefix('model.')}: ask on shorter sequences, of {steps} steps at most"
    )


def streaming(subject: Subject) -> Finding:
    """Whether each causal recurrence over whole sequences is its own step, applied to one input at a time.

    Compared are all outputs and the state after each example's own last step. It is what makes a model that
    was trained on whole sequences one that answers as they come. Of a chaotic recurrence two right
    computations differ too, for rounding grows from step to step: it fails where only that was seen.

    Args:
        subject: A model with causal recurrences; they are asked on the inputs that the held-out examples give
            them, in float64.
    """
    layers = heard(subject, causal_ones)
    answers = [answer(one) for one in layers]
    wrong = any(bool(value > ROUNDING) for value, _ in answers)
    failure = "" if wrong else "; ".join(why for _, why in answers if why)
    zero = torch.zeros((), dtype=torch.float64)
    steps = max((one.x.shape[1] for one in layers), default=0)
    return Finding(
        statement=f"Over {steps} steps, outputs and last state of each recurrence are those of its step, one "
        "input at a time: the largest difference, in parts of the largest number of each.",
        value=torch.stack([value for value, _ in answers]) if layers else torch.full((1,), math.nan),
        unit="1",
        range=(0.0, math.inf),
        low=zero,
        high=zero,
        tolerance=ROUNDING,
        labels=tuple(one.name.removeprefix("model.") for one in layers),
        premises=tuple(from_the_front(one.name, one.recurrence) for one in layers),
        reference="Goodfellow, Bengio and Courville 2016, Section 10.1",
        failure=failure if layers else NOT_WHOLE,
    )


def demo() -> Subject:
    """A small GRU that classifies sequences of 0 to 9 steps."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 2, hidden=4, layers=2)
    x = torch.randn(4, 9, 2, generator=Generator().manual_seed(0))
    batch = Batch((x, torch.tensor([0, 3, 9, 1])), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
