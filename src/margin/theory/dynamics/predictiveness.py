r"""How far a gradient predicts the next one: its change along itself, and the smoothness this amounts to.

Santurkar, Tsipras, Ilyas and Mądry (2018) measure :math:`\|g(\theta + \eta d) - g(\theta)\|` for d = -g, and
find that batch normalization makes it small: not a smaller shift of the layers' inputs, but a smoother loss.
"""

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, weighted_mean
from margin.engine.loop import risk

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
    copied = copy.deepcopy(model)
    parameters = [p for p in copied.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in parameters]
    with eval_mode(copied):
        for module in copied.modules():
            if isinstance(module, _BatchNorm):
                module.training = True  # writes running statistics, the copy's
        here = _gradient(copied, parameters, objective, batch)
        norm = _norm(here)
        change = []
        for rate in rates:
            with torch.no_grad():
                for parameter, begun, slope in zip(parameters, start, here, strict=True):
                    parameter.copy_(begun - rate * slope)
            there = _gradient(copied, parameters, objective, batch)
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
    """By how much the gradient of the first training batch changes along itself, relative to its length.

    The first, that is, whose examples do not all have the weight 0. A quadratic loss of curvature at most L
    changes it by at most eta L; nothing is promised of a network.

    Args:
        subject: A model with an objective and parameters.
    """
    batch = _first(subject)
    if len(batch.inputs[0]) < 2 and any(isinstance(m, _BatchNorm) for m in subject.model.modules()):
        nothing = torch.full((len(RATES),), math.nan, dtype=torch.float64)
        found = Predictiveness(torch.tensor(RATES, dtype=torch.float64), nothing, math.nan)
        return _finding(found, "batch normalization needs a batch of two examples: there is none")
    found = gradient_predictiveness(subject.model, subject.objective, batch, RATES)
    finite = math.isfinite(found.norm) and bool(found.change.isfinite().all())
    return _finding(found, "" if finite else "the gradient is not finite")


def _first(subject: Subject) -> Batch:
    """The first batch of two examples or more of which one has a weight above 0, or else the first batch."""
    batches = subject.train or subject.test
    counted = (b for b in batches if b.weight is None or bool((b.weight > 0).any()))
    return next((batch for batch in counted if len(batch.inputs[0]) > 1), batches[0])


def _finding(found: Predictiveness, reason: str) -> Finding:
    still = found.norm == 0
    relative = torch.full_like(found.change, math.nan) if reason or still else found.change / found.norm
    return Finding(
        statement="The change of the gradient after a step of eta times itself downhill, over its length "
        f"({found.norm:.3g}): below 1 the gradient predicts the next one. Seen along the way is a smoothness "
        f"of at most {float(found.smoothness.max()):.3g}.",
        value=relative,
        unit="of the gradient",
        range=(0.0, math.inf),
        labels=tuple(f"eta = {rate:g}" for rate in RATES),
        failure=reason,
        premises=(Premise("the gradient is not 0", "refuted", "it is"),) if still else (),
        reference="Santurkar, Tsipras, Ilyas and Mądry 2018, Section 3.1",
        curves={"log10 of eta": found.rates.log10(), "relative change of the gradient": relative},
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
