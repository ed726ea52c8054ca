"""Whether what autograd calls a loss's gradient and Hessian is one: finite differences beside them.

A custom backward, as the straight-through estimator of Bengio, Leonard and Courville (2013), a reversed
gradient or a fake quantization, is trained with and is no derivative: products with its "Hessian" are not
those of the loss. Differences are taken in float64, so that a step is short: a kink of ReLU or max pooling
bends the loss and leaves its slope, up to the step; the gradient jumps at one, but few lie within a step.
"""

import copy
import math

import torch
from torch import Generator, Tensor, nn

from margin.engine.asking import weighted_sum
from margin.engine.chosen import chosen
from margin.findings import Premise, Subject
from margin.foundations.seeds import mix
from margin.theory.held_out import kept
from margin.theory.hessian import RiskHessian, real_terms, risk_hessian
from margin.types import Batch

TEXT = "the loss is twice differentiable at the weights, and autograd's derivatives are its own"

KINKS = "kinks (ReLU, max pooling) have a second derivative of 0 almost everywhere and none on the kink"

EXAMPLES = 32
"""Examples on which derivatives are compared."""

BLOCKS = 32
"""Parameters along whose own gradient the loss is differenced, at most."""

DIRECTIONS = 3
"""Random directions along which the gradient is differenced; one that meets no kink must agree."""

STEPS = (1e-6, 1e-7)
"""Lengths of steps, of the weights' norm: a kink within the first is seldom within the second."""

AGREE = 1e-3
"""Relative difference up to which two derivatives are the same."""


def twice_differentiable(subject: Subject) -> Premise:
    """The hypothesis of every statement about a Hessian, checked on some examples; leaves no trace.

    The slope of the loss along each parameter's own gradient is compared with that gradient's length, and the
    change of the gradient along random directions with the Hessian's product. Refuted where they differ;
    assumed where the model cannot be run in float64.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
    """
    return kept(subject, "twice differentiable", lambda: _checked(subject), lambda _: 0)


def _checked(subject: Subject) -> Premise:
    batches = subject.train or subject.test
    few = chosen(batches, EXAMPLES, whole_batches=not subject.independent)
    try:
        twin = copy.deepcopy(subject.model).double()
        double = [batch.to(dtype=torch.float64, device=batch.inputs[0].device) for batch in few.batches]
        with risk_hessian(twin, double, subject.objective, independent=subject.independent, chunk=None) as H:
            words = _disagreement(H)
    except Exception as error:  # whatever a model that is not made for float64 raises: nothing was compared
        why = (str(error).splitlines() or [""])[0][:80]
        return Premise(TEXT, "assumed", f"not checked in float64 ({type(error).__name__}: {why}); {KINKS}")
    if words is None:
        return Premise(TEXT, "assumed", f"not checked: the model computes in a shorter type; {KINKS}")
    if words:
        return Premise(TEXT, "refuted", words)
    return Premise(TEXT, "sampled", f"they agree with finite differences on {few.taken} examples; {KINKS}")


def _disagreement(H: RiskHessian) -> str | None:
    """Where a derivative differs from its finite difference, "" where none does; None: not in float64."""
    if not _is_double(H):
        return None
    start = torch.cat([p.detach().reshape(-1) for p in H.parameters]).clone()
    scale = max(float(start.norm()), 1.0)
    gradient = H.risk_gradient()
    if not (bool(gradient.isfinite().all()) and math.isfinite(_loss(H))):
        return ""  # the finding fails of itself
    products = []
    generator = Generator().manual_seed(2013)
    for _ in range(DIRECTIONS):
        u = torch.randn(H.dim, generator=generator, dtype=torch.float64).to(start)
        products.append((u / u.norm(), H(u / u.norm())))
    H.release()
    try:
        return _slope(H, start, gradient, scale) or _change(H, start, products, scale)
    finally:
        _move(H, start)


def _slope(H: RiskHessian, start: Tensor, gradient: Tensor, scale: float) -> str:
    """The first parameter along whose gradient the loss has another slope."""
    names = [name for name, p in H.model.named_parameters() if p.requires_grad]
    ends = torch.tensor([0, *H.sizes]).cumsum(0).tolist()
    some = range(0, len(names), math.ceil(len(names) / BLOCKS))
    level = abs(_loss(H))
    for i in some:
        u = torch.zeros_like(gradient)
        u[ends[i] : ends[i + 1]] = gradient[ends[i] : ends[i + 1]]
        length = float(u.norm())
        slopes = []
        for h in STEPS:
            # Below this the rounding of the loss hides the slope.
            hidden = 1e-14 * (1 + level) / (h * scale)
            if length <= 100 * hidden:
                break
            ends_at = []
            for sign in (1, -1):
                _move(H, start + sign * h * scale / length * u)
                ends_at.append(_loss(H))
            slopes.append((ends_at[0] - ends_at[1]) / (2 * h * scale))
            if abs(slopes[-1] - length) <= AGREE * length + hidden + CURVED * h * scale:
                break
        else:
            return (
                f"along its gradient for {names[i]} the loss has slope {slopes[-1]:.3g}, not {length:.3g}: "
                "a custom backward, as of a straight-through estimator, is no derivative"
            )
    return ""


CURVED = 1.0
"""What a step may add to a slope by the loss's curvature and kinks, a unit of length."""


def _change(H: RiskHessian, start: Tensor, products: list[tuple[Tensor, Tensor]], scale: float) -> str:
    """The least difference, over directions and two steps, of the gradient's change from the product."""
    gaps = []
    for u, product in products:
        for h in (step * scale for step in STEPS):
            ends = []
            for sign in (1, -1):
                _move(H, start + sign * h * u)
                ends.append(H.risk_gradient())
                H.release()
            change = (ends[0] - ends[1]) / (2 * h)
            rounding = 1e-13 * (1 + float(ends[0].norm())) / h
            gap = float((change - product).norm())
            if gap <= AGREE * float(product.norm()) + 10 * rounding:
                return ""
            gaps.append(gap / max(float(change.norm()), 1e-300))
    return (
        f"along {DIRECTIONS} random directions the gradient changes otherwise than the products with the "
        f"Hessian say, by {min(gaps):.2g} of itself at least: a second derivative is wrong"
    )


def _is_double(H: RiskHessian) -> bool:
    with torch.no_grad():
        return all(_terms(H, batch, i).dtype == torch.float64 for i, batch in enumerate(H.batches))


def _terms(H: RiskHessian, batch: Batch, number: int) -> Tensor:
    seed = mix(number, 11)  # as the Hessian's own loss draws
    torch.default_generator.manual_seed(seed)
    return real_terms(H.objective(H.model, batch, Generator().manual_seed(seed)))


@torch.no_grad()
def _loss(H: RiskHessian) -> float:
    sums = [weighted_sum(_terms(H, batch, i), batch.weight) for i, batch in enumerate(H.batches)]
    return float(sum(float(total) for total, _ in sums) / sum(float(weight) for _, weight in sums))


@torch.no_grad()
def _move(H: RiskHessian, weights: Tensor) -> None:
    nn.utils.vector_to_parameters(weights, H.parameters)
