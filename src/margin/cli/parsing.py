"""Options from signatures: positional parameters are arguments, keyword-only ones are options.

Help comes from the docstring. Abbreviations are refused, since ``--model.drop`` must not be taken for
``--model.dropout``.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from jsonargparse import ArgumentError, Namespace

from margin.cli.help import Options, hint_of
from margin.core.arguments import SHORT
from margin.core.catalog import UnknownName, data_parameters, find, nearest
from margin.core.hints import describe_type, flag
from margin.data.source import Source

"""Options of a reader that may be written without the prefix ``data.``."""

HELP = ("-h", "--help")

T = TypeVar("T")


def new_parser(program: str, description: str = "") -> Options:
    """An empty parser that raises instead of ending the process."""
    return Options(
        prog=program, description=description, exit_on_error=False, default_env=False, allow_abbrev=False
    )


def reader_options(parser: Options, source: Source) -> None:
    """Add the options of what reads a source, under ``data.``."""
    parser.add_function_arguments(source.reader, "data", skip=set(data_parameters(source.reader)))


def parse(parser: Options, words: Sequence[str]) -> Namespace:
    """The options in ``words``.

    Raises:
        ValueError: An option is unknown or has a wrong value; the message is one line.
        SystemExit: Help was asked for, and is printed.
    """
    if asked := [place for place, word in enumerate(words) if word in HELP]:
        parser.whole = list(words[asked[0] + 1 : asked[0] + 2]) == ["all"]
        parser.parse_args(["--help"])
    plain, known = readable(words, parser), hints_of(parser)
    for word in plain:
        name = word.partition("=")[0]
        # a dictionary's entry, --schedule-options.power, belongs to its option
        inside = any(name.startswith(f"{option}.") for option in known)
        if len(name) > 2 and name.startswith("--") and name not in known and not inside:
            raise ValueError(_unknown(name, parser))
    try:
        return parser.parse_args(plain)
    except ArgumentError as error:
        raise ValueError(one_line(str(error), parser)) from None


def call(function: Callable[..., Any], words: Sequence[str], program: str) -> Any:
    """Call a command with what the user typed, by its signature.

    A positional parameter with a default may be left out; a tuple takes what is left.
    """
    parser = new_parser(program, (inspect.getdoc(function) or "").split("\n\n")[0])
    explained, names = explanations(function), data_parameters(function)
    for name in names:
        parameter = inspect.signature(function).parameters[name]
        many = typing.get_origin(parameter.annotation) is tuple
        optional = parameter.default is not inspect.Parameter.empty
        nargs = "*" if many else "?" if optional else None
        extra: dict[str, Any] = {"nargs": nargs, "default": parameter.default if optional else []}
        parser.add_argument(name, help=explained.get(name, ""), **(extra if nargs else {}))
    parser.add_function_arguments(function, skip=set(names))
    options = parse(parser, words).as_dict()
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


def taken_out(words: Sequence[str], option: str, example: str = "") -> tuple[list[str], list[str]]:
    """The words without an option, and every value that it was given.

    Args:
        words: What was typed.
        option: With its hyphens.
        example: What a message adds about its value.

    Raises:
        ValueError: The option is the last word.
    """
    rest, values, left = [], [], iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name != option:
            rest.append(word)
        elif equals:
            values.append(value)
        elif (following := next(left, None)) is not None:
            values.append(following)
        else:
            raise ValueError(f"{option} needs a value{example}")
    return rest, values


def recognized(words: Sequence[str], parser: Options) -> list[str]:
    """Of what was typed, the options that the parser has, with their values."""
    found: list[str] = []
    known, takes = set(hints_of(parser)) - set(HELP), False
    for word in readable(words, parser):
        name, equals, _ = word.partition("=")
        if word.startswith("--"):
            takes = name in known
            found += [word] if takes else []
            takes = takes and not equals
        elif takes:
            found.append(word)
            takes = False
    return found


def readable(words: Sequence[str], parser: Options) -> list[str]:
    """What was typed as the parser reads it.

    ``--batch-size`` gets its underscore, ``--target`` becomes ``--data.target``, ``64,64`` behind
    ``--model.hidden`` the list in brackets, ``inf`` behind ``--clip`` the number.
    """
    hints = hints_of(parser)
    made: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if re.fullmatch(r"--[\w.-]+", name):
            name = f"--{name[2:].replace('-', '_')}"
            long = f"--data.{name[2:]}"
            name = long if name[2:] in SHORT and long in hints else name
            word = (
                f"{name}={_read(value, hints[name])}"
                if equals and name in hints
                else f"{name}{equals}{value}"
            )
        elif made and made[-1] in hints:
            word = _read(word, hints[made[-1]])
        made.append(word)
    return made


def named(rows: Mapping[str, T], name: str, what: str, listing: str) -> T:
    """The row of a name, as :func:`margin.core.catalog.find`; a message says which command lists them all.

    Raises:
        UnknownName: No row has that name, or several do.
    """
    try:
        return find(rows, name, what)
    except UnknownName as error:
        alike = " (by their letters alone)" if "nearest" in str(error) else ""
        raise UnknownName(f"{error}{alike}; margin {listing} lists all") from None


def _read(value: str, hint: Any) -> str:
    """A value as YAML writes it: a list in brackets, an infinite number with its point."""
    kinds = (hint, *typing.get_args(hint))
    if any(typing.get_origin(kind) in (tuple, list) for kind in kinds):
        literals = [kind for kind in kinds if typing.get_origin(kind) is typing.Literal]
        words = {str(word) for literal in literals for word in typing.get_args(literal)}
        one = typing.get_origin(hint) not in (tuple, list) and int in kinds  # a number, or several
        plain = value in words or (one and "," not in value)
        return value if plain or value.startswith(("[", "(", "null")) else f"[{value}]"
    return f".{value}" if float in kinds and value == "inf" else value


def hints_of(parser: Options) -> dict[str, Any]:
    """What each option takes, without jsonargparse's own options, which read a file into a group.

    ``--rule`` stays: it names a rule, and is taken out before the rest is parsed.
    """
    return {
        name: hint_of(action)
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and (type(action).__name__ != "_ActionConfigLoad" or name == "--rule")
    }


def _unknown(option: str, parser: Options) -> str:
    known = [flag(name) for name in hints_of(parser) if not name.endswith("+")]
    near = ", ".join(nearest(flag(option), known)) or "none"
    return f"unknown option {flag(option)}; nearest: {near}; see {parser.prog} --help"


def one_line(message: str, parser: Options) -> str:
    """The parser's error in one line, an unknown option with the nearest that exist."""
    text = " ".join(message.split())
    unknown = re.search(r"(?:Unrecognized arguments|unrecognized arguments): (.*)", text)
    if unknown:
        option = next((word for word in unknown[1].split() if word.startswith("-")), "")
        if not option:
            what = "words that are no options come before them"
            return f"unexpected argument {unknown[1].split()[0]!r}: {what}; see {parser.prog} --help"
        return _unknown(option.partition("=")[0], parser)
    if lacking := re.search("arguments are required: (.*)", text):
        return f"{parser.prog} needs {lacking[1].upper()}; see {parser.prog} --help"
    wrong = re.search(r'Parser key "([^"]+)": .*?(?:Given value|Got value): (.*?)(?: - Expected|$)', text)
    if wrong:
        action = next(a for a in parser._actions if f"--{wrong[1]}" in a.option_strings or a.dest == wrong[1])
        return f"{flag(wrong[1])} takes {describe_type(hint_of(action))}: got {wrong[2]}"
    return text
