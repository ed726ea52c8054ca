"""The Hessian of the empirical risk as a linear map: products with it cost two gradients, not its square.

Pearlmutter (1994): H v is the gradient of (gradient of the risk) . v. The risk is sum(w loss) / sum(w) over
all examples; chunks of them are differentiated one after the other, so memory is bounded by a chunk.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode

from margin.core.deadline import check_deadline
from margin.core.findings import NotAsked
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, eval_mode, pieces_of, weighted_sum
from margin.math.seeds import mix
from margin.theory.curvature.lanczos import SEED, random_direction

MEMORY = 2**29
"""Bytes that the graphs of one chunk may hold, about: half a gibibyte."""

CACHED = 2**25
"""Bytes of a chunk's graphs above which a product waits for memory: a processor's cache, about."""

PROBED = 4
"""Examples on which the memory of a graph is measured, where one is no large part of what there is."""

MOST_OF_ONE = 5 / 8
"""The part of the memory, of :data:`MEMORY` at least, that the graphs of one example may hold: a product with
them takes 2.7 times as much, of a U-Net 1.5 GiB where they hold 580 MiB."""


@runtime_checkable
class SquareMap(Protocol):
    """A linear map of parameter space into itself, as the estimators ask it."""

    dim: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the products."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the products."""
        ...

    def __call__(self, v: Float[Tensor, " dim"]) -> Float[Tensor, " dim"]:
        """The image of a vector."""
        ...


REMEMBERED = 2**27
"""Bytes of products that are kept for the next question about the same matrix."""


class Products:
    """What is known of a Hessian from the questions before: its gradient, and its products with vectors.

    The Lanczos process begins alike in all of them, so that most of what one asks another has asked. It
    holds while the weights stay as they are.
    """

    def __init__(self) -> None:
        self.gradient: tuple[Tensor, float] | None = None
        self.finite = True
        self._known: dict[tuple[float, float], tuple[Tensor, Tensor]] = {}
        self._room = REMEMBERED

    def get(self, v: Tensor) -> Tensor | None:
        """The product with this very vector, where it is known."""
        vector, image = self._known.get(_mark(v), (None, None))
        return image.clone() if vector is not None and image is not None and torch.equal(vector, v) else None

    def put(self, v: Tensor, image: Tensor) -> None:
        """Keep a product while there is room."""
        self._room -= v.nbytes + image.nbytes
        if self._room >= 0:
            self._known[_mark(v)] = (v.clone(), image.clone())


def _mark(v: Tensor) -> tuple[float, float]:
    return float(v[0]), float(v.sum())


class RiskHessian:
    r"""The symmetric linear map v -> H v, H the second derivative of sum(w loss) / sum(w) by the parameters.

    Made by :func:`risk_hessian`, and usable inside its ``with`` alone. Where the graphs of the gradient fit
    in memory they are kept and a product costs one backward pass through them; else each product
    differentiates chunk by chunk and keeps nothing.

    Args:
        asked: The model, the examples, and how they are cut.
        objective: The loss of each term.
        known: What other questions found of the same matrix; what this one finds is added.
    """

    def __init__(self, asked: "Asked", objective: Objective, known: Products | None = None) -> None:
        self.known = known
        self.model, self.batches, self.chunk, self._keep = asked
        self.objective = objective
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("a Hessian needs parameters that require a gradient: the model has none")
        self.sizes = [p.numel() for p in self.parameters]
        self.dim = sum(self.sizes)
        self.finite = known is None or known.finite  # whether every loss met so far was
        self._kept: list[tuple[list[Tensor], Tensor]] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the products: the first parameter's."""
        return self.parameters[0].dtype

    @property
    def device(self) -> torch.device:
        """The device of the products: the first parameter's."""
        return self.parameters[0].device

    def __call__(self, v: Float[Tensor, " dim"]) -> Float[Tensor, " dim"]:
        """H v, of the dtype of ``v``."""
        if self.known is not None and (image := self.known.get(v)) is not None:
            return image
        pieces = v.split(self.sizes)
        direction = [piece.view_as(p).to(p) for piece, p in zip(pieces, self.parameters, strict=True)]
        total, weight = torch.zeros_like(v), torch.zeros((), dtype=torch.float64)
        for gradient, count in self._gradients():
            check_deadline()  # through a graph that is kept passes nothing of the model
            total += self._product(gradient, direction).to(v)
            weight += count.double().cpu()
            del gradient  # one graph at a time: the next is made before this name is bound again
        total /= float(weight)
        if self.known is not None:
            self.known.finite = self.finite
            self.known.put(v, total)
        return total

    def gradient(self, batch: Batch) -> Float[Tensor, " dim"]:
        """The gradient of sum(w loss) / sum(w) over one batch."""
        parts, weight = self._gradient(batch, 0)
        if not parts:
            return torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        return torch.cat([part.detach().reshape(-1).to(self.parameters[0]) for part in parts]) / weight

    def risk_gradient(self) -> Float[Tensor, " dim"]:
        """The gradient of the risk; it costs nothing where the graph is kept."""
        total, weight = self._summed_gradient()
        return total / weight

    def _summed_gradient(self) -> tuple[Tensor, float]:
        if self.known is not None and self.known.gradient is not None:
            return self.known.gradient
        total = torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        weight = torch.zeros((), dtype=torch.float64)
        for gradient, count in self._gradients():
            weight += count.double().cpu()
            if gradient:
                total += torch.cat([part.detach().reshape(-1).to(total) for part in gradient])
            del gradient
        if self.known is not None:
            self.known.finite = self.finite
            self.known.gradient = total, float(weight)
        return total, float(weight)

    def start(self, seed: int = SEED) -> Float[Tensor, " dim"]:
        """A start for the Lanczos process: a random direction plus the gradient's, each of norm 1.

        The gradient leans on the ends of the spectrum and costs nothing where the graph is kept; the random
        half keeps the chance that an end is missed small, whatever the gradient.
        """
        random = random_direction(self.dim, dtype=self.dtype, device=self.device, seed=seed)
        total, _ = self._summed_gradient()
        norm = total.norm()
        unit = random / random.norm()
        if not (bool(norm.isfinite()) and norm > 0):
            return unit
        both = unit + total / norm
        return both if both.norm() > 0 else unit  # of one parameter they may cancel

    def release(self) -> None:
        """Let go of the graph that is kept between products."""
        self._kept = None

    def _gradients(self) -> Iterator[tuple[list[Tensor], Tensor]]:
        """The gradient of each chunk's summed loss, differentiable, with its summed weight."""
        if self._kept is not None:
            yield from self._kept
            return
        chunks = enumerate(pieces_of(self.batches, self.chunk))
        if self._keep:
            self._kept = [self._gradient(batch, number) for number, batch in chunks]
            yield from self._kept
            return
        for number, batch in chunks:
            yield self._gradient(batch, number)

    def _gradient(self, batch: Batch, number: int) -> tuple[list[Tensor], Tensor]:
        # A loss that draws must draw the same in every product, or H is not one matrix.
        seed = mix(number, 11)
        torch.default_generator.manual_seed(seed)
        values = self.objective(
            self.model, batch.to(dtype=self.dtype, device=self.device), Generator().manual_seed(seed)
        )
        total, weight = weighted_sum(real_terms(values), batch.weight)
        self.finite &= bool(total.isfinite())
        if not total.requires_grad:
            return [], weight
        gradient = list(
            torch.autograd.grad(
                total, self.parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
        )
        if number == 0:
            check_twice(gradient)
        return gradient, weight

    def _product(self, gradient: list[Tensor], direction: list[Tensor]) -> Tensor:
        # A gradient without a graph is constant: its row of the Hessian is 0.
        pairs = [(g, d) for g, d in zip(gradient, direction, strict=False) if g.requires_grad]
        if not pairs:
            return torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        rows = torch.autograd.grad(
            [g for g, _ in pairs],
            self.parameters,
            [d for _, d in pairs],
            retain_graph=self._keep,
            allow_unused=True,
            materialize_grads=True,
        )
        return torch.cat([row.reshape(-1).to(self.parameters[0]) for row in rows])


def check_twice(gradient: Sequence[Tensor]) -> None:
    """Refuse a gradient whose derivative is marked as an error, which torch passes by as if it were 0.

    Raises:
        NotAsked: A backward of the model's own is marked ``once_differentiable``.
    """
    seen: set[Any] = set()
    nodes = [g.grad_fn for g in gradient if g.grad_fn is not None]
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name() == "torch::autograd::Error":
            raise NotAsked(
                "the model has no second derivative: a backward of its own is marked once_differentiable"
            )
        nodes += [before for before, _ in node.next_functions if before is not None]


def graph_bytes(model: nn.Module, batch: Batch, objective: Objective, most: float = math.inf) -> int:
    """Bytes that the graph of a batch's gradient holds, the weights themselves not counted, frozen or not.

    Raises:
        NotAsked: It holds more than ``most``, which is found out before it does.
    """
    held: dict[int, int] = {}
    total_held = 0
    parameters = [p for p in model.parameters() if p.requires_grad]
    own = {x.data_ptr() for x in (*model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        nonlocal total_held
        if (place := tensor.data_ptr()) not in own:
            size = tensor.numel() * tensor.element_size()
            total_held += size - held.get(place, 0)
            held[place] = size
        if total_held > most:
            rows = len(batch.inputs[0])
            of = "one example" if rows == 1 else f"{rows:,} examples that read each other"
            raise NotAsked(f"needs more than {most / 2**20:,.0f} MiB for the second derivatives of {of}")
        return tensor.detach()  # the tensor itself would hold the graph that holds it, for ever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        values = objective(model, batch, Generator().manual_seed(0))
        total, _ = weighted_sum(real_terms(values), batch.weight)
        kept = total.requires_grad and torch.autograd.grad(
            total, parameters, create_graph=True, allow_unused=True
        )
    del kept
    return total_held


def chunks_within(
    model: nn.Module, batches: Sequence[Batch], objective: Objective, *memory: int
) -> list[int]:
    """Examples whose graphs fit in each of these numbers of bytes, at least 1, measured on a few of them.

    Raises:
        NotAsked: Those of a single one hold more than :data:`MOST_OF_ONE` of the first.
    """
    most = MOST_OF_ONE * max(memory[0], MEMORY)
    each = float(graph_bytes(model, next(pieces_of(batches[:1], 1)), objective, most))
    if each < most / PROBED**2:  # of a small one other things than examples hold a part
        few = next(pieces_of(batches[:1], PROBED))
        each = graph_bytes(model, few, objective) / len(few.inputs[0])
    # Half is left for what a product computes on the way.
    return [max(1, int(some / 2 / max(each, 1))) for some in memory]


class Asked(NamedTuple):
    """A model that can be differentiated twice, its examples, and how they are cut.

    ``chunk`` is how many are differentiated at once; None: whole batches, because their examples depend on
    each other. ``keep`` says whether the graphs of all chunks may be held between products.
    """

    model: nn.Module
    batches: Sequence[Batch]
    chunk: int | None
    keep: bool


@contextmanager
def risk_hessian(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    independent: bool = True,
    chunk: int | None = None,
    memory: int = MEMORY,
    known: Products | None = None,
) -> Iterator[RiskHessian]:
    """The Hessian of a model's risk, for the length of a ``with``; leaves no trace in the model.

    The model is asked in evaluation mode, so batch normalization uses its running statistics and dropout
    is off. Attention runs under the backend that has second derivatives. A model with half-precision
    parameters is copied to float32.

    Args:
        model: The module; its parameters that require a gradient are differentiated.
        batches: The examples of the risk, all of them, on the model's device.
        objective: ``(model, batch, generator) -> the loss of each term``; what it draws is drawn alike in
            every product.
        independent: Whether an example's loss is independent of the rest of its batch, so that batches may
            be cut; if not, ``chunk`` and ``memory`` bound nothing.
        chunk: Examples differentiated at once; None: as many as fit in ``memory``.
        memory: Bytes that the graphs of a chunk may hold, about; above 0.
        known: What other questions found of the same matrix.

    Raises:
        ValueError: ``chunk`` or ``memory`` is below 1, there are no examples, or no parameter requires a
            gradient.

    Reference: Pearlmutter 1994, Section 2.
    """
    with differentiating(
        model, batches, objective, independent=independent, chunk=chunk, memory=memory
    ) as asked:
        hessian = RiskHessian(asked, objective, known)
        try:
            yield hessian
        finally:
            hessian.release()


@contextmanager
def differentiating(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    independent: bool = True,
    chunk: int | None = None,
    memory: int = MEMORY,
) -> Iterator[Asked]:
    """A model that can be differentiated twice, for the length of a ``with``; leaves no trace in it.

    The arguments and errors are those of :func:`risk_hessian`. A batch stays whole where its examples depend
    on each other, or are normalized by their own batch's statistics.
    """
    if memory < 1 or (chunk is not None and chunk < 1):
        raise ValueError(f"chunk and memory must be at least 1: got chunk={chunk}, memory={memory}")
    if not len(batches):
        raise ValueError("a risk needs examples: got no batch")
    half = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
    if half:
        model = copied(model).float()
        batches = [batch.to(dtype=torch.float32, device=batch.inputs[0].device) for batch in batches]
    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if _has_weight_norm(model):
            stack.enter_context(_ComposedWeightNorm())
        if any(isinstance(module, nn.RNNBase) for module in model.modules()):
            # cuDNN's recurrent kernels have no second derivative.
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        lengths = [len(batch.inputs[0]) for batch in batches]
        if not independent or _reads_its_batch(model):
            held = graph_bytes(model, batches[0], objective, MOST_OF_ONE * max(memory, MEMORY))
            keep = len(lengths) == 1 or 2 * len(lengths) * held <= memory
            yield Asked(model, batches, None, keep)
        elif chunk is not None:
            yield Asked(model, batches, chunk, sum(lengths) <= chunk)
        else:
            within, cached = chunks_within(model, batches, objective, memory, 2 * CACHED)
            yield Asked(model, batches, min(within, cached), sum(lengths) <= within)


class _ComposedWeightNorm(TorchFunctionMode):
    """Weight normalization as v (g / |v|): the second derivative of torch's fused kernel is wrong.

    In float64 that Hessian is asymmetric by a fifth, and by a tenth off the change of the gradient.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch._weight_norm:
            return func(*args, **(kwargs or {}))
        bound = dict(zip(("v", "g", "dim"), args, strict=False)) | {"dim": 0} | (kwargs or {})
        if len(args) > 2:
            bound["dim"] = args[2]
        v, dim = bound["v"], bound["dim"]
        others = [axis for axis in range(v.ndim) if axis != dim % v.ndim] if dim != -1 else None
        norm = v.square().sum(others, keepdim=True).sqrt() if others is not None else v.norm()
        return v * (bound["g"] / norm)


def _has_weight_norm(model: nn.Module) -> bool:
    """Whether a weight of a layer is parametrized by its length and direction (Salimans and Kingma 2016)."""
    return any(
        isinstance(module, _WeightNorm)
        or any(isinstance(hook, WeightNorm) for hook in module._forward_pre_hooks.values())
        for module in model.modules()
    )


def _reads_its_batch(model: nn.Module) -> bool:
    """Whether a layer normalizes by the statistics of the batch, in evaluation mode too."""
    layers = [m for m in model.modules() if isinstance(m, _NormBase)]
    # Instance normalization reads one example alone.
    return any(m.running_mean is None and "Instance" not in type(m).__name__ for m in layers)


def real_terms(values: object) -> Tensor:
    """The loss of each term, as an objective must return it.

    Raises:
        ValueError: It is no tensor of real numbers.
    """
    if isinstance(values, Tensor) and values.is_floating_point():
        return values
    kind = f"a tensor of {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
    raise ValueError(f"an objective returns the loss of each term, a tensor of real numbers: got {kind}")
