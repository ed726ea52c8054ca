r"""Rademacher complexity: how well a class follows coin tosses on a sample.

.. math:: \hat R(F) = E_s \sup_{f \in F} \frac1n \sum_i s_i f(x_i), \qquad s_i = \pm 1 \text{ fair}

Bartlett and Mendelson (2002); exact for a finite class and for linear functions of bounded norm, where signs
can be enumerated, else from draws with their error.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import drawn_rows
from margin.engine.loop import risk

MOST_EXACT = 14
"""Examples whose signs are enumerated at most: 16,384 of them."""


class Complexity(NamedTuple):
    """An empirical Rademacher complexity.

    Args:
        value: The mean over signs.
        stderr: Its standard error; 0 where all signs were taken.
    """

    value: float
    stderr: float


def of_values(
    values: Float[Tensor, "functions n"], *, draws: int = 10_000, generator: Generator | None = None
) -> Complexity:
    """The empirical complexity of a finite class, from its values on the sample.

    Args:
        values: f(x_i), a function a row.
        draws: Draws of the signs, where there are more than 14 examples.
        generator: Of the signs.

    Raises:
        ValueError: There is no function or no example.

    Reference: Bartlett and Mendelson 2002, Definition 2 (without its factor 2 and absolute value).
    """
    if not values.numel():
        raise ValueError(f"a class has functions and a sample examples: got shape {tuple(values.shape)}")
    values = values.double()
    n = values.shape[1]
    return _mean_over_signs(n, lambda s: (s @ values.T).amax(1) / n, draws, generator)


def of_linear(
    x: Float[Tensor, "n features"],
    radius: float = 1.0,
    *,
    draws: int = 10_000,
    generator: Generator | None = None,
) -> Complexity:
    r"""The empirical complexity of x -> <w, x> with \|w\|_2 <= B: (B / n) E\|sum_i s_i x_i\|.

    At most :math:`B \sqrt{\sum_i |x_i|^2} / n`, by Jensen's inequality.

    Args:
        x: The sample.
        radius: B.
        draws: Draws of the signs, where there are more than 14 examples.
        generator: Of the signs.

    Raises:
        ValueError: There is no example.

    Reference: Bartlett and Mendelson 2002, Lemma 22; Mohri, Rostamizadeh and Talwalkar 2018, Theorem 5.10.
    """
    if not len(x):
        raise ValueError("a sample has examples: got none")
    x, n = x.double(), len(x)
    return _mean_over_signs(n, lambda s: radius / n * (s @ x).norm(dim=1), draws, generator)


def linear_bound(x: Float[Tensor, "n features"], radius: float = 1.0) -> float:
    r"""Jensen's bound of :func:`of_linear`: B sqrt(sum_i \|x_i\|^2) / n."""
    return radius * float(x.double().norm()) / len(x)


def massart(values: Float[Tensor, "functions n"]) -> float:
    r"""Massart's bound of the empirical complexity of N functions: r sqrt(2 ln N) / n.

    Args:
        values: f(x_i), a function a row; r is the largest length of a row.

    Reference: Massart 2000, Lemma 5.2; Mohri, Rostamizadeh and Talwalkar 2018, Theorem 3.7.
    """
    return float(values.double().norm(dim=1).max()) * math.sqrt(2 * math.log(len(values))) / values.shape[1]


def _mean_over_signs(
    n: int, sup: Callable[[Tensor], Tensor], draws: int, generator: Generator | None
) -> Complexity:
    if n <= MOST_EXACT:
        every = torch.arange(2**n)[:, None] >> torch.arange(n) & 1
        return Complexity(float(sup(2.0 * every.double() - 1).mean()), 0.0)
    if draws < 2:
        raise ValueError(f"draws must be at least 2: got {draws}")
    signs = 2.0 * torch.randint(2, (draws, n), generator=generator).double() - 1
    found = sup(signs)
    return Complexity(float(found.mean()), float(found.std()) / math.sqrt(draws))


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
    model = nn.Linear(2, 2)
    return Subject(
        model=model, test=[Batch((x,), torch.tensor([0, 1]))], task=CLASSES, objective=risk(CLASSES)
    )
