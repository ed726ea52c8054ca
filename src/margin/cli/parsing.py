"""Options from signatures: positional parameters are arguments, keyword-only ones are options.

Help comes from the docstring. Abbreviations are refused, since ``--model.drop`` must not be taken for
``--model.dropout``.
"""

import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Callable, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from margin.cli.streams import fitted
from margin.core.catalog import nearest
from margin.core.hints import cli_syntax, describe_type


class Options(ArgumentParser):
    """A parser whose help says of each option what it takes, what it does and its default, and no more."""

    def format_help(self, formatter: Any = None) -> str:
        """The help, as wide as the terminal, at most 100 columns."""
        width = min(shutil.get_terminal_size().columns, 100)
        positional = [
            a.dest if a.nargs is None else f"[{a.dest}]" for a in self._actions if not a.option_strings
        ]
        text = [f"usage: {' '.join([self.prog, *(name.upper() for name in positional)])} [options]"]
        text += ["", *textwrap.wrap(self.description or "", width)]
        for group in self._action_groups:
            lines = [line for action in group._group_actions for line in _explained(action, width)]
            if lines:
                title = (group.title or "").rstrip(":.")
                title = "options" if title in ("", str(self.description).rstrip(".")) else title
                text += ["", *textwrap.wrap(f"{title[0].upper()}{title[1:]}:", width), *lines]
        told = [*text, "", "--json prints one JSON document instead of text."]
        return fitted("\n".join(told)) + "\n"


COLUMN = 30
"""Where the explanations begin."""


def _explained(action: Any, width: int) -> list[str]:
    """The lines of one option; none for jsonargparse's own, which read a file into a group."""
    flags = [flag for flag in action.option_strings if not flag.endswith("+")]
    hidden = type(action).__name__ == "_ActionConfigLoad" or "--help" in flags
    if hidden or action.help in (None, "==SUPPRESS=="):
        return []
    name = f"{flags[0]} {cli_syntax(_hint(action))}" if flags else action.dest.upper()
    known = action.default not in (None, "", [], {}, "==SUPPRESS==") and bool(flags)
    default = f" ({_shown(action.default)})" if known else ""
    text = re.sub(r"[.]$", "", str(action.help).replace("%%", "%")) + default
    column = min(COLUMN, width // 3)
    first, *rest = textwrap.wrap(text, max(20, width - column)) or [""]
    start = f"  {name.rstrip()}"
    lines = [f"{start:<{column}}{first}"] if len(start) < column else [start, " " * column + first]
    return lines + [" " * column + line for line in rest]


def _hint(action: Any) -> Any:
    return getattr(action, "_typehint", action.type)


def _shown(default: Any) -> str:
    if isinstance(default, tuple | list):
        return ",".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def new_parser(program: str, description: str = "") -> ArgumentParser:
    """An empty parser that raises instead of ending the process."""
    return Options(
        prog=program, description=description, exit_on_error=False, default_env=False, allow_abbrev=False
    )


def parse(parser: ArgumentParser, words: Sequence[str]) -> Namespace:
    """The options in ``words``.

    Raises:
        ValueError: An option is unknown or has a wrong value; the message is one line.
    """
    known = _flags(parser)
    for word in words:
        flag = word.partition("=")[0]
        # a dictionary's entry, --schedule_options.power, belongs to its option
        inside = any(flag.startswith(f"{option}.") for option in known)
        if len(flag) > 2 and flag.startswith("--") and flag not in known and not inside:
            raise ValueError(_unknown(flag, parser))
    try:
        return parser.parse_args(list(words))
    except ArgumentError as error:
        raise ValueError(one_line(str(error), parser)) from None


def call(function: Callable[..., Any], words: Sequence[str], program: str) -> Any:
    """Call a command with what the user typed, by its signature.

    A positional parameter with a default may be left out; a tuple takes what is left.
    """
    summary = (inspect.getdoc(function) or "").split("\n\n")[0]
    parser = new_parser(program, summary)
    explained = explanations(function)
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            continue
        names.append(name)
        many = typing.get_origin(parameter.annotation) is tuple
        optional = parameter.default is not inspect.Parameter.empty
        nargs = "*" if many else "?" if optional else None
        default = parameter.default if optional else []
        extra: dict[str, Any] = {"nargs": nargs, "default": default} if nargs else {}
        parser.add_argument(name, help=explained.get(name, ""), **extra)
    parser.add_function_arguments(function, skip=set(names))
    options = parse(parser, bracketed(words, "", function)).as_dict()
    given = [options.pop(name) for name in names]
    positional = [tuple(value) if isinstance(value, list) else value for value in given]
    return function(*positional, **options)


def explanations(function: Callable[..., Any]) -> dict[str, str]:
    """The lines of a docstring's Args, by parameter."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    return {
        parameter.arg_name: " ".join((parameter.description or "").split()) for parameter in parsed.params
    }


def bracketed(words: Sequence[str], prefix: str, function: Callable[..., Any]) -> list[str]:
    """``--model.hidden 64,64`` and ``64`` as the list that the parser reads, ``--clip inf`` as the number."""
    hints = typing.get_type_hints(
        getattr(function, "__init__", function) if isinstance(function, type) else function
    )
    flags = {f"--{prefix}.{name}" if prefix else f"--{name}": hint for name, hint in hints.items()}
    made: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and flag in flags:
            word = f"{flag}={_read(value, flags[flag])}"
        elif made and made[-1] in flags:
            word = _read(word, flags[made[-1]])
        made.append(word)
    return made


def _read(value: str, hint: Any) -> str:
    """A value as YAML writes it: a list in brackets, an infinite number with its point."""
    kinds = (hint, *typing.get_args(hint))
    if any(typing.get_origin(kind) in (tuple, list) for kind in kinds):
        return _list(value, _words_beside(hint))
    return f".{value}" if float in kinds and value == "inf" else value


def _words_beside(hint: Any) -> tuple[str, ...]:
    """The words that may stand in place of a list."""
    literals = [part for part in typing.get_args(hint) if typing.get_origin(part) is typing.Literal]
    return tuple(str(word) for literal in literals for word in typing.get_args(literal))


def _list(value: str, beside: Sequence[str]) -> str:
    return value if value.startswith(("[", "(", "null")) or value in beside else f"[{value}]"


def _flags(parser: ArgumentParser) -> list[str]:
    """The options of a parser without jsonargparse's own, which read a file into a group.

    ``--rule`` stays: it names a rule, and is taken out before the rest is parsed.
    """
    return [
        flag
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--") and (type(action).__name__ != "_ActionConfigLoad" or flag == "--rule")
    ]


def _unknown(option: str, parser: ArgumentParser) -> str:
    near = nearest(option, [flag for flag in _flags(parser) if not flag.endswith("+")])
    return f"unknown option {option}; nearest: {', '.join(near) or 'none'}; see {parser.prog} --help"


def one_line(message: str, parser: ArgumentParser) -> str:
    """The parser's error in one line, an unknown option with the nearest that exist."""
    text = " ".join(message.split())
    unknown = re.search(r"(?:Unrecognized arguments|unrecognized arguments): (.*)", text)
    if unknown:
        option = next((word for word in unknown[1].split() if word.startswith("-")), "")
        if not option:
            return f"unexpected argument {unknown[1].split()[0]!r}; see {parser.prog} --help"
        return _unknown(option.partition("=")[0], parser)
    wrong = re.search(r'Parser key "([^"]+)": .*?(?:Given value|Got value): (.*?)(?: - Expected|$)', text)
    if wrong:
        action = next(a for a in parser._actions if f"--{wrong[1]}" in a.option_strings or a.dest == wrong[1])
        return f"--{wrong[1]} takes {describe_type(_hint(action))}: got {wrong[2]}"
    return text
