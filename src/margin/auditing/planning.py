"""How long each question takes on this subject, so that an audit keeps to the minutes it is given."""

import math
import time
from collections.abc import Sequence

import torch

from margin.auditing.table import LONG
from margin.catalog import Claim
from margin.engine.asking import asking
from margin.findings import Subject
from margin.types import Batch

LEAST = 0.2
"""Seconds that a claim takes however small the model is: what it loads, resamples and counts."""

HARDEST = 2.0
"""Passes over the held-out examples that the audit itself needs at its end."""


class Plan:
    """The time that is left of an audit, and what each question is expected to take of it.

    A question costs so many forward passes over so many examples; one pass is timed on the first batch. The
    clock starts with the plan.

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
        self._per_example = seconds_per_example(subject) if self._limited else 0.0
        if self._limited:
            self._end -= HARDEST * self._per_example * count(subject.test)

    def seconds(self, claim: Claim) -> float:
        """What a question is expected to take."""
        cost = claim.cost
        examples = count(self._subject.train if cost.part == "train" else ()) or count(self._subject.test)
        if cost.limit:
            examples = min(examples, cost.limit)
        return LEAST + cost.passes * examples * self._per_example

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
        return f"{LONG} {spoken(needed)} of the {spoken(max(left, 0.0))} that remain"


@torch.no_grad()
def seconds_per_example(subject: Subject) -> float:
    """The time of a forward pass over the first held-out batch, the second of two, by its examples."""
    if not len(subject.test):
        return 0.0
    batch = subject.test[0]
    seconds = 0.0
    with asking(subject.model):
        for _ in range(2):
            start = time.perf_counter()
            subject.model(*batch.inputs)
            if batch.inputs[0].is_cuda:
                torch.cuda.synchronize(batch.inputs[0].device)
            seconds = time.perf_counter() - start
    return seconds / max(len(batch.inputs[0]), 1)


def count(batches: Sequence[Batch]) -> int:
    """The examples of batches of one size, the last perhaps smaller, without making them all."""
    if not len(batches):
        return 0
    return (len(batches) - 1) * len(batches[0].inputs[0]) + len(batches[-1].inputs[0])


def spoken(seconds: float) -> str:
    """A time in the unit that people would name it in: "4 s", "3 min", "2.5 h"."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 0.95 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"
