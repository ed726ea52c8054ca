"""Options that several readers share, said once: a group of them is a frozen dataclass with a default each.

A reader takes a group as one argument; its user sees the group's options among the reader's own.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, get_type_hints


def option_groups(*left_out: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the options of a reader of those of its groups, each where the group stands in its signature.

    A group is a keyword-only parameter whose default is a frozen dataclass: its fields are the options, with
    that default's values. Each is explained by the Args of the dataclass, or by those of the reader.

    Args:
        left_out: Options of the groups that this reader does not have.

    Returns:
        A decorator.
    """

    def decorate(reader: Callable[..., Any]) -> Callable[..., Any]:
        groups = {
            parameter.name: parameter.default
            for parameter in inspect.signature(reader).parameters.values()
            if is_dataclass(parameter.default)
        }
        names = {name: _options_of(group, left_out) for name, group in groups.items()}

        @wraps(reader)
        def _call(*given: Any, **options: Any) -> Any:
            for name, group in groups.items():
                taken = {f: options.pop(o) for o, f in names[name].items() if o in options}
                given_group = options.get(name, group)
                options[name] = replace(given_group, **taken) if taken else given_group
            return reader(*given, **options)

        signature = _flattened(reader, groups, names)
        _call.__signature__ = signature  # type: ignore[attr-defined]
        _call.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        _call.__annotations__["return"] = signature.return_annotation
        explained: dict[str, dict[str, str]] = {}
        for name, group in groups.items():
            of_fields = explanations(type(group).__doc__ or "")
            explained[name] = {o: of_fields[f] for o, f in names[name].items()}
        _call.__doc__ = _with_args(inspect.getdoc(reader) or "", explained)
        return _call

    return decorate


def _options_of(group: Any, left_out: tuple[str, ...]) -> dict[str, str]:
    """The field of each option of a group."""
    options = {field.metadata.get("option", field.name): field.name for field in fields(group)}
    return {name: field for name, field in options.items() if name not in left_out}


def _flattened(
    reader: Callable[..., Any], groups: dict[str, Any], names: dict[str, dict[str, str]]
) -> inspect.Signature:
    """The signature of a reader with the options in place of their groups."""
    parameters: list[inspect.Parameter] = []
    signature = inspect.signature(reader)
    for parameter in signature.parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter)
            continue
        group = groups[parameter.name]
        hints = get_type_hints(type(group))
        parameters += [
            inspect.Parameter(name, parameter.kind, default=getattr(group, field), annotation=hints[field])
            for name, field in names[parameter.name].items()
        ]
    return signature.replace(parameters=parameters)


def explanations(text: str) -> dict[str, str]:
    """The entries of the Args of a docstring, by parameter, each in one line."""
    _, _, args = inspect.cleandoc(text).partition("\nArgs:\n")
    found: dict[str, list[str]] = {}
    for line in args.splitlines():
        if line and not line.startswith(" "):
            break
        if start := re.match(r"    (\w+): (.*)", line):
            found[start[1]] = [start[2]]
        elif line.strip() and found:
            found[next(reversed(found))].append(line.strip())
    return {name: " ".join(lines) for name, lines in found.items()}


def _with_args(text: str, explained: dict[str, dict[str, str]]) -> str:
    """A docstring whose Args explain the options of groups in place of the groups."""
    own = explanations(text)
    for name, of_group in explained.items():
        more = "".join(f"    {option}: {what}\n" for option, what in of_group.items() if option not in own)
        entry = re.compile(rf"^    {name}: .*\n(?:        .*\n)*", re.MULTILINE)
        if found := entry.search(f"{text}\n"):
            text = text[: found.start()] + more + text[found.end() :]
    return text
