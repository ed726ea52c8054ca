"""A sentence of an audit's first screen, and how the numbers that it states are read from the findings.

A claim that was not asked gives no number and so no sentence; one whose premise is refuted gives its number
with the reason to doubt it, and never a sentence that all is well.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from margin.auditing.asking.answers import Audit
from margin.auditing.report.table import Element, elements, with_interval
from margin.core.catalog import OTHER_MODELS, QUESTIONS
from margin.core.findings import Finding, Verdict
from margin.figures.digits import exact, figures

Level = Literal["bad", "warn", "good", "unknown"]

LEVELS: tuple[Level, ...] = ("bad", "warn", "good", "unknown")
"""In the order in which a reader wants to know."""


WELL = ("The split cut through no group", "No shift was found", "Every error over", "this is of one draw")
"""What a remark says that asks for nothing, or that another sentence says for all findings."""

PERHAPS = ("repeat by chance",)
"""What a remark says that may be nothing."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One answer to one question of a user's.

    Args:
        question: A key of :data:`margin.core.catalog.QUESTIONS`.
        level: What it means for the user.
        text: What was found, with its number and 95 % interval.
        todo: What to do about it; "" where nothing is to be done.
        claims: The claims that it rests on, by full name.
    """

    question: str
    level: Level
    text: str
    todo: str = ""
    claims: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.question not in QUESTIONS:
            raise ValueError(f"question must be a key of QUESTIONS: got {self.question!r}")

    @property
    def rank(self) -> tuple[int, int]:
        """Its place: by level, then in the order of the questions."""
        return LEVELS.index(self.level), list(QUESTIONS).index(self.question)


@dataclass(frozen=True, slots=True)
class Number:
    """A measured number with its 95 % interval.

    Args:
        value: What was measured.
        below: Lower end of the interval.
        above: Upper end.
        text: All three in words: ``.92 [.78, .98]``.
        label: Name of the element.
        doubted: Whether a premise of the finding is refuted.
    """

    value: float
    below: float
    above: float
    text: str
    label: str
    doubted: bool


class Evidence:
    """The findings of an audit, by name and label, as sentences need them.

    Args:
        audit: What was found.
    """

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.findings: Mapping[str, Finding] = {
            name: found for name, found in audit.findings.items() if not found.failure and found.value.numel()
        }

    def numbers(self, name: str) -> list[Number]:
        """The finite numbers of a finding; [] of a claim that has none."""
        if name not in self.findings:
            return []
        found = self.findings[name]
        return [_number(found, part) for part in elements(found) if math.isfinite(part.value)]

    def number(self, name: str, *labels: str) -> Number | None:
        """A finding's only number, or that of the first label there is."""
        known = self.numbers(name)
        if not labels:
            return known[0] if len(known) == 1 else None
        return next((number for label in labels for number in known if number.label == label), None)

    def curve(self, name: str, curve: str) -> Tensor | None:
        """A curve of a finding, in float64."""
        found = self.findings.get(name)
        tensor = None if found is None else found.curves.get(curve)
        return None if tensor is None else tensor.detach().cpu().double()

    def refusal(self, name: str) -> str:
        """Why a claim has no finding where it might have one ("needs a domain"); "" elsewhere."""
        for answer in self.audit.answers:
            if answer.claim.name == name and not answer.refusal.startswith(OTHER_MODELS):
                return answer.refusal or answer.skipped
        return ""

    @property
    def count(self) -> int:
        """The held-out examples; 0 where it is not known."""
        known = self.audit.facts.get("held-out examples", 0)
        return known if isinstance(known, int) else 0

    @property
    def held_out(self) -> str:
        """The held-out examples in words."""
        if not self.count:
            return "the held-out examples"
        return f"{self.count:,} held-out example{'s' if self.count > 1 else ''}"

    @property
    def is_run(self) -> bool:
        """Whether the model is a run, which brings its own training part and domain."""
        return "run" in self.audit.facts


def _number(found: Finding, part: Element) -> Number:
    doubted = part.verdict is Verdict.UNFOUNDED
    return Number(part.value, part.below, part.above, with_interval(found, part), part.label, doubted)


def asserted(level: Level, numbers: Iterable[Number | None]) -> Level:
    """The level of a sentence: what rests on a refuted premise is no good news."""
    doubted = any(number is not None and number.doubted for number in numbers)
    return "unknown" if doubted and level == "good" else level


def remarked(evidence: Evidence, question: str, names: Iterable[str]) -> list[Sentence]:
    """A sentence for each of some findings that has something to say: its first remark.

    What refutes a premise is said with the findings that it takes the ground from; where all is well, and
    where equal rows come by chance, there is nothing to do.

    Args:
        evidence: The findings.
        question: What they bear on.
        names: The claims.
    """
    made = []
    for name in names:
        found = evidence.findings.get(name)
        known = () if found is None else found.remarks
        remarks = [remark for remark in known if not any(words in remark for words in WELL)]
        chance = any(words in remark for remark in remarks for words in PERHAPS)
        if remarks:
            made.append(Sentence(question, "unknown" if chance else "warn", remarks[0], "", (name,)))
    return made


def relabeled(confusion: Tensor) -> dict[int, int]:
    """The classes that are answered by another's name: more than half of each goes to it, one to one.

    Args:
        confusion: Counts; rows are true classes.

    Returns:
        The answer for each such class; {} where none can be told, as of classes with fewer than 5 examples.
    """
    counts = confusion.sum(1)
    top = confusion.argmax(1)
    clear = (confusion.amax(1) > 0.5 * counts) & (counts >= 5)
    moved = {i: int(top[i]) for i in range(len(counts)) if clear[i] and int(top[i]) != i}
    # one to one: what they are answered by is the name of another of them, so nothing is only confused
    closed = set(moved.values()) == set(moved) and len(set(moved.values())) == len(moved)
    return moved if moved and closed else {}


def chance_of(hits: int, count: int, share: float) -> float:
    """Probability of so few hits or fewer, were each as likely as ``share``."""
    from scipy.special import bdtr

    return float(bdtr(hits, count, min(max(share, 0.0), 1.0)))


def rounded(value: float, digits: int = 2) -> str:
    """A number that has no interval of its own, with so many digits."""
    return exact(float(f"{value:.{digits}g}")) if math.isfinite(value) else str(value)


def difference(value: float, number: Number) -> str:
    """A number that differs from a measured one by a known amount, with that one's digits."""
    return figures([value], number.above - number.below)[0]


def enumerated(names: Iterable[str], most: int = 3) -> str:
    """Names in one phrase: "a, b, c and 4 more"."""
    known = list(names)
    shown = ", ".join(known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most:,} more"


def capital(text: str) -> str:
    """Text that begins a sentence."""
    return text[:1].upper() + text[1:]
