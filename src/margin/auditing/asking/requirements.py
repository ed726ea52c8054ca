"""What a user requires of a model, beside what theory promises of it: ``accuracy>=.9``, ``recall@cat>=.8``.

A verdict is about a theorem; a requirement is about the model, and nobody but the user states one. It is
decided on where the truth may lie, not on the value: it is met if all of that satisfies it, missed if none
does, else undecided. For an estimate that is the value's reach. For a quantity bounded from two sides, as
the accuracy in a ball, it runs from the certificate to the attack, each with the error of a sample, so that
>= rests on the certificate and <= on the attack.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from margin.auditing.asking.named import claim_named
from margin.core.catalog import Claim, nearest
from margin.core.findings import Finding, Verdict
from margin.figures.digits import exact, figures

PATTERN = re.compile(r"\s*([^@<>=\s]+)\s*(?:@(.+?))?\s*(>=|<=|>|<)\s*([^<>=\s]+)\s*")
FORM = "a requirement is CLAIM[@LABEL] >=, <=, > or < NUMBER, as 'accuracy>=.9'"


class Status(StrEnum):
    """What became of a requirement, the gravest first."""

    MISSED = "missed"
    UNDECIDED = "undecided"
    MET = "met"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A bound that a user sets on what a claim measures.

    Args:
        text: As it was typed.
        claim: The claim whose finding it is about.
        label: Which element of the finding, by its label or a number in it; "" for every one.
        relation: >=, <=, > or <.
        bound: The number.
    """

    text: str
    claim: Claim
    label: str
    relation: str
    bound: float

    @property
    def short(self) -> str:
        """The relation and the number, as the table shows them."""
        return f"{self.relation} {exact(self.bound)}"


@dataclass(frozen=True, slots=True)
class Judgment:
    """A requirement and what became of it.

    Args:
        requirement: What was required.
        statuses: By index of the finding's element, for the elements that it is about; {} without a finding.
        why: What stands behind a requirement that is not met.
    """

    requirement: Requirement
    statuses: dict[int, Status]
    why: str = ""

    @property
    def status(self) -> Status:
        """The gravest status of its elements; undecided where there is no finding."""
        order = list(Status)
        return min(self.statuses.values(), key=order.index, default=Status.UNDECIDED)

    @property
    def sentence(self) -> str:
        """The requirement, its status and what stands behind it."""
        return f"{self.requirement.text} is {self.status}{f': {self.why}' if self.why else ''}"

    def as_json(self) -> dict[str, Any]:
        """The judgment as JSON values."""
        return {
            "requirement": self.requirement.text,
            "claim": self.requirement.claim.name,
            "label": self.requirement.label,
            "relation": self.requirement.relation,
            "bound": self.requirement.bound,
            "status": str(self.status),
            "elements": {str(index): str(status) for index, status in self.statuses.items()},
            "why": self.why,
        }


def requirement_of(text: str) -> Requirement:
    """Read a requirement, ``CLAIM[@LABEL](>=|<=|>|<)NUMBER``.

    Raises:
        ValueError: The text has another form, or names no claim, or its number is none.
    """
    found = PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(f"{FORM}: got {text!r}")
    name, label, relation, number = found.groups()
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise ValueError(f"{FORM}: got the number {number!r} in {text!r}")
    return Requirement(text.strip(), claim_named(name), (label or "").strip(), relation, bound)


def check_requirement(requirement: Requirement, finding: Finding) -> Judgment:
    """Hold a requirement against a finding.

    Raises:
        ValueError: No element of the finding has the label, or several do.
    """
    chosen = elements_meant(requirement, finding)
    if finding.failure or finding.verdict is Verdict.FAILED:
        why = finding.failure or "the value or its reach is not a finite number"
        return Judgment(requirement, dict.fromkeys(chosen, Status.UNDECIDED), f"the claim failed: {why}")
    low, high = ends(finding)
    # A bound of 0.9 means the number that the value's type has for it.
    bound = requirement.bound
    if finding.value.is_floating_point():
        bound = torch.tensor(bound, dtype=finding.value.dtype).item()
    statuses = {i: status_of(low[i], high[i], requirement.relation, bound) for i in chosen}
    if finding.verdict is Verdict.UNFOUNDED:
        # What a refuted premise leaves may still rule a model out; it cannot pass one.
        statuses = {i: Status.UNDECIDED if s is Status.MET else s for i, s in statuses.items()}
    judgment = Judgment(requirement, statuses)
    return Judgment(requirement, statuses, _why(judgment, finding, low, high))


def ends(finding: Finding) -> tuple[list[float], list[float]]:
    """The least and the largest value that the truth may have, element by element.

    An exact value is itself; a quantity that is bounded from two sides lies between the bounds; any other
    in the value's reach.
    """
    low, high = finding.sandwich or finding.verdict_interval
    if finding.kind == "exact" and finding.sandwich is None:
        low = high = finding.value
    sides = (side.double().expand(finding.value.shape).clamp(*finding.range) for side in (low, high))
    below, above = (side.flatten().tolist() for side in sides)
    return below, above


def status_of(low: float, high: float, relation: str, bound: float) -> Status:
    """Whether all, none or some of [low, high] satisfies the relation to the bound."""
    if math.isnan(low) or math.isnan(high):
        return Status.UNDECIDED
    met = {">=": low >= bound, ">": low > bound, "<=": high <= bound, "<": high < bound}
    missed = {">=": high < bound, ">": high <= bound, "<=": low > bound, "<": low >= bound}
    return Status.MET if met[relation] else Status.MISSED if missed[relation] else Status.UNDECIDED


def elements_meant(requirement: Requirement, finding: Finding) -> list[int]:
    """The indices of the elements that a requirement is about.

    A label is meant by its whole text, else by a number in it (``@.1`` is "eps 0.1 (10% of the range)"), else
    by a part of it.

    Raises:
        ValueError: No label is meant, or several are.
    """
    label, labels = requirement.label, finding.labels
    if not label:
        return list(range(finding.value.numel()))
    readings = (
        [i for i, text in enumerate(labels) if text == label],
        [i for i, text in enumerate(labels) if _has_number(text, label)],
        [i for i, text in enumerate(labels) if label.lower() in text.lower()],
    )
    found: list[int] = next((reading for reading in readings if reading), [])
    if len(found) == 1:
        return found
    rule = f"the label of {requirement.text!r} must mean one element of {requirement.claim.name}"
    if found:
        raise ValueError(f"{rule}: it could be {'; '.join(labels[i] for i in found[:5])}")
    known = list(dict.fromkeys([*nearest(label, labels), *labels]))[:8]
    raise ValueError(f"{rule}: it has {'; '.join(known) or 'no labels, leave out the @'}")


def _has_number(text: str, label: str) -> bool:
    """Whether a word of a label is the number, a percentage counting as its hundredth or as it is typed."""
    number = _number(label)
    if number is None:
        return False
    words = [_number(word.strip("()[],;")) for word in text.split()]
    return any(word is not None and math.isclose(word, number, rel_tol=1e-3) for word in words)


def _number(word: str) -> float | None:
    try:
        return float(word[:-1]) / 100 if word.endswith("%") else float(word)
    except ValueError:
        return None


def _why(judgment: Judgment, finding: Finding, low: Sequence[float], high: Sequence[float]) -> str:
    status = judgment.status
    if status is Status.MET:
        return ""
    grave = [i for i, s in judgment.statuses.items() if s is status]
    name = f"{finding.labels[grave[0]]}: " if finding.labels else ""
    ends = (low[grave[0]], high[grave[0]])
    span = f"the truth lies in [{', '.join(figures(ends, ends[1] - ends[0]))}]"
    if ends[0] == ends[1]:
        span = f"the value is {exact(ends[0])}"
    counts = Counter(judgment.statuses.values())
    others = f" ({counts[status]} of {len(judgment.statuses)} elements)" if len(judgment.statuses) > 1 else ""
    if status is Status.MISSED:
        return f"{name}{span}{others}"
    if finding.verdict is Verdict.UNFOUNDED:
        refuted = next(p for p in finding.premises if p.status == "refuted")
        return f"{name}{span} only if a refuted premise held: {refuted.text}{others}"
    return f"{name}{span}: {_remedy(judgment.requirement, finding, grave[0])} would decide{others}"


def _remedy(requirement: Requirement, finding: Finding, element: int) -> str:
    """What would decide: a narrower bracket, where the sample's own straddles the bound, or more examples."""
    if finding.sandwich is None:
        return "more examples"
    if finding.interval is not None and bool((finding.sandwich[0] == finding.interval[0]).flatten()[element]):
        return "more examples"  # in a ball of radius 0 nothing is bounded
    value = finding.value.double().flatten()[element].item()
    low = finding.range[0]
    if finding.low is not None:
        low = finding.low.double().expand_as(finding.value).flatten()[element].item()
    own = status_of(low, value, requirement.relation, requirement.bound)
    return "a tighter certificate or a stronger attack" if own is Status.UNDECIDED else "more examples"
