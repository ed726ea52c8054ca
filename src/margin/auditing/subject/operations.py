"""What a model's operations count for, one by one, whatever the machine: time, and what they hold.

Floating-point operations of matrix products, convolutions and attention, bytes read and written, and a fixed
overhead an operation, as seconds of a reference core.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

HELD = 2**27
"""Bytes that a pass over a batch may hold: a graph that is differentiated again holds several times that."""

FLOPS = 5e10
"""Floating-point operations a second of the reference core: one of a server of 2020, in float32."""

BYTES = 5e9
"""Bytes a second that it reads or writes."""

OVERHEAD = 4e-6
"""Seconds that it takes for an operation however small."""

PICKS = {"embedding", "gather", "index", "index_select", "take", "index_put", "index_add", "scatter_add"}
"""Operations that read, or write, a part of their first argument."""

WHOLE_LAYERS = {"mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward"} | {
    "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
}
"""Kernels of a whole layer: each of its weight matrices is multiplied with every row of what they return."""

LIVE = 3
"""Tensors as large as the largest that a forward pass needs at once where it holds none for a gradient."""


class Counter(TorchDispatchMode):
    """Adds up the seconds of the reference core that operations count for, backward ones among them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch loads its compiler, for a second, to leave this method alone

    def __init__(self, rows: int = 0, weights: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.seconds = self.overhead = 0.0
        self.largest = 0  # bytes of the largest tensor of a row an example
        self._rows, self._shapes = rows, {x.shape for x in weights}
        self._whole: set[Any] = set()  # operations that no others compose

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in self._whole:
            if func._overloadpacket not in _formulas():
                with self:  # one that is composed of others, as a linear map in inference mode
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            self._whole.add(func)
        out = func(*args, **kwargs)
        self.seconds += OVERHEAD
        self.overhead += OVERHEAD
        if not func.is_view:
            self.seconds += _flops(func, args, kwargs, out) / FLOPS + _bytes(func, args, out) / BYTES
            made = (x for x in _tensors(out) if x.ndim and len(x) == self._rows)
            sizes = (x.numel() * x.element_size() for x in made if x.shape not in self._shapes)
            self.largest = max(self.largest, *sizes, 0)
        return out


@cache
def _formulas() -> dict[Any, Callable[..., int]]:
    """Torch's formulas of floating-point operations, those of a processor's attention among them."""
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten
    name = "_scaled_dot_product_flash_attention"
    same = {f"{name}_for_cpu": name, f"{name}_for_cpu_backward": f"{name}_backward"}
    alike = {getattr(aten, own): flop_registry[getattr(aten, known)] for own, known in same.items()}
    return flop_registry | alike | {aten.convolution_backward: _of_groups}


def _of_groups(*args: Any, out_val: Any) -> int:
    """The backward pass of a convolution: of the weights torch's own formula leaves groups out."""
    from torch.utils.flop_counter import flop_registry

    backward = flop_registry[torch.ops.aten.convolution_backward]
    *given, groups, (inputs, weights, _) = args
    of_inputs = backward(*given, groups, (inputs, False, False), out_val=out_val)
    return int(of_inputs + backward(*given, groups, (False, weights, False), out_val=out_val) // groups)


def _tensors(tree: Any) -> list[Tensor]:
    """The tensors among an operation's arguments: torch's own walk takes longer than a small operation."""
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree if isinstance(tree, tuple | list) else ()
    return [x for part in parts for x in ([part] if isinstance(part, Tensor) else _tensors(part))]


def _flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    name = func._overloadpacket.__name__
    if (formula := _formulas().get(func._overloadpacket)) is not None:
        return formula(*args, **kwargs, out_val=out)
    if name in WHOLE_LAYERS:
        first = _tensors(args)[0]
        rows = first.shape[:-1].numel()
        both = 2 if name.endswith("backward") else 1
        return both * 2.0 * rows * sum(x.numel() for x in _tensors(args) if x.ndim == 2)
    if "linalg" in name or "cholesky" in name:
        matrix = _tensors(args)[0]
        return 10.0 * matrix.numel() * min(matrix.shape[-2:], default=1)
    return 0.0


def _bytes(func: Any, args: tuple[Any, ...], out: Any) -> int:
    name = func._overloadpacket.__name__.rstrip("_")
    read = _tensors(args)[1:] if name in PICKS else _tensors(args)
    written = [] if name in PICKS and func._schema.is_mutable else _tensors(out)
    return sum(x.numel() * x.element_size() for x in (*read, *written))
