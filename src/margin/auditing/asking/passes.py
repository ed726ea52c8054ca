"""The cost of a forward and a backward pass: counted operation by operation, and timed.

The count is the same on every machine: floating-point operations of matrix products, convolutions and
attention, bytes read and written, and a fixed overhead an operation, as seconds of a reference core; of an
estimator outside of torch its calls and their rows. How many examples an audit draws follows from it. The
clock says what still fits.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from margin.auditing.subject.predictions import Predicting
from margin.core.findings import Subject, has_loss
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, rows_of
from margin.engine.loop import Risk

FLOPS = 5e10
"""Floating-point operations a second of the reference core: one of a server of 2020, in float32."""

BYTES = 5e9
"""Bytes a second that it reads or writes."""

OVERHEAD = 4e-6
"""Seconds that it takes for an operation however small."""

PREDICTED = (1e-3, 2e-5)
"""Seconds that a call of an estimator outside of torch counts for, and each row of it: a forest's, about."""

PROBE = 0.1
"""Counted seconds of a pass that are enough: a single example may take a tenth of many at once."""

COLD = 1.0
"""Seconds below which a pass is timed twice: a library warms up, another program may have the processor."""

NOTICED = 1 / 40
"""The part of an audit's time from which on a pass is not run only to time it better."""

FLAT = 1.5
"""By how much four times the examples may take longer where a pass waits rather than computes."""

SLOWER = 8.0
"""By how much a pass may take longer than it counts for, before fewer examples are drawn."""

STEP = 4.0
"""The factor by which all sizes are then stepped down."""

LIVE = 3
"""Tensors as large as the largest that a forward pass needs at once where it holds none for a gradient."""

PICKS = {"embedding", "gather", "index", "index_select", "take", "index_put", "index_add", "scatter_add"}
"""Operations that read, or write, a part of their first argument."""

WHOLE_LAYERS = {"mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward"} | {
    "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
}
"""Kernels of a whole layer: each of its weight matrices is multiplied with every row of what they return."""


class Passes(NamedTuple):
    """Seconds of the forward pass of an example, and of a forward and a backward pass."""

    forward: float = 0.0
    gradient: float = 0.0

    def times(self, factor: float) -> "Passes":
        """Both, by a factor."""
        return Passes(factor * self.forward, factor * self.gradient)


class PassCost(NamedTuple):
    """What passes over an example cost.

    Args:
        counted: In seconds of the reference core: the same on every machine.
        timed: In seconds of this machine, as busy as it is.
        held: Bytes that a forward pass holds for the backward one; at least those of a few of its largest
            tensors, which it needs without a gradient too.
    """

    counted: Passes = Passes()
    timed: Passes = Passes()
    held: float = 0.0

    @property
    def slower(self) -> float:
        """By what power of 4 all sizes are stepped down: 1 of a machine about as fast as the reference."""
        ratio = self.timed.gradient / self.counted.gradient if self.counted.gradient > 0 else 1.0
        return STEP ** math.ceil(math.log(max(ratio / SLOWER, 1.0), STEP))


class Counter(TorchDispatchMode):
    """Adds up the seconds of the reference core that operations count for, backward ones among them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch loads its compiler, for a second, to leave this method alone

    def __init__(self, rows: int = 0, weights: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.seconds = 0.0
        self.largest = 0  # bytes of the largest tensor of a row an example
        self._rows, self._shapes = rows, {x.shape for x in weights}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._overloadpacket not in _formulas():
            with self:  # one that is composed of others, as a linear map in inference mode
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        self.seconds += OVERHEAD
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
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]


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


def cost_of_passes(subject: Subject, seconds: float = math.inf) -> PassCost:
    """What a forward pass, and one with a backward pass, cost by their examples: of one, then of more.

    A batch is run whole only where its examples read each other. Of a model whose loss is another than one of
    its outputs the loss is run: its forward may be long, as a bound that sums over the thousand steps of a
    diffusion. Without a gradient both are the same.

    Args:
        subject: The model and its examples.
        seconds: What this may take, about: a pass that takes a part of it is not repeated, and one that takes
            no longer for more examples is next run on all of a batch, as if it waited for another machine.
    """
    if not len(subject.test):
        return PassCost()
    batch = subject.test[0]
    length = len(batch.inputs[0])
    size, before = 1 if subject.independent and batch.divisible else length, 0.0
    with eval_mode(subject.model) as generator:
        while True:
            part = rows_of(batch, torch.arange(size)) if size < length else batch
            counted, timed, held = _counted(subject, part, generator)
            if counted.gradient > PROBE or timed.gradient > SLOWER * PROBE or size >= length:
                break
            long, flat = timed.gradient > NOTICED * seconds, timed.gradient < FLAT * before
            if long and before and not flat:
                break
            size, before = length if long and flat else min(4 * size, length), timed.gradient
        if timed.gradient < min(COLD, NOTICED * seconds):
            again = [_passes(subject, part, generator, _clock(part))[0] for _ in range(2)]
            timed = Passes(*map(min, zip(*again, strict=True)))
    share = 1 / max(size, 1)
    return PassCost(counted.times(share), timed.times(share), held * share)


def _counted(subject: Subject, part: Batch, generator: Generator) -> tuple[Passes, Passes, int]:
    """Both passes counted, and timed, which counting makes a little longer; the bytes they hold."""
    tensors = [*subject.model.parameters(), *subject.model.buffers()]
    counter, clock = Counter(len(part.inputs[0]), tensors), _clock(part)
    weights = {x.data_ptr() for x in tensors}
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            held[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        seconds = counter.seconds
        alone = tensor.detach()  # the tensor itself would hold the graph that holds it, for ever
        counter.seconds = seconds  # no operation of the model's
        return alone

    def predicted(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        counter.seconds += PREDICTED[0] + PREDICTED[1] * len(args[0])

    estimators = [module for module in subject.model.modules() if isinstance(module, Predicting)]
    handles = [module.register_forward_hook(predicted) for module in estimators]
    try:
        with counter, saved_tensors_hooks(pack, lambda tensor: tensor):
            counted, timed = _passes(subject, part, generator, lambda: counter.seconds, clock)
    except (RuntimeError, TypeError):  # its operations cannot be seen, as a script's; or the model is broken
        (timed,), counted = _passes(subject, part, generator, clock), Passes()
    finally:
        for handle in handles:
            handle.remove()
    bytes_held = max(sum(held.values()), LIVE * counter.largest)
    return Passes(*(max(seconds, OVERHEAD) for seconds in counted)), timed, bytes_held


def _passes(
    subject: Subject, batch: Batch, generator: Generator, *clocks: Callable[[], float]
) -> list[Passes]:
    """A forward pass, and both passes, by each clock."""
    weights = [p for p in subject.model.parameters() if p.requires_grad]
    own = has_loss(subject) and not isinstance(subject.objective, Risk)
    with torch.set_grad_enabled(len(weights) > 0):
        start = [now() for now in clocks]
        found = subject.objective(subject.model, batch, generator) if own else subject.model(*batch.inputs)
        forward = [now() - first for now, first in zip(clocks, start, strict=True)]
        if isinstance(found, Tensor) and found.requires_grad:
            try:
                torch.autograd.grad(found.sum(), weights, allow_unused=True)
            except RuntimeError:  # as of one that overwrites what it returned: what needs a gradient says so
                return [Passes(seconds, 3 * seconds) for seconds in forward]
        both = [now() - first for now, first in zip(clocks, start, strict=True)]
    return [Passes(*seconds) for seconds in zip(forward, both, strict=True)]


def _clock(batch: Batch) -> Callable[[], float]:
    def now() -> float:
        if batch.inputs[0].is_cuda:
            torch.cuda.synchronize(batch.inputs[0].device)
        return time.perf_counter()

    return now


class OutOfTime(BaseException):
    """The time of an audit is over, while it is found out by the model whether a question applies.

    No Exception: one that the model raises may be the answer.
    """


@contextmanager
def passes_until(model: nn.Module, end: float) -> Iterator[None]:
    """Within the block a pass that begins after ``end``, by ``time.perf_counter``, raises OutOfTime."""

    def refuse_late(module: nn.Module, args: tuple[Any, ...]) -> None:
        if time.perf_counter() > end:
            raise OutOfTime

    handle = model.register_forward_pre_hook(refuse_late)
    try:
        yield
    finally:
        handle.remove()
