"""Whether a tensor is what an annotation says: jaxtyping's answer, by a form that is read off it once.

jaxtyping reads the annotation anew at every question, which took a tenth of the time of the tests. It is
still asked about what has no form: arrays that are no tensors, sizes computed, broadcast, or of a tree.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping._array_types import (
    _anonymous_dim,
    _anonymous_variadic_dim,
    _any_dtype,
    _FixedDim,
    _MetaAbstractArray,
    _NamedDim,
    _NamedVariadicDim,
)
from jaxtyping._storage import _shape_storage
from torch import Tensor

by_jaxtyping = _MetaAbstractArray.__instancecheck__
DTYPES = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Form(NamedTuple):
    """What an annotation says of a tensor.

    ``before`` and ``after`` are the dimensions on the two sides of those that may be any number: a size, a
    name, or None for any size. ``whole`` says that there are none of these; ``middle`` is their name, None if
    they have none.
    """

    dtypes: set[torch.dtype]
    before: list[Any]
    whole: bool
    middle: str | None
    after: list[Any]


FORMS: dict[Any, Form | None] = {}
"""By the annotation; None for one that has no form."""


def form_of(hint: Any) -> Form | None:
    """The form of an annotation; None if only jaxtyping can tell."""
    if getattr(hint, "array_type", None) is not Tensor or hint._skip_instancecheck:
        return None
    at = hint.index_variadic
    middle = [] if at is None else [hint.dims[at]]
    before, after = (hint.dims, []) if at is None else (hint.dims[:at], hint.dims[at + 1 :])
    for dim in (*before, *middle, *after):
        if dim is _anonymous_dim or dim is _anonymous_variadic_dim:
            continue
        known = type(dim) in (_FixedDim, _NamedDim, _NamedVariadicDim)
        if not known or dim.broadcastable or getattr(dim, "treepath", False):
            return None
    name = getattr(middle[0], "name", None) if middle else None
    return Form(dtypes_of(hint), list(map(plain, before)), at is None, name, list(map(plain, after)))


def plain(dim: Any) -> Any:
    """A dimension as a form has it."""
    return None if dim is _anonymous_dim else dim.size if type(dim) is _FixedDim else dim.name


def dtypes_of(hint: Any) -> set[torch.dtype]:
    """The types of numbers that an annotation admits."""
    if hint.dtypes is _any_dtype:
        return DTYPES
    admits = [one.__eq__ if isinstance(one, str) else one.match for one in hint.dtypes]
    return {dtype for dtype in DTYPES if any(admit(str(dtype).rpartition(".")[2]) for admit in admits)}


def is_instance(hint: Any, value: Any) -> bool:
    """Whether a value is what an annotation says; the names of sizes hold throughout a call."""
    try:
        form = FORMS[hint]
    except KeyError:
        form = FORMS[hint] = form_of(hint)
    if form is None:
        return by_jaxtyping(hint, value)
    dtypes, before, whole, name, after = form
    if not isinstance(value, Tensor) or value.dtype not in dtypes:
        return False
    shape = value.shape
    end = len(shape) - len(after)
    if end != len(before) if whole else end < len(before):
        return False
    stack = getattr(_shape_storage, "memo_stack", None)
    sizes, shapes, *_ = stack[-1] if stack else ({}, {})
    bound: list[str] = []
    if agree(before, shape, sizes, bound) and (not after or agree(after, shape[end:], sizes, bound)):
        if name is None:
            return True
        middle = shape[len(before) : end]
        broadcast, known = shapes.setdefault(name, (False, middle))
        if not broadcast and known == middle:
            return True
    for one in bound:
        del sizes[one]
    # sizes that were broadcast before in this call
    return name is not None and shapes.get(name, (False,))[0] and by_jaxtyping(hint, value)


def agree(dims: list[Any], shape: Any, sizes: dict[str, int], bound: list[str]) -> bool:
    """Whether sizes are those of the call so far, to which names that are new are added."""
    for dim, size in zip(dims, shape, strict=False):
        if dim is None:
            continue
        if dim.__class__ is str:
            if dim not in sizes:
                sizes[dim] = size
                bound.append(dim)
                continue
            dim = sizes[dim]
        if dim != size:
            return False
    return True


_MetaAbstractArray.__instancecheck__ = is_instance
