"""An audit in a terminal: what was assumed, the table of findings, what does not apply, the sum.

Readable at 80 columns: assumptions are numbered in the table and spelled out below it.
"""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from margin.auditing.table import Row, premises_assumed, rows
from margin.findings import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from margin.auditing.answers import Audit

LONGEST_MARK = 34
"""Characters of a name that a list keeps on one line."""

STYLES = {
    Verdict.UNFOUNDED: "bold magenta",
    Verdict.FAILED: "bold red",
    Verdict.VIOLATED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.VACUOUS: "dim",
    Verdict.MEASURED: "",
    Verdict.HOLDS: "green",
}


def renderable(audit: "Audit") -> "RenderableType":
    """What rich prints for an audit."""
    from rich.console import Group
    from rich.text import Text

    notes = premises_assumed(list(audit.findings.values()))
    made = {name: rows(name, finding, notes) for name, finding in audit.findings.items()}
    why = [(name, text) for name, group in made.items() for row in group for text in row.why]
    refused = [(a.claim.name, f"does not apply: {a.refusal}") for a in audit.answers if not a.finding]
    blocks: list[RenderableType] = [Text(audit.title, style="bold")]
    if audit.assumed:
        blocks.append(_listing("Assumed of the subject", [("-", text) for text in audit.assumed]))
    if made:
        blocks.append(_table(made))
    if notes:
        blocks.append(_listing("Assuming", [(f"[{i}]", text) for i, text in enumerate(notes, 1)]))
    if why:
        blocks.append(_listing("Why", why))
    if refused:
        blocks.append(_listing("Left out", refused))
    blocks.append(summary(audit))
    return Group(*(part for block in blocks for part in (block, Text(""))))


def plain(audit: "Audit", width: int = 100) -> str:
    """The audit as text without colors."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(audit)
    return file.getvalue()


def summary(audit: "Audit") -> "Text":
    """How many findings have each verdict, the gravest first."""
    from rich.text import Text

    text = Text(f"{len(audit.findings)} findings")
    for verdict, count in audit.counts.items():
        text.append(": " if text.plain.endswith("findings") else ", ")
        text.append(f"{count} {verdict}", style=STYLES[verdict])
    refused = len(audit.answers) - len(audit.findings)
    return text.append(f"; {refused} do not apply" if refused else "")


def _table(made: Mapping[str, list[Row]]) -> "RenderableType":
    """The rows, under the name of the room that asks: ``theory``, ``robust``, an area."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    with_unit = any(row.unit for group in made.values() for row in group)
    table.add_column("claim", no_wrap=True, overflow="fold")
    table.add_column("promised", overflow="fold")
    table.add_column("measured", no_wrap=True, overflow="fold")
    for column in (*(["unit"] if with_unit else []), "verdict"):
        table.add_column(column, overflow="fold", min_width=12 if column == "verdict" else None)
    room = ""
    for name, group in made.items():
        if name.rpartition("/")[0] != room:
            room = name.rpartition("/")[0]
            table.add_row(_text(room, "dim"))
        short = name.rpartition("/")[2]
        if len(group) > 1:
            table.add_row(_text(f" {short}"))
        for row in group:
            cells = [row.promised, row.measured, *([row.unit] if with_unit else [])]
            label = f"   {row.label}" if len(group) > 1 else f" {short}"
            table.add_row(_text(label), *map(_text, cells), _verdict(row))
    return table


def _verdict(row: Row) -> "Text":
    text = _text(row.verdict, STYLES[row.level])
    return text.append("".join(f" [{note}]" for note in row.notes)) if row.notes else text


def _text(content: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(content, style=style)


def _listing(title: str, items: list[tuple[str, str]]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=max(len(mark) for mark, _ in items) < LONGEST_MARK, overflow="fold")
    grid.add_column(overflow="fold")
    for mark, content in items:
        grid.add_row(_text(mark, "dim"), _text(content))
    return Group(_text(title, "bold"), grid)
