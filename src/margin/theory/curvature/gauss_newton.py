r"""Curvatures of the form J' M J: the generalized Gauss-Newton and the Fisher matrices, as linear maps.

Schraudolph (2002): the Hessian of a risk is :math:`\frac1W \sum w\,(J^\top \nabla^2 \ell\, J + \sum_k
\partial_k \ell\, \nabla^2 f_k)`, J the outputs' Jacobian; its first half is the Gauss-Newton matrix, positive
semidefinite where the loss is convex in the outputs. The Fisher matrices are means of g g', g the gradient of
one term's loss: at the data's targets the empirical one, at targets drawn from the model's own
probabilities the true one, which for the cross-entropy is the Gauss-Newton matrix (Martens 2020).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.deadline import check_deadline
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import BINARY, CLASSES, VALUES, Task
from margin.core.types import Batch, Objective
from margin.engine.evaluation import expand_weight, pieces_of, weighted_sum
from margin.engine.loop import risk
from margin.math.seeds import mix
from margin.theory.curvature.hessian import (
    MEMORY,
    Asked,
    RiskHessian,
    check_twice,
    differentiating,
    real_terms,
    risk_hessian,
)
from margin.theory.curvature.lanczos import End, Extremes, extreme_eigenvalues, random_direction
from margin.theory.curvature.trained_weights import DRAWN, NO_LOSS, UNIT, differentiated, trace_of
from margin.theory.curvature.twice_differentiable import twice_differentiable
from margin.theory.prediction.held_out import output_of_one

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
            check_deadline()  # through a graph that is kept passes nothing of the model
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


Product = Callable[[Tensor], Tensor]
CONVEX = {task.name for task in (CLASSES, BINARY, VALUES)}
"""Tasks whose loss is convex in the outputs: cross-entropies and the squared error."""

NO_PRODUCT = "a product with a curvature matrix is not finite"


def _ends(product: Product, like: RiskHessian | JacobianProduct, tol: float, steps: int) -> Extremes:
    start = random_direction(like.dim, dtype=like.dtype, device=like.device)
    ends: tuple[End, ...] = ("largest", "smallest")
    return extreme_eigenvalues(product, start, ends=ends, tol=tol, max_iterations=steps)


def gauss_newton(
    subject: Subject,
    *,
    tol: float = 2e-2,
    max_iterations: int = 60,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """How much of the training loss's Hessian H is its Gauss-Newton part G: |H - G| beside |H| and |G|.

    Norms are spectral. Where the residuals vanish, or the outputs are linear in the parameters, H is G.

    Args:
        subject: A model with parameters that require a gradient, and an objective that is a task's loss.
        tol: Largest residual, relative to the norm, above 0.
        max_iterations: Lanczos steps for each norm, after which the finding fails.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about; there are two.
    """
    sample = differentiated(subject, examples)
    model, objective = subject.model, subject.objective
    independent, half = subject.independent, max(memory // 2, 1)
    with (
        risk_hessian(model, sample.batches, objective, independent=independent, memory=half) as H,
        curvature_map(
            model, sample.batches, objective, "gauss_newton", independent=independent, memory=half
        ) as G,
    ):
        products: tuple[Product, ...] = (H, G, lambda v: H(v) - G(v))
        found = [_ends(product, H, tol, max_iterations) for product in products]
        dim, finite = H.dim, H.finite
        rounding = 100 * torch.finfo(H.dtype).eps * max(float(ends.values.abs().max()) for ends in found[:2])
    value = torch.stack([ends.values.abs().max() for ends in found])
    residual = torch.stack([ends.residuals.max() for ends in found])
    settled = [ends.converged or float(ends.values.abs().max()) <= rounding for ends in found]
    share = float(value[2] / value[0]) if float(value[0]) > 0 else 0.0
    return Finding(
        statement=f"The spectral norms of the Hessian H of the mean loss over {sample.words}, by {dim:,} "
        f"parameters, of its Gauss-Newton part G, and of H - G, which is {share:.2g} of H.",
        value=value,
        unit=UNIT,
        range=(0.0, math.inf),
        premises=(twice_differentiable(subject),),
        kind="estimate",
        interval=((value - residual).clamp(min=0) - rounding, value + residual + rounding),
        failure=_failure(value, settled, finite),
        labels=("|H|", "|G|", "|H - G|"),
        sample=sample.mark,
    )


def _failure(value: Tensor, settled: list[bool], finite: bool) -> str:
    if not finite:
        return NO_LOSS
    if not bool(value.isfinite().all()):
        return NO_PRODUCT
    return "" if all(settled) else "the Lanczos process did not settle on a norm"


def definite(
    subject: Subject,
    *,
    tol: float = 2e-2,
    max_iterations: int = 60,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """The least eigenvalue of the Gauss-Newton matrix, as a share of its norm: not negative, the loss convex.

    Args:
        subject: A model with parameters that require a gradient, and an objective that is a task's loss.
        tol: Largest residual, relative to the norm, above 0.
        max_iterations: Lanczos steps after which the finding fails.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    sample = differentiated(subject, examples)
    with curvature_map(
        subject.model,
        sample.batches,
        subject.objective,
        "gauss_newton",
        independent=subject.independent,
        memory=memory,
    ) as G:
        ends = _ends(G, G, tol, max_iterations)
        eps = torch.finfo(G.dtype).eps
    largest, smallest = ends.values.tolist()
    norm = max(abs(largest), abs(smallest))
    value = smallest / norm if norm > 0 else 0.0 * norm
    task = own_task(subject.objective) or subject.task
    convex = task.name in CONVEX
    return Finding(
        statement="The least Rayleigh quotient found of the Gauss-Newton matrix of the mean loss over "
        f"{sample.words}, as a share of its norm, is not negative.",
        value=torch.tensor(value, dtype=torch.float64),
        range=(-1.0, 1.0),
        low=torch.tensor(0.0, dtype=torch.float64),
        tolerance=100 * eps,
        premises=(
            Premise(
                "the loss is convex in the outputs",
                "proved" if convex else "assumed",
                f"the loss of the task {task.name!r}"
                + (" is a cross-entropy or a squared error" if convex else " was not looked at"),
            ),
        ),
        failure="" if math.isfinite(value) else NO_PRODUCT,
    )


def _is_natural(subject: Subject) -> bool:
    """Whether the loss's second derivative by the outputs is the same at targets 0 and 1: of logits it is."""
    task, batches = own_task(subject.objective), subject.train or subject.test
    targets = batches[0].targets
    if task is None or targets is None:
        return False  # the model is not run: a forward may be long
    outputs = output_of_one(subject)
    if not isinstance(outputs, Tensor):
        return False
    z, one = outputs[:1].detach().double(), torch.ones_like(targets[:1])
    loss = task.loss
    if loss is None:
        return False
    at_0, at_1 = (
        torch.autograd.functional.hessian(lambda z, y=y: loss(z, y).sum(), z) for y in (0 * one, one)
    )
    return torch.allclose(at_0, at_1, rtol=1e-8, atol=1e-12)


def fisher(
    subject: Subject,
    *,
    rank: int = 12,
    probes: int = 24,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """The traces of the Gauss-Newton matrix and of the Fisher matrices, at drawn and at the data's targets.

    Where the loss's second derivative by the outputs is the same at every target, as of a cross-entropy of
    logits and not of one of probabilities, the true Fisher matrix is the Gauss-Newton matrix, so that its
    estimate from drawn targets scatters about that; the empirical Fisher's trace, the mean squared gradient
    of a term, is another quantity unless the model's probabilities are the data's.

    Args:
        subject: A model that states probabilities, and an objective that is its task's loss.
        rank: Directions of each matrix whose part is taken exactly, at least 1.
        probes: Random sign vectors for the rest of each trace, at least 2.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    sample = differentiated(subject, examples)
    kinds: tuple[Kind, ...] = ("gauss_newton", "sampled_fisher", "empirical_fisher")
    found = []
    for name in kinds:
        with curvature_map(
            subject.model,
            sample.batches,
            subject.objective,
            name,
            independent=subject.independent,
            memory=memory,
        ) as product:
            found.append(trace_of(product, rank, probes, memory))
    value, half, low, high = (torch.stack(column) for column in zip(*(one[:4] for one in found), strict=True))
    return Finding(
        statement="The traces of the Gauss-Newton matrix"
        + (" (here that of the true Fisher matrix), " if _is_natural(subject) else ", ")
        + "of the Fisher matrix at targets drawn once from the model's probabilities, and of the empirical "
        f"Fisher matrix, over {sample.words}; each {found[0].words}.",
        value=value,
        unit="1 / weight^2",
        range=(0.0, math.inf),
        kind="estimate",
        interval=(value - half, value + half),
        printed=(low, high),
        sample=sample.mark,
        failure="" if bool(value.isfinite().all()) else NO_PRODUCT,
        labels=("Gauss-Newton", "drawn targets", "empirical"),
    )


def demo() -> Subject:
    """A softmax regression of 40 points: its Hessian is its Gauss-Newton and its Fisher matrix."""
    generator = Generator().manual_seed(0)
    x = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (40,), generator=generator)
    model = nn.Linear(4, 3).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    batch = Batch((x,), y)
    return Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))
