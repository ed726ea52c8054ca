"""Which interval rule each torch function obeys: the table through which bounds pass.

The keys are the functions themselves, as torch names them to a tensor subclass, so a module needs no
rule of its own: it is bounded by what its forward calls. What is not in the table has no rule.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.robust.certificates.interval_arithmetic import (
    bent_at_zero,
    divide,
    endpointwise,
    matmul,
    multiply,
    negate,
    pairwise,
    valley,
)
from margin.robust.certificates.interval_rules import (
    MISH_BOTTOM,
    SILU_BOTTOM,
    Rule,
    adaptive_average,
    attention,
    average_pool,
    batch_norm,
    clamp,
    conversion,
    convolution,
    dropout,
    exponential,
    gelu,
    glu,
    group_norm,
    instance_norm,
    layer_norm,
    linear,
    log_softmax,
    log_sum_exp,
    logarithm,
    over_all,
    plus_product,
    power,
    rising,
    rms_norm,
    scaled_difference,
    scaled_sum,
    sigmoid,
    softmax,
    softplus,
)
from margin.robust.certificates.moving_rules import (
    chosen,
    extreme,
    interpolate,
    joining,
    masked_fill,
    moving,
    pad,
    pool,
)

_SPACES = (torch, F, Tensor)

_VIEWS = (
    "flatten",
    "unflatten",
    "reshape",
    "view",
    "view_as",
    "reshape_as",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "t",
    "movedim",
    "moveaxis",
    "swapaxes",
    "swapdims",
    "expand",
    "expand_as",
    "narrow",
    "select",
    "chunk",
    "split",
    "unbind",
    "tensor_split",
    "contiguous",
    "detach",
    "ravel",
    "adjoint",
    "atleast_1d",
    "atleast_2d",
    "diagonal",
    "unfold",
    "__getitem__",
)
"""Exact maps whose result may share its memory with the argument."""

_COPIES = (
    "repeat",
    "repeat_interleave",
    "tile",
    "index_select",
    "gather",
    "flip",
    "roll",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "amax",
    "amin",
    "clone",
)
"""Exact maps that move or select coordinates into a tensor of its own."""

_VIEW_PROPERTIES = ("mT", "T", "data")
_CONVERSIONS: Mapping[str, Rule] = {
    "to": conversion,
    "type_as": conversion,
    "float": lambda x: conversion(x, torch.float32),
    "double": lambda x: conversion(x, torch.float64),
}

_ONE_BOX: Mapping[str, Rule] = {
    "linear": linear,
    "batch_norm": batch_norm,
    "interpolate": interpolate,
    "softplus": softplus,
    "pad": pad,
    "gelu": gelu,
    "silu": lambda x: valley(F.silu, x, SILU_BOTTOM),
    "mish": lambda x: valley(F.mish, x, MISH_BOTTOM),
    "hardswish": lambda x: valley(F.hardswish, x, -1.5),
    "abs": lambda x: valley(torch.abs, x, 0.0),
    "square": lambda x: valley(torch.square, x, 0.0),
    "pow": power,
    "__pow__": power,
    "neg": negate,
    "__neg__": negate,
    "relu": partial(endpointwise, torch.relu),
    "relu6": rising(F.relu6, size=0.0),
    "hardtanh": rising(F.hardtanh, size=0.0),
    "clamp": clamp,
    "clip": clamp,
    "clamp_min": lambda x, min: clamp(x, min=min),
    "clamp_max": lambda x, max: clamp(x, max=max),
    "leaky_relu": lambda x, negative_slope=0.01: bent_at_zero(lambda e: F.leaky_relu(e, negative_slope), x),
    "prelu": lambda x, weight: bent_at_zero(lambda e: F.prelu(e, weight), x),
    "tanh": rising(torch.tanh, size=0.0),
    "sigmoid": sigmoid,
    "softmax": softmax,
    "masked_fill": masked_fill,
    "logsumexp": log_sum_exp,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "rms_norm": rms_norm,
    "glu": glu,
    "hardsigmoid": rising(F.hardsigmoid),
    "softsign": rising(F.softsign, size=0.0),
    "logsigmoid": rising(F.logsigmoid),
    "exp": rising(torch.exp, size=0.0),
    "log": logarithm,
    "atan": rising(torch.atan, size=0.0),
    "elu": exponential(F.elu),
    "celu": exponential(F.celu),
    "selu": rising(F.selu, size=3.0),
    "adaptive_avg_pool1d": adaptive_average(F.adaptive_avg_pool1d),
    "adaptive_avg_pool2d": adaptive_average(F.adaptive_avg_pool2d),
    "adaptive_avg_pool3d": adaptive_average(F.adaptive_avg_pool3d),
    "mean": over_all(torch.mean),
    "sum": over_all(torch.sum),
    **{f"conv{d}d": convolution(getattr(F, f"conv{d}d"), False) for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": convolution(getattr(F, f"conv_transpose{d}d"), True) for d in (1, 2, 3)},
    **{f"avg_pool{d}d": average_pool(getattr(F, f"avg_pool{d}d"), d) for d in (1, 2, 3)},
    **{f"max_pool{d}d": pool(getattr(F, f"max_pool{d}d")) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": pool(getattr(F, f"adaptive_max_pool{d}d")) for d in (1, 2, 3)},
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), dropout),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), dropout),
}
"""Functions whose first argument is a box and whose others are constants."""

_TWO_BOXES: Mapping[str, Rule] = {
    **dict.fromkeys(("add", "__add__", "__radd__"), scaled_sum),
    **dict.fromkeys(("sub", "subtract", "__sub__"), scaled_difference),
    **dict.fromkeys(("rsub", "__rsub__"), lambda a, b, alpha=1: scaled_difference(b, a, alpha)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), multiply),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__"), divide),
    **dict.fromkeys(("matmul", "__matmul__", "mm", "mv", "bmm"), matmul),
    "__rmatmul__": lambda a, b: matmul(b, a),
    "where": chosen,
    "maximum": partial(pairwise, torch.maximum),
    "minimum": partial(pairwise, torch.minimum),
}
"""Functions of two operands, of which one is a box, or both."""

_JOINING = ("cat", "concat", "concatenate", "stack", "hstack", "vstack")
_SIZES = ("size", "dim", "numel", "__len__", "is_floating_point", "is_complex", "stride", "is_contiguous")
_LIKE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
_PROPERTIES = ("shape", "ndim", "dtype", "device", "is_cuda", "layout", "requires_grad", "is_sparse")


def _of(name: str) -> list[Any]:
    # torch.float and torch.double are types, not functions.
    return [getattr(space, name) for space in _SPACES if callable(getattr(space, name, None))]


def named(*names: str) -> list[Any]:
    """The functions and methods of torch that bear the names."""
    return [function for name in names for function in _of(name)]


PRODUCTS = set(named("linear", *(f"{name}{d}d" for name in ("conv", "conv_transpose") for d in (1, 2, 3))))
"""Products with constants, whose rules take these in the type that they have."""


_MEANINGS = {
    "it asks how its input is stored, as a product with the sparse matrix of a graph's edges does; bounds "
    "follow products of dense matrices": (
        "is_inference",
        "count_nonzero",
        "to_sparse",
        "data_ptr",
        "_version",
    ),
    "a sum over the edges of a graph, of which no bounds are known here": (
        *("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"),
        *("segment_reduce", "sparse_mm", "embedding_bag"),
    ),
    "the steps of sequences of several lengths, which bounds do not follow": ("_pack_padded_sequence",),
    "complex numbers, which lie in no interval": ("view_as_complex", "view_as_real", "complex", "polar"),
    "what follows depends on which values are the larger": (
        *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "argmax", "argmin"),
        *("sort", "argsort", "topk", "item"),
    ),
}
MEANINGS = {name: words for words, names in _MEANINGS.items() for name in names}
"""What a function without a rule does, in the words of whoever built the model."""


def rules() -> dict[Any, Rule]:
    """The rule of each torch function, by the function."""
    table: dict[Any, Rule] = {}
    for names in (_ONE_BOX, _TWO_BOXES):
        table |= {function: rule for name, rule in names.items() for function in _of(name)}
    # They take their arguments in another order than torch.nn.functional's, to which the rules belong.
    for function in (torch.batch_norm, torch.instance_norm):
        del table[function]
    copies = {function for name in _COPIES for function in _of(name)}
    table |= {function: moving(function) for function in copies | views()}
    for name, rule in _CONVERSIONS.items():
        table |= dict.fromkeys(_of(name), rule)
    for name in _JOINING:
        table |= {function: joining(function) for function in _of(name)}
    return table


def composed() -> dict[Any, Any]:
    """Functions that are followed by what they are composed of, each with a function that does so."""
    found = {F.scaled_dot_product_attention: attention} | dict.fromkeys(_of("addmm"), plus_product)
    for name, over_axis, of_two in (
        ("max", torch.amax, torch.maximum),
        ("min", torch.amin, torch.minimum),
    ):
        found |= dict.fromkeys(_of(name), extreme(over_axis, of_two))
    return found


def views() -> set[Any]:
    """Exact maps whose result may share its memory with the argument."""
    found = {function for name in (*_VIEWS, *_CONVERSIONS) for function in _of(name)}
    return found | {getattr(Tensor, name).__get__ for name in _VIEW_PROPERTIES}


def facts() -> set[Any]:
    """Functions that read only the shape, type or device of a tensor, never its values."""
    found = {function for name in (*_SIZES, *_LIKE) for function in _of(name)}
    return found | {getattr(Tensor, name).__get__ for name in _PROPERTIES}


def in_place() -> dict[Any, Rule]:
    """The rule of each method that overwrites its tensor (``relu_``), by the method."""
    names = {**_ONE_BOX, **_TWO_BOXES}
    return {
        function: rule
        for name, rule in names.items()
        for function in _of(f"{name}_")
        if not name.startswith("__")
    }


def outside() -> dict[Any, Any]:
    """The function that gives what a method would overwrite its tensor with, by the method."""
    names = [name for name in (*_ONE_BOX, *_TWO_BOXES) if not name.startswith("__")]
    return {
        getattr(space, f"{name}_"): getattr(space, name)
        for name in names
        for space in _SPACES
        if callable(getattr(space, f"{name}_", None))
    }
