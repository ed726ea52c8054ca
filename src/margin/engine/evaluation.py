"""Evaluation of a model without side effects: eval mode, a seeded generator, weighted means, random samples.

Every mean is sum(w v) / sum(w), both sums over all terms. Where some of the examples stand for all, they
are drawn without replacement (Cochran, 1977, Section 2.1): the first ones of a file sorted by class give
one class. What modules receive and return is captured by hooks that are always removed.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
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


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in shape, type and every bit: a NaN equals itself, 0 differs from -0."""
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if a.layout != torch.strided or b.layout != torch.strided:
        return torch.equal(a, b)
    return torch.equal(_bits(a), _bits(b))


def _bits(x: Tensor) -> Tensor:
    """The bits of a tensor as integers of its size: no copy of weights, which are many."""
    x = x.detach().resolve_conj().resolve_neg()
    if not x.is_contiguous() or x.numel() == 1:  # the stride of a single number may be any
        x = x.clone(memory_format=torch.contiguous_format)
    return x.view(-1).view(
        {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(x.element_size(), torch.uint8)
    )


@contextmanager
def eval_mode(model: nn.Module, seed: int = 0) -> Iterator[Generator]:
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


def weight_of_terms(terms: Tensor, batch: Batch) -> Tensor:
    """What each term of a batch weighs, in float64 on the CPU: 1 where the batch has no weights.

    Args:
        terms: The terms, a row an example; their values are not read.
        batch: Its weight is one an example or one a term.
    """
    return expand_weight(torch.ones_like(terms, dtype=torch.float64), batch.weight).cpu()


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


def weigh_loss(losses: Tensor, batch: Batch, task: Task) -> tuple[Tensor, Tensor | None]:
    """The losses l / c and weights w c whose mean is sum(w l) / sum(w c); as they are where c is 1.

    Args:
        losses: l of each term of a batch, by the task.
        batch: Its targets give c, :attr:`Task.weigh`.
        task: How outputs are read.
    """
    if task.weigh is None or batch.targets is None:
        return losses, batch.weight
    weight = task.weigh(batch.targets).to(losses)
    return losses / weight.where(weight != 0, 1), weight * expand_weight(weight, batch.weight)


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
    with eval_mode(model) as generator:
        for batch in batches:
            for name, value in terms_of(model, batch, task, objective, generator).items():
                value, weight = weigh_loss(value, batch, task) if name == "loss" else (value, batch.weight)
                total, count = weighted_sum(value.double(), weight)
                before = sums.get(name, (total.new_zeros(()), total.new_zeros(())))
                sums[name] = (before[0] + total, before[1] + count)
    return {name: _ratio(summed(torch.stack(pair))) for name, pair in sums.items()}


def _ratio(sums: Tensor) -> float:
    total, count = sums.tolist()
    return total / count if count else math.nan


Admits = Callable[[Batch], Tensor]
"""``batch -> whether each of its examples may be chosen``."""


class ExampleSample(NamedTuple):
    """The examples that are looked at, and how many there were to choose from.

    Args:
        batches: Their batches, in the order of the file; those of weight 0 may be among them where all are
            taken.
        taken: How many examples of weight above 0 are in them.
        among: How many there were.
    """

    batches: Sequence[Batch]
    taken: int
    among: int

    @property
    def whole(self) -> bool:
        """Whether nothing was left out."""
        return self.taken == self.among

    def words(self, kind: str = "held-out") -> str:
        """How a statement calls the sample: all of them, or how many of how many."""
        if self.whole:
            return f"all {self.taken:,} {kind} examples"
        return f"{self.taken:,} of {self.among:,} {kind} examples, drawn at random"


def sample_examples(
    batches: Sequence[Batch],
    limit: int | None,
    *,
    seed: int = 0,
    admits: Admits | None = None,
    whole_batches: bool = False,
) -> ExampleSample:
    """At most ``limit`` of the examples of weight above 0, each set of so many equally likely.

    The choice is a function of the seed and of the number of examples alone. Examples whose batches were left
    almost empty are put together, in batches no larger than the largest given, where their shapes agree.

    Args:
        batches: The examples; gone through twice where not all are taken.
        limit: Examples at most; None takes all.
        seed: Another seed draws others.
        admits: Which examples may be chosen; None: all of weight above 0.
        whole_batches: Take whole batches in a random order until they hold ``limit`` examples, at least one:
            for examples that read each other. So are batches taken that cannot be cut, as joined graphs.

    Raises:
        ValueError: ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the number of examples must be at least 1: got {limit}")
    # One pass for what counts: batches may be read from a file, and are not kept.
    counted = [_counted(batch, admits) for batch in batches]
    among = sum(len(index) for index in counted)
    if (limit is None or among <= limit) and admits is None:
        return ExampleSample(batches, among, among)
    limit = among if limit is None else min(limit, among)
    generator = Generator().manual_seed(mix(seed, 11))
    if whole_batches or not all(batch.divisible for batch in batches):
        taken = _batches_for(limit, [len(index) for index in counted], generator)
        return ExampleSample([batches[i] for i in taken], sum(len(counted[i]) for i in taken), among)
    drawn = torch.randperm(among, generator=generator)[:limit].sort().values
    pieces, first, largest = [], 0, 1
    for index, batch in zip(counted, batches, strict=True):
        here = drawn[(drawn >= first) & (drawn < first + len(index))] - first
        first, largest = first + len(index), max(largest, len(batch.inputs[0]))
        if len(here):
            pieces.append(rows_of(batch, index[here]))
    return ExampleSample(_joined(pieces, largest), len(drawn), among)


def drawn_rows(batches: Sequence[Batch], limit: int) -> ExampleSample:
    """As :func:`sample_examples`, and none of weight 0 among them; one batch, where their shapes agree.

    Where no example counts at all, the batches are as they were given.

    Args:
        batches: The examples; gone through twice.
        limit: Examples at most.
    """
    found = sample_examples(batches, limit, admits=counts)
    if not found.taken:
        return sample_examples(batches, limit)
    whole = not all(batch.divisible for batch in found.batches)
    return found if whole else found._replace(batches=_joined(found.batches, limit))


def rows_of(batch: Batch, index: Int[Tensor, " rows"]) -> Batch:
    """The examples of a batch at ``index``."""

    def pick(tensor: Tensor) -> Tensor:
        return tensor[index.to(tensor.device)]

    targets = None if batch.targets is None else pick(batch.targets)
    return Batch(
        tuple(map(pick, batch.inputs)), targets, None if batch.weight is None else pick(batch.weight)
    )


def pieces_of(batches: Sequence[Batch], size: int | None) -> Iterator[Batch]:
    """The batches, cut into pieces of at most ``size`` examples; None leaves them whole."""
    for batch in batches:
        length = len(batch.inputs[0])
        if size is None or length <= size:
            yield batch
            continue
        for start in range(0, length, size):
            part = slice(start, start + size)
            yield Batch(
                tuple(x[part] for x in batch.inputs),
                None if batch.targets is None else batch.targets[part],
                None if batch.weight is None else batch.weight[part],
            )


def counts(batch: Batch) -> Bool[Tensor, " examples"]:
    """Whether each example has a term of weight above 0; on the CPU."""
    if batch.weight is None:
        return torch.ones(len(batch.inputs[0]), dtype=torch.bool)
    return (batch.weight > 0).reshape(len(batch.weight), -1).any(1).cpu()


def _counted(batch: Batch, admits: Admits | None) -> Tensor:
    good = counts(batch)
    return (good if admits is None else good & admits(batch).cpu()).nonzero().flatten()


def _batches_for(limit: int, sizes: Sequence[int], generator: Generator) -> list[int]:
    """Batches in a random order until they hold so many examples; their numbers, in the order of the file."""
    taken, held = [], 0
    for i in torch.randperm(len(sizes), generator=generator).tolist():
        if held >= limit:
            break
        if sizes[i]:
            taken.append(i)
            held += sizes[i]
    return sorted(taken)


def _joined(pieces: Sequence[Batch], size: int) -> list[Batch]:
    """Neighbors put together while they fit in ``size`` rows and agree in everything but their number."""
    groups: list[list[Batch]] = []
    held = 0
    for piece in pieces:
        rows = len(piece.inputs[0])
        if groups and held + rows <= size and _form(groups[-1][0]) == _form(piece):
            groups[-1].append(piece)
            held += rows
        else:
            groups.append([piece])
            held = rows
    return [_cat(group) for group in groups]


def _cat(group: Sequence[Batch]) -> Batch:
    if len(group) == 1:
        return group[0]
    inputs = tuple(torch.cat(column) for column in zip(*(batch.inputs for batch in group), strict=True))
    targets = [batch.targets for batch in group if batch.targets is not None]
    weights = [batch.weight for batch in group if batch.weight is not None]
    return Batch(inputs, torch.cat(targets) if targets else None, torch.cat(weights) if weights else None)


def _form(batch: Batch) -> list[object]:
    parts = (*batch.inputs, batch.targets, batch.weight)
    return [None if x is None else (x.shape[1:], x.dtype, x.device) for x in parts]


class Call(NamedTuple):
    """One call of a module: its arguments, by place and by name, and its output."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


def _nothing(module: nn.Module, args: tuple[Any, ...]) -> None:
    pass


@contextmanager
def hooked(
    modules: Iterable[nn.Module],
    leave: Callable[[Call], Any],
    enter: Callable[[nn.Module, tuple[Any, ...]], None] = _nothing,
) -> Iterator[None]:
    """Forward hooks on modules within the block; they go when it ends, whatever happens.

    Args:
        modules: Those that are watched; a module that is named twice is watched once.
        leave: Given each call as it ends; what it returns takes the output's place, None leaves it.
        enter: Given each module as it begins, with its arguments by place.
    """

    def ended(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        return leave(Call(module, args, kwargs, output))

    once = list({id(module): module for module in modules}.values())
    handles = [module.register_forward_pre_hook(enter) for module in once]
    handles += [module.register_forward_hook(ended, with_kwargs=True) for module in once]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def is_transformed(call: Call) -> bool:
    """Whether a module was called within a transform of ``torch.func``."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(isinstance(value, Tensor) and wrapped(value) for value in (*call.args, call.output))


@contextmanager
def running(
    model: nn.Module,
    layers: list[tuple[str, str]],
    entered: Callable[[nn.Module], None] = lambda module: None,
) -> Iterator[None]:
    """Keep the path and kind of the layers that are being run, outermost first, within the block.

    After an error those are left in which it came: see :func:`place_of`.

    Args:
        model: Its submodules are watched.
        layers: Where they are written.
        entered: Given each layer once it is written.
    """
    paths = {module: path for path, module in model.named_modules()}

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        layers.append((paths[module], type(module).__name__))
        entered(module)

    def leave(call: Call) -> None:
        layers.pop()

    with hooked(paths, leave, enter):
        yield


def place_of(layers: Sequence[tuple[str, str]]) -> str:
    """The innermost layer, in words.

    Args:
        layers: Path and kind of those that are being run.
    """
    path, kind = layers[-1] if layers else ("", "what reads its outputs")
    return f"{f'layer {path!r}' if path else 'the model itself'} ({kind})"


def leaves(value: Any) -> Iterator[Any]:
    """The values in nested arguments: dictionaries, lists and tuples are opened."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


@contextmanager
def capture(
    modules: Iterable[nn.Module], change: Callable[[Call], Any] = lambda call: None
) -> Iterator[list[Call]]:
    """The calls of modules within the block, in the order in which they end; the hooks go when it ends.

    A call within a transform of ``torch.func``, as of a model that maps itself over draws of its weights, is
    left out: what it takes and gives has no numbers of its own.

    Args:
        modules: Those whose calls are captured; a module that is named twice is captured once.
        change: Given each call as it ends; what it returns takes the output's place, None leaves it.

    Returns:
        A list that fills while the model runs.
    """
    calls: list[Call] = []

    def ended(call: Call) -> Any:
        if is_transformed(call):
            return None
        calls.append(call)
        return change(call)

    with hooked(modules, ended):
        yield calls
