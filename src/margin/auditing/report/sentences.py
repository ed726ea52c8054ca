"""The first screen's sentences: every question's, the verdicts that are grave, ranked and cut at ten."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from margin.auditing.asking.answers import Audit
from margin.auditing.report.conduct import memorized, moves, trained
from margin.auditing.report.evidence import Evidence, Level, Sentence, enumerated, remarked
from margin.auditing.report.performance import (
    ACCURACY,
    HALF,
    LABEL_ORDER,
    LINEAR,
    R2,
    RECALL,
    RENAMED,
    SHIFT,
    fails,
    once_right,
    right,
)
from margin.auditing.report.rivals import foreign, probabilities
from margin.auditing.report.table import elements, measured, promise, reasons, unit
from margin.core.catalog import QUESTIONS
from margin.core.findings import Finding, Verdict
from margin.theory.prediction.risk import clopper_pearson

DICE = "vision/segmentation.dice"
MORE_MASKS = "More masks of it, or a look at where it errs in the report."

MOST = 10
"""Sentences of one audit."""

WIDE = 0.05
"""Half-width of the accuracy's interval from which more examples are worth their trouble."""

DATA = {
    "duplicates": "equal rows",
    "shift": "a shift from the training part",
    "giveaway": "a feature that gives the target away",
    "classes": "rare or missing classes",
    "groups": "groups that lie in both parts",
}
"""What ``theory/evidence.*`` looks for, in words."""

BEHAVIOR = ("random", "mates", "buffers", "overwrites", "finite")
"""What ``theory/behavior.*`` looks at."""


def sentences(audit: Audit) -> list[Sentence]:
    """What an audit says of its model, ten sentences at most: what is bad for the user first.

    Each has its number with a 95 % interval and rests on findings that it names; a claim that was not asked
    gives none. What was violated or failed is always among them.

    Args:
        audit: What was found.
    """
    evidence = Evidence(audit)
    first = right(evidence)
    moved = [s for s in first if SHIFT in s.claims]
    renamed = any(s.todo == RENAMED for s in first) and not once_right(evidence)
    finished = [] if renamed else trained(evidence)  # a loss of other classes' labels has no end
    made = [*first, *finished, *(s for s in rests(evidence) if not moved or s.claims != (SHIFT,))]
    if not moved:  # else the gap has another reason, which was said
        made += memorized(evidence)
    if moved or _wrong(evidence, first):
        # what is wrong as a whole has no worst class, no rows to look at, no temperature that repairs it
        made = [
            replace(s, level="unknown") if s.question == "memorized" and s.level == "good" else s
            for s in made
        ]
        made += [replace(sentence, todo="") for sentence in probabilities(evidence)]
    else:
        masks = segmented(evidence)  # in place of a recall of pixels
        others = (s for s in fails(evidence) if not masks or s.claims != (RECALL,))
        made += [*probabilities(evidence), *masks, *others, *moves(evidence)]
    made += foreign(evidence)
    spoken = {name for s in made if s.level in ("bad", "warn") for name in s.claims}
    spoken |= {LABEL_ORDER} if moved else set()
    made += grave(audit, spoken)
    return sorted(made, key=lambda sentence: sentence.rank)[:MOST]


def segmented(evidence: Evidence) -> list[Sentence]:
    """The class that is segmented worst, by its Dice coefficient; bad where less than half overlaps."""
    known = sorted(evidence.numbers(DICE), key=lambda number: number.value)
    if len(known) < 2:
        return []
    worst, second = known[:2]
    name = worst.label.removeprefix("class ")
    level: Level = "bad" if worst.above < HALF else "warn" if worst.above < second.below else "good"
    text = (
        f"Class {name!r} is segmented worst: its Dice coefficient is {worst.text}; the next, {second.text}."
    )
    if level == "good":
        level, text = "unknown", f"No class is known to be segmented worse; the lowest Dice is {worst.text}."
    return [Sentence("fails", level, text, "" if level == "unknown" else MORE_MASKS, (DICE,))]


def _wrong(evidence: Evidence, first: Sequence[Sentence]) -> bool:
    """Whether it is wrong as a whole: no better than a constant, or mostly wrong where a line is right."""
    bad = {name for sentence in first if sentence.level == "bad" for name in sentence.claims} - {SHIFT}
    known = evidence.number(ACCURACY) or evidence.number(R2)
    return bool(bad & {ACCURACY, R2}) or (LINEAR in bad and known is not None and known.value < HALF)


def grave(audit: Audit, spoken: set[str]) -> list[Sentence]:
    """One sentence for all that is violated, one for each reason of failure, one for what broke.

    Args:
        audit: What was found.
        spoken: The claims of which a sentence says already what is wrong.
    """
    made = []
    violated = [n for n, f in audit.findings.items() if Verdict.VIOLATED in f.verdicts and n not in spoken]
    if violated:
        first = _contradiction(audit.findings[violated[0]])
        more = f" Violated too: {enumerated(violated[1:])}." if violated[1:] else ""
        text = f"{violated[0]} is violated: {first}. {audit.findings[violated[0]].statement}{more}"
        made.append(Sentence(_question(audit, violated), "bad", text, "", tuple(violated)))
    failed = {n: f for n, f in audit.findings.items() if Verdict.FAILED in f.verdicts and n not in spoken}
    if failed:
        failed = {name: failed[name] for name in _by_question(audit, failed)}
        known = [enumerated(reasons(found), 1) for found in failed.values()]
        count = f"{len(failed)} findings have" if len(failed) > 1 else f"{next(iter(failed))} has"
        more = ", among other reasons" if len(set(known)) > 1 else ""
        text = f"{count} no number: {known[0]}{more}."
        made.append(Sentence(_question(audit, list(failed)), "bad", text, "", tuple(failed)))
    if broken := [answer.claim.name for answer in audit.answers if answer.broken]:
        count = "1 question" if len(broken) == 1 else f"{len(broken)} questions"
        text = f"{count} broke, which is a defect of margin's: {enumerated(broken)}."
        made.append(Sentence("rests", "warn", text, "Please report it; findings.json has the traceback.", ()))
    return made


def _by_question(audit: Audit, names: Iterable[str]) -> list[str]:
    """Claims in the order of the questions that they bear on."""
    known = {answer.claim.name: answer.claim.question for answer in audit.answers}
    return sorted(names, key=lambda name: list(QUESTIONS).index(known[name]))


def _question(audit: Audit, names: Sequence[str]) -> str:
    """The question of most consequence that the claims bear on."""
    known = {answer.claim.name: answer.claim.question for answer in audit.answers}
    return known[_by_question(audit, names)[0]] or "rests"


def _contradiction(found: Finding) -> str:
    """What was promised and what measured, of the element that is furthest off."""
    worst = max(
        (part for part in elements(found) if part.verdict is Verdict.VIOLATED),
        key=lambda part: part.shortfall,
    )
    label = f"{worst.label}: " if worst.label else ""
    value = f"{measured(found, worst)} {unit(found)}".rstrip()
    return f"{label}promised {promise(worst, found.scope)}, measured {value}"


def rests(evidence: Evidence) -> list[Sentence]:
    """What the numbers rest on: the data, how the model behaves, the count of examples, refuted premises."""
    seen = _looked_at(evidence)
    return [*seen, *_refuted(evidence, " ".join(s.text for s in seen).lower()), *_few(evidence)]


def _looked_at(evidence: Evidence) -> list[Sentence]:
    """What the data and the model's own behavior have to say; one sentence where both say nothing."""
    data = [f"theory/evidence.{name}" for name in DATA]
    made = remarked(evidence, "rests", [*data, *(f"theory/behavior.{name}" for name in BEHAVIOR)])
    spoken = {name for sentence in made for name in sentence.claims}
    spoken |= {n for n, f in evidence.findings.items() if any("Every error over" in r for r in f.remarks)}
    well = [name for name in data if name in evidence.findings and name not in spoken]
    if well:
        what = ", ".join(DATA[name.rpartition(".")[2]] for name in well)
        text = f"Looked for in {evidence.held_out}, and not found: {what}."
        made.append(Sentence("rests", "good", text, "", tuple(well)))
    return made


def _refuted(evidence: Evidence, said: str) -> list[Sentence]:
    """A sentence for each premise that is refuted, with the findings that it takes the ground from.

    Args:
        evidence: The findings.
        said: What is said already, in small letters: a refutation in the same words is said again only of
            the accuracy.
    """
    refuted: dict[str, list[str]] = {}
    for name, found in evidence.audit.findings.items():
        for p in found.premises:
            if p.status == "refuted":
                known = f"that {p.text} is refuted" + (f" ({p.evidence})" if p.evidence else "")
                if not (p.evidence and p.evidence.lower() in said) or name in (ACCURACY, R2):
                    refuted.setdefault(known, []).append(name)
    for names in refuted.values():
        names.sort(key=lambda name: name not in (ACCURACY, R2))
    ranked = sorted(refuted.items(), key=lambda item: -len(item[1]))
    return [
        Sentence(
            "rests",
            "bad" if {ACCURACY, R2} & set(names) else "unknown",
            f"Unfounded {'is' if len(names) == 1 else 'are'} {enumerated(names)}: {premise}.",
            "",
            tuple(names),
        )
        for premise, names in ranked
    ]


def _few(evidence: Evidence) -> list[Sentence]:
    """That the examples are too few to know the accuracy by."""
    accuracy = evidence.number(ACCURACY)
    if accuracy is None or not evidence.count:
        return []
    width = (accuracy.above - accuracy.below) / 2
    if width < WIDE:
        return []
    text = f"{evidence.held_out} cannot tell the accuracy any better than this: {accuracy.text}."
    todo = f"About {_halving(accuracy.value, evidence.count):,} would halve the interval."
    return [Sentence("rests", "warn" if width > 2 * WIDE else "unknown", text, todo, (ACCURACY,))]


def _halving(share: float, count: int) -> int:
    """How many examples halve the exact interval of a share: twice as many at its ends, four times within."""

    def width(examples: int) -> float:
        low, high = clopper_pearson(share * examples, examples)
        return high - low

    return next(n for n in itertools.count(2 * count, max(1, count // 20)) if width(n) <= width(count) / 2)
