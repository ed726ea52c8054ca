"""Complexity on the subject's own inputs: that of linear functions, between its bounds from both sides."""

import math

import torch

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import drawn_rows
from margin.engine.loop import risk
from margin.theory.capacity.rademacher import MOST_EXACT, linear_bound, of_linear


def linear_complexity(subject: Subject) -> Finding:
    r"""The Rademacher complexity of linear functions of norm 1 on some inputs, by all signs.

    .. math:: \frac{1}{\sqrt2} \frac{\sqrt{\sum_i |x_i|^2}}{n} \le \hat R \le \frac{\sqrt{\sum_i |x_i|^2}}{n}

    Above by Jensen's inequality, below by Khintchine's for vectors; orthogonal inputs reach the one, two that
    are alike the other.

    Args:
        subject: Its inputs are taken, at most 14; not its weights.

    Reference: Latala and Oleszkiewicz 1994, Theorem 1 (the lower side).
    """
    batches = drawn_rows(subject.test, MOST_EXACT).batches
    x = torch.cat([batch.inputs[0].detach().cpu().double().flatten(1) for batch in batches])[:MOST_EXACT]
    if not bool(x.isfinite().all()):
        raise NotAsked("an input is not finite")
    bound = linear_bound(x)
    return Finding(
        statement=f"The empirical Rademacher complexity of linear functions of norm 1 on {len(x)} inputs, "
        f"over all {2 ** len(x):,} signs, beside sqrt(sum |x|^2) / n and its 1/sqrt(2).",
        value=torch.tensor(of_linear(x).value, dtype=torch.float64),
        range=(0.0, math.inf),
        low=torch.tensor(bound / math.sqrt(2), dtype=torch.float64),
        high=torch.tensor(bound, dtype=torch.float64),
        tolerance=1e-9 * bound,
    )


def demo() -> Subject:
    """Two inputs that are alike: half of the signs cancel, and the lower side is reached."""
    x = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    model = torch.nn.Linear(2, 2)
    return Subject(
        model=model, test=[Batch((x,), torch.tensor([0, 1]))], task=CLASSES, objective=risk(CLASSES)
    )
