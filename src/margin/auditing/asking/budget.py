"""The claims of an audit: chosen by name or pattern, and by what fits into a budget of time."""

import fnmatch
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core import catalog
from margin.core.catalog import Claim, Need, UnknownName, nearest
from margin.core.findings import NotAsked, Subject, has_loss
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, rows_of, sample_examples
from margin.engine.loop import Risk

LONG = "needs about"
"""How the reason begins for which there was no time for a claim."""

LEAST = 0.2
"""Seconds that a claim takes however small the model is: what it loads, resamples and counts."""

REPORT = (8.0, 1 / 15)
"""Seconds, and at most which share of the budget, that are left for the findings and the report."""

PART = 1 / 40
"""The part of the budget that a question may take whose examples can be drawn, where it is one of many."""

FEW = (128, 32)
"""Examples that are drawn although they take more than that: so many where they take a quarter of the time
that remains, the second where they fit at all."""

PROBE = 0.25
"""Seconds of a pass that are enough to time it by: a single example may take a tenth of many at once."""

OVERRUN = (3.0, 1 / 8)
"""What a question may take: so many times what is expected, or this share of the budget if that is more."""

COLD = 1.0
"""Seconds below which a pass is timed twice: a library warms up, another program may have the processor."""

FARTHEST = 30.0
"""By how much, at most, what was measured corrects what is expected."""

ONE = 1.2
"""Passes, at most, of a question about the outputs alone, which are computed once for all."""

TELLING = ("right", "probabilities", "fails", "memorized", "moves", "rests")
"""The questions of a user that are answered first, in this order."""


def _kind(claim: Claim) -> str:
    """The package of what a claim runs."""
    return claim.ask.partition(":")[0].rpartition(".")[0]


class Budget:
    """The time that is left of an audit, and what each question is expected to take of it.

    A question costs so many passes over so many examples; a forward and a backward pass are timed on the
    first of them, and what the questions took corrects what the next are expected to. One that can draw its
    examples draws so few that it takes its part of the time: the same number for all questions of a kind, so
    that their answers are of the same examples.

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
        total = 60 * minutes
        self._end = (
            (time.perf_counter() if began is None else began) + total - min(REPORT[0], REPORT[1] * total)
        )
        self._part = total * max(PART, 1 / named if named else 0.0)
        self._limited = math.isfinite(minutes)
        self._until = math.inf
        self._said: dict[tuple[str, int | None], float] = {}  # before the answer
        self._subject = subject
        self._ratios = [1.0]  # one answer does not outweigh what is expected
        self._alike: dict[str, list[float]] = {}  # of the claims of one package, which ask in one way
        self._passes: dict[str, float] = {}  # of the dearest claim of each package that draws examples
        self._most: dict[str, int] = {}  # examples that they draw
        self._total = total
        self.drawn_of_test = ""  # which held-out examples are asked, where not all
        self._sizes = {
            part: count(batches) for part, batches in (("test", subject.test), ("train", subject.train))
        }
        self.needs: dict[Need, bool] = {}  # which are met, as far as was found out
        self._forward = self._gradient = 0.0
        if self._limited:
            self._forward, self._gradient = seconds_per_example(subject)

    def within(self, subject: Subject) -> Subject:
        """The subject with as many held-out examples as the model answers in a quarter of the time.

        All of them, where they fit, read each other or stand in groups; else drawn at random, at least 128.
        """
        fits = self._total / 4 / self._forward if self._forward > 0 else math.inf
        if subject.groups or not subject.independent or self._sizes["test"] <= max(fits, FEW[0]):
            return subject
        found = sample_examples(subject.test, max(int(fits), FEW[0]))
        self._subject = replace(subject, test=list(found.batches))
        self._sizes["test"] = found.taken
        self.drawn_of_test = f"{found.taken:,} of {found.among:,} drawn"
        return self._subject

    def seconds(self, claim: Claim, most: int | None = None) -> float:
        """What a question is expected to take, by the median of what others took beside what was expected.

        Of a model that is dear to differentiate the questions of curvature say so, not those of accuracy: the
        median is of the questions of its kind that were answered, and of that of all.

        Args:
            claim: The question.
            most: Examples that it draws at most, where it can; None: as many as it says.
        """
        return LEAST + self._expected(claim, most) * self._correction(claim)

    def _correction(self, claim: Claim) -> float:
        return median([median(self._ratios), *self._alike.get(_kind(claim), [])])

    def took(self, claim: Claim, seconds: float, most: int | None = None) -> None:
        """Learn from the time of an answer; where hardly any was expected or taken, it tells nothing."""
        # what the answer has computed for all is no longer expected, and was
        expected = self._said.pop((claim.name, most), None) or self._expected(claim, most)
        if self._limited and expected > 0 and max(expected, seconds) > LEAST:
            ratio = max(seconds - LEAST, 0.0) / expected
            ratio = min(max(ratio, 1 / FARTHEST), FARTHEST)
            self._ratios.append(ratio)
            self._alike.setdefault(_kind(claim), []).append(ratio)

    def _expected(self, claim: Claim, most: int | None = None) -> float:
        """The passes over examples, as one was timed."""
        cost = claim.cost
        whole = not 0 < cost.limit < self._sizes[cost.part]
        if cost.passes <= ONE and whole and f"outputs on {cost.part}" in self._subject.kept:
            return 0.0
        examples = self._examples(claim)
        if most is not None and cost.drawn:
            examples = min(examples, most)
        return cost.passes * examples * self._per_pass(claim)

    def _examples(self, claim: Claim) -> int:
        cost = claim.cost
        examples = self._sizes[cost.part] or self._sizes["test"]
        return min(examples, cost.limit) if cost.limit else examples

    def _per_pass(self, claim: Claim) -> float:
        """Seconds of one of a question's passes over an example; of many, most are of a gradient, of 3."""
        return max(self._forward, self._gradient / 3) if claim.cost.passes >= 3 else self._forward

    def order(self, claims: Sequence[Claim], first: Sequence[Claim] = ()) -> list[Claim]:
        """What is required first, then what tells most, then the cheapest; as given without a limit."""
        required = [claim for claim in claims if claim in first]
        others = [claim for claim in claims if claim not in first]
        if not self._limited:
            return required + others
        for claim in claims:
            if claim.cost.drawn and not claim.by_name:
                kind = _kind(claim)
                self._passes[kind] = max(self._passes.get(kind, 0.0), claim.cost.passes)
        return required + sorted(others, key=lambda claim: (_rank(claim), self.seconds(claim, FEW[0])))

    def drawn(self, claim: Claim) -> int | None:
        """How many examples a question draws at most, so that it takes its part; None: as many as it says."""
        if not (self._limited and claim.cost.drawn):
            return None
        most, left = self._share(claim), self._end - time.perf_counter()
        if most <= FEW[0] and self.seconds(claim, FEW[0]) > left / 4:
            most = FEW[1]
        return most

    def _share(self, claim: Claim) -> int:
        """The examples, a power of 2, on which the dearest question of its kind takes its part of time."""
        kind, examples = _kind(claim), self._examples(claim)
        if kind not in self._most:
            each = self._passes.get(kind, claim.cost.passes) * self._per_pass(claim) * self._correction(claim)
            fits = self._part / each if each > 0 else math.inf
            self._most[kind] = 2 ** int(math.log2(max(fits, FEW[0]))) if math.isfinite(fits) else sys.maxsize
        return max(examples, self._sizes["train"]) if self._most[kind] >= examples else self._most[kind]

    @contextmanager
    def bounded(self, claim: Claim, most: int | None = None) -> Iterator[None]:
        """Within the block a pass of the model is refused that would end after the question's time.

        So every loop over passes ends, whichever it is: of Lanczos, of an attack, over batches.

        Raises:
            NotAsked: By the pass that is refused: "stopped after 20 s: a pass needs about 2 s of 1 s".
        """
        if not self._limited:
            yield
            return
        start = time.perf_counter()
        self._said[claim.name, most] = self._expected(claim, most)
        allowed = max(OVERRUN[0] * self.seconds(claim, most), OVERRUN[1] * self._total)
        self._until = min(self._end, start + allowed)
        forward, gradient = (x * self._correction(claim) for x in (self._forward, self._gradient))

        def refuse_late(
            module: nn.Module, args: tuple[Any, ...]
        ) -> None:  # no method, which a copy would copy
            rows = len(args[0]) if args and isinstance(args[0], Tensor) and args[0].ndim else 1
            needs = rows * (gradient if torch.is_grad_enabled() else forward)
            if (now := time.perf_counter()) + needs > self._until:
                took, left = duration(now - start), duration(max(self._until - now, 0.0))
                raise NotAsked(f"stopped after {took}: a pass needs about {duration(needs)} of {left}")

        handle = self._subject.model.register_forward_pre_hook(refuse_late)
        try:
            yield
        finally:
            handle.remove()
            self._until = math.inf  # of a copy that is kept for other questions

    @property
    def can_name_the_worst(self) -> bool:
        """Whether the outputs on all held-out examples are known, or their passes fit."""
        passes = 2 * self._forward * self._sizes["test"]
        fits = "outputs on test" in self._subject.kept or passes <= self._end - time.perf_counter()
        return fits and not self.drawn_of_test

    def lacking(self, claim: Claim, most: int | None = None) -> str:
        """Why a question is not asked ("needs about 3 min of the 1 min that remain"), or ""."""
        left = self._end - time.perf_counter()
        needed = self.seconds(claim, most)
        if not self._limited or needed <= left:
            return ""
        on = f" on {most} examples" if most is not None and most < self._examples(claim) else ""
        return f"{LONG} {duration(needed)}{on} of the {duration(max(left, 0.0))} that remain"


def _rank(claim: Claim) -> int:
    return TELLING.index(claim.question) if claim.question in TELLING else len(TELLING)


def seconds_per_example(subject: Subject) -> tuple[float, float]:
    """The time of a forward pass by its examples, and with a backward pass: of one, then of more.

    A batch is run whole only where its examples read each other. Of a model whose loss is another than one of
    its outputs the loss is timed: its forward may be long, as a bound that sums over the thousand steps of a
    diffusion. Without a gradient both are the same.
    """
    if not len(subject.test):
        return 0.0, 0.0
    batch = subject.test[0]
    length = len(batch.inputs[0])
    size = 1 if subject.independent and batch.divisible else length
    with eval_mode(subject.model) as generator:
        while True:
            part = rows_of(batch, torch.arange(size)) if size < length else batch
            forward, both = _timed(subject, part, generator)
            if both < COLD:
                forward, both = map(min, zip((forward, both), _timed(subject, part, generator), strict=True))
            if both > PROBE or size >= length:
                return forward / max(size, 1), both / max(size, 1)
            size = min(4 * size, length)


def _timed(subject: Subject, batch: Batch, generator: Generator) -> tuple[float, float]:
    """Seconds of a forward pass, and of both passes."""
    weights = [p for p in subject.model.parameters() if p.requires_grad]
    own = has_loss(subject) and not isinstance(subject.objective, Risk)
    with torch.set_grad_enabled(len(weights) > 0):
        start = _now(batch)
        found = subject.objective(subject.model, batch, generator) if own else subject.model(*batch.inputs)
        forward = _now(batch) - start
        if isinstance(found, Tensor) and found.requires_grad:
            try:
                torch.autograd.grad(found.sum(), weights, allow_unused=True)
            except RuntimeError:  # as of one that overwrites what it returned: what needs a gradient says so
                return forward, 3 * forward
        return forward, _now(batch) - start


def _now(batch: Batch) -> float:
    if batch.inputs[0].is_cuda:
        torch.cuda.synchronize(batch.inputs[0].device)
    return time.perf_counter()


def count(batches: Sequence[Batch]) -> int:
    """The examples of batches of one size, the last perhaps smaller, without making them all."""
    if not len(batches):
        return 0
    return (len(batches) - 1) * len(batches[0].inputs[0]) + len(batches[-1].inputs[0])


def duration(seconds: float) -> str:
    """A time in the unit that people would name it in: "4 s", "3 min", "2.5 h"."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 0.95 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


def claims_named(patterns: Sequence[str]) -> list[Claim]:
    """The claims whose name matches a pattern, or has it as a part.

    Raises:
        UnknownName: A pattern matches none.
    """
    table = catalog.claims()
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in table):
            raise UnknownName(f"no claim matches {pattern!r}; {_see(pattern)}")
    return [row for name, row in table.items() if any(_matches(name, pattern) for pattern in patterns)]


def claim_named(name: str) -> Claim:
    """The one claim of that name: in full, by what follows its last ``/`` or ``.``, or as the only match.

    Of several that end alike the one is meant that asks whether the model is right: ``accuracy`` is that on
    held-out examples.

    Raises:
        UnknownName: No claim has that name, or several do.
    """
    table = catalog.claims()
    if name in table:
        return table[name]
    short = [full for full in table if name in (full.rpartition("/")[2], full.rpartition(".")[2])]
    short = [full for full in short if table[full].question == "right"] or short
    found = short or [full for full in table if _matches(full, name)]
    right = [full for full in short if table[full].question == "right"]
    if len(right) == 1:
        return table[right[0]]
    if len(found) > 1:
        raise UnknownName(f"claim {name!r} could be {', '.join(found)}: give the full name")
    if not found:
        raise UnknownName(f"unknown claim {name!r}; {_see(name)}")
    return table[found[0]]


def _see(name: str) -> str:
    forms = {full.rpartition(".")[2]: full for full in reversed(list(catalog.claims()))}  # the first counts
    near = list(dict.fromkeys([*(forms[n] for n in nearest(name, forms)), *nearest(name, catalog.claims())]))
    return f"nearest: {', '.join(near[:3]) or 'none'}; see margin list --kind claim"


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*{pattern}*")
