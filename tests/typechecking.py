"""The checker of annotations in the tests: an int is a float, as PEP 484 has it.

A function inside another is made anew at each call of that, and with it, by jaxtyping, an empty function of
the same signature that checks what is passed. To write such a check takes as long as to run it a thousand
times, so it is written once for each signature.
"""

from collections.abc import Callable
from typing import Any, get_args, get_origin

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

written = beartype(conf=BeartypeConf(is_pep484_tower=True))
CHECKS: dict[Any, Callable[..., Any]] = {}
PLAIN = (type(None), bool, int, float, str)
"""Types of defaults by which a signature is known again."""


def checked(function: Any) -> Any:
    """The function, its annotations checked at each call."""
    if "<locals>" not in function.__qualname__ or (key := signature(function)) is None:
        return written(function)
    if key not in CHECKS:
        CHECKS[key] = written(function)
    return CHECKS[key]


def signature(function: Any) -> Any:
    """All by which one of jaxtyping's empty functions differs from another; None if that cannot be told."""
    code, given = function.__code__, function.__kwdefaults__ or {}
    defaults = [*(function.__defaults__ or ()), *given.values()]
    # what is compiled from a file has a body of its own
    if code.co_filename != "<string>" or any(type(value) not in PLAIN for value in defaults):
        return None
    key = (
        (function.__module__, function.__qualname__, code.co_code, code.co_consts, code.co_varnames),
        (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        (len(function.__defaults__ or ()), tuple(given), tuple((type(v), repr(v)) for v in defaults)),
        tuple((name, hint_key(hint)) for name, hint in function.__annotations__.items()),
    )
    try:
        hash(key)
    except TypeError:  # a hint that cannot be hashed
        return None
    return key


def hint_key(hint: Any) -> Any:
    """A hint by what it says: jaxtyping makes a class anew wherever one is written."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return AbstractArray, hint.__name__, hint.array_type, repr(hint.dtypes), hint.dim_str
    if isinstance(hint, list):  # the arguments of a Callable
        return list, *map(hint_key, hint)
    if inner := get_args(hint):
        return get_origin(hint), *((type(one), hint_key(one)) for one in inner)
    return hint
