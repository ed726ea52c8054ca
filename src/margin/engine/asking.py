"""Asking a model without leaving a trace: evaluation mode, a seeded generator, weighted means.

Every mean is sum(w v) / sum(w), both sums over all terms.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch, Objective
from margin.engine.parallel.processes import summed
from margin.math.seeds import mix


class Kept:
    """What a forward pass may write into a module beside its parameters: buffers, and attributes of Python's.

    Args:
        model: The module; its buffers are copied.
    """

    def __init__(self, model: nn.Module) -> None:
        self._attributes = [(module, dict(vars(module))) for module in model.modules()]
        self._buffers = [(module, dict(module.named_buffers(recurse=False))) for module in model.modules()]
        self._places = [(m._buffers, dict(m._buffers)) for m in model.modules() if type(m._buffers) is dict]
        self._bits = [
            (buffer, buffer.detach().clone()) for _, own in self._buffers for buffer in own.values()
        ]

    def written(self, model: nn.Module) -> list[str]:
        """The names of the buffers that were written, replaced, added or dropped since."""
        was = {id(module): own for module, own in self._buffers}
        bits = {id(buffer): kept for buffer, kept in self._bits}
        found = []
        for prefix, module in model.named_modules():
            before, now = was.get(id(module), {}), dict(module.named_buffers(recurse=False))
            for name in before.keys() | now.keys():
                was_there, buffer = before.get(name), now.get(name)
                same = was_there is buffer and buffer is not None and _alike(buffer, bits[id(buffer)])
                if not same:
                    found.append(f"{prefix}.{name}".removeprefix("."))
        return sorted(found)

    def restore(self) -> None:
        """Put back what was written, and nothing else: an untouched buffer may be part of a graph."""
        for module, attributes in self._attributes:
            own = vars(module)
            if own.keys() != attributes.keys() or any(own[k] is not v for k, v in attributes.items()):
                own.clear()
                own.update(attributes)
        for places, buffers in self._places:
            places.clear()
            places.update(buffers)
        for buffer, bits in self._bits:
            if not _alike(buffer, bits):
                with torch.no_grad():
                    buffer.copy_(bits)


def _alike(a: Tensor, b: Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return torch.equal(a, b)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


@contextmanager
def asking(model: nn.Module, seed: int = 0) -> Iterator[Generator]:
    """Evaluation mode and a seeded generator; on leaving, every trace is undone.

    Restored are the ``training`` flag of every submodule, every ``.grad``, every ``requires_grad``, the
    buffers and attributes that a forward pass writes (a counter, an average, a cache), and the global
    generator.
    """
    flags = [(module, module.training) for module in model.modules()]
    leaves = [
        parameter for parameter in model.parameters() if parameter.is_leaf
    ]  # not those of a script's copy
    grads = [(parameter, parameter.grad, parameter.requires_grad) for parameter in leaves]
    kept = Kept(model)
    before = torch.get_rng_state()
    model.eval()
    for parameter in leaves:
        parameter.grad = None  # a backward pass would otherwise add to the caller's tensor in place
    try:
        yield Generator().manual_seed(mix(seed, 7))
    finally:
        kept.restore()
        for module, flag in flags:
            module.training = flag
        for parameter, grad, requires_grad in grads:
            parameter.grad = grad
            parameter.requires_grad_(requires_grad)
        torch.set_rng_state(before)


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model whose parameters are leaves and require a gradient where the model's do.

    Of a script's copy torch makes them functions of the script's own parameters: a gradient by them would be
    rounded to the type of those, and none would be frozen.
    """
    twin = copy.deepcopy(model)
    for parameter, own in zip(twin.parameters(), model.parameters(), strict=True):
        if not parameter.is_leaf:
            parameter.detach_().requires_grad_(own.requires_grad)
    return twin


def in_double(model: nn.Module) -> nn.Module:
    """A copy of a model in float64 and evaluation mode: what its formula says, without float32's rounding."""
    return copied(model).double().eval()


def expand_weight(values: Tensor, weight: Tensor | None) -> Tensor:
    """A weight for each term: one weight per example covers all terms of the example."""
    if weight is None:
        return torch.ones_like(values)
    shape = weight.shape + (1,) * (values.ndim - weight.ndim)
    return weight.to(values.dtype).reshape(shape).expand_as(values)


def weighted_sum(values: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum of weight x value and sum of weights; a term of weight 0 counts for nothing, be it NaN."""
    if weight is None:
        return values.sum(), values.new_tensor(float(values.numel()))
    weight = expand_weight(values, weight)
    return torch.where(weight != 0, weight * values, 0).sum(), weight.sum()


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """The mean sum(w v) / sum(w) over all terms."""
    if weight is None:
        return values.mean()
    total, count = weighted_sum(values, weight)
    return total / count


def terms_of(
    model: nn.Module, batch: Batch, task: Task, objective: Objective, generator: Generator
) -> dict[str, Tensor]:
    """The objective (``loss``) and the task's scores for each term of a batch.

    Where the objective is the task's own loss of the outputs, the model is asked once.
    """
    own = getattr(objective, "task", None) is task
    if batch.targets is None or not (own or task.scores):
        return {"loss": objective(model, batch, generator)}
    outputs = model(*batch.inputs)
    scores = {name: score(outputs, batch.targets) for name, score in task.scores.items()}
    if own and task.loss is not None:
        return {"loss": task.loss(outputs, batch.targets), **scores}
    return {"loss": objective(model, batch, generator), **scores}


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], task: Task, objective: Objective
) -> dict[str, float]:
    """Means over all terms of the objective (``loss``) and of the task's scores; leaves no trace.

    Of several processes each asks its share of every batch, and all of them get the same means.
    """
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    with asking(model) as generator:
        for batch in batches:
            for name, value in terms_of(model, batch, task, objective, generator).items():
                total, count = weighted_sum(value.double(), batch.weight)
                before = sums.get(name, (total.new_zeros(()), total.new_zeros(())))
                sums[name] = (before[0] + total, before[1] + count)
    return {name: _ratio(summed(torch.stack(pair))) for name, pair in sums.items()}


def _ratio(sums: Tensor) -> float:
    total, count = sums.tolist()
    return total / count if count else math.nan
