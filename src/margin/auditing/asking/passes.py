"""The cost of a forward and a backward pass: counted operation by operation, and timed.

The count is the same on every machine: see :mod:`margin.auditing.subject.operations`; of an estimator outside
of torch its calls and their rows count. How many examples an audit draws follows from it. The clock says what
still fits.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from margin.auditing.subject.operations import HELD, LIVE, OVERHEAD, Counter
from margin.auditing.subject.predictions import Predicting
from margin.core.deadline import check_deadline
from margin.core.findings import Subject, has_loss
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, rows_of
from margin.engine.loop import Risk

PREDICTED = (1e-3, 2e-5)
"""Seconds that a call of an estimator outside of torch counts for, and each row of it: a forest's, about."""

PROBE = 0.1
"""Counted seconds of a pass that are enough: a single example may take a tenth of many at once."""

COLD = 1.0
"""Seconds below which a pass is timed twice: a library warms up, another program may have the processor."""

NOTICED = 1 / 40
"""The part of an audit's time from which on a pass is not run only to time it better."""

FLAT = 1.5
"""By how much four times the examples may take longer where a pass waits rather than computes."""

SLOWER = 8.0
"""By how much a pass may take longer than it counts for, before fewer examples are drawn."""

STEP = 4.0
"""The factor by which all sizes are then stepped down."""

MANY = 1 / 16
"""The part of an audit's time up to which a pass of many small operations is counted on more examples."""


class Passes(NamedTuple):
    """Seconds of the forward pass of an example, and of a forward and a backward pass."""

    forward: float = 0.0
    gradient: float = 0.0

    def times(self, factor: float) -> "Passes":
        """Both, by a factor."""
        return Passes(factor * self.forward, factor * self.gradient)


class PassCost(NamedTuple):
    """What passes over an example cost.

    Args:
        counted: In seconds of the reference core: the same on every machine.
        timed: In seconds of this machine, as busy as it is.
        held: Bytes that a forward pass holds for the backward one; at least those of a few of its largest
            tensors, which it needs without a gradient too.
    """

    counted: Passes = Passes()
    timed: Passes = Passes()
    held: float = 0.0

    @property
    def rows(self) -> float:
        """How many examples a batch has at most whose pass holds no more than :data:`HELD`."""
        return HELD / self.held if self.held else math.inf

    def rows_within(self, seconds: float) -> int:
        """The same, of a pass that counts for so many seconds too, a power of 2; two, if they may be held.

        Two tell whether the examples of a batch read each other.
        """
        in_time = seconds / self.counted.gradient if self.counted.gradient > 0 else math.inf
        rows = max(min(self.rows, in_time), min(self.rows, 2.0), 1.0)
        return 2 ** int(math.log2(rows)) if math.isfinite(rows) else sys.maxsize

    @property
    def slower(self) -> float:
        """By what power of 4 all sizes are stepped down: 1 of a machine about as fast as the reference."""
        ratio = self.timed.gradient / self.counted.gradient if self.counted.gradient > 0 else 1.0
        return STEP ** math.ceil(math.log(max(ratio / SLOWER, 1.0), STEP))


def cost_of_passes(subject: Subject, seconds: float = math.inf) -> PassCost:
    """What a forward pass, and one with a backward pass, cost by their examples: of one, then of more.

    A batch is run whole only where its examples read each other. Of a model whose loss is another than one of
    its outputs the loss is run: its forward may be long, as a bound that sums over the thousand steps of a
    diffusion. Without a gradient both are the same.

    Args:
        subject: The model and its examples.
        seconds: What this may take, about: a pass that takes a part of it is not repeated, and one that takes
            no longer for more examples is next run on all of a batch, as if it waited for another machine.
    """
    if not len(subject.test):
        return PassCost()
    batch = subject.test[0]
    length = len(batch.inputs[0])
    size, before = 1 if subject.independent and batch.divisible else length, 0.0
    fewer: Counted | None = None
    with eval_mode(subject.model) as generator:
        while True:
            part = rows_of(batch, torch.arange(size)) if size < length else batch
            found = _counted(subject, part, generator)
            counted, timed = found.counted, found.timed
            enough = counted.gradient > PROBE or timed.gradient > SLOWER * PROBE
            if size >= length or fewer or (enough and not found.is_of_small(PROBE, MANY * seconds)):
                break
            long, flat = timed.gradient > NOTICED * seconds, timed.gradient < FLAT * before
            if enough:
                fewer = found
            elif long and before and not flat:
                break
            size, before = length if long and flat else min(4 * size, length), timed.gradient
        again = 2 if timed.gradient < min(COLD, NOTICED * seconds) else int(fewer is not None)
        for _ in range(again):  # counting makes small operations longer
            once = _passes(subject, part, generator, _clock(part))[0]
            timed = Passes(*map(min, once, timed))
    share = 1 / max(size, 1)
    cost = PassCost(counted.times(share), timed.times(share), found.held * share)
    return cost if fewer is None else _of_batches(cost, fewer, found, min(length, cost.rows))


class Counted(NamedTuple):
    """Both passes over some examples, counted and timed, the bytes they hold, and what small operations take.

    Args:
        rows: The examples.
        counted: In seconds of the reference core.
        timed: In seconds of this machine, which counting makes a little longer.
        held: Bytes.
        overhead: The part of the counted seconds that operations take however small they are.
    """

    rows: int
    counted: Passes
    timed: Passes
    held: int
    overhead: float

    def is_of_small(self, least: float, most: float) -> bool:
        """Whether it counts for such a time, most of it overhead, as of a recurrence over a long sequence."""
        return self.counted.gradient / 2 < self.overhead and least < self.counted.gradient <= most


def _of_batches(cost: PassCost, fewer: Counted, more: Counted, rows: float) -> PassCost:
    """The cost of an example in a batch of so many, by a line through those of fewer and of more.

    The thousands of steps of a recurrence are run once for all examples of a batch.
    """
    forward, gradient = (
        max(b + max(b - a, 0.0) / (more.rows - fewer.rows) * (rows - more.rows), 0.0) / rows
        for a, b in zip(fewer.counted, more.counted, strict=True)
    )
    counted = Passes(forward, gradient)
    return cost._replace(counted=counted, timed=cost.timed.times(gradient / cost.counted.gradient))


def _counted(subject: Subject, part: Batch, generator: Generator) -> Counted:
    """Both passes counted and timed, and the bytes they hold."""
    tensors = [*subject.model.parameters(), *subject.model.buffers()]
    counter, clock = Counter(len(part.inputs[0]), tensors), _clock(part)
    weights = {x.data_ptr() for x in tensors}
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            held[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        before = counter.seconds, counter.overhead
        alone = tensor.detach()  # the tensor itself would hold the graph that holds it, for ever
        counter.seconds, counter.overhead = before  # no operation of the model's
        return alone

    def predicted(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        counter.seconds += PREDICTED[0] + PREDICTED[1] * len(args[0])

    estimators = [module for module in subject.model.modules() if isinstance(module, Predicting)]
    handles = [module.register_forward_hook(predicted) for module in estimators]
    try:
        with counter, saved_tensors_hooks(pack, lambda tensor: tensor):
            counted, timed = _passes(subject, part, generator, lambda: counter.seconds, clock)
    except (RuntimeError, TypeError):  # its operations cannot be seen, as a script's; or the model is broken
        (timed,), counted = _passes(subject, part, generator, clock), Passes()
    finally:
        for handle in handles:
            handle.remove()
    bytes_held = max(sum(held.values()), LIVE * counter.largest)
    counted = Passes(*(max(seconds, OVERHEAD) for seconds in counted))
    return Counted(len(part.inputs[0]), counted, timed, bytes_held, counter.overhead)


def _passes(
    subject: Subject, batch: Batch, generator: Generator, *clocks: Callable[[], float]
) -> list[Passes]:
    """A forward pass, and both passes, by each clock."""
    weights = [p for p in subject.model.parameters() if p.requires_grad]
    own = has_loss(subject) and not isinstance(subject.objective, Risk)
    with torch.set_grad_enabled(len(weights) > 0):
        start = [now() for now in clocks]
        found = subject.objective(subject.model, batch, generator) if own else subject.model(*batch.inputs)
        forward = [now() - first for now, first in zip(clocks, start, strict=True)]
        if isinstance(found, Tensor) and found.requires_grad:
            try:
                torch.autograd.grad(found.sum(), weights, allow_unused=True)
            except RuntimeError:  # as of one that overwrites what it returned: what needs a gradient says so
                return [Passes(seconds, 3 * seconds) for seconds in forward]
        both = [now() - first for now, first in zip(clocks, start, strict=True)]
    return [Passes(*seconds) for seconds in zip(forward, both, strict=True)]


def _clock(batch: Batch) -> Callable[[], float]:
    def now() -> float:
        if batch.inputs[0].is_cuda:
            torch.cuda.synchronize(batch.inputs[0].device)
        return time.perf_counter()

    return now


class OutOfTime(BaseException):
    """The time of an audit is over, while it is found out by the model whether a question applies.

    No Exception: one that the model raises may be the answer.
    """


@contextmanager
def passes_until(model: nn.Module, end: float) -> Iterator[None]:
    """Within the block a pass that begins after ``end``, by ``time.perf_counter``, raises OutOfTime."""

    def refuse_late(module: nn.Module, args: tuple[Any, ...]) -> None:
        if time.perf_counter() > end:
            raise OutOfTime

    handle = model.register_forward_pre_hook(refuse_late)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def passes_in_time(model: nn.Module, passes: Passes) -> Iterator[None]:
    """Within the block a pass that would end after the deadline is refused, by what passes take an example.

    Raises:
        NotAsked: A pass was refused: "stopped after 20 s: a pass needs about 2 s of 1 s".
    """

    # no method, which a copy of the model would copy
    def refuse_late(module: nn.Module, args: tuple[Any, ...]) -> None:
        rows = len(args[0]) if args and isinstance(args[0], Tensor) and args[0].ndim else 1
        check_deadline(rows * (passes.gradient if torch.is_grad_enabled() else passes.forward), "a pass")

    handle = model.register_forward_pre_hook(refuse_late)
    try:
        yield
    finally:
        handle.remove()
