"""The gallery: a page a model, from what is written in docs/models, its options, a training, its figures.

A file of docs/models is an area's: sections ``## area/name: Title`` with the model's equation. A block
``python trained`` makes a finished ``run`` on real data that the package brings, and an ``audit`` of it,
whose pictures are the page's; a block ``text measured`` names results, one a line.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from docstring_parser import parse

import margin
from benchmarks.page import section as figures
from benchmarks.record import RESULTS
from margin.auditing.asking.answers import Audit
from margin.auditing.book.chapters import Section, parsed, run
from margin.auditing.book.theorems import contents, plain, shown, source
from margin.auditing.subject.trained import subject_of_run
from margin.core.catalog import Entry, claims, models, resolve, user_options
from margin.engine.runs import Run

HERE = Path(__file__).parent / "models"


def areas() -> list[str]:
    """The areas that have a file, in the order of the catalog."""
    return [
        a for a in dict.fromkeys(name.partition("/")[0] for name in models()) if (HERE / f"{a}.md").exists()
    ]


def write(folder: Path, area: str, chapters: dict[str, str]) -> None:
    """Write the pages of an area's models.

    Args:
        folder: Where it is written.
        area: One of :func:`areas`.
        chapters: Of each claim the page, from the area's folder.
    """
    torch.set_num_threads(1)
    chapter = parsed(area, (HERE / f"{area}.md").read_text())
    place = folder / area
    place.mkdir(parents=True)
    pages = []
    for name, written in chapter.sections.items():
        entry, own = models()[name], name.partition("/")[2]
        (place / f"{own}.md").write_text(page(entry, written, chapters))
        pages.append((own, written.title, entry.summary))
    (folder / f"{area}.md").write_text(contents(chapter, pages))


def page(entry: Entry, written: Section, chapters: dict[str, str]) -> str:
    """The page of a model, as Markdown of MyST."""
    heads = [name.partition(":")[2] for name in models() if name.startswith(f"{entry.name}:")]
    also = f" &ensp; heads: {', '.join(f'`:{head}`' for head in heads)}" if heads else ""
    parts = [f"# {written.title}\n\n*{entry.summary}* &ensp; `{entry.name}`{also}", written.text]
    if written.trained:
        parts.append(trained(entry, written.trained, chapters))
    parts.append(options(entry))
    if names := written.measured.split():
        parts.append("## Measured\n\n" + "\n\n".join(figures(RESULTS / f"{name}.json") for name in names))
    parts.append(source(entry.reference, entry.covers))
    return "\n\n".join(parts) + "\n"


def trained(entry: Entry, block: str, chapters: dict[str, str]) -> str:
    """A training, what it cost, what its audit found, and the claims that are of this kind of model."""
    names = run(block)
    done, audit = names.get("run"), names.get("audit")
    if not isinstance(done, Run) or not isinstance(audit, Audit):
        raise ValueError(f"the block of {entry.name} must make a run and an audit of it")
    found = [
        f"### {plain(answer.claim.summary)}\n\n{shown(answer.claim, answer.finding, f'plot-{i}')}"
        for i, answer in enumerate(audit.answers)
        if answer.finding
    ]
    found += [f"`{a.claim.name}`: {plain(a.absence)}." for a in audit.answers if not a.finding]
    return "\n\n".join(
        [f"## On real data\n\n```python\n{block}```", cost(done), *found, asked(entry, done, chapters)]
    )


def cost(done: Run) -> str:
    """How many numbers were learned, and what a solve or 1,000 steps cost."""
    model = margin.load(done)
    count = sum(p.numel() for p in model.parameters())
    kept = f"{count:,} parameters" if count else f"{sum(b.numel() for b in model.buffers()):,} numbers kept"
    steps, seconds = done.history[-1]["step"], sum(row["seconds"] for row in done.history)
    if done.entry.whole and steps < 10:
        return f"{kept}; the solve takes {seconds:.2g} seconds."
    return f"{kept}; {1000 * seconds / steps:.2g} seconds a 1,000 steps."


def asked(entry: Entry, done: Run, chapters: dict[str, str]) -> str:
    """The claims about this kind of model, each with its page."""
    subject, known = subject_of_run(done), {}
    own = [
        claim.name
        for claim in claims().values()
        if any(need.model or need.of == "model" for need in claim.needs) and not claim.refusal(subject, known)
    ]
    if not own:
        return ""
    lines = "\n".join(f"- [{name}]({chapters[name]})" if name in chapters else f"- {name}" for name in own)
    return f"## What theory promises of it\n\n{lines}"


def options(entry: Entry) -> str:
    """The options of the model, by its constructor's signature and docstring."""
    build = resolve(entry.build)
    names = user_options(build)
    if not names:
        return "## Options\n\nNone of its own."
    described = {one.arg_name: one.description or "" for one in parse(inspect.getdoc(build) or "").params}
    defaults = inspect.signature(build).parameters
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for name in names:
        meaning = " ".join(described.get(name, "").split())
        rows.append(f"| `--model.{name}` | `{default_of(defaults[name].default)}` | {plain(meaning)} |")
    return "## Options\n\n" + "\n".join(rows)


def default_of(value: Any) -> str:
    """A default as one gives it on the command line."""
    return "none" if value is None else str(value).replace("|", "/")
