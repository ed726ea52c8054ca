"""The spectrum of the training loss's Hessian: density, condition number, trace by layer, critical points.

The signs tell what kind of point the weights are: where the gradient is 0, a positive definite Hessian makes
a strict local minimum; a minimum needs a positive semidefinite one, which is not enough (x^3); eigenvalues of
both signs make a saddle (Nocedal and Wright 2006, Theorems 2.3 and 2.4).
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.theory.curvature.convex import eigenvalue_range
from margin.theory.curvature.hessian import MEMORY, RiskHessian
from margin.theory.curvature.hutchinson import (
    FEW,
    PRINTED_MISS,
    VERDICT_MISS,
    as_matrix,
    half_width,
    hutchinson_trace,
)
from margin.theory.curvature.lanczos import (
    SpectralDensity,
    extreme_eigenvalues,
    krylov,
    ritz_pairs,
    spectral_density,
)
from margin.theory.curvature.trained_weights import (
    DRAWN,
    NO_LOSS,
    UNIT,
    hessian_of,
    lanczos_steps,
    of_weights,
    vectors_within,
)
from margin.theory.curvature.twice_differentiable import twice_differentiable

BROKEN = "a product with the Hessian is not finite"
POINTS = 400
"""Points of a density that a report draws."""

FLAT = 0.01
"""An eigenvalue is about 0 below this share of the largest magnitude."""

ENOUGH, TOO_FEW = 48, "intervals hold less than 95 % where one eigenvalue prevails: of 8, 88 %, simulated."
"""Random signs from which on they hold 93 % at least, and what is said of fewer."""

QUADRATURE = 1e-4
"""Bound of the error of a share of the smoothed spectrum: see SpectralDensity.resolution."""


class Shares(NamedTuple):
    """Shares of a spectrum below -c, from -c to c, above c, with the verdict's limits and those printed."""

    value: Tensor
    low: Tensor
    high: Tensor
    printed: tuple[Tensor, Tensor]


def density_of(hessian: RiskHessian, probes: int, steps: int) -> tuple[SpectralDensity, bool]:
    """The spectral density of a Hessian, and whether it is the spectrum itself (few parameters)."""
    dim, dtype, device = hessian.dim, hessian.dtype, hessian.device
    if dim > FEW:
        found = spectral_density(hessian, dim, probes=probes, steps=steps, dtype=dtype, device=device)
        return found, False
    A = as_matrix(hessian, dim, dtype=dtype, device=device)
    if not bool(A.isfinite().all()):
        nan = torch.full((1, dim), math.nan, dtype=torch.float64)
        return SpectralDensity(nan, nan, dim), True
    nodes = torch.linalg.eigvalsh((A + A.T) / 2)[None]
    return SpectralDensity(nodes, torch.full_like(nodes, 1 / dim), dim), True


def shares(found: SpectralDensity, c: float, width: float) -> Shares:
    """The shares of a smoothed spectrum below -c, within c of 0, and above c, with limits.

    The limits add the error over the probes to what the quadrature of a Gaussian of that width leaves out.
    """
    below, upto = found.share_below(-c, width), found.share_below(c, width)
    each = torch.stack((below, upto - below, 1 - upto))
    value = each.mean(1)
    (low, high), printed = (
        ((value - half).clamp(0, 1), (value + half).clamp(0, 1))
        for half in (half_width(each.T, miss) + QUADRATURE for miss in (VERDICT_MISS, PRINTED_MISS))
    )
    return Shares(value, low, high, printed)


def counted(found: SpectralDensity, c: float) -> Shares:
    """The shares of a spectrum of which every eigenvalue is known."""
    low, high = (found.nodes < -c).double(), (found.nodes > c).double()
    value = torch.stack((low.mean(), 1 - low.mean() - high.mean(), high.mean())).clamp(0, 1)
    return Shares(value, value, value, (value, value))


def density(
    subject: Subject,
    *,
    probes: int = 6,
    steps: int = 40,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """How the eigenvalues of the Hessian of the mean training loss are spread: negative, about 0, positive.

    Where the parameters are few the eigenvalues are counted, and about 0 is what lies within 1 % of the
    largest magnitude. Else the shares are those of the spectrum smoothed by a Gaussian of the width that the
    quadrature resolves, and about 0 is what lies within 3 of its standard deviations. The curves are the
    density, so smoothed, and its error over the probes.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        probes: Random starts, at least 2.
        steps: Lanczos steps of each, at least 2; fewer where their vectors do not fit in memory.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.
    """
    with hessian_of(subject, examples, memory) as (hessian, sample):
        steps = vectors_within(hessian.dim, memory, hessian.dtype.itemsize, least=2, most=steps)
        found, exact = density_of(hessian, probes, steps)
    finite = bool(found.nodes.isfinite().all())
    low, high = found.ends if finite else (math.nan, math.nan)
    width = found.resolution if finite else math.nan
    c = FLAT * max(abs(low), abs(high)) if exact else 3 * width
    nothing = torch.full((3,), math.nan, dtype=torch.float64)
    share = Shares(nothing, nothing, nothing, (nothing, nothing))
    if finite:
        share = counted(found, c) if exact else shares(found, c, width)
    how = (
        f"counted; drawn with a Gaussian of standard deviation {width:.3g}"
        if exact
        else f"from {probes} Lanczos quadratures of {steps} nodes, smoothed with a Gaussian of standard "
        f"deviation {width:.3g}"
    )
    return Finding(
        statement=f"The shares of the {hessian.dim:,} eigenvalues of the Hessian of the mean loss over "
        f"{sample.words} that lie below {-c:.3g}, within {c:.3g} of 0 and above, {how}.",
        value=share.value,
        range=(0.0, 1.0),
        premises=(twice_differentiable(subject),),
        kind="estimate",
        interval=(share.low, share.high),
        printed=share.printed,
        failure=_failure(finite, hessian.finite),
        labels=("negative", "about 0", "positive"),
        sample=sample.mark,
        curves=_drawn(found, width) if finite else {},
    )


def _failure(finite: bool, loss: bool) -> str:
    if not loss:
        return NO_LOSS
    return "" if finite else BROKEN


def _drawn(found: SpectralDensity, width: float) -> dict[str, Tensor]:
    grid = found.grid(POINTS, width)
    mean, error = found.smoothed(grid, width)
    return {
        "eigenvalue": grid,
        "density": mean,
        "density error": error,
        "extreme eigenvalues": torch.tensor(found.ends, dtype=torch.float64),
    }


class Condition(NamedTuple):
    """A ratio of extreme magnitudes, and what is known of the matrix.

    ``ratio`` is that of the largest magnitude to the least that is not 0 within its error, and lies between
    ``low`` and ``high``; ``zeros`` counts those that are (None where not all eigenvalues are known);
    ``definite`` says whether all are positive beyond their error.
    """

    ratio: float
    low: float
    high: float
    zeros: int | None
    negative: bool
    definite: bool


def condition_of(values: Tensor, errors: Tensor, *, whole: bool) -> Condition:
    r"""The ratio :math:`\max |\lambda| / \min |\lambda|` over the eigenvalues that are not 0.

    Args:
        values: Estimates of eigenvalues: all of them, or Ritz values.
        errors: An eigenvalue lies within ``errors[i]`` of ``values[i]``.
        whole: Whether these are all. If not, the ratio is a lower estimate: an eigenvalue lies within the
            error of each Ritz value, so the least magnitude is at most the value's plus its error.
    """
    known = values.abs() > errors
    zeros = int((~known).sum())
    negative = bool((values < -errors).any())
    if not bool(known.any()):
        return Condition(1.0, 1.0, math.inf, zeros if whole else None, False, False)
    size, error = values[known].abs(), errors[known]
    low = max(float((size - error).max() / (size + error).min()), 1.0)
    if not whole:
        return Condition(low, low, math.inf, None, negative, False)
    ratio, high = float(size.max() / size.min()), float((size + error).max() / (size - error).min())
    return Condition(ratio, low, high, zeros, negative, zeros == 0 and not negative)


def condition(
    subject: Subject, *, steps: int = 60, examples: int | None = DRAWN, memory: int = MEMORY
) -> Finding:
    """The condition number of the Hessian of the mean training loss, over eigenvalues that are not 0.

    Gradient descent on a quadratic of condition number k needs about k log(1 / error) steps.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        steps: Lanczos steps where the parameters are many, at least 2.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.
    """
    with hessian_of(subject, examples, memory) as (hessian, sample):
        dim = hessian.dim
        found = _exact_condition(hessian) if dim <= FEW else _least_condition(hessian, steps, memory)
        failure = _failure(math.isfinite(found.ratio), hessian.finite)
    value, low, high = (torch.tensor(x, dtype=torch.float64) for x in found[:3])
    return Finding(
        statement="The ratio of the largest to the least magnitude of an eigenvalue, other than 0, of the "
        f"Hessian of the mean loss over {sample.words}. {_reading(found, dim)}",
        value=value,
        range=(1.0, math.inf),
        premises=(twice_differentiable(subject),),
        kind="estimate" if found.zeros is not None else "lower",
        interval=(low, high),
        sample=sample.mark,
        failure=failure,
    )


NOT_FINITE = Condition(math.nan, math.nan, math.nan, None, False, False)


def _exact_condition(hessian: RiskHessian) -> Condition:
    dim, eps = hessian.dim, torch.finfo(hessian.dtype).eps
    A = as_matrix(hessian, dim, dtype=hessian.dtype, device=hessian.device)
    if not bool(A.isfinite().all()):
        return NOT_FINITE
    values = torch.linalg.eigvalsh((A + A.T) / 2)
    rounding = (A - A.T).norm() + 10 * dim * eps * values.abs().max()
    return condition_of(values, rounding.expand(dim), whole=True)


def _least_condition(hessian: RiskHessian, steps: int, memory: int) -> Condition:
    """From the Ritz values of a Lanczos process, each with its residual and rounding."""
    start = hessian.start()
    steps = vectors_within(hessian.dim, memory, start.element_size(), least=2, most=min(steps, hessian.dim))
    basis = start.new_empty(steps + 1, hessian.dim)
    basis[0] = start / start.norm()
    alphas, betas = zip(*krylov(hessian, basis), strict=True)
    if not all(map(math.isfinite, (*alphas, *betas))):
        return NOT_FINITE
    values, _, residuals = ritz_pairs(alphas, betas)
    rounding = 10 * steps * torch.finfo(hessian.dtype).eps * values.abs().max()
    return condition_of(values, residuals + rounding, whole=False)


def _reading(found: Condition, dim: int) -> str:
    sign = "it is indefinite" if found.negative else "no negative one was found"
    if found.zeros is None:
        return f"Not all of its {dim:,} eigenvalues are known ({sign}): the ratio is at least this."
    if found.definite:
        return "The Hessian is positive definite: this is its condition number."
    if found.zeros:
        return f"It is singular ({found.zeros:,} of {dim:,} eigenvalues are 0 within rounding; {sign})."
    return "The Hessian is regular and indefinite: no number of steps follows from the ratio."


def layers(
    subject: Subject, *, products: int = 120, examples: int | None = DRAWN, memory: int = MEMORY
) -> Finding:
    """The trace of the Hessian's diagonal block of each parameter: which layers the curvature is in.

    The signs that estimate a block are 0 outside of it, so that the other blocks add no noise.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        products: Products with the Hessian, about: divided between the parameters, at least 6 for each; one
            of fewer numbers than that is exact.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    names = tuple(name for name, p in subject.model.named_parameters() if p.requires_grad)
    draws = max(6, products // max(len(names), 1))
    generator = Generator().manual_seed(2007)
    with hessian_of(subject, examples, memory) as (hessian, sample):
        found = []
        for start, size in zip(_starts(hessian.sizes), hessian.sizes, strict=True):
            found.append(_block_trace(hessian, start, size, draws, generator))
    value, half, narrow = (torch.stack(column) for column in zip(*found, strict=True))
    few = draws < ENOUGH and any(size > draws for size in hessian.sizes)
    return Finding(
        statement=f"The trace of the Hessian of the mean loss over {sample.words}, parameter by parameter.",
        value=value,
        unit=UNIT,
        range=eigenvalue_range(subject),
        premises=(twice_differentiable(subject),),
        kind="estimate",
        interval=(value - half, value + half),
        printed=(value - narrow, value + narrow),
        sample=sample.mark,
        failure=_failure(bool(value.isfinite().all()), hessian.finite),
        labels=names,
        remarks=(f"Of {draws} random signs a parameter {TOO_FEW}",) if few else (),
    )


def _starts(sizes: list[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _block_trace(
    hessian: RiskHessian, start: int, size: int, draws: int, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """The trace of a diagonal block, half of the verdict's interval and half of the printed one."""
    dtype, device = hessian.dtype, hessian.device

    def block(v: Tensor) -> Tensor:
        whole = torch.zeros(hessian.dim, dtype=dtype, device=device)
        whole[start : start + size] = v
        return hessian(whole)[start : start + size]

    if size <= draws:
        A = as_matrix(block, size, dtype=dtype, device=device)
        rounding = (A - A.T).norm() + torch.finfo(dtype).eps * A.norm()
        return A.trace(), rounding, rounding
    value, _, forms = hutchinson_trace(block, size, generator, probes=draws, dtype=dtype, device=device)
    return value, half_width(forms), half_width(forms, PRINTED_MISS)


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


def ends_of(hessian: RiskHessian, tol: float = 1e-3, max_iterations: int = 150, memory: int = MEMORY) -> Ends:
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
    steps = lanczos_steps(hessian, max_iterations)
    found = extreme_eigenvalues(hessian, hessian.start(), tol=tol, max_iterations=steps, share=0.5)
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
    return of_weights(Double(0.0, 0.0))


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
        range=(max(eigenvalue_range(subject)[0], -1.0), math.inf),
        premises=(twice_differentiable(subject), *_searched(ends)),
        sample=sample.mark,
        kind="estimate",
        interval=(value - error, value + error),
        failure=_uncritical(gradient, ends, hessian.finite),
        labels=("gradient / (c x weights)", "smallest / L", "largest / L"),
    )


def _searched(ends: Ends) -> tuple[Premise, ...]:
    text = "no eigenvalue lies beyond the ends found"
    if ends.whole:
        return (Premise(text, "proved", "the whole matrix was decomposed"),)
    return (Premise(text, "assumed", "the Krylov space is a small part of the space of weights"),)


def _uncritical(gradient: float, ends: Ends, finite: bool) -> str:
    if not finite or not math.isfinite(gradient):
        return NO_LOSS
    if not (math.isfinite(ends.smallest) and math.isfinite(ends.largest)):
        return "a product with the Hessian is not finite"
    return "" if ends.converged else f"the ends of the spectrum are known within {ends.error:.3g} only"
