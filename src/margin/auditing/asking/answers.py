"""Questions put to a subject one after the other, and the audit that their answers make."""

import json
import math
import platform
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.auditing.asking.budget import Budget, count
from margin.auditing.asking.identity import OUTPUTS, Part, fingerprint, identity_of, outputs_digest
from margin.auditing.asking.outcomes import FILE, outcomes, write_outcomes
from margin.auditing.asking.passes import OutOfTime
from margin.auditing.asking.requirements import Judgment, Requirement, Status, check_requirement
from margin.auditing.asking.side_effects import Snapshot
from margin.auditing.asking.worst_examples import WorstExamples, worst_examples
from margin.auditing.subject.user_modules import lacking
from margin.core.catalog import Claim, nearest, resolve
from margin.core.findings import Finding, NotAsked, Subject, Verdict, finding_of
from margin.data.files.writing import write_whole
from margin.engine.evaluation import counts
from margin.engine.parallel.processes import give_back_memory
from margin.engine.schema import sealed
from margin.theory.evidence.rows import MOST_TRAINING
from margin.theory.prediction.held_out import Terms

if TYPE_CHECKING:
    from polars import DataFrame
    from rich.console import RenderableType

    from margin.auditing.asking.reuse import Earlier

INTERRUPTED = "interrupted"
"""Why a claim was not asked, where the audit was stopped."""

BY_NAME = "; name it with --claims"
"""How the reason ends for which an audit of everything leaves a claim out."""

MOST_ROWS = 24
"""Rows of one finding in a table, where nothing else is said."""

FAIL_ON = (Verdict.VIOLATED, Verdict.FAILED)
"""The verdicts by which an audit fails, where nothing else is said."""

Fact = str | int | float
Progress = Callable[[Claim, int, int], None]
"""``(claim, position from 1, number of claims)``, called before each is asked."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a claim answered: a finding, or why it does not apply, or why it was not asked.

    Args:
        claim: The question.
        finding: Its answer; None where there is none.
        refusal: What the subject lacks ("needs a domain"); "" where the claim applies.
        seconds: How long the answer took.
        skipped: Why a claim was not asked ("interrupted"), or cannot be; "" where it was.
        broken: The traceback of what a claim raised: a defect of ours.
        most: How many examples it drew at most, where that is fewer than it says itself; None.
        held_out: How many held-out examples stood for all; None: all of them were there.
    """

    claim: Claim
    finding: Finding | None
    refusal: str
    seconds: float
    skipped: str = ""
    broken: str = ""
    most: int | None = None
    held_out: int | None = None

    @property
    def absence(self) -> str:
        """Why there is no finding, in words; "" where there is one."""
        if self.broken:
            return f"broken, which is a defect: {self.broken.strip().splitlines()[-1]}"
        if self.skipped:
            return f"not asked: {self.skipped}"
        return f"does not apply: {self.refusal}" if self.refusal else ""

    def _repr_html_(self) -> str:
        return str(resolve("margin.auditing.report.report:answer_fragment")(self))

    def as_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {
            "claim": self.claim.name,
            "summary": self.claim.summary,
            "finding": None if self.finding is None else self.finding.as_json(),
            "refusal": self.refusal,
            "skipped": self.skipped,
            "broken": self.broken,
            "seconds": round(self.seconds, 3),
            "most": self.most,
            "held_out": self.held_out,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """The answers of one subject, with what was assumed; prints itself in a terminal and a notebook.

    Args:
        title: What was audited.
        answers: One for each claim.
        assumed: What was inferred about the subject rather than stated; printed first.
        facts: Size of model and data, versions, device, fingerprint, by name.
        history: Rows of the training's history, keyed by step; () where there is none.
        hardest: The held-out examples of largest loss; None where losses belong to no example.
        class_names: Names of the classes, in the order of the labels.
        span: The least and largest value of an input, by which pictures are scaled; None: their own.
        judgments: What became of each of the user's requirements.
        fail_on: The verdicts by which the audit fails.
        outcomes: What each held-out example came to, by name: its loss, whether it was right.
        interrupted: Whether it was stopped before every claim was asked.
        identity: The digests of what was audited, by which another audit of it takes these answers over.
    """

    title: str
    answers: tuple[Answer, ...]
    assumed: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    worst_examples: WorstExamples | None = None
    class_names: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    judgments: tuple[Judgment, ...] = ()
    fail_on: tuple[Verdict, ...] = FAIL_ON
    outcomes: Mapping[str, Terms] = field(default_factory=dict)
    interrupted: bool = False
    identity: Mapping[Part, str] = field(default_factory=dict)

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """The findings, by name of the claim."""
        return {a.claim.name: a.finding for a in self.answers if a.finding is not None}

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """How many verdicts of each kind were given, the gravest first; kinds that none has are left out.

        A finding counts once where its rows agree, else each row for itself: a promise that holds in three of
        six balls is not one vacuous finding.
        """
        count = Counter(v for finding in self.findings.values() for v in row_verdicts(finding))
        return {verdict: count[verdict] for verdict in Verdict if count[verdict]}

    @property
    def failed(self) -> bool:
        """Whether a finding has a verdict of ``fail_on``, a requirement is not met or a claim is broken."""
        short = any(judgment.status is not Status.MET for judgment in self.judgments)
        broken = any(answer.broken for answer in self.answers)
        return short or broken or any(map(self.failing, self.findings.values()))

    def failing(self, finding: Finding) -> str:
        """The gravest verdict of a finding by which the audit fails, or ""."""
        return next((verdict for verdict in finding.counts if verdict in self.fail_on), "")

    def judgments_of(self, claim: str) -> list[Judgment]:
        """What became of the requirements about a claim."""
        return [judgment for judgment in self.judgments if judgment.requirement.claim.name == claim]

    def as_json(self) -> dict[str, Any]:
        """The audit as JSON values (``findings.json``); non-finite numbers become strings."""
        return {
            "title": self.title,
            "failed": self.failed,
            "interrupted": self.interrupted,
            "counts": {str(verdict): count for verdict, count in self.counts.items()},
            "assumed": list(self.assumed),
            "facts": _plain(self.facts),
            "identity": dict(self.identity),
            "answers": [answer.as_json() for answer in self.answers],
            "requirements": [judgment.as_json() for judgment in self.judgments],
            "hardest": None if self.worst_examples is None else self.worst_examples.as_json(),
            "history": [_plain(row) for row in self.history],
        }

    # what renders an audit reads it: it is named, not imported

    def save(self, directory: str | Path, *, force: bool = False) -> Path:
        """Write ``findings.json`` and ``report.html``, one file that needs no network.

        What each held-out example came to is written beside them, for comparisons in pairs.

        Args:
            directory: Where; it is made if it does not exist.
            force: Whether an audit that is there is replaced, which this one does not continue: one of the
                same weights and data, of which this one has every finding.

        Returns:
            The report.

        Raises:
            FileExistsError: There is a file of that name, or an audit that is not to be replaced.
        """
        place = Path(directory)
        replaced = (place / "findings.json").is_file() and not force
        continued = replaced and resolve("margin.auditing.asking.reuse:continues")(self, place)
        check_free(place, force=force or continued)
        place.mkdir(parents=True, exist_ok=True)
        document = json.dumps(sealed(self.as_json()), indent=1, allow_nan=False)
        if not continued:
            (place / FILE).unlink(missing_ok=True)
        if self.outcomes:
            write_outcomes(place / FILE, self.outcomes)
        write_whole(place / "findings.json", document.encode())
        resolve("margin.auditing.report.report:write_report")(self, place / "report.html")
        return place / "report.html"

    def junit(self) -> bytes:
        """The audit as JUnit's XML, for continuous integration: a test case an answer and a requirement."""
        return resolve("margin.auditing.report.exports:junit")(self)

    def _repr_html_(self) -> str:
        return str(resolve("margin.auditing.report.report:fragment")(self))

    def __rich__(self) -> "RenderableType":
        hint = "print(audit.table()) shows all of it; audit.save(DIRECTORY) writes a report"
        shown: RenderableType = resolve("margin.auditing.report.screen:Screen")(self, hint)
        return shown

    def __str__(self) -> str:
        return str(self.__rich__())

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return f"<Audit of {self.title}: {len(self.findings)} findings{': ' if counts else ''}{counts}>"

    def table(self) -> "RenderableType":
        """Every finding by question, what was left out and why; prints itself, as wide as the terminal."""
        shown: RenderableType = resolve("margin.auditing.report.screen:Screen")(self, whole=True)
        return shown

    def __getitem__(self, name: str) -> Finding:
        """The finding of a claim, by its name in full, behind its last ``/``, or behind its last dot.

        Raises:
            UnknownName: No claim of that name has a finding, or several have; it says why there is none.
        """
        return self.findings[resolve("margin.auditing.report.exports:full_name")(self, name)]

    def answer(self, name: str) -> Answer:
        """What a claim answered, named as in ``audit[name]``; a notebook shows its numbers and picture.

        Raises:
            UnknownName: As ``audit[name]`` does.
        """
        full = resolve("margin.auditing.report.exports:full_name")(self, name)
        return next(answer for answer in self.answers if answer.claim.name == full)

    def frame(self) -> "DataFrame":
        """One row an element of a finding: question, claim, label, value, its 95 % interval, verdict."""
        return resolve("margin.auditing.report.exports:frame")(self)

    def worst(self, count: int = 5) -> "DataFrame":
        """The held-out examples of largest loss, the worst first: row, target, prediction, loss, margin.

        Raises:
            ValueError: Losses belong to no single example, or ``count`` is below 1.
        """
        return resolve("margin.auditing.report.exports:worst")(self, count)


def check_free(directory: Path, *, force: bool) -> None:
    """Refuse a directory that an audit cannot be written to.

    Raises:
        FileExistsError: It is a file, or holds an audit that is not to be replaced.
    """
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"{directory} is a file: choose another directory (--out)")
    if not force and (directory / "findings.json").exists():
        raise FileExistsError(
            f"{directory} holds an audit: choose another directory (--out), or replace it (force, --force)"
        )


def row_verdicts(found: Finding) -> list[Verdict]:
    """What a finding adds to the sum: the verdict of each row where they differ, else its own, once."""
    return found.verdicts if len(found.counts) > 1 and 0 < len(found.labels) <= MOST_ROWS else [found.verdict]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an audit; ``audit`` holds what was answered until then."""

    def __init__(self, audit: Audit) -> None:
        answered = len(audit.findings)
        super().__init__(f"{answered} of {len(audit.answers)} claims were answered")
        self.audit = audit


# 12 parameters: what is asked of what, how far it may go, and what is shown beside the answers
def ask(
    subject: Subject,
    claims: Iterable[Claim],
    *,
    title: str = "",
    facts: Mapping[str, Fact] | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    progress: Progress | None = None,
    requirements: Sequence[Requirement] = (),
    fail_on: Sequence[Verdict] = FAIL_ON,
    minutes: float = math.inf,
    began: float | None = None,
    everything: bool = True,
    earlier: "Earlier | None" = None,
) -> Audit:
    """Put every claim to the subject that it applies to; none may leave a trace.

    Args:
        subject: The model under audit.
        claims: The questions, asked in this order, but for those of a requirement, which come first.
        title: What is audited; the model's class if not given.
        facts: Facts to show beside, or instead of, those that :func:`facts_of` finds.
        history: Rows of the training's history.
        progress: Called before each claim is asked.
        requirements: What the user requires; each is of one of the claims.
        fail_on: The verdicts by which the audit fails.
        minutes: What the audit may take: the most telling and the cheapest claims are asked first, of fewer
            examples where that saves time; one that does not fit into what remains is listed as not asked.
        began: When that time began, by ``time.perf_counter``; now, if not given.
        everything: Whether claims are asked that should be named; a required one always is.
        earlier: An earlier audit, whose findings are taken over if it is of the same subject, those of other
            claims too.

    Returns:
        The audit, its answers in the order of the claims. One that cannot be asked says why: it raised
        NotAsked, or torch has no such derivative. One that raises anything else is listed as broken, its
        traceback kept, and the others are asked all the same; the audit has then failed.

    Raises:
        FileExistsError: The earlier audit is of another subject, and must not be replaced.
        Interrupted: Ctrl-C came; it holds the audit of what was answered.
        RuntimeError: A claim left a trace in the model, the examples or a global generator.
        ValueError: A requirement is about a claim that does not apply, or an element that is not there.
    """
    claims = list(claims)
    plan = Budget(subject, minutes, began=began, named=len(claims) if everything else 0)
    check_required(subject, claims, requirements)
    known, identity = {**facts_of(subject), **(facts or {})}, identity_of(subject)
    answers: dict[str, Answer] = {}
    required = [requirement.claim for requirement in requirements]
    interrupted, hard, came_to = False, None, {}
    whole, subject = subject, plan.within(subject)
    full = whole if plan.drawn_of_test else subject  # all held-out examples, perhaps in smaller batches
    try:
        before = Snapshot.of(subject)
        if earlier is not None and (earlier := earlier.of(full, identity)).showed_examples:
            came_to, hard = outcomes(full), worst_examples(full)
        for position, claim in enumerate(plan.order(claims, required), 1):
            if stands := earlier and earlier.standing(
                claim, *_fewer(subject, claim, plan, plan.drawn(claim))
            ):
                answers[claim.name] = stands
                continue
            if progress is not None:
                progress(claim, position, len(claims))
            left = "" if everything or claim in required else claim.by_name
            answers[claim.name] = _answer(subject, claim, plan, before, f"{left}{BY_NAME}" if left else "")
            _judgments(requirements, answers)  # a label that means no element is told at once
        if hard is None and plan.can_name_the_worst:
            came_to, hard = outcomes(subject), worst_examples(subject)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if "outputs on test" in full.kept:  # computed for others
            identity[OUTPUTS] = outputs_digest(full)
        whole.kept.clear()
        subject.kept.clear()
    answers = {c.name: answers.get(c.name, Answer(c, None, "", 0.0, INTERRUPTED)) for c in claims}
    if earlier is not None:
        answers = earlier.joined(answers)
        known["earlier audit"] = earlier.said(answers.values())
    audit = Audit(
        title=title or subject.model._get_name(),
        answers=tuple(answers.values()),
        assumed=(*subject.assumed, *plan.assumed),
        facts=known,
        history=tuple(history),
        worst_examples=hard,
        class_names=subject.class_names,
        span=_span(subject),
        judgments=_judgments(requirements, answers),
        fail_on=tuple(fail_on),
        outcomes=came_to,
        interrupted=interrupted,
        identity={**(earlier.identity if earlier else {}), **identity},
    )
    if interrupted:
        raise Interrupted(audit)
    return audit


def check_required(subject: Subject, claims: Sequence[Claim], requirements: Sequence[Requirement]) -> None:
    """Refuse requirements about claims that are not asked or do not apply.

    Raises:
        ValueError: One is about such a claim; the message names the nearest that do apply.
    """
    for requirement in requirements:
        claim = requirement.claim
        rule = f"a requirement is about a claim that is asked and applies: {requirement.text!r}"
        if claim not in claims:
            raise ValueError(f"{rule} is about {claim.name}, which is not asked")
        if refusal := claim.refusal(subject):
            apply = [other.name for other in claims if not other.refusal(subject)]
            near = ", ".join(nearest(claim.name, apply)) or "none"
            raise ValueError(f"{rule} is about {claim.name}, which {refusal}; nearest: {near}")


def _judgments(requirements: Sequence[Requirement], answers: Mapping[str, Answer]) -> tuple[Judgment, ...]:
    """What became of the requirements about the claims that have an answer."""
    made = []
    for requirement in requirements:
        if answer := answers.get(requirement.claim.name):
            absent = Judgment(requirement, {}, answer.absence)
            made.append(check_requirement(requirement, answer.finding) if answer.finding else absent)
    return tuple(made)


def _fewer(subject: Subject, claim: Claim, plan: Budget, most: int | None) -> tuple[int | None, int | None]:
    """How many examples a claim draws at most, and how many held-out ones stand for all; None: not fewer."""
    batches = subject.train if claim.cost.part != "test" and len(subject.train) else subject.test
    limit = MOST_TRAINING if claim.cost.part == "answered" else claim.cost.limit
    says_itself = min(count(batches), limit or math.inf)
    if claim.cost.part == "answered":
        most = subject.most_answered
    fewer = None if most is None or most >= says_itself else most
    return fewer, count(subject.test) if plan.drawn_of_test else None


def _answer(subject: Subject, claim: Claim, plan: Budget, before: Snapshot, unwanted: str) -> Answer:
    if not plan.can_tell(claim):
        return Answer(claim, None, "", 0.0, unwanted or plan.lacking(claim))
    try:
        with plan.until_its_end():
            refusal = claim.refusal(subject, plan.needs)
    except OutOfTime:
        return Answer(claim, None, "", 0.0, unwanted or plan.lacking(claim))
    except Exception as error:  # whether it applies is found out by asking the model, which may be odd
        lacks = lacking(error)
        return Answer(claim, None, "", 0.0, lacks, "" if lacks else traceback.format_exc())
    if refusal:
        return Answer(claim, None, refusal, 0.0)
    most = None if unwanted else plan.drawn(claim)
    if skipped := unwanted or plan.lacking(claim, most):
        return Answer(claim, None, "", 0.0, skipped)
    start = time.perf_counter()
    finding, skipped, broken = None, "", ""
    try:
        with warnings.catch_warnings(), plan.bounded(claim, most):
            # vmap of torch's recurrent layers is slow, which is no news to who reads the audit
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            finding = finding_of(claim, subject.drawing(most))
        finding = replace(finding, sample=finding.sample or plan.sample(claim, most))
    except Exception as error:
        finding = None  # a deadline may pass after it was made of a refusal on the way
        skipped = str(error) if isinstance(error, NotAsked) else lacking(error)
        broken = "" if skipped else traceback.format_exc()
    if claim.cost.passes >= 3 or plan.has_many_places:  # graphs, or columns of millions of terms
        give_back_memory()
    plan.took(claim, seconds := time.perf_counter() - start, most)
    if difference := before.difference(subject):
        raise RuntimeError(
            f"asking must leave no trace: claim {claim.name} was asked and {difference}\n{broken}"
        )
    return Answer(claim, finding, "", seconds, skipped, broken, *_fewer(subject, claim, plan, most))


def _span(subject: Subject) -> tuple[float, float] | None:
    domain = subject.domain
    return None if domain is None else (float(domain.low.min()), float(domain.high.max()))


def facts_of(subject: Subject) -> dict[str, Fact]:
    """What identifies a subject: its model's size and place, its data's, the versions that measured."""
    parameters = list(subject.model.parameters())
    facts: dict[str, Fact] = {
        "model": subject.model._get_name(),
        "parameters": sum(p.numel() for p in parameters) if any(p.requires_grad for p in parameters) else 0,
        "task": subject.task.name,
        "held-out examples": _examples(subject.test),
    }
    where_there_are = {
        "training examples": _examples(subject.train),
        "examples of another source": _examples(subject.ood),
        "models compared by the held-out examples": subject.compared or 0,
        "classes": len(subject.class_names),
    }
    facts |= {name: count for name, count in where_there_are.items() if count}
    if parameters:
        facts["type, device"] = f"{str(parameters[0].dtype).removeprefix('torch.')}, {parameters[0].device}"
    python = f"Python {platform.python_version()}"
    return facts | {
        "held-out fingerprint": fingerprint(subject, "test")[:16],
        "versions": f"margin {version('margin')}, torch {torch.__version__}, {python}",
    }


def _examples(batches: Iterable[Any]) -> int:
    """Examples that count: a batch's rows, less those of weight 0."""
    return sum(int(counts(batch).sum()) for batch in batches)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values: a tensor becomes its number, a non-finite number a string."""
    values = {k: v.item() if isinstance(v, Tensor) else v for k, v in row.items()}
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
