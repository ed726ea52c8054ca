r"""The Polyak-Lojasiewicz ratio along a training: how steep the loss is for its height (Polyak 1963).

.. math:: \mu_t = \frac{|\nabla h(\theta_t)|^2}{2 (h(\theta_t) - h^*)}

Were it at least mu at *all* weights, gradient descent at eta = 1/L would shrink the gap by 1 - mu/L a step.
On a path it is a measurement: it is no constant of the function, and no rate can be promised from it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, weighted_sum
from margin.engine.loop import State
from margin.theory.curvature.trained_weights import NO_LOSS, UNIT, Quadratic, differentiated

COLUMN = "pl_ratio"
"""The column of a history in which the track writes the ratio."""


class Slope(NamedTuple):
    """The mean loss, its gradient's norm, and the least loss of a term."""

    risk: float
    gradient_norm: float
    least: float


def pl_ratio(gradient_norm: float, gap: float) -> float:
    r"""The ratio :math:`|g|^2 / (2\,\text{gap})`; NaN where the gap is not positive.

    With a lower bound of the least loss in place of h* the gap is too large, and the ratio a lower estimate.

    Args:
        gradient_norm: \|g\|.
        gap: h - h*, or more.

    Reference: Polyak 1963; Karimi, Nutini and Schmidt 2016, Equation 3.
    """
    return gradient_norm**2 / (2 * gap) if gap > 0 else math.nan


def slope_of(model: nn.Module, batches: Sequence[Batch], objective: Objective) -> Slope:
    """The mean loss over batches and its gradient's norm, by all trainable weights; leaves no trace.

    Args:
        model: Asked in evaluation mode.
        batches: The examples.
        objective: The loss of each term.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    total, count, least = 0.0, 0.0, math.inf
    with eval_mode(model) as generator, torch.enable_grad():
        for batch in batches:
            terms = objective(model, batch, generator)
            summed, weight = weighted_sum(terms, batch.weight)
            found = torch.autograd.grad(summed, parameters, allow_unused=True)
            for kept, grad in zip(grads, found, strict=True):
                if grad is not None:
                    kept += grad.double()
            total, count = total + float(summed.detach()), count + float(weight)
            seen = (
                terms.detach() if batch.weight is None else terms.detach()[batch.weight.to(terms.device) != 0]
            )
            least = min(least, float(seen.min())) if seen.numel() else least
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
    return Slope(total / count, norm / count, least) if count else Slope(math.nan, math.nan, math.nan)


def track(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """The ratio during a training, over the whole training part; leaves no trace.

    Args:
        state: Of the training; the model that a user gets is asked.
        objective: The loss of each term, not negative: 0 stands for the least loss, which is not known.
        batches: The training part in order.

    Returns:
        ``risk``, ``risk_gradient_norm`` and ``pl_ratio``, NaN where a loss is negative.
    """
    found = slope_of(state.usable, batches, objective)
    ratio = pl_ratio(found.gradient_norm, found.risk) if found.least >= 0 else math.nan
    return {"risk": found.risk, "risk_gradient_norm": found.gradient_norm, COLUMN: ratio}


def along_path(subject: Subject, *, examples: int | None = 4096) -> Finding:
    """The least Polyak-Lojasiewicz ratio at the visited weights, with 0 for the least loss.

    They are the weights themselves, those that the training began with where they are known, and those of
    the evaluations of a training that tracked it.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        examples: About how many examples the risk is taken over; None: all.
    """
    sample = differentiated(subject, examples)
    models = [subject.model] + ([subject.initial] if subject.initial is not None else [])
    slopes = [slope_of(model, sample.batches, subject.objective) for model in models]
    ratios = [pl_ratio(slope.gradient_norm, slope.risk) for slope in slopes]
    rows = [(float(row.get("step", i)), row.get(COLUMN)) for i, row in enumerate(subject.history)]
    tracked = [(s, float(x)) for s, x in rows if isinstance(x, int | float) and math.isfinite(x)]
    least = min(slope.least for slope in slopes)
    failure = "" if all(math.isfinite(slope.risk) for slope in slopes) else NO_LOSS
    gap = failure != "" or not any(math.isnan(ratio) for ratio in ratios)
    value = min([*ratios, *(x for _, x in tracked)], default=math.nan) if not failure else math.nan
    where = "the weights" + (" and those that training began with" if subject.initial is not None else "")
    where += f" and {len(tracked)} evaluations of the training" if tracked else ""
    curves = torch.tensor(tracked, dtype=torch.float64).T if len(tracked) > 1 else None
    return Finding(
        statement="The least Polyak-Lojasiewicz ratio of the mean loss, |gradient|^2 / (2 loss), over "
        f"{sample.words}, at {where}. It promises no rate: other weights may have a smaller one.",
        value=torch.tensor(value, dtype=torch.float64),
        unit=UNIT,
        range=(0.0, math.inf),
        premises=(
            Premise(
                "no loss is negative, so that the gap is at most the loss",
                "refuted" if least < 0 else "sampled",
                f"the least loss of a term is {least:.3g}",
            ),
            *(() if gap else (Premise("the loss is above 0", "refuted", "there is no gap"),)),
        ),
        reference="Polyak 1963; Karimi, Nutini and Schmidt 2016, Equation 3",
        kind="lower",
        failure=failure,
        curves={} if curves is None else {"step": curves[0], COLUMN: curves[1]},
    )


def demo() -> Subject:
    """The loss (3 x^2 + y^2) / 2 at (1, 1): |g|^2 = 10 and h = 2, the ratio 5/2."""
    zeros = torch.zeros(3, dtype=torch.float64)
    batch = Batch((zeros,), zeros)
    return Subject(
        model=Quadratic(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))),
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=lambda model, batch, generator: model(*batch.inputs),
        history=[{"step": 0, COLUMN: 2.75}, {"step": 1, COLUMN: 2.6}],
    )
