"""How much of a loss's curvature is Gauss-Newton, and how the Fisher matrices compare with it."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import BINARY, CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.gauss_newton import JacobianProduct, Kind, curvature_map, own_task
from margin.theory.curvature.hessian import MEMORY, RiskHessian, risk_hessian
from margin.theory.curvature.lanczos import End, Extremes, extreme_eigenvalues, random_direction
from margin.theory.curvature.trained_weights import DRAWN, NO_LOSS, UNIT, differentiated, trace_of
from margin.theory.curvature.twice_differentiable import twice_differentiable
from margin.theory.prediction.held_out import output_of_one

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
        reference="Schraudolph 2002, Section 3; Parlett 1980, Theorem 4.5.1",
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
        unit="1",
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
        reference="Schraudolph 2002, Section 3 (J' M J with M positive semidefinite)",
        failure="" if math.isfinite(value) else NO_PRODUCT,
    )


def _is_natural(subject: Subject) -> bool:
    """Whether the loss's second derivative by the outputs is the same at targets 0 and 1: of logits it is."""
    task, batches = own_task(subject.objective), subject.train or subject.test
    outputs, targets = output_of_one(subject), batches[0].targets
    if task is None or targets is None or not isinstance(outputs, Tensor):
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
    value, half, narrow = (torch.stack(column) for column in zip(*(one[:3] for one in found), strict=True))
    return Finding(
        statement="The traces of the Gauss-Newton matrix"
        + (" (here that of the true Fisher matrix), " if _is_natural(subject) else ", ")
        + "of the Fisher matrix at targets drawn once from the model's probabilities, and of the empirical "
        f"Fisher matrix, over {sample.words}; each {found[0].words}.",
        value=value,
        unit="1 / weight^2",
        range=(0.0, math.inf),
        premises=(),
        reference="Martens 2020, Sections 5 and 8; Kunstner, Balles and Hennig 2019, Section 2",
        kind="estimate",
        interval=(value - half, value + half),
        printed=(value - narrow, value + narrow),
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
