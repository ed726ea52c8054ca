"""Whether what autograd calls a loss's gradient and Hessian is one: finite differences beside them.

A custom backward, as the straight-through estimator of Bengio, Leonard and Courville (2013), a reversed
gradient or a fake quantization, is trained with and is no derivative: products with its "Hessian" are not
those of the loss. Differences are taken in float64, so that a step is short: a kink of ReLU or max pooling
bends the loss and leaves its slope, up to the step; the gradient jumps at one, but few lie within a step.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from margin.core.findings import NotAsked, Premise, Subject
from margin.core.types import Batch
from margin.engine.evaluation import copied, sample_examples, weighted_sum
from margin.math.seeds import mix
from margin.theory.curvature.hessian import RiskHessian, real_terms, risk_hessian
from margin.theory.prediction.held_out import kept

TEXT = "the loss is twice differentiable at the weights, and autograd's derivatives are its own"

KINKS = "kinks (ReLU, max pooling) have a second derivative of 0 almost everywhere and none on the kink"

EXAMPLES = 32
"""Examples on which derivatives are compared, at most."""

SHARE = 32
"""How many are drawn for each of them, where a question draws few: the comparison takes no longer than it."""

BLOCKS = 32
"""Parameters along whose own gradient the loss is differenced, at most."""

DIRECTIONS = 3
"""Random directions along which the gradient is differenced; one that meets no kink must agree."""

STEPS = (1e-6, 1e-7)
"""Lengths of steps, of a parameter's norm: a kink within the first is seldom within the second."""

MOVED, PLACES = 1e-2, 2
"""How far, of their norm, and how often the weights are moved where derivatives differ: off a kink."""

SHORTER = (torch.float32, torch.float16, torch.bfloat16)

MOST_WEIGHTS = 2**22
"""Weights at most by which derivatives are compared: some twenty vectors of them are held."""

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
    count = EXAMPLES if subject.most is None else max(1, min(EXAMPLES, subject.most // SHARE))
    return kept(subject, f"twice differentiable on {count}", lambda: _checked(subject, count), lambda _: 0)


def _checked(subject: Subject, count: int) -> Premise:
    batches = subject.train or subject.test
    few = sample_examples(batches, count, whole_batches=not subject.independent)
    try:
        twin, share = _in_double(subject.model)
        double = [batch.to(dtype=torch.float64, device=batch.inputs[0].device) for batch in few.batches]
        with risk_hessian(twin, double, subject.objective, independent=subject.independent, chunk=None) as H:
            double_inside = _is_double(H)
            words = _disagreement(H) if double_inside else ""
            beside = [_disagreement(H, moved=MOVED, seed=seed) for seed in range(PLACES)] if words else []
    except NotAsked:  # a refusal, as of what comes too late, says nothing of the model
        raise
    except Exception as error:  # whatever a model that is not made for float64 raises: nothing was compared
        why = (str(error).splitlines() or [""])[0][:80]
        return Premise(TEXT, "assumed", f"not checked in float64 ({type(error).__name__}: {why}); {KINKS}")
    if not double_inside:
        return Premise(TEXT, "assumed", f"not checked: the model computes in a shorter type; {KINKS}")
    if words and all(beside):
        return Premise(TEXT, "refuted", words)
    if words:
        return Premise(TEXT, "assumed", f"on a kink at the weights, they agree beside it; {KINKS}")
    return Premise(
        TEXT, "sampled", f"they agree with finite differences on {few.taken} examples{share}; {KINKS}"
    )


def _in_double(model: nn.Module) -> tuple[nn.Module, str]:
    """A copy in float64, of a large model with the first weights alone to differentiate by; which these are.

    A gradient by the first weights goes through all layers; vectors of all weights would fill the memory.
    """
    twin = copied(model).double()
    weights = [p for p in twin.parameters() if p.requires_grad]
    number, taken = sum(p.numel() for p in weights), 0
    for p in weights:
        fits = taken + p.numel() <= MOST_WEIGHTS
        taken += p.numel() if fits else 0
        p.requires_grad_(fits)
    return twin, "" if taken == number else f", by {taken:,} of {number:,} weights"


def _disagreement(H: RiskHessian, *, moved: float = 0.0, seed: int = 0) -> str:
    """Where a derivative differs from its finite difference, "" where none does.

    Weights may lie on a kink, as those of a bias of 0 do before a blank input; at weights that are moved by
    ``moved`` of their norm at random they do not.
    """
    whole = torch.cat([p.detach().reshape(-1) for p in H.parameters]).clone()
    start = whole + moved * _direction(whole, H.sizes, Generator().manual_seed(2017 + seed))
    try:
        _move(H, start)
        H.release()
        return _differences(H, start)
    finally:
        _move(H, whole)
        H.release()


def _differences(H: RiskHessian, start: Tensor) -> str:
    gradient = H.risk_gradient()
    if not (bool(gradient.isfinite().all()) and math.isfinite(_loss(H))):
        return ""  # the finding fails of itself
    generator = Generator().manual_seed(2013)
    directions = [_direction(start, H.sizes, generator) for _ in range(DIRECTIONS)]
    products = [(u, H(u)) for u in directions]
    H.release()
    return _slope(H, start, gradient) or _change(H, start, products)


def _direction(weights: Tensor, sizes: Sequence[int], generator: Generator) -> Tensor:
    """A random direction that moves each parameter by its own norm, by 1 where that is less."""
    parts = []
    for part in weights.split(list(sizes)):
        u = torch.randn(len(part), generator=generator, dtype=torch.float64).to(weights)
        parts.append(u * (max(float(part.norm()), 1.0) / max(float(u.norm()), 1e-300)))
    return torch.cat(parts)


def _slope(H: RiskHessian, start: Tensor, gradient: Tensor) -> str:
    """The first parameter along whose gradient the loss has another slope."""
    names = [name for name, p in H.model.named_parameters() if p.requires_grad]
    ends = torch.tensor([0, *H.sizes]).cumsum(0).tolist()
    some = range(0, len(names), math.ceil(len(names) / BLOCKS))
    level = abs(_loss(H))
    for i in some:
        u = torch.zeros_like(gradient)
        u[ends[i] : ends[i + 1]] = gradient[ends[i] : ends[i + 1]]
        length = float(u.norm())
        scale = max(float(start[ends[i] : ends[i + 1]].norm()), 1.0)
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


def _change(H: RiskHessian, start: Tensor, products: list[tuple[Tensor, Tensor]]) -> str:
    """The least difference, over directions and two steps, of the gradient's change from the product."""
    gaps = []
    for u, product in products:
        for h in STEPS:
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
    """Whether a loss in float64 is computed without a step in a shorter type, which would hide a slope."""
    with torch.no_grad(), _Shortened() as shortened:
        double = all(_terms(H, batch, i).dtype == torch.float64 for i, batch in enumerate(H.batches))
    return double and not shortened.found


class _Shortened(TorchDispatchMode):
    """Sees whether an operation turns a number of float64 into one of a shorter type."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype in SHORTER:
            self.found |= any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in args)
        return out


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
