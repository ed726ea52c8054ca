"""The checker of annotations in the tests: jaxtyping's, each check written once, when it is first needed.

jaxtyping's own decorator writes, for every function, an empty one of the same signature that checks what is
passed and another that checks all of it again with what is returned; a function inside another is decorated
anew at each call of that. Here the check of a function is written at its first call, once for all that are
made from the same source, and what is returned is checked by itself. Arguments that do not pass are put to
jaxtyping's own decorator, which says what is wrong with them.
"""

import functools
from collections.abc import Callable
from dataclasses import is_dataclass
from types import CodeType, FunctionType
from typing import Any, ForwardRef, Literal, NamedTuple, get_args, get_origin

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError
from jaxtyping._storage import pop_shape_memo, push_shape_memo

import shapes  # noqa: F401  is asked in place of jaxtyping

original = jaxtyping.jaxtyped
written = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int is a float, as PEP 484 has it."""

PLAIN = (type(None), bool, int, float, str)
"""Types of defaults by which a signature is known again."""


class Check(NamedTuple):
    """What a function's annotations ask of a call: functions that raise, None where nothing is asked.

    ``arrays`` is True where some annotation is of an array, whose sizes are compared, ``by_value`` where a
    size is an argument's value, "batch {time}": then jaxtyping's decorator is used.
    """

    passed: Callable[..., Any] | None
    returned: Callable[[Any], Any] | None
    arrays: bool
    by_value: bool


CHECKS: dict[CodeType, list[tuple[Any, Check]]] = {}
"""By the source of a function: the hints and defaults that it was made with, and the check of those."""


def checked(function: Any = None, *, typechecker: Any = None) -> Any:
    """The function or class, its annotations checked at each call; in place of :func:`jaxtyping.jaxtyped`."""
    if function is None:
        return checked
    if not isinstance(function, FunctionType):  # a class
        if is_dataclass(function) and not hasattr(function.__init__, "__wrapped__"):
            function.__init__ = checked(function.__init__)
        return function
    found: list[Check] = []
    leaves = [leaf for hint in function.__annotations__.values() for leaf in leaves_of(hint)]
    if any(isinstance(leaf, (str, ForwardRef)) for leaf in leaves):  # names, read as the module stands now
        found.append(check_of(function))

    jaxtyped = functools.cache(lambda: original(function, typechecker=written))

    @functools.wraps(function)
    def calling(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not found:
            found.append(check_of(function))
        passed, returned, arrays, by_value = found[0]
        if by_value:
            return jaxtyped()(*args, **kwargs)
        if arrays:
            push_shape_memo({})
        try:
            if passed is not None:
                try:
                    passed(*args, **kwargs)
                except Exception:
                    return jaxtyped()(*args, **kwargs)
            out = function(*args, **kwargs)
            if returned is not None:
                try:
                    returned(out)
                except Exception as error:
                    where = f"{function.__module__}.{function.__qualname__}"
                    raise TypeCheckError(
                        f"Type-check error whilst checking the return value of {where}: {error}"
                    ) from error
            return out
        finally:
            if arrays:
                pop_shape_memo()

    return calling


def check_of(function: FunctionType) -> Check:
    """The check of a function's annotations, which another of the same source may have too."""
    known, key = CHECKS.setdefault(function.__code__, []), signature(function)
    for other, check in known:
        if key is not None and key == other:
            return check
    check = write(function)
    if key is not None:
        known.append((key, check))
    return check


def write(function: FunctionType) -> Check:
    """The check of a function's annotations."""
    made: list[Any] = []
    original(function, typechecker=lambda empty: made.append(empty) or empty)
    with_output, empty = made
    hints = dict(with_output.__annotations__)
    output = hints.pop("return", Any)
    passed = written(empty)
    arrays = [leaf for hint in (*hints.values(), output) for leaf in leaves_of(hint) if is_array(leaf)]
    return Check(
        None if passed is empty else passed,
        write_returned(output),
        bool(arrays),
        any("{" in leaf.dim_str for leaf in arrays),
    )


def write_returned(hint: Any) -> Callable[[Any], Any] | None:
    """The check of what is returned: of a plain class without a call of beartype's, which has a price."""
    if hint is Any:
        return None

    def returned(value):
        return value

    returned.__annotations__ = {"return": hint}
    checking = functools.cache(lambda: written(returned))
    kind = type(None) if hint is None else hint
    if is_plain(kind):

        def asking(value):
            return value if isinstance(value, kind) else checking()(value)

        return asking
    return None if checking() is returned else checking()


def is_plain(hint: Any) -> bool:
    """Whether a hint is a class whose instances are those of ``isinstance``."""
    if not isinstance(hint, type) or get_origin(hint) or hint in (float, complex):  # an int is one of these
        return False
    try:
        isinstance(None, hint)
    except TypeError:  # a protocol, a typed dictionary
        return False
    return True


def leaves_of(hint: Any) -> list[Any]:
    """The hints that a hint is made of."""
    inner = hint if isinstance(hint, list) else () if get_origin(hint) is Literal else get_args(hint)
    return [leaf for one in inner for leaf in leaves_of(one)] if inner else [hint]


def is_array(hint: Any) -> bool:
    """Whether a hint is one of jaxtyping's."""
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def signature(function: FunctionType) -> Any:
    """All by which functions of the same source differ to a check; None if that cannot be told."""
    given = function.__kwdefaults__ or {}
    defaults = [*(function.__defaults__ or ()), *given.values()]
    if any(type(value) not in PLAIN for value in defaults):
        return None
    return (
        (function.__module__, function.__qualname__),
        tuple((type(value), repr(value)) for value in defaults),
        tuple((name, hint_key(hint)) for name, hint in function.__annotations__.items()),
    )


def hint_key(hint: Any) -> Any:
    """A hint by what it says: jaxtyping makes a class anew wherever one is written."""
    if is_array(hint):
        return AbstractArray, hint.__name__, hint.array_type, repr(hint.dtypes), hint.dim_str
    if isinstance(hint, list):  # the arguments of a Callable
        return list, *map(hint_key, hint)
    if inner := get_args(hint):
        return get_origin(hint), *((type(one), hint_key(one)) for one in inner)
    return hint
