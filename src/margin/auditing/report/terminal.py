"""All of an audit in a terminal: the table of findings by question, what they rest on, what was left out.

Premises are numbered in the table and spelled out below it. Where the table does not fit, each question has
its own, and units leave their column; the rows of a question that fits none are stacked.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from margin.auditing.asking.requirements import Status
from margin.auditing.report.table import (
    MEASURED,
    Row,
    absences,
    by_question,
    left_out,
    premises_assumed,
    rows,
    statuses,
)
from margin.core.findings import Verdict

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from margin.auditing.asking.answers import Audit

Made = Mapping[str, Mapping[str, list[Row]]]
"""The rows of each claim, by the question that they bear on."""

MOST_ROWS = 8
"""Rows of one finding; the report shows more."""

REQUIRED = {Status.MISSED: "bold red", Status.UNDECIDED: "yellow", Status.MET: "green"}

INDENT = 3
"""Blanks before a label."""

GAP = 2
"""Blanks between two columns: the padding of one, and what divides them."""

WRAPPING = ("claim", "required")
"""Columns that wrap between words: a value, its promise, its unit and, while there is room, its verdict do
not."""

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


def everything(audit: "Audit") -> "Iterator[RenderableType]":
    """What rich prints of every finding: the table, the premises and reasons, what was left out."""
    from rich.text import Text

    notes = premises_assumed(list(audit.findings.values()))
    made = {
        question: {
            name: rows(name, finding, notes, judgments=audit.judgments_of(name), most=MOST_ROWS)
            for name, finding in group.items()
        }
        for question, group in by_question(audit).items()
    }
    why = [(n, text) for group in made.values() for n, rs in group.items() for row in rs for text in row.why]
    refused = left_out(audit.answers)
    blocks: list[RenderableType] = []
    if made:
        blocks.append(Fitting(made))
    if notes:
        blocks.append(_listing("Assuming", [(f"[{i}]", text) for i, text in enumerate(notes, 1)]))
    if why:
        blocks.append(_listing("Why", _together(why)))
    if refused:
        items = [
            ("-", f"{absence}: {', '.join(names)}".removesuffix(": ")) for absence, names in refused.items()
        ]
        blocks.append(_listing("Left out", items))
    for block in blocks:
        yield Text("")
        yield block
    yield Text("")


def _together(why: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each reason once: beside the claim it is of, or before the names of all of them."""
    names: dict[str, list[str]] = {}
    for name, text in why:
        names.setdefault(text, []).append(name)
    shared = [("-", f"{text}: {', '.join(dict.fromkeys(of))}") for text, of in names.items() if len(of) > 1]
    return [(of[0], text) for text, of in names.items() if len(of) == 1] + shared


def counted(audit: "Audit") -> str:
    """How many findings there are, and verdicts where these are more."""
    count, verdicts = len(audit.findings), sum(audit.counts.values())
    words = f"{count} finding{'' if count == 1 else 's'}"
    return words if verdicts == count else f"{words}, {verdicts} verdicts"


def summary(audit: "Audit", phrases: Sequence[str] | None = None) -> "Text":
    """How many verdicts of each kind were given, the gravest first, and what became of the requirements.

    Args:
        audit: What was found.
        phrases: What is said of the claims without a finding; None: how many there are of each reason.
    """
    from rich.text import Text

    text = Text(counted(audit))
    for i, (verdict, number) in enumerate(audit.counts.items()):
        text.append(", " if i else ": ")
        text.append(f"{number} {verdict}", style=STYLES[verdict])
    text.append("".join(f"; {phrase}" for phrase in (absences(audit) if phrases is None else phrases)))
    required = statuses(audit.judgments)
    for i, (status, number) in enumerate(required.items()):
        text.append("; required: " if i == 0 else ", ")
        text.append(f"{number} {status}", style=REQUIRED[status])
    if Status.UNDECIDED in required:
        text.append(" (undecided counts as missed)")
    return text


class Fitting:
    """The findings as the width allows: a table, a table for each question, rows one under another.

    Args:
        made: The rows of each claim, by the question that they bear on.
    """

    def __init__(self, made: Made) -> None:
        self._made = made

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        whole = _fitting(self._made, options.max_width)
        if whole is not None:
            yield whole
            return
        for question, claims in self._made.items():
            part = {question: claims}
            yield _fitting(part, options.max_width) or _stack(part)


def _fitting(made: Made, width: int) -> "RenderableType | None":
    """The first table that fits: units in their column, beside the names, and verdicts that wrap at last."""
    for units, wrapping in ((True, WRAPPING), (False, WRAPPING), (False, (*WRAPPING, "verdict"))):
        if (table := _table(made, width, units=units, wrapping=wrapping)) is not None:
            return table
    return None


def _table(made: Made, width: int, *, units: bool, wrapping: Sequence[str]) -> "RenderableType | None":
    """The rows, under the question that they bear on; None where the width would break a word or a unit.

    Args:
        made: The rows of each claim, by question.
        width: What the table may take.
        units: Whether units have a column; else they stand behind the claim's name, or below it.
        wrapping: The columns that may wrap between words.
    """
    from rich import box
    from rich.table import Table

    lines = list(_lines(made))
    names = ("claim", "promised", MEASURED, "unit", "verdict", "required")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    shown = [i for i in range(len(names)) if any(line[i].plain for line in lines)]
    beside = ["" if units or not line[3].plain else f"({line[3].plain})" for line in lines]
    if not units:
        shown = [i for i in shown if names[i] != "unit"]
    cells = {i: [names[i], *(line[i].plain for line in lines)] for i in shown}
    words = {i: [word for cell in cells[i] for word in cell.split()] for i in shown}
    words[0] += beside
    cells[0] += [f"{line[0].plain} {unit}" for line, unit in zip(lines, beside, strict=True) if unit]
    widths = {i: max(map(len, cells[i])) for i in shown}
    excess = sum(widths.values()) + GAP * (len(shown) - 1) - width
    for i in reversed(shown):
        if names[i] in wrapping:
            least = max(map(len, words[i])) + (0 if i else INDENT)
            taken = max(0, min(excess, widths[i] - least))
            widths[i], excess = widths[i] - taken, excess - taken
    if excess > 0:
        return None
    for i in shown:
        table.add_column(names[i], width=widths[i])
    for line, unit in zip(lines, beside, strict=True):
        if unit:
            fits = len(line[0]) + 1 + len(unit) <= widths[0]
            line[0].append(f" {unit}" if fits else f"\n{'':{INDENT}}{unit}", style="dim")
        table.add_row(*(line[i] for i in shown))
    return table


def _lines(made: Made) -> "Iterator[list[Text]]":
    """The cells of every line of the table."""
    blank = [_text("") for _ in range(5)]
    for question, claims in made.items():
        yield [_text(question, "bold"), *blank]
        for name, group in claims.items():
            short = name.rpartition("/")[2]
            if len(group) > 1:
                yield [_text(f" {short}"), *blank]
            for row in group:
                yield [_text(f"   {row.label}" if len(group) > 1 else f" {short}"), *_cells(row)]


def _cells(row: Row) -> list["Text"]:
    """Promise, value, unit, verdict and requirements of a row."""
    return [_text(row.promised), _text(row.measured), _text(row.unit), _verdict(row), _required(row)]


def _stack(made: Made) -> "RenderableType":
    """The rows one under another, for a terminal too narrow for their table."""
    from rich.console import Group
    from rich.padding import Padding

    lines: list[RenderableType] = []
    for question, claims in made.items():
        lines.append(_text(question, "bold"))
        for name, group in claims.items():
            lines.append(_text(name))
            for row in group:
                promised, measured, unit, verdict, required = _cells(row)
                label = f"{row.label}: " if row.label and len(group) > 1 else ""
                first = _text(label).append(measured).append(f" {unit}" if row.unit else "")
                second = _text(f"promised {promised}: " if row.promised else "").append(verdict)
                lines += [
                    Padding(first, (0, 0, 0, 1), expand=False),
                    Padding(second, (0, 0, 0, 3), expand=False),
                ]
                if row.required:
                    lines.append(Padding(_text("required ").append(required), (0, 0, 0, 3), expand=False))
    return Group(*lines)


def _verdict(row: Row) -> "Text":
    text = _text(row.verdict, STYLES[row.level])
    return text.append("".join(f" [{note}]" for note in row.notes)) if row.notes else text


def _required(row: Row) -> "Text":
    text = _text("")
    for i, (bound, status) in enumerate(row.required):
        text.append("\n" if i else "").append(f"{bound} ").append(str(status), style=REQUIRED[status])
    return text


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
