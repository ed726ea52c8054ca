"""Where a model fails: the segment of a feature with the most errors, and the labels that are likely wrong.

A segment that is chosen because it looks worst looks worse than it is: it is chosen on one half of the
held-out examples and measured on the other. Labels are suspected by confident learning (Northcutt, Jiang
and Chuang 2021): where a model gives another class a probability that is high for that class, and a higher
one than to the label.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.engine.evaluation import expand_weight
from margin.theory.prediction.calibration import forecasts, is_distribution
from margin.theory.prediction.confusion import name_of
from margin.theory.prediction.held_out import stated

SEED = 2021
DRAWS = 200
"""Sets of labels that are drawn to see what chance alone makes suspicious, where they are quick to draw."""

AT_ONCE = 20_000_000
"""Probabilities that are gone through for them, draws times examples times classes."""

NAMED = 10
"""Suspects that a finding names, the gravest first."""

MOST_LISTED = 1000
"""Suspects whose rows and classes are among the curves of a finding."""

COLUMNS = ("row", "given", "likely", "probability of given", "probability of likely")

UNSEEN = Premise(
    "the model was not trained on the held-out labels", "assumed", "one that has learned a label repeats it"
)


class Suspects(NamedTuple):
    """Which labels are likely wrong, and the class that is likelier."""

    found: Bool[Tensor, " n"]
    likely: Int[Tensor, " n"]


def confident_errors(
    probabilities: Float[Tensor, "n classes"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"] | None = None,
) -> Suspects:
    r"""The off-diagonal of the confident joint: the labels that are likely wrong.

    .. math:: t_j = \operatorname{mean}_{i : y_i = j} p_j(x_i), \quad
        \hat\jmath_i = \operatorname{argmax}_{j : p_j(x_i) \ge t_j} p_j(x_i)

    A label is suspected where :math:`\hat\jmath_i \ne y_i` and the likelier class has a larger probability
    than the label. A class without an example has no threshold and is not proposed.

    Args:
        probabilities: A distribution over the classes per row, of a model that was not fitted to the row.
        labels: The given labels, 0 .. K-1.
        weight: Weight of each row in the thresholds; None: 1.

    Reference: Northcutt, Jiang and Chuang 2021, Equations 1 and 2, and Section 3.2.
    """
    w = torch.ones(len(labels), dtype=torch.float64) if weight is None else weight.double()
    p, classes = probabilities.double(), probabilities.shape[-1]
    own = p.gather(1, labels[:, None]).squeeze(1)
    zeros = torch.zeros(classes, dtype=torch.float64)
    threshold = zeros.index_add(0, labels, w * own) / zeros.index_add(0, labels, w)
    # A mean of equal numbers may round to just above them; NaN, of no example, is never reached.
    confident = torch.where(p >= threshold - 1e-12, p, -1.0)
    most, likely = confident.max(1)
    return Suspects((likely != labels) & (most > own), likely)


def by_chance(
    probabilities: Float[Tensor, "n classes"], weight: Float[Tensor, " n"], *, draws: int = DRAWS
) -> Float[Tensor, " draws"]:
    """How many labels are suspected where each was drawn with its stated probability, so none is wrong.

    Args:
        probabilities: A distribution over the classes per row.
        weight: Weight of each row in the thresholds.
        draws: Sets of labels at most; at least 20.
    """
    generator = Generator().manual_seed(SEED)
    counts = []
    for _ in range(max(20, min(draws, AT_ONCE // max(probabilities.numel(), 1)))):
        labels = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        counts.append(float(confident_errors(probabilities, labels, weight).found.sum()))
    return torch.tensor(counts, dtype=torch.float64)


def rows_of(subject: Subject) -> Int[Tensor, " terms"]:
    """The held-out example, counted from 0, that each term of weight above 0 belongs to."""
    found, first = [], 0
    for batch in subject.test:
        if batch.targets is None:
            raise ValueError("the held-out examples have no targets")
        counted = expand_weight(torch.ones_like(batch.targets, dtype=torch.float64), batch.weight).cpu()
        index = torch.arange(first, first + len(counted)).reshape(-1, *[1] * (counted.ndim - 1))
        found.append(index.expand_as(counted)[counted > 0])
        first += len(counted)
    return torch.cat(found)


def mislabeled(subject: Subject) -> Finding:
    """How many held-out labels are likely wrong, which they are, and how many would be suspected by chance.

    The count is of this sample. What chance does is seen by drawing the labels from the stated probabilities:
    were these right and all labels too, so many would be suspected. Of a model that is sure of too little
    chance seems to do more, of one that is sure of too much less: look at the rows, the gravest first.

    Args:
        subject: A model that states class probabilities and was not trained on the held-out examples.

    Reference: Northcutt, Jiang and Chuang 2021, Section 3; Bröcker and Smith 2007 (consistency resampling).
    """
    found = forecasts(subject)
    sound = is_distribution(found.probabilities)
    count, words = math.nan, ""
    curves: dict[str, Tensor] = {}
    if not found.failure and sound.status != "refuted":
        suspects = confident_errors(found.probabilities, found.labels, found.weight)
        count = float(suspects.found.sum())
        chance = by_chance(found.probabilities, found.weight)
        ends = torch.stack((chance.mean(), chance.quantile(0.95)))
        words = f"; of right labels and probabilities {ends[0]:.3g} would be, {ends[1]:.3g} at most in 95 %"
        curves = _by_gravity(subject, suspects) | {"by chance": ends}
    return Finding(
        statement=f"Of {len(found.labels):,} held-out labels those that are likely wrong: another class is "
        f"likelier, and as likely as where it is the label{words}.",
        value=torch.tensor(count, dtype=torch.float64),
        unit="labels",
        range=(0.0, max(1.0, len(found.labels))),
        premises=(sound, UNSEEN),
        failure=found.failure,
        remarks=tuple(_named(subject, curves)) if curves else (),
        curves=curves,
    )


def _by_gravity(subject: Subject, suspects: Suspects) -> dict[str, Tensor]:
    """The suspected rows with both classes and their probabilities, the widest apart first."""
    found = forecasts(subject)
    index = suspects.found.nonzero().flatten()
    p, given, likely = found.probabilities[index], found.labels[index], suspects.likely[index]
    of_given, of_likely = (p.gather(1, k[:, None]).squeeze(1) for k in (given, likely))
    order = (of_given - of_likely).argsort(stable=True)[:MOST_LISTED]
    columns = (rows_of(subject)[index], given, likely, of_given, of_likely)
    return {name: column[order] for name, column in zip(COLUMNS, columns, strict=True)}


def _named(subject: Subject, curves: dict[str, Tensor]) -> Iterator[str]:
    rows = zip(*(curves[name][:NAMED].tolist() for name in COLUMNS), strict=True)
    for row, given, likely, of_given, of_likely in rows:
        yield (
            f"Held-out example {row}: labeled {name_of(subject, given)!r}, of probability {of_given:.2g}; "
            f"{name_of(subject, likely)!r} has {of_likely:.2g}."
        )


def mislabeled_demo() -> Subject:
    """Two classes given .9 to 20 examples each, right but for two labels of class 0 that are called 1."""
    truth = torch.tensor([0, 1] * 20)
    labels = truth.clone()
    labels[[4, 10]] = 1
    p = 0.1 + 0.8 * nn.functional.one_hot(truth, 2).double()
    return stated(p.log(), labels, task=CLASSES)
