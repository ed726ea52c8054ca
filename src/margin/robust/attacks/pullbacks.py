r"""Gradients by the input alone, of convolutions of few channels by one product (Chellapilla et al., 2006).

With the kernel as a matrix W, a row for each output channel, and the patches of x as columns, a convolution
is y = W unfold(x); so

.. math:: \nabla_x = \mathrm{fold}(W^\top \nabla_y)

Torch leaves this to kernels of the processor's library that are made for many channels: of images of one or
of three they take several times as long. An attack asks for no other gradient, many times.
"""

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

FEW = 4
"""Channels at most for which a matrix product is taken: of more torch's own kernels are as fast."""

Pair = tuple[int, int]

_BY_INPUT: ContextVar[bool] = ContextVar("by_input", default=False)


def pullback(total: Tensor, y: Tensor, *, retain_graph: bool = False) -> Tensor:
    """The gradient of a number by y, and by nothing else; 0 where it does not depend on it.

    Args:
        total: A number, of a model that was asked within :func:`few_channels` where that is to be fast.
        y: A leaf that requires a gradient.
        retain_graph: Whether the graph is asked again.
    """
    gradient, before = None, _BY_INPUT.set(True)
    try:
        if total.requires_grad:
            (gradient,) = torch.autograd.grad(total, y, retain_graph=retain_graph, allow_unused=True)
    finally:
        _BY_INPUT.reset(before)
    return torch.zeros_like(y) if gradient is None else gradient


def few_channels(model: nn.Module) -> AbstractContextManager[Any]:
    """Within it a model with convolutions of few channels is asked so that :func:`pullback` is fast.

    Whoever differentiates by other means, as a model that follows a gradient of its own, gets torch's own
    gradients by all arguments. A compiled model is asked as it was compiled.
    """
    gains = False
    for module in model.modules():
        if type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None:
            return nullcontext()
        gains = gains or (isinstance(module, nn.Conv2d) and _fits(module.weight, module.groups))
    return _Watch() if gains else nullcontext()


def _fits(weight: Tensor, groups: int) -> bool:
    return groups == 1 and weight.shape[1] <= FEW and weight.dtype in (torch.float32, torch.float64)


class _Watch(TorchFunctionMode):
    """Puts :class:`_Convolved` in the place of convolutions that gain by it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The function's value."""
        asked = _arguments(*args, **(kwargs or {})) if func is F.conv2d else None
        return func(*args, **(kwargs or {})) if asked is None else _Convolved.apply(*asked)


# Seven parameters, because they are torch's.
def _arguments(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> tuple[Any, ...] | None:
    """The arguments of a convolution with its numbers as pairs; None where torch's own gradient serves."""
    if not (torch.is_grad_enabled() and input.requires_grad and input.ndim == 4 and _fits(weight, groups)):
        return None
    if input.device.type != "cpu" or input.dtype != weight.dtype or isinstance(padding, str):
        return None
    made = any(part is not None and part.grad_fn is not None for part in (weight, bias))
    if made or forward_ad._current_level >= 0:  # weights may depend on the input, or all on a direction
        return None
    return input, weight, bias, _pair(stride), _pair(padding), _pair(dilation)


def _pair(value: int | tuple[int, ...]) -> Pair:
    first, *rest = (value,) if isinstance(value, int) else value
    return first, rest[0] if rest else first


class _Convolved(torch.autograd.Function):
    """A convolution by whose input one may differentiate as one matrix product."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
    ) -> Tensor:
        """Torch's own."""
        return F.conv2d(x, weight, bias, stride, padding, dilation)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keep what the way back reads."""
        x, weight, bias, *ctx.numbers = inputs
        ctx.bias = None if bias is None else list(bias.shape)
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """fold(W' g) where the input's gradient is all that is asked for, else torch's own of all."""
        (gradient,), (x, weight), (stride, padding, dilation) = gradients, ctx.saved_tensors, ctx.numbers
        if _BY_INPUT.get():
            columns = torch.bmm(weight.flatten(1).T.expand(len(x), -1, -1), gradient.flatten(2))
            if stride == (1, 1):
                columns = columns.reshape(*x.shape[:2], *weight.shape[2:], *gradient.shape[2:])
                return _overlapped(columns, x.shape, padding, dilation), *(None,) * 5
            return F.fold(columns, x.shape[2:], weight.shape[2:], dilation, padding, stride), *(None,) * 5
        plain = ctx.bias, stride, padding, dilation, False, (0, 0), 1, ctx.needs_input_grad[:3]
        return *torch.ops.aten.convolution_backward(gradient, x, weight, *plain), *(None,) * 3


def _overlapped(
    columns: Float[Tensor, "batch channels i j rows columns"],
    shape: torch.Size,
    padding: Pair,
    dilation: Pair,
) -> Float[Tensor, "batch channels height width"]:
    """F.fold at stride 1, a whole image for each entry of the kernel: twice as fast as pixel by pixel."""
    (height, width), (top, left) = shape[2:], padding
    image = columns.new_zeros(*shape[:2], height + 2 * top, width + 2 * left)
    for i in range(columns.shape[2]):
        for j in range(columns.shape[3]):
            rows, across = i * dilation[0], j * dilation[1]
            image[..., rows : rows + columns.shape[4], across : across + columns.shape[5]] += columns[
                :, :, i, j
            ]
    return image[..., top : top + height, left : left + width]
