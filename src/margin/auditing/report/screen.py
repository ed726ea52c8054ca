"""The first screen of an audit: who was asked, what it means for the user, where the evidence lies.

It has 24 lines at most, at any width: what does not fit is the least that a user must know, and is counted.
"""

import io
import shutil
from typing import TYPE_CHECKING

from margin.auditing.asking.requirements import Judgment
from margin.auditing.report.evidence import Level, Sentence
from margin.auditing.report.sentences import sentences
from margin.auditing.report.table import left_out_briefly, unmet
from margin.auditing.report.terminal import REQUIRED, everything, summary
from margin.figures.digits import freed, held

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from margin.auditing.asking.answers import Audit

MOST_LINES = 24
"""Lines of a terminal that nobody has enlarged."""

MOST_ASSUMED = 2
"""Lines of what was assumed."""

MOST_UNMET = 4
"""Requirements that are missed or undecided, each with its reason."""

MARKS: dict[Level, tuple[str, str]] = {
    "bad": ("bad", "bold red"),
    "warn": ("warn", "yellow"),
    "good": ("good", "green"),
    "unknown": ("?", "dim"),
}
"""What stands before a sentence, and its style."""

MARGIN = 5
"""Columns of the marks."""


class Screen:
    """What rich prints of an audit: its first screen, or all of it.

    Args:
        audit: What was found.
        last: The last line: where the evidence is.
        whole: Whether every finding is printed behind the sentences.
    """

    def __init__(self, audit: "Audit", last: str = "", *, whole: bool = False) -> None:
        self._audit, self._last, self._whole = audit, last, whole

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        head = [*_head(self._audit), *_required(self._audit.judgments, self._whole)]
        said = sentences(self._audit)
        if self._whole:
            yield from _lines(console, options, head)
            yield from _lines(console, options, [line for s in said for line in [_sentence(s)]])
            yield from everything(self._audit)
            yield summary(self._audit)
            return
        tail = [
            summary(self._audit, left_out_briefly(self._audit)),
            *([_text(self._last)] if self._last else []),
        ]
        top, bottom = _lines(console, options, head), _lines(console, options, tail)
        room = MOST_LINES - len(top) - len(bottom) - 2
        kept, left = _fitting([_lines(console, options, [_sentence(s)]) for s in said], said, room)
        yield from top
        if kept:
            yield _text("")
        yield from kept
        if left:
            yield _text(f"{'':{MARGIN}}{left} more: the report has them.", "dim")
        yield _text("")
        yield from bottom

    def __str__(self) -> str:
        return plain(self, shutil.get_terminal_size((100, MOST_LINES)).columns)

    __repr__ = __str__


def plain(shown: "Screen | Audit", width: int = 100) -> str:
    """A screen, or an audit's first, as text without colors."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _fitting(blocks: "list[list[Text]]", said: list[Sentence], room: int) -> "tuple[list[Text], int]":
    """The lines of the sentences that fit, in order, and how many are left out.

    That is never what is bad, nor the first that says whether it is right.
    """
    needed = sum(map(len, blocks))
    kept = [True] * len(blocks)
    first = next((i for i, sentence in enumerate(said) if sentence.question == "right"), -1)
    for i in reversed(range(len(blocks))):
        if needed > room - (not all(kept)) and said[i].level != "bad" and i != first:
            kept[i], needed = False, needed - len(blocks[i])
    lines = [line for block, keep in zip(blocks, kept, strict=True) if keep for line in block]
    return lines, kept.count(False)


def _head(audit: "Audit") -> "list[Text]":
    """Who was asked, on how many examples, and what was assumed of it."""
    names = {"held-out examples": 1, "training examples": 1, "classes": 2, "parameters": 1}
    known = {name: n for name in names if isinstance(n := audit.facts.get(name), int) and n}
    words = [f"{n:,} {name if n > 1 else name[: -names[name]]}" for name, n in known.items()]
    head = _text(audit.title, "bold")
    if words:
        head.append(f": {', '.join(words)}", style="not bold")
    return [head, *([_text(f"Assumed: {'; '.join(audit.assumed)}", "dim")] if audit.assumed else [])]


def _required(judgments: tuple[Judgment, ...], whole: bool) -> "list[Text]":
    """What became of the requirements that are not met, each with its reason."""
    short = unmet(judgments)
    most = len(short) if whole else MOST_UNMET
    lines = []
    for judgment in short[:most]:
        line = _text(judgment.requirement.text + " is ")
        lines.append(line.append(str(judgment.status), style=REQUIRED[judgment.status]))
        if judgment.why:
            line.append(f": {judgment.why}")
    return [*lines, *([_text(f"and {len(short) - most} more are not met")] if len(short) > most else [])]


def _sentence(sentence: Sentence) -> "Text":
    mark, style = MARKS[sentence.level]
    text = _text(f"{mark:{MARGIN}}", style)
    text.append(sentence.text, style="not bold default")
    return text.append(f" {sentence.todo}", style="not bold italic default") if sentence.todo else text


def _lines(console: "Console", options: "ConsoleOptions", texts: "list[Text]") -> "list[Text]":
    """Texts in lines of the width; what goes on stands below its beginning."""
    from rich.text import Text

    made = []
    for text in texts:
        marked = text.plain[:MARGIN].strip() in {mark for mark, _ in MARKS.values()}
        width = options.max_width - (MARGIN if marked else 0)
        first, rest = (text[:MARGIN], text[MARGIN:]) if marked else (Text(), text.copy())
        rest.plain = held(rest.plain)
        for i, line in enumerate(rest.wrap(console, max(width, MARGIN))):
            line.plain = freed(line.plain)
            lead = first if i == 0 else _text(" " * MARGIN if marked else "")
            line = Text.assemble(lead, line)
            line.rstrip()
            made.append(line)
    return made


def _text(content: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(content, style=style)
