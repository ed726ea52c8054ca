"""Type hints of options: whether a value fits one, and what to call it. Imports no torch."""

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is one that a hint admits; a whole number is a real one, a bool is no number.

    Args:
        value: An option's value.
        hint: int, float, bool, str, None, a Literal, a union, a tuple, a list or a dict of these; any other
            hint admits everything.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin in (tuple, list):
        of = tuple if origin is tuple else list
        if not isinstance(value, of):
            return False
        if origin is list or (len(parts) == 2 and parts[1] is ...):
            return all(fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(fits, value, parts))
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, parts[1]) for item in value.values())
    if hint in (None, types.NoneType):
        return value is None
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str) else True


def _is_tuple(hint: Any) -> bool:
    origin: Any = typing.get_origin(hint)
    return tuple in (hint, origin)


def with_tuples(value: Any, hint: Any) -> Any:
    """A value of YAML or JSON, which know no tuples, with those for which its lists stand."""
    origin: Any = typing.get_origin(hint)
    parts: Any = typing.get_args(hint)
    if not isinstance(value, list):
        return value
    if isinstance(hint, str):
        return tuple(value) if "tuple[" in hint else value
    if origin in (typing.Union, types.UnionType):
        ordered = [*filter(_is_tuple, parts), *parts]
        found = ((with_tuples(value, part), part) for part in ordered)
        return next((one for one, part in found if fits(one, part)), value)
    if _is_tuple(hint):
        each = parts if len(parts) == len(value) and ... not in parts else [*parts[:1], hint][:1] * len(value)
        return tuple(map(with_tuples, value, each))
    return [with_tuples(item, parts[0]) for item in value] if origin is list else value


PLAIN = (bool, int, float, str, type(None))


def is_plain(hint: Any) -> bool:
    """Whether values of a type are written in a record as they are typed."""
    parts = [part for part in typing.get_args(hint) if part is not ...]
    return hint in (*PLAIN, None, Any, tuple, list, dict) or (
        bool(parts) and all(type(part) in PLAIN or is_plain(part) for part in parts)
    )


def hint_of(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    """The type of an option: as annotated, else that of its default."""
    if parameter.name in hints:
        return hints[parameter.name]
    default = parameter.default
    if isinstance(default, bool | str):
        return type(default)
    if isinstance(default, int | float):
        return int | float
    if isinstance(default, tuple | list) and default and all(isinstance(n, int | float) for n in default):
        return tuple[int | float, ...] if isinstance(default, tuple) else list[int | float]
    return Any if default is None or default is inspect.Parameter.empty else type(default)


WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
SIGNS = {int: "N", float: "X", bool: "true|false", str: "TEXT"}


def describe_type(hint: Any) -> str:
    """What a hint admits, in words: "a whole number or 'all'", "one of relu, tanh", "whole numbers"."""
    origin, parts = typing.get_origin(hint), _parts(hint)
    if origin is typing.Literal:
        few = " or ".join(map(str, parts)) if len(parts) == 2 else repr(parts[0])
        return f"one of {', '.join(map(str, parts))}" if len(parts) > 2 else few
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(part) for part in parts))
    if origin in (tuple, list):
        many = {"a whole number": "whole numbers", "a number": "numbers", "a word": "words"}
        item = describe_type(parts[0])
        count = f"{len(parts)} " if origin is tuple and ... not in parts else ""
        many |= {plural: f"lists of {plural}" for plural in many.values()}
        return f"{count}{many.get(item, f'a list of {item}')}"
    if origin is dict:
        return (
            "names and numbers, as '{loss: 0.3}'" if parts[1] is float else "names and values, as '{name: 3}'"
        )
    return WORDS.get(hint, str(hint))


def cli_syntax(hint: Any) -> str:
    """What a user types for a hint: ``N``, ``X``, ``a|b``, ``N,...``."""
    origin, parts = typing.get_origin(hint), _parts(hint)
    if origin is typing.Literal:
        return "|".join(map(str, parts))
    if origin in (typing.Union, types.UnionType):
        return "|".join(dict.fromkeys(cli_syntax(part) for part in parts))
    if origin in (tuple, list):
        items = [cli_syntax(part) for part in parts if part is not ...]
        return f"{items[0]},..." if len(items) == 1 or origin is list else ",".join(items)
    return "{NAME: VALUE}" if origin is dict else "" if hint is None else SIGNS.get(hint, "TEXT")


def flag(name: str) -> str:
    """An option as it is typed and printed: ``--model.input-dropout`` of the name ``model.input_dropout``."""
    return f"{'' if name.startswith('-') else '--'}{name.replace('_', '-')}"


def _parts(hint: Any) -> list[Any]:
    return [part for part in typing.get_args(hint) if part is not types.NoneType]
