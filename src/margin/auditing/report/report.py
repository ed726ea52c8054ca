"""The report: one HTML file without network or scripts, light and dark, from a phone's width to print."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margin.auditing.asking.answers import Answer, Audit, Fact
from margin.auditing.asking.requirements import Judgment, Status
from margin.auditing.report.plots import drawn_texts, examples, learning_curves, plot
from margin.auditing.report.sentences import sentences
from margin.auditing.report.table import (
    SCOPES,
    Element,
    Row,
    absences,
    elements,
    left_out,
    measured,
    premises_assumed,
    rows,
    statuses,
    unit,
    unmet,
)
from margin.auditing.report.terminal import counted
from margin.core.catalog import QUESTIONS
from margin.core.findings import Finding, Scope, Verdict
from margin.data.files.writing import write_whole
from margin.figures.digits import exact, figures
from margin.figures.svg import LARGE, alone, numbers

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MEANINGS = {
    Verdict.UNFOUNDED: "a premise of the theorem is refuted here, so it promises nothing",
    Verdict.FAILED: "the value is not finite, or the method did not converge",
    Verdict.VIOLATED: "all of the value's interval, of 4 standard errors, lies outside the promise",
    Verdict.INCONCLUSIVE: "the value's interval, of 4 standard errors, straddles the edge of the promise",
    Verdict.VACUOUS: "the promise excludes no possible value",
    Verdict.MEASURED: "theory promises nothing that this value could break",
    Verdict.HOLDS: "all of the value's interval, of 4 standard errors, lies inside the promise",
}

KINDS = {
    "exact": "",
    "estimate": "",
    "lower": "from below: the truth is at least this",
    "upper": "from above: the truth is at most this",
}

SCOPE_MEANINGS: dict[Scope, str] = {
    "always": "",
    "probability": "promised with the probability that the theorem states",
    "exists": "promised of some member of the class, not of this one",
    "limit": "promised in the limit",
}

FIRST = ("theory/confusion.recall", "theory/calibration.ece", "robust/linf.sandwich", "theory/residuals.r2")
"""The findings whose pictures are looked for first, each at the top of its question."""

MOST_TOGETHER = 6
"""Rows of a finding that are printed on one page whatever room that leaves."""

TERSE = 8
"""Characters of a short label."""

MOST_BARS = 24
"""Bars of one finding; a finding with more elements shows a plot or none."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Where a value, its 95 % interval and its promise lie, in percent of a window.

    Args:
        value: What was measured.
        reach: The ends of the interval.
        promise: Promised interval; None where there is none.
        text: The same in words.
        level: The element's verdict.
    """

    value: float
    reach: tuple[float, float]
    promise: tuple[float, float] | None
    text: str
    level: Verdict


@dataclass(frozen=True, slots=True)
class Section:
    """What the page shows of one finding; its anchor is the claim's name."""

    answer: Answer
    finding: Finding
    rows: list[Row]
    window: tuple[str, str]
    bars: list[Bar | None]
    plot: "Markup"
    notes: list[str]
    short: list[Judgment]

    @property
    def name(self) -> str:
        """The claim's name."""
        return self.answer.claim.name

    @property
    def brief(self) -> str:
        """The name without its area."""
        return self.name.rpartition("/")[2]

    @property
    def premises(self) -> str:
        """How many premises have each status: "premises: 1 proved, 2 assumed"."""
        count = Counter(premise.status for premise in self.finding.premises)
        return f"premises: {', '.join(f'{number} {status}' for status, number in count.items())}"

    @property
    def long(self) -> bool:
        """Whether it may be divided between two printed pages."""
        return len(self.rows) > MOST_TOGETHER

    @property
    def terse(self) -> bool:
        """Whether its labels are so short that they stand beside their value on a narrow screen."""
        return max(len(row.label) for row in self.rows) <= TERSE

    @property
    def large(self) -> bool:
        """Whether the plot needs the page's width."""
        return LARGE in self.plot


def write_report(audit: Audit, path: str | Path) -> None:
    """Write the audit as one HTML file, replaced by one rename.

    Args:
        audit: What was found.
        path: The file; its directory exists.
    """
    write_whole(Path(path), page(audit).encode())


def page(audit: Audit) -> str:
    """The audit as a whole HTML page that needs nothing but itself."""
    return _render("report.html.jinja", audit, training=learning_curves(audit.history, "training"))


def fragment(audit: Audit) -> str:
    """The audit's table as a piece of HTML, for a notebook."""
    return _render("fragment.html.jinja", audit, training=[])


def answer_fragment(answer: Answer) -> str:
    """An answer as a piece of HTML, for a notebook: its statement, numbers, picture and premises."""
    from markupsafe import escape

    name = escape(answer.claim.name)
    if answer.finding is None:
        return f"<p><strong>{name}</strong>: {typeset(answer.absence)}</p>"
    premises = "".join(
        f"<li><em>{p.status}</em>: {typeset(p.text)}{typeset(f': {p.evidence}' if p.evidence else '')}</li>"
        for p in answer.finding.premises
    )
    said = "".join(f"<p>{typeset(text)}</p>" for text in (answer.finding.statement, *answer.finding.remarks))
    return alone(
        f'<div class="margin-answer"><style>{styles()[1]}.margin-answer svg {{ max-width: 32rem; }}</style>'
        f"<p><strong>{name}</strong></p>{said}{finding_fragment(answer, f'answer-{next(numbers)}')}"
        f"{premises and f'<ul>{premises}</ul>'}</div>"
    )


def finding_fragment(answer: Answer, identifier: str) -> str:
    """A finding's numbers beside what is promised, its verdict and its picture, as a piece of HTML.

    Args:
        answer: One that has a finding.
        identifier: Prefix of the identifiers of its picture, unique in the page.
    """
    part = section(answer, identifier)
    template = '{% import "table.html.jinja" as table %}{{ table.numbers(section) }}'
    known = bool(part.finding.value.isfinite().any())
    rows = environment().from_string(template).render(section=part) if known else ""
    counts = part.finding.counts
    verdicts = ", ".join(
        f'<span class="verdict {verdict}">{verdict}</span>{f" {count}" if len(counts) > 1 else ""}'
        for verdict, count in counts.items()
    )
    drawn = f"<figure>{part.plot}</figure>\n" if part.plot else ""
    return f'<div class="finding">\n{rows}\n<p>Verdict: {verdicts}</p>\n{drawn}</div>'


def _render(template: str, audit: Audit, *, training: list[tuple[str, str]]) -> str:
    from markupsafe import Markup

    notes = premises_assumed(list(audit.findings.values()))
    whole = template.startswith("report")
    sections = [
        section(answer, f"plot-{i}" if whole else "", notes, audit.judgments_of(answer.claim.name))
        for i, answer in enumerate(audit.answers)
        if answer.finding
    ]
    used = {f.scope for f in audit.findings.values() if f.low is not None or f.high is not None}
    hard = audit.worst_examples if whole else None
    return (
        environment()
        .get_template(template)
        .render(
            audit=audit,
            texts=drawn_texts(audit.history) if whole else [],
            facts={name: _fact(value) for name, value in audit.facts.items()},
            sections=sections,
            said=sentences(audit),
            questions=grouped(sections, [*(["trained"] if training else []), *(["fails"] if hard else [])]),
            notes=notes,
            absences=absences(audit),
            left_out=left_out(audit.answers),
            left=sum(answer.finding is None for answer in audit.answers),
            statuses=statuses(audit.judgments),
            unmet=unmet(audit.judgments),
            met=[j.requirement.text for j in audit.judgments if j.status is Status.MET],
            training=[(title, Markup(svg)) for title, svg in training],
            hardest=[] if hard is None else examples(hard, audit.class_names, audit.span),
            scopes=[(SCOPES[s], SCOPE_MEANINGS[s]) for s in SCOPES if s in used and SCOPES[s]],
            meanings=[(verdict, MEANINGS[verdict]) for verdict in audit.counts],
            with_required=any(row.required for section in sections for row in section.rows),
        )
    )


@dataclass(frozen=True, slots=True)
class Question:
    """The findings that bear on one of a user's questions.

    Args:
        key: Its key; "theory" for what bears on none.
        text: The question.
        sections: Its findings, those first whose pictures are looked for.
    """

    key: str
    text: str
    sections: list[Section]


def grouped(sections: Sequence[Section], shown: Sequence[str] = ()) -> list[Question]:
    """The findings by question, in the order in which an audit answers.

    Args:
        sections: The findings.
        shown: Keys of questions under which there is something else: the worst examples, a training.
    """
    made = []
    for key, text in QUESTIONS.items():
        own = [section for section in sections if section.answer.claim.question == key]
        if own or key in shown:
            ranked = sorted(own, key=lambda section: section.name not in FIRST)
            made.append(Question(key or "theory", text, ranked))
    return made


def section(
    answer: Answer, identifier: str, notes: Sequence[str] = (), judgments: Sequence[Judgment] = ()
) -> Section:
    """What a page shows of a claim's finding.

    Args:
        answer: The claim, and what it found.
        identifier: Prefix of the identifiers of its plot, unique in the page; "": no plot.
        notes: The page's numbered assumptions.
        judgments: What became of the user's requirements of it.

    Raises:
        ValueError: The claim has no finding.
    """
    from markupsafe import Markup

    finding = answer.finding
    if finding is None:
        raise ValueError(f"{answer.claim.name} has no finding")
    shown = rows(answer.claim.name, finding, notes, judgments=list(judgments))
    window, bars = _bars(finding, len(shown))
    words = [KINDS[finding.kind], SCOPE_MEANINGS[finding.scope]]
    if finding.tolerance and (finding.low is not None or finding.high is not None):
        words.append(f"rounding may move the promise by {exact(finding.tolerance)}")
    return Section(
        answer=answer,
        finding=finding,
        rows=shown,
        window=window,
        bars=bars,
        plot=Markup(plot(answer.claim.figure, finding, identifier) if identifier else ""),
        notes=[word for word in words if word],
        short=unmet(list(judgments)),
    )


def _bars(finding: Finding, count: int) -> tuple[tuple[str, str], list[Bar | None]]:
    """The ends of the common window, and a bar for each of ``count`` rows; None where none can be drawn."""
    parts = elements(finding)
    finite = [part for part in parts if math.isfinite(part.value)]
    if not finite or len(parts) != count or count > MOST_BARS:
        return ("", ""), [None] * count
    slack = finding.tolerance
    low, high = _window(finite, finding.range, slack)

    def percent(x: float) -> float:
        return round(100 * min(max((x - low) / (high - low), 0.0), 1.0), 3)

    bars = [
        Bar(
            percent(part.value),
            (percent(part.below), percent(part.above)),
            None
            if (part.low, part.high) == (-math.inf, math.inf)
            else (percent(part.low - slack), percent(part.high + slack)),
            f"{measured(finding, part)} {unit(finding)}".strip(),
            part.verdict,
        )
        if math.isfinite(part.value)
        else None
        for part in parts
    ]
    first, last = (exact(float(f"{end:.3g}")) for end in (low, high))
    if first == last:
        first, last = figures([low, high], high - low)
    return (first, last), bars


def _window(parts: list[Element], possible: tuple[float, float], slack: float) -> tuple[float, float]:
    """The range, where it is bounded; else what holds every value, reach and promise, with room around."""
    ends = [x for p in parts for x in (p.value, p.below, p.above, p.low - slack, p.high + slack)]
    ends = [x for x in ends if math.isfinite(x)]
    low, high = min(ends), max(ends)
    room = 0.15 * (high - low) or 0.5 * abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(high - low + 2 * room)) / 2
    low = possible[0] if math.isfinite(possible[0]) else math.floor((low - room) / step) * step
    high = possible[1] if math.isfinite(possible[1]) else math.ceil((high + room) / step) * step
    return (low, high) if low < high else (low, low + 1.0)


# how text is set


def environment() -> "Environment":
    """The templates of pages, with the filters that set their text."""
    from importlib.resources import files

    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def load(name: str) -> str:
        return files(__package__).joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["typeset"] = typeset
    environment.filters["breakable"] = breakable
    environment.filters["counted"] = counted
    return environment


def styles() -> tuple[str, str]:
    """The report's colors, and its rules for numbers, which the book and a notebook show too."""
    from importlib.resources import files

    sheet = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    colors, _, numbers = sheet.partition("/* the page */")[0].partition("/* numbers")
    return colors, numbers.partition("*/")[2]


def typeset(text: str) -> "Markup":
    """Numbers as print has them: a true minus, >= as one sign, powers of ten raised."""
    from markupsafe import Markup, escape

    safe = str(escape(text)).replace("&gt;=", "≥").replace("&lt;=", "≤")
    safe = re.sub(r"(?<![\w.])-(?=\.?\d|inf)", "−", safe)
    safe = re.sub(r"\binf\b", "∞", safe)
    safe = re.sub(r"\^(-?\d+)", r"<sup>\1</sup>", safe)
    safe = re.sub(r"(\d)e(-?)(\d+)", lambda m: f"{m[1]}×10<sup>{'−' if m[2] else ''}{m[3]}</sup>", safe)
    return Markup(safe)


def breakable(name: str) -> "Markup":
    """A name that a narrow column may break after a slash or a dot."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([/.])(?=\w)", r"\1<wbr>", str(escape(name))))


def _fact(value: Fact) -> Any:
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else exact(value)
