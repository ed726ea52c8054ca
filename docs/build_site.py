"""The site: written pages, those that the tables give, the book of theorems, models, every public name.

python docs/build_site.py OUT
"""

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import gallery  # noqa: E402
import reference  # noqa: E402
import tutorials  # noqa: E402

from benchmarks.page import page  # noqa: E402
from margin.auditing.book import theorems  # noqa: E402
from margin.auditing.book.site import build  # noqa: E402
from margin.core import catalog as tables  # noqa: E402

JOURNEYS = (
    *("own_module", "unlabeled", "table", "series", "graph", "photographs", "masks", "text", "words"),
    *("transformers", "texts", "estimators", "gate", "notebook", "resuming"),
)
USE = "train audit robustness bounds posteriors sequences graphs generative processes sklearn verdicts course"
PAGES = {
    "Use": USE.split(),
    "Tutorials": tuple(f"tutorials/{name}" for name in tutorials.NAMES),
    "Journeys": tuple(f"journeys/{name}" for name in JOURNEYS),
    "Look up": ("commands", "catalog", "results", "words", "parts"),
    "Add": ("add-model", "add-claim", "add-format"),
}
"""The written pages under their captions, in order."""


def main(out: Path) -> None:
    """Build the site into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("results", "audits", "models", "*.py"))
        for name, text in {"commands": commands(), "catalog": catalog(), "results": page()}.items():
            (source / f"{name}.md").write_text(text)
        pages = {
            claim: f"../../theorems/{chapter.name}/{theorems.page_of(claim)}.md"
            for chapter in theorems.chapters()
            for claim in chapter.sections
        }
        areas = gallery.areas()
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:  # a thread each
            theory = pool.submit(theorems.write, source / "theorems", list(tables.claims()))
            drawn = [pool.submit(tutorials.write, source / "tutorials")]
            drawn += [pool.submit(gallery.write, source / "models", area, pages) for area in areas]
            names = reference.write(source / "reference")
            chapters = theory.result()
            for one in drawn:
                one.result()
        captions = {
            "Use": PAGES["Use"],
            "Theorems": [f"theorems/{name}" for name in chapters],
            "Models": [f"models/{area}" for area in areas],
            **PAGES,  # "Use" keeps its place
            "Reference": [f"reference/{name}" for name in names],
        }
        contents = "".join(
            f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n" + "\n".join(names) + "\n```\n"
            for caption, names in captions.items()
        )
        index = source / "index.md"
        index.write_text(index.read_text() + contents)
        build(source, out, reference.SETTINGS)


def commands() -> str:
    """Every command with its help, as it prints it."""
    from margin.cli import COMMANDS, usage

    parts = ["# Every command", f"```text\n{usage()}\n```"]
    for name, (summary, *_) in COMMANDS.items():
        parts.append(
            f"## margin {name}\n\n{summary[0].upper()}{summary[1:]}.\n\n```text\n{help_of([name])}\n```"
        )
    parts.append(
        "## Options of one model\n\nThey follow from the signatures of the model, of its step and of what "
        "reads the data; for instance:\n\n"
        f"```text\n{help_of(['train', 'mlp', 'two-moons'])}\n```"
    )
    return "\n\n".join(parts) + "\n"


def help_of(words: list[str]) -> str:
    """What a command prints with --help."""
    from margin.cli import main

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*words, "--help", "all"])
    return text.getvalue().strip()


def catalog() -> str:
    """All rows of all tables, area by area."""
    kinds = {
        "Models": tables.models(),
        "Rules": tables.rules(),
        "Claims": tables.claims(),
        "Parts": tables.parts(),
    }
    parts = [
        "# Catalog\n\nEvery row, with the work that it follows and the entries of the course that it covers."
    ]
    for title, rows in kinds.items():
        parts.append(f"## {title}")
        for area in dict.fromkeys(name.partition("/")[0] for name in rows):
            own = [row for name, row in rows.items() if name.partition("/")[0] == area]
            parts.append(f"### {title}: {area}\n\n{table(own)}")
    return "\n\n".join(parts) + "\n"


def table(rows: Iterable[Any]) -> str:
    """Rows of the catalog as a table."""
    lines = ["| name | what | reference | covers |", "|---|---|---|---|"]
    for row in rows:
        cells = [f"`{row.name}`", row.summary, row.reference, ", ".join(row.covers)]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
