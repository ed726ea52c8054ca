r"""The empirical neural tangent kernel: inner products of the gradients of outputs by the weights.

.. math:: \Theta_{ia,jb} = \sum_p \frac{\partial f_a(x_i)}{\partial \theta_p}
    \frac{\partial f_b(x_j)}{\partial \theta_p}

Jacot, Gabriel and Hongler (2018), for a network as it stands. Three ways give the same numbers (Novak,
Sohl-Dickstein and Schoenholz 2022): the Jacobian and its product with itself; a product of the Jacobian
with the gradient of each output of each example; and layer by layer, from inputs and output gradients
(:mod:`margin.theory.kernels.structured`). Which is cheapest is reckoned before it starts, and what it holds.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from margin.engine.evaluation import copied, eval_mode
from margin.theory.kernels.structured import (
    CONTRACT,
    Factors,
    Features,
    Inputs,
    Jacobian,
    Layers,
    jacobian,
    outputs_of,
    pushed,
)

Method = Literal["jacobian", "products", "structured"]
Outputs = Literal["all", "mean"]

MEMORY = 2**30
"""Bytes that a kernel and what it is computed from may hold, about: a gibibyte."""

PROBED = 2
"""Examples on which a network is measured."""

PRODUCT = 3.0
"""What a Jacobian's product with a vector costs, in forward passes."""


class Plan(NamedTuple):
    """How a tangent kernel is computed, known before it starts.

    Args:
        method: The cheapest, or the one that was asked for.
        costs: Multiplications of each method, about.
        kernel: Bytes of the kernel.
        working: Bytes of what it is computed from, about.
        chunk: Examples, of each side, that are held at a time.
        step: Examples of which a pass is made at a time.
        outputs: Outputs of an example.
        parameters: Weights that are differentiated.
    """

    method: Method
    costs: dict[str, float]
    kernel: int
    working: int
    chunk: int
    step: int
    outputs: int
    parameters: int

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {cost:.1e}" for name, cost in self.costs.items())
        return (
            f"{self.method}: {_bytes(self.kernel)} for the kernel, {_bytes(self.working)} for {self.chunk:,} "
            f"examples at a time of {self.outputs:,} outputs by {self.parameters:,} weights; "
            f"multiplications: {costs}"
        )


def empirical_ntk(
    model: nn.Module,
    x1: Tensor | Inputs,
    x2: Tensor | Inputs | None = None,
    *,
    outputs: Outputs = "all",
    method: Method | Literal["cheapest"] = "cheapest",
    memory: int = MEMORY,
) -> Float[Tensor, "n outputs m outputs"] | Float[Tensor, "n m"]:
    """The tangent kernel of a model between examples, in the dtype of its weights.

    The model is asked in evaluation mode: batch normalization uses its running statistics, dropout is off.
    One in half precision is copied to float32. Nothing of it is changed.

    Args:
        model: Returns a tensor of real numbers, a row an example; weights that require no gradient are
            constants.
        x1: The model's input, or a tuple of its inputs, an example a row.
        x2: Other examples; None: those of ``x1``.
        outputs: "all" for every pair of outputs, which are flattened, (N, C, M, C); "mean" for the mean over
            equal outputs, (N, M).
        method: Three ways to the same numbers; "cheapest" is by :func:`ntk_plan`.
        memory: Bytes that may be held, about; the kernel is among them.

    Raises:
        ValueError: No weight requires a gradient, the outputs are no such tensor, an example's outputs
            depend on the other examples, or the kernel does not fit.

    Reference: Novak, Sohl-Dickstein and Schoenholz 2022, Sections 3.1 to 3.3.
    """
    if method not in ("cheapest", "jacobian", "products", "structured") or outputs not in CONTRACT:
        raise ValueError(
            "method must be cheapest, jacobian, products or structured, outputs all or mean: "
            f"got {method!r}, {outputs!r}"
        )
    with _asked(model, x1, x2) as (asked, left, right):
        plan, layers = _plan(asked, left, right, outputs, method, memory)
        if plan.method == "products":
            return _by_products(asked, left, left if right is None else right, outputs, plan)
        return _by_features(asked, left, right, outputs, plan, layers)


def ntk_plan(
    model: nn.Module,
    x1: Tensor | Inputs,
    x2: Tensor | Inputs | None = None,
    *,
    outputs: Outputs = "all",
    method: Method | Literal["cheapest"] = "cheapest",
    memory: int = MEMORY,
) -> Plan:
    """How :func:`empirical_ntk` of these arguments would be computed, from a run of a few examples."""
    with _asked(model, x1, x2) as (asked, left, right):
        return _plan(asked, left, right, outputs, method, memory)[0]


@contextmanager
def _asked(
    model: nn.Module, x1: Tensor | Inputs, x2: Tensor | Inputs | None
) -> Iterator[tuple[nn.Module, Inputs, Inputs | None]]:
    """The model as it is asked, without a trace left, and the inputs in its type and as tuples."""
    weights = [p for p in model.parameters() if p.requires_grad]
    if not weights:
        raise ValueError("a tangent kernel needs weights that require a gradient: the model has none")
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()):
        model, dtype = copied(model).float(), torch.float32
    else:
        dtype = weights[0].dtype
    sides = [None if x is None else (x,) if isinstance(x, Tensor) else tuple(x) for x in (x1, x2)]
    left, right = (
        None if side is None else tuple(x.detach().to(dtype) if x.is_floating_point() else x for x in side)
        for side in sides
    )
    if left is None or not len(left[0]) or (right is not None and not len(right[0])):
        raise ValueError("a tangent kernel needs examples: got none")
    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield model, left, right


def _plan(
    model: nn.Module, left: Inputs, right: Inputs | None, outputs: Outputs, method: str, memory: int
) -> tuple[Plan, Layers]:
    few = tuple(x[:PROBED] for x in left)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        found = outputs_of(model, few)
    _check_alone(model, few, found)
    weights = _weights(model)
    n, m, c = len(left[0]), len((left if right is None else right)[0]), found.shape[1]
    size, total = next(iter(weights.values())).dtype.itemsize, sum(p.numel() for p in weights.values())
    forward = max(counter.get_total_flops() / 2 / len(few[0]), total)
    sides, pairs = (n if right is None else n + m), n * m * (c * c if outputs == "all" else c)
    layers = Layers(model, few)
    features = layers.features(few)
    passes = sides * c * forward
    costs = {
        "jacobian": 2 * passes + pairs * total,
        "structured": passes * (2 if layers.rest else 1) + _contracted(features, n * m, pairs),
    }
    if method in ("cheapest", "products") and _can_push(model, few):
        costs["products"] = PRODUCT * n * m * c * forward
    best: Any = min(costs, key=costs.__getitem__) if method == "cheapest" else method
    if best not in costs:
        raise ValueError("products with vectors need a model that torch.vmap and torch.func.jvp follow")
    kernel, held = n * m * size * (c * c if outputs == "all" else 1), _held(model, few)
    each = {
        "jacobian": c * total * size,
        "products": 2 * total * size + n * held,
        "structured": sum(part.nbytes for feature in features for part in feature) / len(few[0]),
    }[best]
    room = memory - kernel
    if room < 2 * (each + held):
        raise ValueError(
            f"the kernel of {n:,} x {m:,} examples and {c:,} outputs must fit in {_bytes(memory)}: it needs "
            f"{_bytes(kernel)}, and {_bytes(2 * (each + held))} for an example of each side; take fewer "
            "examples, outputs='mean', or more memory"
        )
    whole = right is None and room >= 1.5 * n * each
    chunk = int(min(max(n, m), max(1, room / 1.5 // (each if whole else 2 * each))))
    step = int(min(STEP, max(1, room // (8 * (each + held)))))
    return Plan(best, costs, kernel, int(each * chunk), chunk, step, c, total), layers


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _check_alone(model: nn.Module, few: Inputs, found: Tensor) -> None:
    if len(few[0]) < 2:
        return
    with torch.no_grad():
        alone = outputs_of(model, tuple(x[:1] for x in few))[0]
    close = (alone - found[0]).norm() <= torch.finfo(found.dtype).eps ** 0.5 * (1 + found[0].norm())
    if bool(found.isfinite().all()) and not bool(close):
        raise ValueError(
            "an example's outputs must not depend on the other examples: they differ where it is alone"
        )


def _contracted(features: Features, pairs: int, outputs: int) -> float:
    """Multiplications of the product of features, for so many pairs of examples, and of their outputs."""
    cost = 0.0
    for feature in features:
        if isinstance(feature, Factors):
            cost += pairs * feature.given.shape[1] + outputs * (feature.back.shape[2] + 1)
        else:
            cost += outputs * feature.by.shape[2]
    return cost


def _held(model: nn.Module, few: Inputs) -> float:
    """Bytes of what an example's pass keeps for a derivative."""
    held: dict[int, int] = {}
    own = {p.data_ptr() for p in (*model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            held[tensor.data_ptr()] = tensor.nbytes
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs_of(model, few)
    return sum(held.values()) / len(few[0])


def _bytes(count: float) -> str:
    power = min(3, int(math.log(max(count, 1), 1024)))
    if not power:
        return f"{count:.0f} bytes"
    return f"{count / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


STEP = 16
"""Examples at most whose graph is held while features are made."""

BLOCK = 128
"""Examples of each side of a block of the kernel that is added to at a time."""


def _by_features(
    model: nn.Module, left: Inputs, right: Inputs | None, outputs: Outputs, plan: Plan, layers: Layers
) -> Tensor:
    """The kernel from what each example contributes, by chunks; of a symmetric one half is computed."""
    weights, other = _weights(model), left if right is None else right
    n, m, c = len(left[0]), len(other[0]), plan.outputs

    def features(inputs: Inputs, part: slice) -> Features:
        held: Features = ()
        for few in _parts(part, plan.step):
            some = tuple(x[few] for x in inputs)
            found: Features = (
                layers.features(some)
                if plan.method == "structured"
                else (Jacobian(jacobian(model, weights, some)),)
            )
            held = held or tuple(f.empty(part.stop - part.start) for f in found)
            for into, feature in zip(held, found, strict=True):
                for whole, piece in zip(into, feature, strict=True):
                    whole[few.start - part.start : few.stop - part.start] = piece
        return held

    first = next(iter(weights.values()))
    out = torch.empty((n, c, m, c) if outputs == "all" else (n, m), dtype=first.dtype, device=first.device)
    for rows in _parts(slice(0, n), plan.chunk):
        ours = features(left, rows)
        for columns in _parts(slice(0, rows.stop if right is None else m), plan.chunk):
            theirs = ours if right is None and columns == rows else features(other, columns)
            _fill(out, (ours, theirs), (rows, columns), outputs, symmetric=right is None)
    return out


def _parts(part: slice, size: int) -> Iterator[slice]:
    for start in range(part.start, part.stop, size):
        yield slice(start, min(start + size, part.stop))


def _fill(
    out: Tensor,
    sides: tuple[Features, Features],
    where: tuple[slice, slice],
    outputs: Outputs,
    *,
    symmetric: bool,
) -> None:
    """Write the kernel of two chunks of examples, block by block; of a symmetric one its mirror image too."""
    all_of = outputs == "all"
    for rows in _parts(where[0], BLOCK):
        for columns in _parts(where[1], BLOCK):
            if symmetric and columns.start > rows.start:
                continue
            ours, theirs = (
                tuple(f.rows(slice(part.start - whole.start, part.stop - whole.start)) for f in side)
                for side, part, whole in zip(sides, (rows, columns), where, strict=True)
            )
            block = torch.zeros_like(out[rows, :, columns] if all_of else out[rows, columns])
            CONTRACT[outputs](ours, theirs, block)
            if symmetric and rows == columns:
                block = (block + (block.permute(2, 3, 0, 1) if all_of else block.T)) / 2
            if all_of:
                out[rows, :, columns] = block
            else:
                out[rows, columns] = block
            if symmetric and columns.start < rows.start and all_of:
                out[columns, :, rows] = block.permute(2, 3, 0, 1)
            elif symmetric and columns.start < rows.start:
                out[columns, rows] = block.T


def _pushed(model: nn.Module, left: Inputs, few: Inputs, output: int) -> Float[Tensor, "m n outputs"]:
    """Of each of a few examples: J g, J the Jacobian of all examples' outputs, g one output's gradient."""
    weights = {name: p.detach() for name, p in _weights(model).items()}

    def column(*one: Tensor) -> Tensor:
        def alone(given: dict[str, Tensor]) -> Tensor:
            out: Tensor = functional_call(model, given, tuple(x[None] for x in one))
            return out.reshape(-1)[output]

        value, pull = vjp(alone, weights)  # type: ignore[misc]  # a third without has_aux: torch's stub
        (direction,) = pull(torch.ones_like(value))
        _, moved = pushed(lambda given: functional_call(model, given, left), weights, direction)
        return moved.reshape(len(left[0]), -1)

    found: Tensor = vmap(column, randomness="same")(*few)
    return found


def _can_push(model: nn.Module, few: Inputs) -> bool:
    try:
        _pushed(model, few, few, 0)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _by_products(model: nn.Module, left: Inputs, right: Inputs, outputs: Outputs, plan: Plan) -> Tensor:
    n, m, c = len(left[0]), len(right[0]), plan.outputs
    first = next(iter(_weights(model).values()))
    out = torch.zeros((n, c, m, c) if outputs == "all" else (n, m), dtype=first.dtype, device=first.device)
    for part in _parts(slice(0, m), plan.chunk):
        few = tuple(x[part] for x in right)
        for output in range(c):
            column = _pushed(model, left, few, output).detach()
            if outputs == "all":
                out[:, :, part, output] = column.permute(1, 2, 0)
            else:
                out[:, part] += column[:, :, output].T / c
    return out
