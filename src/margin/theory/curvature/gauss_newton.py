r"""Curvatures of the form J' M J: the generalized Gauss-Newton and the Fisher matrices, as linear maps.

Schraudolph (2002): the Hessian of a risk is :math:`\frac1W \sum w\,(J^\top \nabla^2 \ell\, J + \sum_k
\partial_k \ell\, \nabla^2 f_k)`, J the outputs' Jacobian; its first half is the Gauss-Newton matrix, positive
semidefinite where the loss is convex in the outputs. The Fisher matrices are means of g g', g the gradient of
one term's loss: at the data's targets the empirical one, at targets drawn from the model's own
probabilities the true one, which for the cross-entropy is the Gauss-Newton matrix (Martens 2020).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import Task
from margin.core.types import Batch, Objective
from margin.engine.evaluation import expand_weight, weighted_sum
from margin.math.seeds import mix
from margin.theory.curvature.hessian import MEMORY, Asked, check_twice, differentiating, pieces_of, real_terms

Kind = Literal["gauss_newton", "empirical_fisher", "sampled_fisher"]


class Factors(NamedTuple):
    """Of one chunk: z, which the parameters move; v -> M v, symmetric, for vectors like z; and the weight.

    The chunk's part of the matrix is J' M J, J the Jacobian of z.
    """

    z: Tensor
    inner: Callable[[Tensor], Tensor]
    weight: Tensor


Read = Callable[[nn.Module, Batch, Generator], Factors]


def own_task(objective: Objective) -> Task | None:
    """The task of whose loss of the outputs the objective is, or None."""
    task: Task | None = getattr(objective, "task", None)
    return task if task is not None and task.loss is not None else None


def has_output_loss(subject: Subject) -> bool:
    """Whether the objective is a loss of the model's outputs, so that it has a Gauss-Newton matrix."""
    return own_task(subject.objective) is not None


def has_output_probabilities(subject: Subject) -> bool:
    """Whether it is a loss of outputs that state probabilities, so that targets can be drawn."""
    task = own_task(subject.objective)
    return task is not None and task.probabilities is not None


def _output(model: nn.Module, batch: Batch) -> Tensor:
    outputs: Any = model(*batch.inputs)
    if isinstance(outputs, Tensor):
        return outputs
    raise ValueError(f"a Gauss-Newton matrix needs outputs in one tensor: got {type(outputs).__name__}")


def of_outputs(task: Task) -> Read:
    """M is the second derivative of the summed loss by the outputs."""

    def read(model: nn.Module, batch: Batch, generator: Generator) -> Factors:
        loss, targets = task.loss, batch.targets
        if loss is None or targets is None:
            raise ValueError("a Gauss-Newton matrix needs a loss of outputs and targets")
        z = _output(model, batch)
        o = z.detach().requires_grad_()
        total, weight = weighted_sum(loss(o, targets), batch.weight)
        (g,) = torch.autograd.grad(total, o, create_graph=True)

        def inner(v: Tensor) -> Tensor:
            if not g.requires_grad:
                return torch.zeros_like(v)
            (Mv,) = torch.autograd.grad(g, o, v, retain_graph=True, materialize_grads=True)
            return Mv

        return Factors(z, inner, weight)

    return read


def _of_terms(values: Tensor, weight: Tensor | None) -> Factors:
    values = real_terms(values)
    w = expand_weight(values, weight).detach()
    # A term of weight 0 counts for nothing, be it NaN.
    return Factors(torch.where(w != 0, values, 0), lambda v: w * v, w.sum())


def of_terms(objective: Objective) -> Read:
    """M holds the weights: the mean of g g' over terms, g the gradient of one term's loss."""

    def read(model: nn.Module, batch: Batch, generator: Generator) -> Factors:
        return _of_terms(objective(model, batch, generator), batch.weight)

    return read


def of_drawn_targets(task: Task) -> Read:
    """The mean of g g' over terms whose targets are drawn from the model's probabilities."""

    def read(model: nn.Module, batch: Batch, generator: Generator) -> Factors:
        if task.loss is None or task.probabilities is None:
            raise ValueError(f"the task {task.name!r} states no probabilities from which to draw targets")
        outputs = _output(model, batch)
        p = task.probabilities(outputs).detach()
        # Of probabilities that are not finite nothing can be drawn; the loss will say so.
        p = torch.where(p.isfinite().all(-1, keepdim=True), p, 1)
        drawn = torch.multinomial(p.flatten(0, -2).cpu().double(), 1, generator=generator)
        targets = drawn.view(p.shape[:-1]).to(outputs.device)
        return _of_terms(task.loss(outputs, targets), batch.weight)

    return read


class JacobianProduct:
    """The symmetric linear map v -> (sum over chunks of J' M J) v / W; made by :func:`curvature_map`.

    Args:
        asked: The model, the examples, and how they are cut.
        read: The factors of a chunk.
        seed: Of what the chunks draw, so that every product is with one matrix.
    """

    def __init__(self, asked: Asked, read: Read, seed: int = 0) -> None:
        self.model, self.batches, self.chunk, self._keep = asked
        self.read = read
        self.seed = seed
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("a curvature needs parameters that require a gradient: the model has none")
        self.sizes = [p.numel() for p in self.parameters]
        self.dim = sum(self.sizes)
        self.dtype = self.parameters[0].dtype
        self.device = self.parameters[0].device
        self._kept: list[tuple[Factors, Tensor, list[Tensor]]] | None = None

    def __call__(self, v: Float[Tensor, " dim"]) -> Float[Tensor, " dim"]:
        """The matrix times v, of the dtype of ``v``."""
        pieces = v.split(self.sizes)
        direction = [piece.view_as(p).to(p) for piece, p in zip(pieces, self.parameters, strict=True)]
        total, weight = torch.zeros_like(v), torch.zeros((), dtype=torch.float64)
        for factors, dual, pulled in self._chunks():
            weight += factors.weight.double().cpu()
            total += self._product(factors, dual, pulled, direction).to(v)
        return total / float(weight)

    def release(self) -> None:
        """Let go of the graphs that are kept between products."""
        self._kept = None

    def _chunks(self) -> Iterator[tuple[Factors, Tensor, list[Tensor]]]:
        if self._kept is not None:
            yield from self._kept
            return
        chunks = enumerate(pieces_of(self.batches, self.chunk))
        if self._keep:
            self._kept = [self._linearized(batch, number) for number, batch in chunks]
            yield from self._kept
            return
        for number, batch in chunks:
            yield self._linearized(batch, number)

    def _linearized(self, batch: Batch, number: int) -> tuple[Factors, Tensor, list[Tensor]]:
        """A chunk's factors with J' u as a function of u, whose derivative by u is J v."""
        seed = mix(number, 13, self.seed)
        torch.default_generator.manual_seed(seed)
        batch = batch.to(dtype=self.dtype, device=self.device)
        factors = self.read(self.model, batch, Generator().manual_seed(seed))
        u = torch.zeros_like(factors.z, requires_grad=True)
        if not factors.z.requires_grad:
            return factors, u, []
        pulled = torch.autograd.grad(
            factors.z, self.parameters, u, create_graph=True, allow_unused=True, materialize_grads=True
        )
        if number == 0:
            check_twice(pulled)  # J v is the derivative of J' u
        return factors, u, list(pulled)

    def _product(
        self, factors: Factors, dual: Tensor, pulled: list[Tensor], direction: list[Tensor]
    ) -> Tensor:
        pairs = [(g, d) for g, d in zip(pulled, direction, strict=False) if g.requires_grad]
        if not pairs:
            return torch.zeros(self.dim, dtype=self.dtype, device=self.device)
        left, right = [g for g, _ in pairs], [d for _, d in pairs]
        (Jv,) = torch.autograd.grad(left, dual, right, retain_graph=True, materialize_grads=True)
        rows = torch.autograd.grad(
            factors.z,
            self.parameters,
            factors.inner(Jv.detach()),
            retain_graph=self._keep,
            allow_unused=True,
            materialize_grads=True,
        )
        return torch.cat([row.reshape(-1).to(self.parameters[0]) for row in rows])


@contextmanager
def curvature_map(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    kind: Kind,
    *,
    independent: bool = True,
    chunk: int | None = None,
    memory: int = MEMORY,
) -> Iterator[JacobianProduct]:
    r"""A Gauss-Newton or Fisher matrix of a model's risk, for the length of a ``with``; leaves no trace.

    Every matrix is a mean: divided by sum(w), as the risk is.

    Args:
        model: The module, in evaluation mode meanwhile.
        batches: The examples.
        objective: The loss of each term; ``gauss_newton`` and ``sampled_fisher`` need
            :func:`margin.engine.loop.risk` of a task.
        kind: ``gauss_newton``; ``empirical_fisher``, the mean of g g' at the data's targets;
            ``sampled_fisher``, that at one target a term, drawn from the model's probabilities.
        independent: Whether a batch may be cut.
        chunk: Examples differentiated at once; None: as many as fit in ``memory``.
        memory: Bytes that the graphs of a chunk may hold, about.

    Raises:
        ValueError: As :func:`margin.theory.curvature.hessian.risk_hessian`; or the objective is no loss of
            outputs.

    Reference: Schraudolph 2002, Section 3; Martens 2020, Sections 5 and 8; Kunstner et al. 2019, Section 2.
    """
    task = own_task(objective)
    if kind != "empirical_fisher" and task is None:
        raise ValueError(f"{kind} needs the loss of a task, risk(task): got another objective")
    readers: dict[Kind, Callable[[], Read]] = {
        "gauss_newton": lambda: of_outputs(_given(task)),
        "empirical_fisher": lambda: of_terms(objective),
        "sampled_fisher": lambda: of_drawn_targets(_given(task)),
    }
    with differentiating(
        model, batches, objective, independent=independent, chunk=chunk, memory=memory
    ) as asked:
        product = JacobianProduct(asked, readers[kind]())
        try:
            yield product
        finally:
            product.release()


def _given(task: Task | None) -> Task:
    if task is None:
        raise ValueError("the objective is no loss of a task's outputs")
    return task
