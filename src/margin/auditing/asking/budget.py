"""The claims of an audit that fit into a budget of time, and of how many examples."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from statistics import median

from torch import nn

from margin.auditing.asking.passes import PassCost, Passes, cost_of_passes, passes_in_time, passes_until
from margin.core.catalog import Claim, Need
from margin.core.deadline import deadline, duration
from margin.core.findings import Subject
from margin.core.types import Batch
from margin.data.examples import InOrder
from margin.engine.evaluation import pieces_of, sample_examples
from margin.engine.parallel.processes import large_blocks_given_back
from margin.theory.evidence.rows import MOST_TRAINING, in_groups

LONG = "needs about"
"""How the reason begins for which there was no time for a claim."""

LEAST = 0.2
"""Seconds that a claim takes however small the model is: what it loads, resamples and counts."""

REPORT = (8.0, 1 / 15)
"""Seconds, and at most which share of the budget, that are left for the findings and the report."""

STARVED, SPIN = 3.0, 2e-3
"""How many times as long they are, at most, where others use the processor too, which is seen by a spin of so
many of its seconds before each question."""

ANSWERS = (1 / 4, 1 / 16)
"""The parts of the budget in which the model answers the held-out examples, and those of training."""

DEAR = 1 / 100
"""The part of the budget above which a question waits until cheaper ones that tell something are asked."""

PART = 1 / 40
"""The part of the budget that a question may take whose examples can be drawn, where it is one of many."""

FEW = (128, 32, 4)
"""Examples that are drawn although they count for more: so many up to a quarter of the budget, half of them
from a twelfth on, else the second; of examples of many targets that cost more still the third, which are as
many targets."""

PLACES = 100
"""Targets of an example, pixels or tokens, that are many."""

ONE_PASS = 1 / 60
"""The part of the budget that a batch's forward and backward pass counts for at most: none is cut short."""

MOST_HELD = 2**29
"""Bytes that the gradient of one example may hold."""

LARGE = 2**25
"""Bytes that a pass over one example holds, from which on its tensors go back to the system when freed."""

HOLDS = f"{LONG} {{:,.0f}} MiB for the gradient of one example of the {{:,.0f}} that it may take"
"""What is said of a question for whose gradients there is not the memory."""

OVERRUN = (3.0, 1 / 8)
"""What a question may take: so many times what is expected, or this share of the budget if that is more."""

FARTHEST = 30.0
"""By how much, at most, what was measured corrects what is expected."""

ONE = 1.2
"""Passes, at most, of a question about the outputs alone, which are computed once for all."""

SLOW = (
    "a pass takes far longer here than its operations count for (code outside of torch, a kernel that is not "
    "seen, or a slow machine): questions draw 1/{:.0f} of the examples that they draw elsewhere"
)
"""What is said where all sizes are stepped down."""

OUTPUTS = {part: f"outputs on {of}" for part, of in (("test", "test"), ("answered", "train"), ("train", ""))}
"""Under which name a subject keeps the outputs on the examples of each part, all of them."""

TELLING = ("right", "probabilities", "fails", "memorized", "moves", "rests")
"""The questions of a user that are answered first, in this order."""


def _kind(claim: Claim) -> str:
    """The package of what a claim runs."""
    return claim.ask.partition(":")[0].rpartition(".")[0]


class Clock:
    """The time of an audit, and when its questions end, so that the report is written within it.

    Args:
        seconds: All of it.
        began: When it began, by ``time.perf_counter``; now, if not given.
    """

    def __init__(self, seconds: float, began: float | None = None) -> None:
        self._seconds, self._start = seconds, time.perf_counter() if began is None else began
        self._spun = [0.0, 0.0]  # seconds of the wall, and of the processor
        self.late = 0.0  # seconds after the end in which it was found out what applies
        self.look_at_load()

    def look_at_load(self) -> None:
        """Set the end earlier where others use the processor too, by a spin, which takes longer there."""
        wall, processor = time.perf_counter(), time.thread_time()
        while time.thread_time() < processor + SPIN:
            pass
        spun = time.perf_counter() - wall, time.thread_time() - processor
        self._spun = [a + b for a, b in zip(self._spun, spun, strict=True)]
        slower = min(max(self._spun[0] / self._spun[1], 1.0), STARVED)
        self.end = self._start + self._seconds - slower * min(REPORT[0], REPORT[1] * self._seconds)

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.perf_counter()

    @contextmanager
    def passes_of(self, model: nn.Module) -> Iterator[None]:
        """Within the block no pass of a model begins after the end: it raises OutOfTime."""
        start = time.perf_counter()
        try:
            with passes_until(model, self.end):
                yield
        finally:
            self.late += max(time.perf_counter() - max(start, self.end), 0.0)


class Budget:
    """The time that is left of an audit, and what each question is expected to take of it.

    A question costs so many passes over so many examples. How many of these it draws follows from what a pass
    *counts* for, whatever the machine and its load, so that two audits differ in no answer: of the questions
    of a kind all draw the same examples, on which the dearest counts for its part of the budget. The *clock*
    only leaves questions out: a pass is timed, and what the questions took corrects what the next are
    expected to.

    The clock is the wall's, not the processor's: a user waits, or a job of continuous integration is ended,
    by the former, and a model that waits (for an accelerator, another machine, a lock) takes none of the
    latter. On a machine that others use too a pass is timed by the least of several, so that only the load of
    many draws fewer examples, which is said; any other is learned from the first answers, and what it leaves
    no time for are the dear questions, which come last.

    Args:
        subject: The model under audit.
        minutes: What the audit may take; inf for any time.
        began: When it began, by ``time.perf_counter``; now, if not given.
        named: How many questions were asked by name, which share the time; 0: all that apply.

    Raises:
        ValueError: The minutes are not above 0.
    """

    def __init__(
        self, subject: Subject, minutes: float = math.inf, *, began: float | None = None, named: int = 0
    ) -> None:
        if not minutes > 0:
            raise ValueError(f"minutes must be above 0: got {minutes:g}")
        self._total = total = 60 * minutes
        self._clock = Clock(total, began)
        self._part = total * max(PART, 1 / named if named else 0.0)
        self._limited = math.isfinite(minutes)
        self._said: dict[tuple[str, int | None], float] = {}  # before the answer
        self._subject = subject
        self._ratios = [1.0]  # one answer does not outweigh what is expected
        self._alike: dict[str, list[float]] = {}  # of the claims of one package, which ask in one way
        self._passes: dict[str, float] = {}  # of the dearest claim of each package that draws examples
        self.drawn_of_test = ""  # which held-out examples are asked, where not all
        self._sizes = {"test": count(subject.test), "train": count(subject.train)}
        most = sys.maxsize if in_groups(subject.train) else MOST_TRAINING
        self._sizes["answered"] = min(self._sizes["train"], most)
        self.needs: dict[Need, bool] = {}  # which are met, as far as was found out
        cost = cost_of_passes(subject, total) if self._limited else PassCost()
        self._timed, self._counted, self._held = cost.timed, cost.counted.times(cost.slower), cost.held
        self._rows = cost.rows_within(ONE_PASS * total)
        self._first, self._places = min(self._rows, _rows(subject)), _places(subject)
        self.has_many_places = self._places >= PLACES  # as an image has pixels
        self.assumed = (SLOW.format(cost.slower),) if cost.slower > 1 else ()

    def within(self, subject: Subject) -> Subject:
        """The subject with as many held-out examples as the model answers in a quarter of the time, counted.

        All of them, where they fit, read each other or stand in groups; else a power of 2 drawn at random, at
        least 128. So it is with the training examples that it answers, in a sixteenth. Batches are cut to as
        many as hold some memory in a pass.
        """
        if not subject.independent:
            return subject
        fits, fits_of_train = (self._fits(part * self._total, self._counted.forward) for part in ANSWERS)
        if self._sizes["answered"] > fits_of_train and not in_groups(subject.train):
            self._sizes["answered"] = fits_of_train
            subject = replace(subject, most_answered=fits_of_train)
        if not subject.groups and self._sizes["test"] > fits:
            found = sample_examples(subject.test, fits)
            subject = replace(subject, test=list(found.batches))
            self._sizes["test"] = found.taken
            self.drawn_of_test = f"{found.taken:,} of {found.among:,} drawn"
        test, train = (cut(batches, self._rows) for batches in (subject.test, subject.train))
        if test is not subject.test or train is not subject.train:
            subject = replace(subject, test=test, train=train)
        self._subject = subject
        return subject

    def _fits(self, seconds: float, each: float) -> int:
        """How many examples count for so many seconds at most: a power of 2, at least 128."""
        fits = seconds / each if each > 0 else math.inf
        return 2 ** int(math.log2(max(fits, FEW[0]))) if math.isfinite(fits) else sys.maxsize

    def seconds(self, claim: Claim, most: int | None = None) -> float:
        """What a question is expected to take, by the median of what others took beside what was expected.

        Of a model that is dear to differentiate the questions of curvature say so, not those of accuracy: the
        median is of the questions of its kind that were answered, and of that of all.

        Args:
            claim: The question.
            most: Examples that it draws at most, where it can; None: as many as it says.
        """
        return LEAST + self._expected(claim, most, self._timed) * self._correction(claim)

    def _correction(self, claim: Claim) -> float:
        return median([median(self._ratios), *self._alike.get(_kind(claim), [])])

    def took(self, claim: Claim, seconds: float, most: int | None = None) -> None:
        """Learn from the time of an answer; of hardly any time, or without a pass, it tells nothing."""
        # what the answer has computed for all is no longer expected, and was
        expected = self._said.pop((claim.name, most), None) or self._expected(claim, most, self._timed)
        if self._limited and claim.cost.passes and expected > 0 and max(expected, seconds) > LEAST:
            ratio = max(seconds - LEAST, 0.0) / expected
            ratio = min(max(ratio, 1 / FARTHEST), FARTHEST)
            self._ratios.append(ratio)
            self._alike.setdefault(_kind(claim), []).append(ratio)

    def _expected(self, claim: Claim, most: int | None, passes: Passes) -> float:
        """The passes over examples, at what one takes or counts for, and what is computed beside them."""
        cost = claim.cost
        examples = self._examples(claim)
        if most is not None and cost.drawn:
            examples = min(examples, most)
        whole = not 0 < cost.limit < self._sizes[cost.part]
        known = cost.passes <= ONE and whole and OUTPUTS[cost.part] in self._subject.kept
        rows = self._sizes["test"] + (self._sizes[cost.part] if cost.part != "test" else 0)
        each = self._places if cost.passes else 1  # of answers, or of rows of the data
        beside = cost.beside * each * (min(rows, cost.limit) if cost.limit else rows)
        return beside + (0.0 if known else cost.passes * examples * _each(claim, passes))

    def _examples(self, claim: Claim) -> int:
        cost = claim.cost
        examples = self._first if cost.first else self._sizes[cost.part] or self._sizes["test"]
        return min(examples, cost.limit) if cost.limit else examples

    def order(self, claims: Sequence[Claim], first: Sequence[Claim] = ()) -> list[Claim]:
        """What is required first, then what tells most, then what counts least; as given without a limit.

        What is dear comes after all that tells something and is not: one question about what moves the model
        shall not cost all of those of what the numbers rest on. Outputs are computed once for all and make no
        question dear.
        """
        required = [claim for claim in claims if claim in first]
        others = [claim for claim in claims if claim not in first]
        if not self._limited:
            return required + others
        for claim in claims:
            if claim.cost.drawn and not claim.by_name:
                self._passes[_kind(claim)] = max(self._passes.get(_kind(claim), 0.0), claim.cost.passes)

        def place(claim: Claim) -> tuple[bool, int, bool, float]:
            of_outputs = 0 < claim.cost.passes <= ONE and not claim.cost.drawn
            work = self._expected(claim, FEW[0], self._counted)
            later = (not of_outputs and work > DEAR * self._total) or _rank(claim) == len(TELLING)
            return later, _rank(claim), not of_outputs, work

        return required + sorted(others, key=place)

    def drawn(self, claim: Claim) -> int | None:
        """How many examples a question draws at most, so that it counts for its part; None: all that it says.

        It is a power of 2, on which the dearest question of its kind counts for that.
        """
        if not (self._limited and claim.cost.drawn):
            return None
        each, passes = _each(claim, self._counted), self._passes.get(_kind(claim), claim.cost.passes)
        most, examples = self._fits(self._part, each * passes), self._examples(claim)
        parts = [self._expected(claim, few, self._counted) / self._total for few in FEW]
        if most <= FEW[0] and parts[0] > 1 / 12:
            fewest = parts[1] > 1 / 4 and self.has_many_places
            return FEW[1 + fewest] if parts[0] > 1 / 4 else FEW[0] // 2
        return max(examples, self._sizes["train"]) if most >= examples else most

    def sample(self, claim: Claim, most: int | None) -> str:
        """Which held-out examples a question is asked of, where not of all that its row says: "128 drawn"."""
        if claim.cost.part != "test":
            return ""
        few = most is not None and most < self._examples(claim) and self._subject.independent
        return f"{most:,} drawn" if few else self.drawn_of_test

    @contextmanager
    def bounded(self, claim: Claim, most: int | None = None) -> Iterator[None]:
        """Within the block a pass of the model is refused that would end after the question's time.

        So every loop over passes ends, whichever it is: of Lanczos, of an attack, over batches. Loops that
        pass nothing through the model read the deadline themselves.

        Raises:
            NotAsked: A pass was refused: "stopped after 20 s: a pass needs about 2 s of 1 s".
        """
        if not self._limited:
            yield
            return
        self._said[claim.name, most] = self._expected(claim, most, self._timed)
        allowed = max(OVERRUN[0] * self.seconds(claim, most), OVERRUN[1] * self._total)
        passes = self._timed.times(self._correction(claim))
        until = min(self._clock.end, time.perf_counter() + allowed)
        with passes_in_time(self._subject.model, passes), deadline(until), _memory_for(self._held):
            yield

    def can_tell(self, claim: Claim) -> bool:
        """Whether it is known, or there is time to find out, whether a question applies."""
        known = all(need.model or need in self.needs for need in claim.needs)
        return known or self._clock.late <= ONE_PASS * self._total

    def until_its_end(self) -> AbstractContextManager[None]:
        """Within the block no pass of the model begins when the audit's time is over: it raises OutOfTime."""
        return self._clock.passes_of(self._subject.model) if self._limited else nullcontext()

    @property
    def can_name_the_worst(self) -> bool:
        """Whether the outputs on all held-out examples are known, or their passes fit."""
        fits = 2 * self._timed.forward * self._sizes["test"] <= self._clock.left
        return ("outputs on test" in self._subject.kept or fits) and not self.drawn_of_test

    def lacking(self, claim: Claim, most: int | None = None) -> str:
        """Why a question is not asked ("needs about 3 min of the 1 min that remain"), or ""."""
        if self._limited and claim.cost.passes >= 3 and self._held > MOST_HELD:
            return HOLDS.format(self._held / 2**20, MOST_HELD / 2**20)
        self._clock.look_at_load()
        left, needed = self._clock.left, self.seconds(claim, most)
        if not self._limited or needed <= left:
            return ""
        on = f" on {most} examples" if most is not None and most < self._examples(claim) else ""
        return f"{LONG} {duration(needed)}{on} of the {duration(max(left, 0.0))} that remain"


def _memory_for(held: float) -> AbstractContextManager[None]:
    """Within it what large passes free goes back to the system; of others nothing changes."""
    return large_blocks_given_back() if held > LARGE else nullcontext()


def _rows(subject: Subject) -> int:
    """Examples of the first batch."""
    return len(subject.test[0].inputs[0]) if len(subject.test) else 0


def _places(subject: Subject) -> int:
    """Targets of an example."""
    targets = subject.test[0].targets if len(subject.test) else None
    return 1 if targets is None else targets[:1].numel()


def _each(claim: Claim, passes: Passes) -> float:
    """Seconds of one of a question's passes over an example; of many, most are of a gradient, of 3."""
    return max(passes.forward, passes.gradient / 3) if claim.cost.passes >= 3 else passes.forward


def cut(batches: Sequence[Batch], rows: int) -> Sequence[Batch]:
    """The same examples in batches of at most so many, where theirs can be cut."""
    if not len(batches) or len(batches[0].inputs[0]) <= rows or not batches[0].divisible:
        return batches
    if isinstance(batches, InOrder):
        return InOrder(
            batches.examples, rows, dtype=batches.dtype, device=batches.device, share=batches.share
        )
    return list(pieces_of(batches, rows))


def _rank(claim: Claim) -> int:
    return TELLING.index(claim.question) if claim.question in TELLING else len(TELLING)


def count(batches: Sequence[Batch]) -> int:
    """The examples of batches of one size, the last perhaps smaller, without making them all."""
    if not len(batches):
        return 0
    return (len(batches) - 1) * len(batches[0].inputs[0]) + len(batches[-1].inputs[0])
