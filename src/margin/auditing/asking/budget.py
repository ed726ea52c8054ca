"""The claims of an audit: chosen by name or pattern, and by what fits into a budget of time."""

import fnmatch
import math
import time
from collections.abc import Sequence
from statistics import median

import torch

from margin.core import catalog
from margin.core.catalog import Claim, UnknownName, nearest
from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode

LONG = "needs about"
"""How the reason begins for which there was no time for a claim."""

LEAST = 0.2
"""Seconds that a claim takes however small the model is: what it loads, resamples and counts."""

HARDEST = 2.0
"""Passes over the held-out examples that the audit itself needs at its end."""


PROBE = 0.02
"""Seconds of a forward pass that are enough to time it by."""

FARTHEST = 30.0
"""By how much, at most, what was measured corrects what is expected."""


def _kind(claim: Claim) -> str:
    """The package of what a claim runs."""
    return claim.ask.partition(":")[0].rpartition(".")[0]


class Budget:
    """The time that is left of an audit, and what each question is expected to take of it.

    A question costs so many forward passes over so many examples; one pass is timed on the first of them, and
    what the questions took corrects what the next are expected to. The clock starts with the plan, and runs
    while it is made and while it is found which questions apply.

    Args:
        subject: The model under audit.
        minutes: What the audit may take; inf for any time.

    Raises:
        ValueError: The minutes are not above 0.
    """

    def __init__(self, subject: Subject, minutes: float = math.inf) -> None:
        if not minutes > 0:
            raise ValueError(f"minutes must be above 0: got {minutes:g}")
        self._end = time.perf_counter() + 60 * minutes
        self._limited = math.isfinite(minutes)
        self._subject = subject
        self._ratios = [1.0]  # one answer does not outweigh what is expected
        self._alike: dict[str, list[float]] = {}  # of the claims of one package, which ask in one way
        self._per_example = seconds_per_example(subject) if self._limited else 0.0
        if self._limited:
            self._end -= HARDEST * self._per_example * count(subject.test)

    def seconds(self, claim: Claim) -> float:
        """What a question is expected to take, by the median of what others took beside what was expected.

        Of a model that is dear to differentiate the questions of curvature say so, not those of accuracy: the
        median is of the questions of its kind that were answered, and of that of all.
        """
        own = self._alike.get(_kind(claim), [])
        return LEAST + self._expected(claim) * median([median(self._ratios), *own])

    def took(self, claim: Claim, seconds: float) -> None:
        """Learn from the time of an answer; where hardly any was expected or taken, it tells nothing."""
        expected = self._expected(claim)
        if self._limited and expected > 0 and max(expected, seconds) > LEAST:
            ratio = max(seconds - LEAST, 0.0) / expected
            ratio = min(max(ratio, 1 / FARTHEST), FARTHEST)
            self._ratios.append(ratio)
            self._alike.setdefault(_kind(claim), []).append(ratio)

    def _expected(self, claim: Claim) -> float:
        """The passes over examples, as one was timed."""
        cost = claim.cost
        examples = count(self._subject.train if cost.part == "train" else ()) or count(self._subject.test)
        if cost.limit:
            examples = min(examples, cost.limit)
        return cost.passes * examples * self._per_example

    def order(self, claims: Sequence[Claim], first: Sequence[Claim] = ()) -> list[Claim]:
        """What is required first, then the cheapest; in the given order where time is not limited."""
        required = [claim for claim in claims if claim in first]
        others = [claim for claim in claims if claim not in first]
        return required + (sorted(others, key=self.seconds) if self._limited else others)

    def lacking(self, claim: Claim) -> str:
        """Why a question is not asked ("needs about 3 min of the 1 min that remain"), or ""."""
        left = self._end - time.perf_counter()
        needed = self.seconds(claim)
        if not self._limited or needed <= left:
            return ""
        return f"{LONG} {duration(needed)} of the {duration(max(left, 0.0))} that remain"


@torch.no_grad()
def seconds_per_example(subject: Subject) -> float:
    """The time of a forward pass by its examples: of one, then of more while they take next to nothing.

    A batch is run whole only where its examples read each other: a forward may be long, as a bound that sums
    over the thousand steps of a diffusion.
    """
    if not len(subject.test):
        return 0.0
    batch = subject.test[0]
    length = len(batch.inputs[0])
    size = 1 if subject.independent and batch.divisible else length
    with eval_mode(subject.model):
        while True:
            inputs = tuple(x[:size] for x in batch.inputs) if size < length else batch.inputs
            start = time.perf_counter()
            subject.model(*inputs)
            if batch.inputs[0].is_cuda:
                torch.cuda.synchronize(batch.inputs[0].device)
            seconds = time.perf_counter() - start
            if seconds > PROBE or size >= length:
                return seconds / max(size, 1)
            size = min(4 * size, length)


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
    # of those that end alike the first
    forms = {full.rpartition(".")[2]: full for full in reversed(list(catalog.claims()))}
    near = list(dict.fromkeys([*(forms[n] for n in nearest(name, forms)), *nearest(name, catalog.claims())]))
    return f"nearest: {', '.join(near[:3]) or 'none'}; see margin list --kind claim"


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*{pattern}*")
