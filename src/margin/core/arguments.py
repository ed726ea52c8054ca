"""Messages in the words of Python: where the command line says ``--lr``, an argument is called ``lr``.

A message names options as they are typed, since it is raised below both faces. The verbs in Python are
wrapped (:func:`by_argument`), so that an option of theirs reads as an argument, and one that no verb takes
by name is followed by where it is given. Imports no torch.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SHORT = ("target", "task", "missing", "ignore")
"""Options of a reader that are typed without ``--data.``."""

PLACES = {
    "data": "margin.open_source(data, {...})",
    "model": "options={...}",
    "step": "step={...}",
    "rule": "step={...}",
}
"""Where the options of each group are given in Python."""

RESUME = re.compile(r"(?:margin train )?--resume (\S+?)(?=[,;:)]|\s|$)")
COMMAND = re.compile(r"margin [a-z]+(?: [^\s,;:()]+)*? --[a-z][^,;:()]*")
OPTION = re.compile(r"(?<![\w-])--(?:(model|step|rule|data)\.)?([a-z][\w-]*)")
UNKNOWN = re.compile(r"(?:train\(\) )?got an unexpected keyword argument '(\w+)'")
ELSEWHERE = (
    "an option of the model is given as options={{'{0}': ...}}, "
    "one of all trainings as training=Training({0}=...)"
)
BOTH = re.compile(r"\b([a-z]\w*), \1\b")


@contextmanager
def by_argument(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Within, the message of an error names arguments where the command line's names options.

    Args:
        names: The arguments of options that have another name.
    """
    try:
        yield
    except (ValueError, OSError, ArithmeticError, KeyboardInterrupt) as error:
        if len(error.args) == 1 and type(error.args[0]) is str:  # not what the system says: it has a number
            error.args = (renamed(error.args[0], names or {}),)
        raise
    except TypeError as error:
        if unknown := UNKNOWN.fullmatch(str(error)):
            error.args = (f"{error}; {ELSEWHERE.format(unknown[1])}",)
        raise


def renamed(message: str, names: Mapping[str, str] | None = None) -> str:
    """A message of the command line in the words of Python.

    Args:
        message: The message; a whole command of the shell in it stays as it is.
        names: The arguments of options that have another name.
    """
    message = RESUME.sub(r"margin.resume('\1')", message)
    found: dict[str, list[str]] = {}

    def argument(option: re.Match[str]) -> str:
        name = option[2].replace("-", "_")
        if group := option[1] or ("data" if name in SHORT else ""):
            found.setdefault(PLACES[group], []).append(name)
        return (names or {}).get(name, name)

    commands = COMMAND.findall(message)
    parts = [OPTION.sub(argument, part) for part in COMMAND.split(message)]
    whole = "".join(part + command for part, command in zip(parts, [*commands, ""], strict=True))
    whole = BOTH.sub(r"\1", whole)  # a message for both faces: force, --force
    told = (f" ({', '.join(dict.fromkeys(options))}: {place})" for place, options in found.items())
    return whole + "".join(told)
