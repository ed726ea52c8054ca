"""Help at the width of the terminal: of each option what it takes, what it does, and its default.

A parser that has rare options shows the others, each in one line where its sentence can be cut; with
``--help all`` it shows everything in full.
"""

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentParser

from margin.cli.output import tell_result
from margin.cli.tables import fitted, folded, painted
from margin.core.hints import cli_syntax, flag

COLUMN = 30
"""Where explanations begin."""


class Options(ArgumentParser):
    """A parser whose help is grouped, cut to the width of the terminal and short.

    Its attributes are set where the parser is built: ``listed``, the options of each group by their name, a
    whole class of them by what precedes the dot; ``every``, likewise those that ``--help all`` shows, where
    these are more; ``whole``, whether that is wanted.
    """

    listed: Mapping[str, Sequence[str]] = {}
    every: Mapping[str, Sequence[str]] = {}
    whole: bool = False

    def format_help(self, formatter: Any = None) -> str:
        """The help, as wide as the terminal, at most 100 columns."""
        width = min(shutil.get_terminal_size().columns, 100)
        positional = [
            a.dest if a.nargs is None else f"[{a.dest}]" for a in self._actions if not a.option_strings
        ]
        text = [f"usage: {' '.join([self.prog, *(name.upper() for name in positional)])} [options]", ""]
        text += folded(self.description or "", width)
        brief = bool(self.every) and not self.whole
        for title, actions in self._sections(self.listed if brief else self.every or self.listed).items():
            lines = [line for action in actions for line in explained(action, width, brief)]
            if lines:
                text += ["", painted(f"{title[0].upper()}{title[1:]}:", "bold"), *lines]
        if brief:
            more = [name for name in self.every if name not in self.listed]
            text += ["", *folded(f"--help all explains these in full, and more: {', '.join(more)}.", width)]
        told = [*text, *([] if brief else [""]), "--json prints one JSON document instead of text."]
        return fitted("\n".join(told)) + "\n"

    def print_help(self, file: Any = None) -> None:
        """Print the help as any result, which ``head`` may cut short."""
        tell_result(self.format_help().removesuffix("\n"))

    def _sections(self, groups: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
        """The options by group, in the order of the groups; those of no group are no training's."""
        found: dict[str, list[Any]] = {title: [] for title in ("arguments", "options", *groups)}
        known = {name for names in self.every.values() for name in names}
        for action in self._actions:
            name = action.dest.partition(".")[0]
            own = next((title for title, names in groups.items() if name in names), "")
            if own or name not in known:
                found[own or ("options" if action.option_strings else "arguments")].append(action)
        for title, names in groups.items():
            found[title].sort(key=lambda action: names.index(action.dest.partition(".")[0]))
        return found


def explained(action: Any, width: int, brief: bool = False) -> list[str]:
    """The lines of one option; none for jsonargparse's own, which read a file into a group.

    Args:
        action: The option.
        width: Columns of the terminal.
        brief: Whether the sentence is cut, at the end of a clause, where that saves lines.
    """
    flags = [name for name in action.option_strings if not name.endswith("+")]
    hidden = type(action).__name__ == "_ActionConfigLoad" or "--help" in flags
    if hidden or action.help in (None, "==SUPPRESS=="):
        return []
    column = min(COLUMN, width * 3 // 8)
    takes = cli_syntax(hint_of(action))
    name = f"{flag(flags[0])} {takes}" if flags else action.dest.upper()
    if brief and len(name) + 2 >= column and "." not in name.partition(" ")[0]:
        name = re.sub(r"\|.*", "|...", name)  # the choices of a common option: an error names them all
    known = action.default not in (None, "", [], {}, "==SUPPRESS==") and bool(flags)
    default = f" ({_shown(action.default)})" if known else ""
    text, room = re.sub(r"(?<![.])[.]$", "", str(action.help).replace("%%", "%")), max(20, width - column)
    first, *rest = folded((clipped(text, room - len(default)) if brief else text) + default, room)
    start = f"  {name.rstrip()}"
    if len(start) + 2 <= column:
        lines = [f"{start:<{column}}{first}"]
    elif brief and not rest and len(start) + 2 + len(first) <= width:
        lines = [f"{start}  {first}"]
    else:
        # choices that do not fit go on after a bar
        syntax = textwrap.wrap(start.replace("|", "| "), width, subsequent_indent=" " * 6)
        lines = [*(line.replace("| ", "|") for line in syntax), " " * column + first]
    return lines + [" " * column + line for line in rest]


def clipped(text: str, room: int) -> str:
    """A sentence up to the last end of a clause that fits, else up to the first.

    A clause ends at a full stop, a semicolon or a colon, and where there are none at a comma, never inside of
    brackets.
    """
    if len(text) <= room:
        return text
    for marks in ("[;:](?= )|[.](?= [A-Z])", ",(?= )"):
        ends = [m.start() for m in re.finditer(marks, text) if _is_outside(text, m.start())]
        if ends:
            return text[: max([end for end in ends if end <= room] or ends[:1])]
    return text


def _is_outside(text: str, place: int) -> bool:
    return all(text.count(one, 0, place) == text.count(other, 0, place) for one, other in ("()", "[]"))


def hint_of(action: Any) -> Any:
    """The type that an option takes."""
    return getattr(action, "_typehint", action.type)


def _shown(default: Any) -> str:
    if isinstance(default, tuple | list):
        return ",".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)
