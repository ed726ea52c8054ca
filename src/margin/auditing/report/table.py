"""The table of findings: claim | promised | measured with its 95 % interval | unit | verdict.

A finding has one row; one with labels has a row for each label, with its own verdict; one measured
example by example has the counts of its verdicts, the gravest first, and its worst examples. What an
audit is summed up by, and what it left out, are worded here for terminal and page alike.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from margin.auditing.asking.answers import BY_NAME, INTERRUPTED, MOST_ROWS
from margin.auditing.asking.budget import LONG
from margin.auditing.asking.requirements import Judgment, Status
from margin.core.catalog import OTHER_MODELS, QUESTIONS
from margin.core.findings import STANDARD_ERRORS, Finding, Scope, Verdict
from margin.figures.digits import exact, figures

if TYPE_CHECKING:
    from margin.auditing.asking.answers import Answer, Audit

MEASURED = "measured [95 %]"
"""Head of the column of values, which says what all brackets are."""

FEW = 3
"""Claims about other kinds of model that are named one by one."""

WORST = 5
"""How many examples are named."""

SCOPES: dict[Scope, str] = {
    "always": "",
    "probability": "w. p.",
    "exists": "for some",
    "limit": "in the limit",
}


@dataclass(frozen=True, slots=True)
class Element:
    """One number of a finding with its 95 % interval and its promise.

    Args:
        label: Its name; "" for a scalar.
        value: What was measured.
        below: The lower end of the interval.
        above: The upper one.
        low: Promised lower bound; -inf where there is none.
        high: Promised upper bound; inf where there is none.
        verdict: What follows.
    """

    label: str
    value: float
    below: float
    above: float
    low: float
    high: float
    verdict: Verdict

    @property
    def shortfall(self) -> float:
        """How far the value lies outside its promise, negative inside; NaN is infinitely far."""
        gap = max(self.low - self.value, self.value - self.high)
        return math.inf if math.isnan(gap) else gap


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, as text.

    Args:
        claim: The claim's name; "" where the row continues the one above.
        label: Name of the element; "" for a scalar.
        promised: What theory promises; "" for nothing.
        measured: The value and its interval; of which examples, where not of all.
        unit: Unit of both; "" where it has none.
        verdict: The verdict in words.
        level: The gravest verdict that the row stands for.
        notes: Numbers of the assumptions on which it rests, from 1.
        why: What a reader must know to understand the verdict, a sentence each.
        required: What the user requires of it and what became of that, gravest first.
    """

    claim: str
    label: str
    promised: str
    measured: str
    unit: str
    verdict: str
    level: Verdict
    notes: tuple[int, ...] = ()
    why: tuple[str, ...] = ()
    required: tuple[tuple[str, Status], ...] = ()


def elements(finding: Finding) -> list[Element]:
    """The numbers of a finding, one an element of its value."""
    value = finding.value.double()
    below, above = finding.sandwich or finding.shown
    crossed = below > above  # a certificate above its attack: one of the two is wrong, and nothing is between
    below, above = (torch.where(crossed, value, end.double()) for end in (below, above))
    low = value.new_tensor(-math.inf) if finding.low is None else finding.low
    high = value.new_tensor(math.inf) if finding.high is None else finding.high
    ends = (value, below, above, low, high)
    columns = [end.double().expand_as(value).flatten().tolist() for end in ends]
    labels = finding.labels or ("",) * value.numel()
    return [Element(*case) for case in zip(labels, *columns, finding.verdicts, strict=True)]


def premises_assumed(findings: Sequence[Finding]) -> list[str]:
    """The premises that nothing checked and on which a *holds* rests, each once, in order."""
    resting = [finding for finding in findings if Verdict.HOLDS in finding.verdicts]
    return list(dict.fromkeys(text for finding in resting for text in finding.assuming))


def rows(
    name: str,
    finding: Finding,
    assumed: Sequence[str] = (),
    *,
    judgments: Sequence[Judgment] = (),
    most: int = MOST_ROWS,
) -> list[Row]:
    """The rows of one finding.

    Args:
        name: The claim's name.
        finding: Its answer.
        assumed: The numbered assumptions, in order; a premise that is not among them gets no number.
        judgments: What became of the requirements about the claim.
        most: Rows at most: a finding with more elements has one row for them all.
    """
    parts = elements(finding)
    notes = tuple(assumed.index(text) + 1 for text in finding.assuming if text in assumed)
    if finding.value.numel() == 1 or (finding.labels and len(parts) <= most):
        made = [_single(name if i == 0 else "", finding, part, notes) for i, part in enumerate(parts)]
        made = [replace(row, required=_required(judgments, i)) for i, row in enumerate(made)]
    else:
        made = [replace(_many(name, finding, parts, notes), required=_required(judgments))]
    made[-1] = replace(made[-1], why=(*made[-1].why, *reasons(finding), *finding.remarks))
    return made


def _required(judgments: Sequence[Judgment], element: int | None = None) -> tuple[tuple[str, Status], ...]:
    """The requirements about one element, or about any, with what became of each, the gravest first."""
    found = [
        (j.requirement.short, j.status if element is None else j.statuses[element])
        for j in judgments
        if element is None or element in j.statuses
    ]
    order = list(Status)
    return tuple(sorted(found, key=lambda pair: order.index(pair[1])))


def reasons(finding: Finding) -> list[str]:
    """What stands behind a grave verdict: the refuted premise, the failure, the straddled edge."""
    if refuted := [p for p in finding.premises if p.status == "refuted"]:
        return [f"refuted: {p.text} ({p.evidence})" if p.evidence else f"refuted: {p.text}" for p in refuted]
    if finding.failure:
        return [finding.failure]
    if finding.verdict is Verdict.FAILED:
        return ["the value or its reach is not a finite number"]
    if Verdict.INCONCLUSIVE in finding.verdicts and finding.kind == "estimate":
        return [f"{_wider(finding)} straddles the promise: more examples or draws would decide"]
    return []


def _wider(finding: Finding) -> str:
    """The verdict's interval, in words; with its numbers where there is one element."""
    words = "the interval"
    if finding.stderr is not None:
        words = f"the verdict's interval (-+ {STANDARD_ERRORS:g} stderr)"
    if finding.value.numel() != 1:
        return words
    below, above = (float(end) for end in finding.verdict_interval)
    ends = figures([below, above], above - below)
    return f"{words} [{ends[0]}, {ends[1]}]"


def _single(name: str, finding: Finding, part: Element, notes: tuple[int, ...]) -> Row:
    verdict = str(part.verdict)
    if part.verdict is Verdict.MEASURED and finding.scope in ("exists", "limit"):
        verdict += ratio(part)
    return Row(
        name,
        part.label,
        promise(part, finding.scope),
        measured(finding, part),
        unit(finding),
        worded(verdict, part.verdict, notes),
        part.verdict,
        notes if part.verdict is Verdict.HOLDS else (),
    )


def _many(name: str, finding: Finding, parts: list[Element], notes: tuple[int, ...]) -> Row:
    count = Counter(part.verdict for part in parts)
    verdict = ", ".join(f"{count[v]} {v}" for v in Verdict if count[v])
    level = finding.verdict
    why = []
    if finding.low is not None or finding.high is not None or finding.labels:
        order = list(Verdict)
        promised = not finding.labels or finding.low is not None or finding.high is not None
        ranks = [(order.index(p.verdict), -p.shortfall if promised else p.value) for p in parts]
        worst = sorted(range(len(parts)), key=ranks.__getitem__)
        named = ", ".join(
            f"{parts[i].label or i} ({exact(float(f'{parts[i].value:.3g}'))})" for i in worst[:WORST]
        )
        why = [f"{'worst' if promised else 'lowest'}{'' if finding.labels else ' examples'}: {named}"]
    resting = notes if Verdict.HOLDS in count else ()
    return Row(
        name,
        "",
        _promises(parts, finding.scope),
        spread([part.value for part in parts]),
        unit(finding),
        worded(verdict, Verdict.HOLDS, resting) if level is Verdict.HOLDS else verdict or str(level),
        level,
        resting,
        tuple(why),
    )


def worded(text: str, verdict: Verdict, notes: tuple[int, ...]) -> str:
    """Reads "holds, assuming" where the verdict rests on premises that nothing checked."""
    return f"{text}, assuming" if verdict is Verdict.HOLDS and notes else text


def unit(finding: Finding) -> str:
    """The unit as shown: nothing for a pure number."""
    return "" if finding.unit == "1" else finding.unit


def measured(finding: Finding, part: Element) -> str:
    """The value, its 95 % interval where that is more than rounding, and of which examples it is."""
    text = with_interval(finding, part)
    return f"{text} ({finding.sample})" if finding.sample else text


def with_interval(finding: Finding, part: Element) -> str:
    """The value, and its 95 % interval where that is more than rounding."""
    sign = {"lower": ">= ", "upper": "<= "}.get(finding.kind, "")
    if not math.isfinite(part.value):
        return sign + str(part.value)
    if finding.stderr is None and finding.interval is None and finding.sandwich is None:
        return sign + exact(part.value)
    known = [end for end in (part.below, part.above) if math.isfinite(end)]
    ends = {"lower": part.value - part.below, "upper": part.above - part.value}
    widths = [ends.get(finding.kind, part.above - part.below), *(abs(end - part.value) for end in known)]
    error = next((width for width in widths if math.isfinite(width)), 0.0)
    value, *shown = figures([part.value, *known], error)
    if all(end == value for end in shown):
        return sign + exact(part.value)  # the error lies beyond the digits shown, or is not known
    if len(known) == 1:
        return f"{sign}{value} [{'<=' if known == [part.above] else '>='} {shown[0]}]"
    return f"{sign}{value} [{shown[0]}, {shown[1]}]"


def promise(part: Element, scope: Scope) -> str:
    """What theory promises of one number: "= 2", ">= .5", "[.1, .4]"; "" for nothing."""
    low, high = part.low, part.high
    if low == -math.inf and high == math.inf:
        return ""
    if low == high:
        text = f"= {exact(low)}"
    elif high == math.inf:
        text = f">= {exact(low)}"
    elif low == -math.inf:
        text = f"<= {exact(high)}"
    else:
        text = f"[{exact(low)}, {exact(high)}]"
    return f"{text} {SCOPES[scope]}".rstrip()


def _promises(parts: list[Element], scope: Scope) -> str:
    different = dict.fromkeys(promise(part, scope) for part in parts)
    if len(different) <= 1:
        return next(iter(different), "")
    mark = next((text.split()[0] for text in different if text[:2] in (">=", "<=", "= ")), "in")
    return f"{mark} its own {SCOPES[scope]}".rstrip()


def spread(values: Sequence[float]) -> str:
    """Many numbers in one line: the least, the largest, the median; how many are not finite."""
    finite = sorted(v for v in values if math.isfinite(v))
    odd = len(values) - len(finite)
    if not finite:
        return f"{odd} not finite" if odd else "nothing"
    middle = (finite[(len(finite) - 1) // 2] + finite[len(finite) // 2]) / 2
    low, high, median = (exact(float(f"{v:.3g}")) for v in (finite[0], finite[-1], middle))
    text = f"{low} to {high}, median {median}"
    return f"{text}, {odd} not finite" if odd else text


def ratio(part: Element) -> str:
    """Value over the bound that it misses, for promises that are never violated."""
    bound = part.low if part.value < part.low else part.high
    if not math.isfinite(bound) or bound == 0:
        return ""
    return f", {exact(float(f'{part.value / bound:.2g}'))} x promised"


def absences(audit: "Audit") -> list[str]:
    """How many claims have no finding, one phrase a reason."""
    refused = sum(bool(answer.refusal) for answer in audit.answers)
    interrupted = sum(answer.skipped == INTERRUPTED for answer in audit.answers)
    by_name = sum(answer.skipped.endswith(BY_NAME) for answer in audit.answers)
    short = sum(answer.skipped.startswith(LONG) for answer in audit.answers)
    unasked = sum(bool(answer.skipped) for answer in audit.answers) - interrupted - by_name - short
    broken = sum(bool(answer.broken) for answer in audit.answers)
    phrases = {
        f"{broken} broken": broken,
        f"{refused} {'does' if refused == 1 else 'do'} not apply": refused,
        f"{by_name} asked only by name": by_name,
        f"{short} not asked for lack of time": short,
        f"{unasked} cannot be asked": unasked,
        f"{interrupted} not asked, interrupted": interrupted,
        "interrupted": audit.interrupted and not interrupted,
    }
    return [phrase for phrase, count in phrases.items() if count]


def left_out_briefly(audit: "Audit") -> list[str]:
    """How many claims have no finding, in one phrase; apart those that a user would miss."""
    missed = [
        p for p in absences(audit) if not p.endswith(("apply", "asked only by name", "cannot be asked"))
    ]
    words = ("broken", "lack of time", "interrupted")
    named = sum(
        int(phrase.split()[0]) for phrase in missed if phrase[:1].isdigit() and phrase.endswith(words)
    )
    rest = sum(answer.finding is None for answer in audit.answers) - named
    return [*missed, *([f"{rest} left out"] if rest else [])]


def by_question(audit: "Audit") -> dict[str, dict[str, Finding]]:
    """The findings under the question that each bears on, in the order in which an audit answers."""
    asked = {answer.claim.name: answer.claim.question for answer in audit.answers}
    found = {
        text: {name: finding for name, finding in audit.findings.items() if asked[name] == key}
        for key, text in QUESTIONS.items()
    }
    return {text: group for text, group in found.items() if group}


def left_out(answers: "Sequence[Answer]") -> dict[str, list[str]]:
    """The names of the claims without a finding, by the reason; how many ask other kinds of model."""
    found: dict[str, list[str]] = {}
    others = [answer.claim.name for answer in answers if answer.refusal.startswith(OTHER_MODELS)]
    for answer in answers:
        if answer.absence and answer.claim.name not in others:
            found.setdefault(answer.absence, []).append(answer.claim.name)
    if len(others) > FEW:
        return found | {f"{len(others)} are about other kinds of model": []}
    return found | ({f"{OTHER_MODELS} other kinds of model": others} if others else {})


def statuses(judgments: Sequence[Judgment]) -> dict[Status, int]:
    """How many requirements have each status, the gravest first."""
    count = Counter(judgment.status for judgment in judgments)
    return {status: count[status] for status in Status if count[status]}


def unmet(judgments: Sequence[Judgment]) -> list[Judgment]:
    """The requirements that are missed or undecided, the gravest first."""
    order = list(Status)
    short = [judgment for judgment in judgments if judgment.status is not Status.MET]
    return sorted(short, key=lambda judgment: order.index(judgment.status))
