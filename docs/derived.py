"""Pages that the site derives: every command from its help, the catalog from its tables, the figures."""

import contextlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def write(folder: Path) -> None:
    """Write the derived pages beside those that are written by hand."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.page import page

    for name, text in {"commands.md": commands(), "catalog.md": catalog(), "results.md": page()}.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:  # what is as it was is not built again
            path.write_text(text)


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
    import margin

    tables = {
        "Models": margin.models(),
        "Rules": margin.rules(),
        "Claims": margin.claims(),
        "Parts": margin.parts(),
    }
    parts = [
        "# Catalog\n\nEvery row, with the work that it follows and the entries of the course that it covers."
    ]
    for title, rows in tables.items():
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
