r"""How far a gradient predicts the next one: its change along itself, and the smoothness this amounts to.

Santurkar, Tsipras, Ilyas and Mądry (2018) measure :math:`\|g(\theta + \eta d) - g(\theta)\|` for d = -g, and
find that batch normalization makes it small: not a smaller shift of the layers' inputs, but a smoother loss.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, counts, eval_mode, rows_of, weighted_mean
from margin.engine.loop import risk

BATCHES, EXAMPLES = 8, 1024
"""Batches at most, and their examples, whose gradients are followed."""

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Step sizes along the gradient at which the claim looks."""


class Predictiveness(NamedTuple):
    """The change of the gradient after steps of several sizes along it.

    Args:
        rates: eta.
        change: |g(theta - eta g) - g(theta)|.
        norm: |g(theta)|.
    """

    rates: Float[Tensor, " rates"]
    change: Float[Tensor, " rates"]
    norm: float

    @property
    def smoothness(self) -> Float[Tensor, " rates"]:
        """The change over the length eta |g| of the step: the Lipschitz constant that the step has seen."""
        return self.change / (self.rates * self.norm)


def gradient_predictiveness(
    model: nn.Module, objective: Objective, batch: Batch, rates: Sequence[float]
) -> Predictiveness:
    """How far the gradient of a batch's mean loss changes along itself; leaves no trace.

    Batch normalization takes the statistics of the batch, as in training; dropout is off.

    Args:
        model: A module with parameters that require a gradient.
        objective: The loss of each term.
        batch: The examples.
        rates: Step sizes eta > 0.

    Raises:
        ValueError: No rate is given, or one is not positive and finite.

    Reference: Santurkar, Tsipras, Ilyas and Mądry 2018, Section 3.1 and Figure 4.
    """
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise ValueError(f"rates must be positive and finite: got {list(rates)}")
    twin = copied(model)
    parameters = [p for p in twin.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in parameters]
    with eval_mode(twin):
        for module in twin.modules():
            if isinstance(module, _BatchNorm):
                module.training = True  # writes running statistics, the copy's
        here = _gradient(twin, parameters, objective, batch)
        norm = _norm(here)
        change = []
        for rate in rates:
            with torch.no_grad():
                for parameter, begun, slope in zip(parameters, start, here, strict=True):
                    parameter.copy_(begun - rate * slope)
            there = _gradient(twin, parameters, objective, batch)
            change.append(_norm([a - b for a, b in zip(there, here, strict=True)]))
    return Predictiveness(
        torch.tensor(rates, dtype=torch.float64), torch.tensor(change, dtype=torch.float64), norm
    )


def _gradient(
    model: nn.Module, parameters: Sequence[Tensor], objective: Objective, batch: Batch
) -> list[Tensor]:
    torch.default_generator.manual_seed(0)  # a loss that draws must draw the same every time
    values = objective(model, batch, Generator(device=batch.inputs[0].device).manual_seed(0))
    loss = weighted_mean(values, batch.weight)
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.hypot(*(float(t.double().norm()) for t in tensors))


def predictiveness(subject: Subject) -> Finding:
    """By how much the gradient of a training batch changes along itself, relative to its length.

    The mean over some batches, drawn at random, with its standard error where not all are taken. A quadratic
    loss of curvature at most L changes the gradient by at most eta L; nothing is promised of a network.

    Args:
        subject: A model with an objective and parameters.
    """
    batches, among, sample = _drawn(subject)
    if not batches:
        nothing = torch.full((1, len(RATES)), math.nan, dtype=torch.float64)
        return _finding(nothing, math.nan, _nothing(subject))
    each = [gradient_predictiveness(subject.model, subject.objective, batch, RATES) for batch in batches]
    finite = all(math.isfinite(found.norm) and bool(found.change.isfinite().all()) for found in each)
    relative = torch.stack([found.change / found.norm for found in each])
    seen = max(float(found.smoothness.max()) for found in each)
    if finite and any(found.norm == 0 for found in each):
        raise NotAsked("the gradient of the loss is 0: no step moves it")
    reason = "" if finite else "the gradient is not finite"
    return replace(_finding(relative, seen, reason, among=among), sample=sample)


def _nothing(subject: Subject) -> str:
    counted = any(bool(counts(batch).any()) for batch in subject.train or subject.test)
    if counted:
        return "batch normalization needs a batch of two examples: there is none"
    return "no example has a weight above 0"


def _drawn(subject: Subject) -> tuple[list[Batch], int, str]:
    """Some batches that count, of two examples or more where batch normalization reads them; of how many.

    Where the subject allows few examples, half of them at most are left of a batch, which is said.
    """
    batches = subject.train or subject.test
    least = 2 if any(isinstance(m, _BatchNorm) for m in subject.model.modules()) else 1
    good = [
        i for i, batch in enumerate(batches) if bool(counts(batch).any()) and len(batch.inputs[0]) >= least
    ]
    length, examples = max(len(batches[0].inputs[0]), 1), subject.at_most(EXAMPLES) or EXAMPLES
    cuts = examples < EXAMPLES and subject.independent and all(batch.divisible for batch in batches)
    size = max(least, min(length, examples // 2)) if cuts else length
    most = max(2, min(BATCHES, examples // size))
    order = torch.randperm(len(good), generator=Generator().manual_seed(0))[:most].sort().values.tolist()
    drawn = [batches[good[i]] for i in order]
    if size == length:
        return drawn, len(good), ""
    drawn = [rows_of(batch, counts(batch).nonzero().flatten()[:size]) for batch in drawn]
    return drawn, len(good), f"{size:,} of each of {len(drawn)} batches"


def _finding(each: Tensor, smoothness: float, reason: str, *, among: int = 0) -> Finding:
    lost = bool(reason)
    relative = torch.full_like(each[0], math.nan) if lost else each.mean(0)
    # of the batches that are left out nothing is known but by those that were drawn
    sampled = 1 < len(each) < among and not lost
    rest = math.sqrt(1 - len(each) / among) if sampled else 0.0
    drawn = (
        f"{len(each)} of {among} batches, drawn at random" if len(each) < among else f"all {among} batches"
    )
    return Finding(
        statement="The change of the gradient after a step of eta times itself downhill, over its length: "
        f"below 1 the gradient predicts the next one. The mean over {drawn}; seen along the way is a "
        f"smoothness of at most {smoothness:.3g}.",
        value=relative,
        unit="of the gradient",
        range=(0.0, math.inf),
        kind="estimate" if sampled else "exact",
        stderr=each.std(0) * rest / math.sqrt(len(each)) if sampled else None,
        labels=tuple(f"eta = {rate:g}" for rate in RATES),
        failure=reason,
        curves={
            "log10 of eta": torch.tensor(RATES, dtype=torch.float64).log10(),
            "relative change of the gradient": relative,
        },
    )


def demo() -> Subject:
    """A quadratic loss: the change is eta |H g| / |g|."""
    g = Generator().manual_seed(0)
    x = torch.randn(32, 4, generator=g, dtype=torch.float64)
    y = torch.randn(32, generator=g, dtype=torch.float64)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)).double()
    batches = [Batch((x,), y)]
    return Subject(model=model, test=batches, train=batches, task=VALUES, objective=risk(VALUES))
