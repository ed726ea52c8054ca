"""Chains of affine layers: which layers a model calls, in which order, and whether one feeds the next.

A model is followed by running it: what its layers take and give tells how they are joined. A chain is a
composition x -> F_L(... F_1(x)): each layer takes exactly what the one before gave.

The last affine map poses a least-squares problem, of the features that enter it and the targets: with all
other layers fixed a network is linear in its last map; what theory says of least squares holds there exactly.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import Call as AnyCall
from margin.engine.evaluation import capture, eval_mode, hooked, is_transformed, rows_of, sample_examples
from margin.nn.preprocessed import core_of, device_of, dtype_of, features_of
from margin.theory.prediction.held_out import kept

Seen = Callable[["Call"], None]

FEW = 2
"""Examples on which a chain is followed."""


class NotAChainError(ValueError):
    """The layers of a model do not form a chain of affine maps and what may stand between; it says where."""


class Stage(NamedTuple):
    """An affine layer of a chain, the layers between it and the next one, and the shapes it took and gave."""

    name: str
    layer: nn.Linear | nn.Conv2d
    after: tuple[tuple[str, nn.Module], ...]
    taken: tuple[int, ...]
    given: tuple[int, ...]

    @property
    def units(self) -> int:
        """Outputs of the layer: units, or channels."""
        return len(self.layer.weight)


class Call(NamedTuple):
    """One run of a layer; a version counts how often a tensor had been written to by then."""

    name: str
    module: nn.Module
    given: Any
    output: Any
    given_version: int
    output_version: int


@contextmanager
def watched(model: nn.Module, seen: Seen) -> Iterator[None]:
    """Call ``seen`` after each run of a layer: a module without children, or with parameters of its own."""
    versions: list[int] = []  # of what the layers took that are being run, outermost first

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        versions.append(_version(args[0]) if args else 0)

    def leave(call: AnyCall) -> None:
        given, version = call.args[0] if call.args else None, versions.pop()
        if not is_transformed(call):
            seen(Call(names[call.module], call.module, given, call.output, version, _version(call.output)))

    names = {
        module: name
        for name, module in model.named_modules()
        if not list(module.children()) or any(True for _ in module.parameters(recurse=False))
    }
    with hooked(names, leave, enter):
        yield


def chain_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Stage, ...]:
    """The affine layers of a chain in order, each with what follows it; found by running the model.

    What comes before the first affine layer (standardization, resizing) must have no parameters. What stands
    between two affine layers is not judged here.

    Args:
        model: Any module.
        inputs: What it is run on, a few examples.

    Raises:
        NotAChainError: A layer takes something else than the one before gave, is run twice, shares its
            weights or computes them, or a parameter belongs to no layer of the chain; the message names it.
    """
    calls: list[Call] = []

    def seen(call: Call) -> None:
        if _is_affine(call.module) or not list(call.module.children()):
            calls.append(call)

    # The fused kernels of torch's transformer layers, which run no layer, are for no_grad alone.
    with eval_mode(model), watched(model, seen), torch.enable_grad():
        outputs = model(*inputs)
    first = next((i for i, call in enumerate(calls) if _is_affine(call.module)), None)
    if first is None:
        raise NotAChainError("a chain has an affine layer (Linear, Conv2d): the model has none")
    calls = calls[first:]
    for before, now in pairwise(calls):
        if not _same(before, now):
            raise NotAChainError(
                f"layer {now.name!r} must take what layer {before.name!r} gave: something else is between"
            )
    _check_end(calls[-1], outputs)
    _check_parameters(model, calls)
    return _stages(calls)


def _is_affine(module: nn.Module) -> bool:
    # A subclass may compute something else; torch's parametrizations make one.
    return type(module) in (nn.Linear, nn.Conv2d) or parametrize.is_parametrized(module, "weight")


def _version(tensor: Any) -> int:
    return tensor._version if isinstance(tensor, Tensor) and not tensor.is_inference() else 0


def _same(before: Call, now: Call) -> bool:
    """Whether a layer takes what the one before gave: the same numbers in memory, not written to since."""
    gave, given = before.output, now.given
    if not (isinstance(gave, Tensor) and isinstance(given, Tensor)):
        return False
    if now.given_version != before.output_version:
        return False
    # A backward hook hands on a view.
    return given is gave or (
        given.data_ptr() == gave.data_ptr() and given.shape == gave.shape and given.stride() == gave.stride()
    )


def _check_end(last: Call, outputs: Any) -> None:
    gave = last.output
    same = isinstance(outputs, Tensor) and isinstance(gave, Tensor) and outputs.numel() == gave.numel()
    untouched = same and _version(gave) == last.output_version
    if not (untouched and torch.equal(outputs.flatten().nan_to_num(), gave.flatten().nan_to_num())):
        raise NotAChainError(f"the model must answer what its last layer {last.name!r} gave: it answers more")


def _check_parameters(model: nn.Module, calls: Sequence[Call]) -> None:
    modules = [call.module for call in calls]
    for name, module, *_ in calls:
        stateless = not any(True for _ in (*module.parameters(), *module.buffers()))
        if modules.count(module) > 1 and not stateless:  # one ReLU may serve everywhere
            raise NotAChainError(f"layer {name!r} must be run once: it is run {modules.count(module)} times")
        if _is_affine(module) and "weight" not in module._parameters:
            raise NotAChainError(f"the weights of layer {name!r} must be parameters: they are computed")
    owned = [id(p) for module in modules for p in module.parameters(recurse=False)]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        count = owned.count(id(parameter))
        if count != 1:
            where = "belongs to no layer of the chain" if not count else "belongs to several layers"
            raise NotAChainError(f"the parameter {name!r} {where}")


def _stages(calls: Sequence[Call]) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    for name, module, given, output, *_ in calls:
        if isinstance(module, nn.Linear | nn.Conv2d):
            stages.append(Stage(name, module, (), tuple(given.shape), tuple(output.shape)))
        else:
            stages[-1] = stages[-1]._replace(after=(*stages[-1].after, (name, module)))
    return tuple(stages)


def few_inputs(subject: Subject) -> tuple[Tensor, ...]:
    """The first examples of a subject; the whole first batch where examples read each other."""
    inputs = subject.test[0].inputs
    return tuple(x[:FEW] for x in inputs) if subject.independent else inputs


def chain_in(subject: Subject, model: nn.Module | None = None) -> tuple[Stage, ...]:
    """The chain that a subject's model is, followed once for all questions about it.

    Args:
        subject: One with held-out examples.
        model: Another that is asked of the same inputs, each time anew, as an initial one; None is its own.

    Raises:
        NotAChainError: As :func:`chain_of`.
    """

    def followed() -> tuple[Stage, ...] | str:
        try:
            return chain_of(subject.model, few_inputs(subject))
        except NotAChainError as error:
            return str(error)  # the error itself would hold on to what the layers gave

    if model is not None and model is not subject.model:
        return chain_of(model, few_inputs(subject))
    found = kept(subject, "chain", followed, lambda _: 0)
    if isinstance(found, str):
        raise NotAChainError(found)
    return found


def probe(model: nn.Module) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A model without its preprocessing, and inputs for it, where its first affine layer is a Linear.

    Raises:
        NotAChainError: The first layer with weights is no Linear: what it takes is not known.
    """
    core: nn.Module = core_of(model)
    first = next((m for m in core.modules() if list(m.parameters(recurse=False))), None)
    if not isinstance(first, nn.Linear):
        kind = type(first).__name__ if first is not None else "none"
        raise NotAChainError(
            f"give inputs to follow the layers: the first with weights is no Linear but {kind}"
        )
    x = torch.linspace(-1, 1, FEW * first.in_features, dtype=dtype_of(core), device=device_of(core))
    return core, (x.reshape(FEW, -1),)


ROWS = 1024
"""Examples that are taken at most."""

CONSTANT = 8
"""Roundings of its type by which a column may vary, relative to its length, and still count as constant."""


class Design(NamedTuple):
    """Centered features and targets of the examples of weight > 0, each row times the root of its weight.

    Args:
        X: The features, in float64 on the CPU.
        Y: The targets; of classes, a column of zeros and ones for each.
    """

    X: Float[Tensor, "rows features"]
    Y: Float[Tensor, "rows targets"]


def last_design(subject: Subject) -> Design:
    """The features that enter a model's last linear map, with the targets, over the training examples.

    The last map is the linear module that is called last. A model that has none, and is itself x . w + b,
    takes its inputs for features. They are computed once for all claims of the subject.

    Args:
        subject: A model with its training examples.

    Raises:
        ValueError: The model has no last affine map, or its features and the targets do not correspond.
    """
    return kept(subject, "last design", lambda: _last_design(subject), lambda found: found.X.nbytes)


def _last_design(subject: Subject) -> Design:
    model, few = (
        copy.deepcopy(subject.model),
        sample_examples(subject.train, ROWS, whole_batches=not subject.independent),
    )
    rows = [_rows(model, batch) for batch in few.batches]
    X, Y, weight = (torch.cat(column) for column in zip(*rows, strict=True))
    if len(X) > ROWS:  # an example of several terms has a row for each
        some = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:ROWS].sort().values
        X, Y, weight = X[some], Y[some], weight[some]
    if not Y.is_floating_point():
        Y = F.one_hot(Y, int(Y.max()) + 1 if len(Y) else 1).double()
    return Design(_centered(X, weight, dtype_of(model)), _centered(Y, weight, torch.float64))


def _centered(columns: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Columns less their mean, each row times the root of its weight; a constant column is exactly 0.

    Args:
        columns: In float64.
        weight: Of each row, above 0.
        dtype: The type in which they were computed.
    """
    root = weight.sqrt()[:, None]
    centered = root * (columns - (weight / weight.sum()) @ columns)
    rounding = CONSTANT * torch.finfo(dtype).eps * (root * columns).norm(dim=0)
    return centered.masked_fill(centered.norm(dim=0) <= rounding, 0)


def in_row_space(design: Design) -> Design:
    """The same problem with features in coordinates of the rows' span, where it has fewer dimensions.

    Every solution that gradient descent from 0 or a penalty finds lies in that span.

    Args:
        design: Features and targets.
    """
    X, Y = design
    if X.shape[1] <= len(X):
        return design
    return Design(X @ torch.linalg.qr(X.T).Q, Y)


def has_last_layer(subject: Subject) -> bool:
    """Whether the training examples' features and targets are those of a last affine map."""
    if not subject.train or subject.train[0].targets is None:
        return False
    batch = subject.train[0]
    if subject.independent and batch.divisible:
        batch = rows_of(batch, torch.zeros(1, dtype=torch.long))  # a forward may be long

    def has_rows() -> bool:
        try:
            _rows(copy.deepcopy(subject.model), batch)
        except ValueError:
            return False
        return True

    return kept(subject, "has a last layer", has_rows, lambda _: 0)


def _rows(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Features, targets and weights of a batch, a row for each term of weight > 0; labels stay labels."""
    if batch.targets is None:
        raise ValueError("the examples have no targets")
    X = _features(model, batch).double().cpu().flatten(0, -2)
    Y = batch.targets.cpu()
    Y = (Y[:, None] if Y.ndim == 1 else Y.flatten(0, -2)).double() if Y.is_floating_point() else Y.flatten()
    if len(X) != len(Y):
        raise ValueError(f"each target needs its row of features: got {len(Y)} targets, {len(X)} rows")
    weight = torch.ones(len(X), dtype=torch.float64)
    if batch.weight is not None:
        given = batch.weight.double().cpu().flatten()
        weight = given.repeat_interleave(len(X) // len(given))
    keep = (weight > 0) & (
        Y >= 0 if not Y.is_floating_point() else weight > 0
    )  # a label below 0 says: ignore
    return X[keep], Y[keep], weight[keep]


@torch.no_grad()
def _features(model: nn.Module, batch: Batch) -> Tensor:
    """What enters the linear module that is called last, or the inputs of a model that is x . w + b."""
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    with eval_mode(model), capture(linear) as calls:
        outputs = model(*batch.inputs)
    if calls and calls[-1].args:
        entered: Tensor = calls[-1].args[0]
        return entered
    core = core_of(model)
    weight, bias = getattr(core, "weight", None), getattr(core, "bias", None)
    x = features_of(model, batch.inputs[0])
    x = x.flatten(1) if x.ndim > 1 else x[:, None]  # of a table of answers: the number of its row
    if isinstance(weight, Tensor) and isinstance(bias, Tensor) and weight.shape == x.shape[1:]:
        close = torch.allclose(x @ weight + bias, outputs, rtol=1e-4, atol=1e-6, equal_nan=True)
        if outputs.shape == x.shape[:1] and close:
            return x
    raise ValueError(f"the model must have a last affine map: {type(core).__name__} calls none")
