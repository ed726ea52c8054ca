"""Options from signatures: positional parameters are arguments, keyword-only ones are options.

Help comes from the docstring. Abbreviations are refused, since ``--model.drop`` must not be taken for
``--model.dropout``.
"""

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from margin.catalog import nearest


def new_parser(program: str, description: str = "") -> ArgumentParser:
    """An empty parser that raises instead of ending the process."""
    return ArgumentParser(
        prog=program, description=description, exit_on_error=False, default_env=False, allow_abbrev=False
    )


def parse(parser: ArgumentParser, words: Sequence[str]) -> Namespace:
    """The options in ``words``.

    Raises:
        ValueError: An option is unknown or has a wrong value; the message is one line.
    """
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
    """``--model.hidden 64,64`` and ``--model.hidden 64`` as the list that the parser reads."""
    hints = typing.get_type_hints(
        getattr(function, "__init__", function) if isinstance(function, type) else function
    )
    lists = {
        f"--{prefix}.{name}" if prefix else f"--{name}"
        for name, hint in hints.items()
        if any(typing.get_origin(part) in (tuple, list) for part in (hint, *typing.get_args(hint)))
    }
    made: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and flag in lists:
            word = f"{flag}={_list(value)}"
        elif made and made[-1] in lists:
            word = _list(word)
        made.append(word)
    return made


def _list(value: str) -> str:
    return value if value.startswith(("[", "(", "null")) else f"[{value}]"


def one_line(message: str, parser: ArgumentParser) -> str:
    """The parser's error in one line, an unknown option with the nearest that exist."""
    text = " ".join(message.split())
    unknown = re.search(r"(?:Unrecognized arguments|unrecognized arguments): (.*)", text)
    if unknown:
        option = next((word for word in unknown[1].split() if word.startswith("-")), "")
        if not option:
            return f"unexpected argument {unknown[1].split()[0]!r}; see {parser.prog} --help"
        option = option.partition("=")[0]
        known = [
            flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")
        ]
        near = ", ".join(nearest(option, [flag for flag in known if not flag.endswith("+")])) or "none"
        return f"unknown option {option}; nearest: {near}; see {parser.prog} --help"
    wrong = re.search(r'Parser key "([^"]+)": (.*)', text)
    if wrong:
        flag, reason = wrong[1], wrong[2]
        expected = re.search(r"Subtypes: \[(.*?)\] Errors", reason) or re.search(
            r"Expected an? (.*?)[.] Got", reason
        )
        value = re.search(r"(?:Given value|Got value): (.*?)(?: - Expected|$)", reason)
        if expected and value:
            return f"--{flag} takes {_readable(expected[1])}: got {value[1]}"
    return text


def _readable(hint: str) -> str:
    """A type in words: ``<class 'float'>, <class 'NoneType'>`` is a number."""
    hint = re.sub(r",? ?<class 'NoneType'>", "", hint)
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}
    hint = re.sub(r"<class '(\w+)'>", lambda found: words.get(found[1], found[1]), hint)
    hint = re.sub(r"typing\.Literal\[(.*?)\]", lambda found: f"one of {found[1]}".replace("'", ""), hint)
    hint = re.sub(r"list\[one of (.*?)\]", r"some of \1", hint)
    return hint.replace("dict[str, float]", "names and numbers, as '{loss: 0.3}'").replace(
        "list[float]", "numbers, as [0,1]"
    )
