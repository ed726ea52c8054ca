r"""What a place of a feature map sees of the image: its receptive field and step, through any model.

Followed through the functions that a model calls, whatever its graph: convolutions and poolings widen the
field, sums and concatenations take the widest, a function that is not known here may see the whole image.
Measured, it is the support of d y_center / d x (Luo, Li, Urtasun and Zemel 2016).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from margin.core.deadline import check_deadline
from margin.engine.evaluation import Call, hooked, leaves
from margin.nn.windows import Window

WHOLE = math.inf
"""The field of what may depend on every pixel."""

_NAMES = """
    relu relu_ relu6 leaky_relu leaky_relu_ elu selu celu gelu silu mish hardswish hardsigmoid hardtanh
    hardtanh_ sigmoid sigmoid_ tanh tanh_ softplus softsign logsigmoid threshold prelu clamp clamp_ clip
    abs neg sqrt rsqrt exp log pow square add add_ sub sub_ rsub mul mul_ div div_ true_divide maximum
    minimum where lerp __add__ __radd__ __iadd__ __sub__ __rsub__ __mul__ __rmul__ __imul__ __truediv__
    __rtruediv__ __pow__ __neg__ cat concat batch_norm dropout dropout_ dropout2d feature_dropout
    alpha_dropout local_response_norm clone contiguous to float double half type type_as detach
    requires_grad_ nan_to_num erf pad
"""
POINTWISE = frozenset(_NAMES.split())
"""Functions of torch that read no other place of the image; in evaluation mode, joined along channels.

What is padded around an image is none of its pixels, or, repeated, is seen near the border alone.
"""

OF_FIRST = frozenset({"to", "type_as", "expand_as"})
OF_FORM = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like "  # noqa: SIM905
    "new_zeros new_ones new_full new_empty new_tensor".split()
)
"""Functions that read the values of their first tensor alone; those that read no values, only a form."""

NORMALIZING = frozenset({"group_norm", "instance_norm", "layer_norm"})
"""Functions by which each place reads all others and stays where it is."""


class Field(NamedTuple):
    """What a place of a map sees, along one axis.

    Args:
        size: Pixels at most that it depends on; infinite where all may be.
        step: Pixels from what a place sees to what the next sees; None where that is not known.
    """

    size: float
    step: Fraction | None


PIXEL = Field(1, Fraction(1))
Fields = tuple[Field, Field]


class Following(TorchFunctionMode):
    """Within it each tensor that is made of a followed one carries its fields along height and width.

    Args:
        x: The image, whose places see one pixel each.
    """

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.known = WeakTensorKeyDictionary()  # tensors that nobody else needs are let go
        self.known[x] = PIXEL, PIXEL

    def of(self, x: Any) -> Fields | None:
        """The fields of a tensor; None of one that does not depend on the image."""
        found: Fields | None = self.known.get(x) if isinstance(x, Tensor) else None
        return found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The function's result; its fields are noted."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        read = [] if name in OF_FORM else args[:1] if name in OF_FIRST else [list(args), kwargs]
        given = [fields for value in leaves(list(read)) if (fields := self.of(value)) is not None]
        out = func(*args, **kwargs)
        if given:
            fields = self._after(name, given, args, kwargs, out)
            for value in leaves(out):
                if isinstance(value, Tensor):
                    self.known[value] = fields
            if out is None and args and isinstance(args[0], Tensor):  # values were set in place
                self.known[args[0]] = Field(WHOLE, None), Field(WHOLE, None)
        return out

    def _after(self, name: str, given: list[Fields], args: Any, kwargs: Any, out: Any) -> Fields:
        widest = _joined([fields[0] for fields in given]), _joined([fields[1] for fields in given])
        image = isinstance(out, Tensor) and out.ndim == 4
        if name in POINTWISE and image:
            return widest
        if name in NORMALIZING and image:
            return widest[0]._replace(size=WHOLE), widest[1]._replace(size=WHOLE)
        if name in WINDOWED and image:
            windows = WINDOWED[name](args, kwargs)
            spread = _spread if name == "conv_transpose2d" else _windowed
            return spread(widest[0], windows[0]), spread(widest[1], windows[1])
        if name == "interpolate" and image:
            return _resized(widest, args, kwargs, out)
        if name == "__getitem__" and image and args[0].ndim == 4:
            return _sliced(widest, args[1])
        return Field(WHOLE, None), Field(WHOLE, None)


def _joined(fields: list[Field]) -> Field:
    steps = [field.step for field in fields if field.step is not None]
    return Field(max(field.size for field in fields), steps[0] if steps else None)


def _windowed(field: Field, window: Window) -> Field:
    if field.step is None:
        return Field(WHOLE, None)
    return Field(field.size + (window.span - 1) * field.step, field.step * window.stride)


def _spread(field: Field, window: Window) -> Field:
    """A transposed convolution: each new place reads the places that write to it."""
    wider = _windowed(field, Window(-(-window.span // window.stride)))
    return wider._replace(step=None if wider.step is None else wider.step / window.stride)


def _resized(fields: Fields, args: Any, kwargs: Any, out: Tensor) -> Fields:
    """A map that is interpolated: a new place reads its neighbors, with antialiasing those that it covers."""
    bound = inspect.signature(F.interpolate).bind(*args, **kwargs).arguments
    reach = {"nearest": 1, "nearest-exact": 1, "bilinear": 2, "bicubic": 4}.get(bound.get("mode", "nearest"))
    if reach is None:
        return Field(WHOLE, None), Field(WHOLE, None)
    made = []
    for field, before, after in zip(fields, args[0].shape[2:], out.shape[2:], strict=True):
        ratio = Fraction(before, after)
        taps = math.ceil(reach * max(ratio, Fraction(1))) if bound.get("antialias") else reach
        wider = _windowed(field, Window(taps))
        made.append(Field(wider.size, None if wider.step is None else wider.step * ratio))
    return made[0], made[1]


def _sliced(fields: Fields, index: Any) -> Fields:
    """Every s-th row and column of a map: a place sees what it saw, the next one lies s steps on."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(part, slice) or part is Ellipsis for part in parts):
        return Field(WHOLE, None), Field(WHOLE, None)
    before = parts.index(...) if ... in parts else len(parts)
    every = (*parts[:before], *[slice(None)] * (4 - len(parts) + (... in parts)), *parts[before + 1 :])
    windows = [Window(1, part.step or 1) for part in every[2:]]
    return _windowed(fields[0], windows[0]), _windowed(fields[1], windows[1])


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def _convolved(args: Any, kwargs: Any) -> tuple[Window, Window]:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    return _of_kernel({**dict(zip(names, args, strict=False)), **kwargs})


def _transposed(args: Any, kwargs: Any) -> tuple[Window, Window]:
    names = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
    return _of_kernel({**dict(zip(names, args, strict=False)), **kwargs})


def _of_kernel(bound: dict[str, Any]) -> tuple[Window, Window]:
    stride, dilation = _pair(bound.get("stride", 1)), _pair(bound.get("dilation", 1))
    kernel = bound["weight"].shape[2:]
    made = [Window(k, s, d) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    return made[0], made[1]


def _pooled(args: Any, kwargs: Any) -> tuple[Window, Window]:
    names = ("input", "kernel_size", "stride", "padding", "dilation")
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    kernel = _pair(bound["kernel_size"])
    stride = _pair(bound.get("stride") or kernel)
    dilation = bound.get("dilation", 1)
    dilation = (1, 1) if isinstance(dilation, bool) else _pair(dilation)  # of avg_pool2d it is ceil_mode
    made = [Window(k, s, d) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    return made[0], made[1]


WINDOWED = {
    "conv2d": _convolved,
    "conv_transpose2d": _transposed,
    "max_pool2d": _pooled,
    "avg_pool2d": _pooled,
}
"""Functions that read a window, and how it is told from their arguments."""


class Map(NamedTuple):
    """A feature map: the layer that made it, and what a place of it sees along height and width."""

    layer: str
    output: Float[Tensor, "batch channels height width"]
    fields: Fields


def is_windowed(module: nn.Module) -> bool:
    """Whether a layer reads windows of an image."""
    return isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.MaxPool2d | nn.AvgPool2d)


@contextmanager
def followed(model: nn.Module, x: Tensor) -> Iterator[list[Map]]:
    """The maps of a model's convolutions and poolings as they are made of x, with their fields, in the block.

    Args:
        model: Any module.
        x: Images, which it is given within the block.
    """
    names = {module: name for name, module in model.named_modules() if is_windowed(module)}
    maps: list[Map] = []
    following = Following(x)

    def seen(call: Call) -> None:
        fields = following.of(call.output)
        if fields is not None and isinstance(call.output, Tensor) and call.output.ndim == 4:
            again = sum(found.layer.partition(" (")[0] == names[call.module] for found in maps)
            name = names[call.module] + (f" ({again + 1})" if again else "")
            maps.append(Map(name, call.output.clone(), fields))  # what follows may overwrite it

    with hooked(names, seen), following:
        yield maps


def measured_support(
    model: nn.Module, x: Float[Tensor, "batch channels height width"], *, generator: Generator
) -> dict[str, Float[Tensor, "height width"]]:
    """Of each map's middle the root mean square of its derivative by each pixel, over images and channels.

    Of a random combination of the channels: where a derivative is not 0, neither is that, with probability 1.
    Shut rectifiers and maxima that are taken elsewhere are 0 for an image; so several are asked.

    Args:
        model: In evaluation mode.
        x: Images.
        generator: Draws the combination.

    Reference: Luo, Li, Urtasun and Zemel 2016, Section 2.
    """
    x = x.detach().clone().requires_grad_()
    found = {}
    with torch.enable_grad():
        with followed(model, x) as maps:
            model(x)
        for one in (each for each in maps if each.output.requires_grad):
            check_deadline()  # a gradient is no pass, which would be refused
            height, width = one.output.shape[2:]
            middle = one.output[:, :, height // 2, width // 2]
            v = torch.randn(middle.shape[1], generator=generator, dtype=torch.float64).to(middle)
            (gradient,) = torch.autograd.grad((middle * v).sum(), x, retain_graph=True)
            found[one.layer] = gradient.double().square().mean((0, 1)).sqrt().cpu()
    return found


def not_finite(supports: Iterable[Tensor]) -> str:
    """Why derivatives tell nothing of a field, in a line; "" where they do."""
    return "" if all(bool(one.isfinite().all()) for one in supports) else "a derivative is not finite"


def extent(support: Float[Tensor, "height width"]) -> tuple[int, int]:
    """Height and width of the least rectangle that holds all places that are not 0; 0 and 0 of none."""
    rows, columns = (support != 0).any(1).nonzero(), (support != 0).any(0).nonzero()
    if not len(rows):
        return 0, 0
    return int(rows.max() - rows.min()) + 1, int(columns.max() - columns.min()) + 1
