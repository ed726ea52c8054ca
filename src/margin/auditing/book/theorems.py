"""The pages of theorems: what is written of a claim, its demonstration, how it breaks, its code."""

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from margin.auditing.asking.answers import Answer
from margin.auditing.book.chapters import Chapter, Exercise, Section, chapters, run
from margin.auditing.report.report import finding_fragment
from margin.core.catalog import Claim, claims, resolve
from margin.core.findings import Finding, Premise, Subject, Verdict, demonstrated, finding_of

LINES = 60
"""Lines of code that a page shows; of a longer function it shows the beginning."""

BREAKS = (Verdict.UNFOUNDED, Verdict.VIOLATED, Verdict.FAILED)


def write(folder: Path, names: Collection[str], told: Callable[[str], None] = lambda name: None) -> list[str]:
    """Write the chapters and a page for each claim as Markdown; returns the chapters' names.

    Args:
        folder: Where they are written.
        names: The claims that have a page.
        told: Is told of each claim before it is put to its demonstration.

    Raises:
        ValueError: A section is of no claim, or what is to break a premise breaks none.
    """
    table, made = claims(), []
    for chapter in chapters():
        if unknown := [name for name in chapter.sections if name not in table]:
            raise ValueError(f"a section must be a claim's: {chapter.name} has {', '.join(unknown)}")
        own = {name: written for name, written in chapter.sections.items() if name in names}
        if not own:
            continue
        place = folder / chapter.name
        place.mkdir(parents=True, exist_ok=True)
        pages = []
        for name, written in own.items():
            told(name)
            (place / f"{page_of(name)}.md").write_text(page(table[name], written), encoding="utf-8")
            pages.append((page_of(name), written.title, plain(table[name].summary)))
        (folder / f"{chapter.name}.md").write_text(contents(chapter, pages), encoding="utf-8")
        made.append(chapter.name)
    return made


def page_of(claim: str) -> str:
    """The name of a claim's page."""
    return claim.partition("/")[2].replace(".", "-")


def contents(chapter: Chapter, pages: Sequence[tuple[str, str, str]]) -> str:
    """A chapter's own page: its opening, then its pages.

    Args:
        chapter: Its title and opening are written.
        pages: Of each page in the chapter's folder the name, the title, and what it asks or is.
    """
    listed = "\n".join(f"- [{title}]({chapter.name}/{name}.md): {text}" for name, title, text in pages)
    tree = "\n".join(f"{chapter.name}/{name}" for name, _, _ in pages)
    links = {name: f"[{title}]({chapter.name}/{name}.md)" for name, title, _ in pages}
    tasks = "".join(
        f"{exercise(task, links.get(page_of(task.claim), ''))}\n\n" for task in chapter.exercises.values()
    )
    return (
        f"# {chapter.title}\n\n{chapter.text}\n\n{listed}\n\n{tasks}```{{toctree}}\n:hidden:\n{tree}\n```\n"
    )


def exercise(task: Exercise, theorem: str) -> str:
    """An exercise at the end of its chapter, its answer folded, with a link to the theorem's page."""
    file, of = f"{task.name}.py", f" The theorem: {theorem}." if theorem else ""
    return "\n\n".join(
        [
            f"## Exercise: {task.title}",
            f"{task.text} It takes about {task.minutes} minutes.{of}",
            f"```python\n{task.stub}```",
            f"```sh\nmargin exercise {task.name} --out {file}  # writes these lines into a file\n"
            f"margin exercise {task.name} {file}  # judges what you have made of them\n```",
            "```{raw} html\n<details><summary>An answer</summary>\n```",
            f"```python\n{task.answer}```",
            "```{raw} html\n</details>\n```",
        ]
    )


def page(claim: Claim, written: Section) -> str:
    """The page of a claim, as Markdown of MyST."""
    finding, _ = demonstrated(claim)
    parts = [
        f"# {written.title}\n\n*{plain(claim.summary)}* &ensp; `{claim.name}`",
        written.text,
        f"## Demonstration\n\n{shown(claim, finding, 'plot')}",
    ]
    if written.broken:
        parts.append(broken(claim, written.broken))
    if written.printed:
        parts.append(
            f"## As it is often printed\n\n```python\n{written.printed}```\n\n```text\n"
            f"{output(written.printed)}\n```"
        )
    parts += [own_model(claim), code(claim), source(finding.reference or claim.reference, claim.covers)]
    return "\n\n".join(parts) + "\n"


def shown(claim: Claim, finding: Finding, identifier: str) -> str:
    """A finding: its statement, its numbers beside what is promised, its picture, its premises."""
    lines = [plain(finding.statement), *map(plain, finding.remarks)]
    if finding.failure:
        lines.append(f"*failed*: {plain(finding.failure)}")
    drawn = finding_fragment(Answer(claim, finding, "", 0.0), identifier)
    lines.append(f"```{{raw}} html\n{drawn}\n```")
    if finding.premises:
        lines.append("Premises:")
        lines.append("\n".join(premise(p) for p in finding.premises))
    return "\n\n".join(lines)


def premise(one: Premise) -> str:
    """A premise, as a line of a list: its status, what it says, how that is known."""
    known = f": {plain(one.evidence)}" if one.evidence else ""
    return f"- *{one.status}*: {plain(one.text)}{known}"


def broken(claim: Claim, block: str) -> str:
    """What becomes of the theorem on a subject that breaks it."""
    names = run(block)
    subject = names.get("subject")
    if not isinstance(subject, Subject):
        raise ValueError(f"a block that breaks {claim.name} must make a subject: got {subject!r}")
    finding = finding_of(claim, subject)
    if not any(verdict in BREAKS for verdict in finding.verdicts):
        raise ValueError(f"a block that was to break {claim.name} gave {', '.join(finding.counts)}")
    return f"## Where it breaks\n\n```python\n{block}```\n\n{shown(claim, finding, 'broken')}"


def output(block: str) -> str:
    """What a block of a chapter prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        run(block)
    return text.getvalue().strip()


def own_model(claim: Claim) -> str:
    """How the claim is put to a model of the reader's own."""
    needs = [need.text for need in claim.needs]
    lines = [
        "## On your own model\n",
        f"```sh\nmargin claims {claim.name}  # this page\nmargin audit RUN --claims {claim.name}\n```\n",
        f'```python\nmargin.audit(model, data, claims=["{claim.name}"])\n```',
    ]
    if needs:
        lines.append(f"\nIt needs {' and '.join(needs)}.")
    if claim.by_name:
        lines.append(f"\nAn audit asks it by name alone: {claim.by_name}.")
    return "\n".join(lines)


def code(claim: Claim) -> str:
    """The function that asks, as it stands in the library."""
    function = resolve(claim.ask)
    while isinstance(function, functools.partial):
        function = function.func
    lines = inspect.getsource(inspect.unwrap(function)).rstrip().splitlines()
    if len(lines) > LINES:
        lines = [*lines[:LINES], "    ..."]
    fence = "\n".join(lines)
    return f"## The code\n\n`{function.__module__}:{function.__qualname__}`\n\n````python\n{fence}\n````"


def source(reference: str, covers: Sequence[str]) -> str:
    """Where a theorem or a model is from, and which entries of the course it is."""
    entries = f" Entries of the course: {', '.join(covers)}." if covers else ""
    return f"## Source\n\n{plain(reference)}.{plain(entries)}"


def plain(text: str) -> str:
    """Text in which Markdown finds nothing to read."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", text)
