"""What kind of point the weights are: a minimum, a maximum, a saddle, undecided, or no critical point.

Where the gradient is 0, a positive definite Hessian makes a strict local minimum; a minimum needs a positive
semidefinite one, which is not enough (x^3); eigenvalues of both signs make a saddle (Nocedal and Wright
2006, Theorems 2.3 and 2.4).
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.theory.curvature.diagonal import FEW, as_matrix
from margin.theory.curvature.hessian import MEMORY, RiskHessian
from margin.theory.curvature.lanczos import extreme_eigenvalues
from margin.theory.curvature.trained_weights import NO_LOSS, hessian_of
from margin.theory.curvature.twice_differentiable import twice_differentiable

Kind = Literal["a minimum", "a maximum", "a saddle", "undecided", "not critical"]


class Ends(NamedTuple):
    """The least and largest eigenvalue, each with an error, and whether no other lies beyond them.

    ``whole`` is False where they come from a Krylov space smaller than the whole: a Rayleigh quotient then
    still bounds the least eigenvalue from above and the largest from below.
    """

    smallest: float
    largest: float
    error: float
    whole: bool
    converged: bool = True


def kind_of(gradient: float, weights: float, ends: Ends, tol: float) -> Kind:
    """The kind of a point by its gradient's norm and the ends of its Hessian's spectrum.

    The gradient counts as 0 where the curvature that decides outweighs it within a move of the share ``tol``
    of max(1, |w|): |g| <= tol c max(1, |w|), c of :func:`deciding`. Where c is 0, it must be 0.

    Args:
        gradient: |g|.
        weights: |w|, the norm of the weights.
        ends: The spectrum's ends.
        tol: The share, above 0.
    """
    kind, c = deciding(ends)
    return kind if gradient <= tol * c * max(1.0, weights) else "not critical"


def deciding(ends: Ends) -> tuple[Kind, float]:
    """The kind of a point without gradient, and the magnitude c of the curvature that decides it.

    At a saddle it is the smaller of the two ends', at a minimum or a maximum that of the end nearest to 0;
    where nothing is decided, the largest.
    """
    negative, positive = ends.smallest < -ends.error, ends.largest > ends.error
    if negative and positive:
        return "a saddle", min(-ends.smallest, ends.largest)
    if ends.whole and ends.smallest > ends.error:
        return "a minimum", ends.smallest
    if ends.whole and ends.largest < -ends.error:
        return "a maximum", -ends.largest
    return "undecided", max(abs(ends.smallest), abs(ends.largest))


def ends_of(hessian: RiskHessian, tol: float = 1e-3, max_iterations: int = 150) -> Ends:
    """Both ends of a Hessian's spectrum: exact for few parameters, else by the Lanczos process."""
    if hessian.dim <= FEW:
        A = as_matrix(hessian, hessian.dim, dtype=hessian.dtype, device=hessian.device)
        if not bool(A.isfinite().all()):
            return Ends(math.nan, math.nan, math.nan, True, False)
        values = torch.linalg.eigvalsh((A + A.T) / 2)
        norm = float(values.abs().max())
        # Rounding of a product, as its antisymmetric part shows it, and of the decomposition.
        error = float((A - A.T).norm()) + 10 * hessian.dim * torch.finfo(hessian.dtype).eps * norm
        return Ends(float(values[0]), float(values[-1]), error, True)
    found = extreme_eigenvalues(hessian, hessian.start(), tol=tol, max_iterations=max_iterations, share=0.5)
    largest, smallest = found.values.tolist()
    error = float(found.residuals.max()) + 10 * torch.finfo(hessian.dtype).eps * abs(largest)
    return Ends(smallest, largest, error, found.missed == 0, found.converged)


class Double(nn.Module):
    """The function (x^2 - 1)^2 + y^2 of its weights, whatever the input: minima at (1, 0) and (-1, 0).

    Args:
        x: The first weight.
        y: The second.
    """

    def __init__(self, x: float, y: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([x, y], dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """The same value for every example."""
        x, y = self.w
        return ((x.square() - 1).square() + y.square()).expand(len(inputs))


def demo() -> Subject:
    """The loss (x^2 - 1)^2 + y^2 at (0, 0): a saddle point, of curvatures -4 and 2."""
    zeros = torch.zeros(3, dtype=torch.float64)
    batch = Batch((zeros,), zeros)
    return Subject(
        model=Double(0.0, 0.0),
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=lambda model, batch, generator: model(*batch.inputs),
    )


SAYS: dict[Kind, str] = {
    "a minimum": "a strict local minimum of",
    "a maximum": "a strict local maximum of",
    "a saddle": "a saddle point of",
    "undecided": "perhaps a critical point, of undecided kind, of",
    "not critical": "not a critical point of",
}
WHY: dict[Kind, str] = {
    "a minimum": "every eigenvalue of the Hessian is positive beyond its error",
    "a maximum": "every eigenvalue of the Hessian is negative beyond its error",
    "a saddle": "the Hessian has eigenvalues of both signs, beyond their errors",
    "undecided": "no eigenvalue of the other sign was found beyond its error, and the Hessian is not known "
    "to be definite: second derivatives do not decide",
    "not critical": "the gradient outweighs the curvature that would decide",
}


def kind(
    subject: Subject, *, tol: float = 1e-2, examples: int | None = 1024, memory: int = MEMORY
) -> Finding:
    """What kind of point of the mean training loss the weights are.

    The values are |g| / (c max(1, |w|)), with c the curvature that decides, and the least and the largest
    eigenvalue as shares of the largest magnitude L. A training that has not converged is at no critical
    point.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        tol: Largest share of the weights' norm by which a critical point may be away, in (0, 1).
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.

    Raises:
        ValueError: ``tol`` is out of range.
    """
    if not 0 < tol < 1:
        raise ValueError(f"tol must lie in (0, 1): got {tol}")
    with hessian_of(subject, examples, memory) as (hessian, sample):
        gradient = float(hessian.risk_gradient().double().norm())
        weights = math.sqrt(sum(float(p.detach().double().square().sum()) for p in hessian.parameters))
        ends = ends_of(hessian)
    found = kind_of(gradient, weights, ends, tol)
    L, (_, c) = max(abs(ends.smallest), abs(ends.largest)), deciding(ends)
    share = torch.tensor([gradient / max(1.0, weights), ends.smallest, ends.largest], dtype=torch.float64)
    value = share / torch.tensor([c, L, L], dtype=torch.float64) if L > 0 else share.sign()
    error = torch.tensor([0.0, ends.error / L, ends.error / L] if L > 0 else [0.0, 0.0, 0.0])
    return Finding(
        statement=f"The weights are {SAYS[found]} the mean loss over {sample.words}: {WHY[found]}. (Gradient "
        f"{gradient:.3g}, eigenvalues from {ends.smallest:.3g} to {ends.largest:.3g}, error "
        f"{ends.error:.2g}; a gradient counts as 0 where the curvature that decides, c = {c:.3g}, outweighs "
        f"it within a move of {tol:g} of the weights' norm.)",
        value=value,
        range=(-math.inf, math.inf),
        premises=(twice_differentiable(subject), *_searched(ends)),
        sample=sample.mark,
        kind="estimate",
        interval=(value - error, value + error),
        failure=_failure(gradient, ends, hessian.finite),
        labels=("gradient / (c x weights)", "smallest / L", "largest / L"),
    )


def _searched(ends: Ends) -> tuple[Premise, ...]:
    text = "no eigenvalue lies beyond the ends found"
    if ends.whole:
        return (Premise(text, "proved", "the whole matrix was decomposed"),)
    return (Premise(text, "assumed", "the Krylov space is a small part of the space of weights"),)


def _failure(gradient: float, ends: Ends, finite: bool) -> str:
    if not finite or not math.isfinite(gradient):
        return NO_LOSS
    if not (math.isfinite(ends.smallest) and math.isfinite(ends.largest)):
        return "a product with the Hessian is not finite"
    return "" if ends.converged else f"the ends of the spectrum are known within {ends.error:.3g} only"
