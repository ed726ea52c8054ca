"""Which torch functions keep a map piecewise linear: affine ones, and those with finitely many kinks.

The keys are the functions as torch names them to a tensor subclass, so that a module needs no rule of its
own: it is followed by what its forward calls. What is in no table is not piecewise linear, as far as known.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Knots = Callable[..., tuple[float, ...]]
"""``(arguments after the first) -> where the function has its kinks``."""

_SPACES = (torch, F, Tensor)

_VIEWS = (
    *("flatten", "unflatten", "reshape", "view", "view_as", "reshape_as", "squeeze", "unsqueeze", "permute"),
    *("transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "expand", "expand_as", "narrow", "select"),
    *("contiguous", "detach", "ravel", "diagonal", "unfold", "__getitem__"),
)
"""Maps that move coordinates and may share the memory of their argument."""

_AFFINE = (
    *("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "interpolate", "pad"),
    *("batch_norm", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"),
    *("neg", "__neg__", "mean", "sum", "div", "divide", "true_divide", "__truediv__"),
    *("clone", "flip", "roll", "repeat", "tile", "repeat_interleave", "index_select", "cumsum"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
)
"""Affine in their first argument while the others are constants."""

_BILINEAR = ("mul", "multiply", "__mul__", "__rmul__", "matmul", "__matmul__", "__rmatmul__", "bmm")
"""Affine in either argument while the other is a constant."""

_JOINT = (
    *("add", "__add__", "__radd__", "sub", "subtract", "__sub__", "__rsub__", "rsub"),
    *("cat", "concat", "concatenate", "stack", "hstack"),
)
"""Linear in all arguments together."""

_CONVERSIONS = ("to", "type_as", "float", "double", "half", "bfloat16", "cpu")
"""Changes of type or place: what is followed is the map of exact arithmetic, in float64."""

_BENT: Mapping[str, Knots] = {
    "relu": lambda inplace=False: (0.0,),
    "leaky_relu": lambda negative_slope=0.01, inplace=False: (0.0,),
    "prelu": lambda weight: (0.0,),
    "abs": lambda: (0.0,),
    "relu6": lambda inplace=False: (0.0, 6.0),
    "hardtanh": lambda min_val=-1.0, max_val=1.0, inplace=False: (min_val, max_val),
    "hardsigmoid": lambda inplace=False: (-3.0, 3.0),
    "softshrink": lambda lambd=0.5: (-lambd, lambd),
    "clamp": lambda min=None, max=None: tuple(float(end) for end in (min, max) if end is not None),
    "clamp_min": lambda min: (float(min),),
    "clamp_max": lambda max: (float(max),),
}
"""Continuous, pointwise and affine between their kinks."""

_SMOOTH = (
    *(
        "tanh",
        "sigmoid",
        "gelu",
        "silu",
        "mish",
        "hardswish",
        "softplus",
        "elu",
        "celu",
        "selu",
        "logsigmoid",
    ),
    *("softsign", "tanhshrink", "softmax", "log_softmax", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt"),
    *("square", "pow", "__pow__", "reciprocal", "sin", "cos", "tan", "atan", "erf", "norm", "logsumexp"),
    *("layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm", "normalize"),
    *("lstm", "gru", "rnn_tanh", "lstm_cell", "gru_cell", "rnn_tanh_cell"),
    *("scaled_dot_product_attention", "cumprod", "prod", "var", "std", "glu", "softmin", "dist", "cdist"),
)
"""Curved, each of them, where they are not constant."""

_BROKEN = (
    "sign",
    "round",
    "floor",
    "ceil",
    "trunc",
    "heaviside",
    "hardshrink",
    "__gt__",
    "gt",
    "__lt__",
    "lt",
)
"""Constant or affine in pieces, but with jumps."""

_METADATA = ("size", "dim", "numel", "__len__", "is_floating_point", "is_complex", "ndimension", "get_device")
_PROPERTIES = (
    "shape",
    "ndim",
    "dtype",
    "device",
    "is_cuda",
    "layout",
    "requires_grad",
    "is_sparse",
    "is_nested",
)
_LIKE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor")


def _of(name: str) -> list[Any]:
    # torch.float and torch.double are types, not functions.
    return [found for space in _SPACES if callable(found := getattr(space, name, None))]


def named(names: tuple[str, ...]) -> frozenset[Any]:
    """The functions of these names in torch, in torch.nn.functional and among a tensor's methods."""
    return frozenset(function for name in names for function in _of(name))


VIEWS = named(_VIEWS)
AFFINE = named(_AFFINE) | VIEWS
BILINEAR = named(_BILINEAR)
JOINT = named(_JOINT)
CONVERSIONS = named(_CONVERSIONS)
BENT: Mapping[Any, Knots] = {function: knots for name, knots in _BENT.items() for function in _of(name)}
METADATA = named(_METADATA) | {getattr(Tensor, name).__get__ for name in _PROPERTIES}
LIKE = named(_LIKE)
NOT_PIECEWISE_LINEAR = named(_SMOOTH + _BROKEN)
ATTENTION = (nn.MultiheadAttention,)
"""Layers that multiply values that depend on the input; they exchange the axes before they are told."""
RECURRENT = (nn.RNNBase, nn.RNNCellBase)
"""Layers whose gates or tanh are hidden in one call; but for an nn.RNN of relu."""
RELU = named(("relu",))
MAXIMUM = named(("maximum",))
MINIMUM = named(("minimum",))
MAX_POOL = named(("max_pool2d",))


def _overwriting() -> dict[Any, Any]:
    found = {}
    for name in (*_BENT, *_AFFINE, *_BILINEAR, *_JOINT):
        forms = (name.replace("__", "__i", 1),) if name.startswith("__") else (f"{name}_",)
        for form in forms:
            for space in _SPACES:
                if callable(function := getattr(space, form, None)):
                    found[function] = getattr(Tensor, name, None) or getattr(F, name)
    return found


IN_PLACE: Mapping[Any, Any] = _overwriting()
"""Methods that overwrite their tensor, and the function whose result they write."""
