"""Cover's count (1965): of the 2^s ways to put s points on two sides, how many a hyperplane makes.

Cover's theorem (1965) on the training examples themselves: every dichotomy tried, the count compared.
"""

import math
from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor

from margin.classic.perceptron.model import Perceptron
from margin.classic.perceptron.separation import dependent_subset, separate
from margin.classic.perceptron.training_rows import training_rows
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import HALFSPACE
from margin.core.types import Batch
from margin.engine.loop import risk


def cover_count(points: int, dimension: int) -> int:
    r"""How many dichotomies of s points in general position in R^n hyperplanes through the origin make.

    .. math:: C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}

    2^s exactly if s <= n. For hyperplanes with an offset in R^d, n = d + 1.

    Args:
        points: s, at least 1.
        dimension: n, at least 1.

    Raises:
        ValueError: A number is below 1.

    Reference:
        Cover 1965, Theorem 1.
    """
    if points < 1 or dimension < 1:
        raise ValueError(f"points and dimension must be at least 1: got {points} and {dimension}")
    return 2 * sum(math.comb(points - 1, i) for i in range(min(points, dimension)))


def separable_share(points: int, dimension: int) -> Fraction:
    """The probability C(s, n) / 2^s that points in general position, labeled by coins, can be separated.

    Exactly 1/2 at s = 2n, the capacity of a threshold unit with n weights; as n grows, a step there.

    Reference: Cover 1965, Section III (the separating capacity of a surface).
    """
    return Fraction(cover_count(points, dimension), 2**points)


def dichotomy_counts(x: Float[Tensor, "points features"]) -> list[int]:
    """How many dichotomies of the first s points hyperplanes through the origin make, by trying all.

    Only what separates the first s - 1 points can separate s, so each that does is continued on both sides.
    The count is of separations proved one by one: it costs C(s, n) of them.

    Args:
        x: Points, one a row, in general position or not; computed in float64.

    Returns:
        The number for s = 1 .. all.

    Raises:
        ArithmeticError: A separation is neither proved nor refuted.
    """
    x = x.double()
    made, counts = [[1.0]], []  # w and -w give opposite signs: the first point's is fixed
    for points in range(1, len(x) + 1):
        made = [signs for signs in made if _separates(x[:points], signs)]
        counts.append(2 * len(made))
        made = [[*signs, side] for signs in made for side in (1.0, -1.0)]
    return counts


def _separates(x: Float[Tensor, "points features"], signs: list[float]) -> bool:
    found = separate(torch.tensor(signs, dtype=x.dtype)[:, None] * x)
    if not (found.separable or found.inseparable):
        raise ArithmeticError(
            f"whether {signs} is a dichotomy of a hyperplane stays open: {found.evidence()}"
        )
    return found.separable


MOST_POINTS, MOST_WEIGHTS = 8, 4
"""Points and weights up to which every dichotomy is tried."""

LONGEST = 200
"""Weights up to which the curve of the separable share is drawn."""


def count(subject: Subject) -> Finding:
    """Whether hyperplanes make C(s, n) dichotomies of the first s of 8 drawn examples, by trying all.

    n - 1 <= 3 features are kept, those of the largest variance, and a 1 is appended for the bias.

    Args:
        subject: A halfspace with its training examples.
    """
    points, chosen = few_points(subject)
    n = points.shape[1]
    sizes = range(1, len(points) + 1)
    promised = torch.tensor([cover_count(s, n) for s in sizes])
    return Finding(
        statement=f"Hyperplanes make C(s, {n}) dichotomies of the first s of {len(points)} examples "
        f"drawn, in features {chosen}.",
        value=torch.tensor(dichotomy_counts(points)),
        unit="dichotomies",
        range=(0.0, 2.0 ** len(points)),
        low=promised,
        high=promised,
        premises=(general_position(points),),
        labels=tuple(f"s = {s}" for s in sizes),
    )


def transition(subject: Subject) -> Finding:
    """Whether half of all labelings of s = 2n training examples can be separated, n the number of weights.

    Tried on all 2^(2n) labelings with n <= 4. The curve is the theorem's share C(s, n) / 2^s for as many
    weights as the model has.

    Args:
        subject: A halfspace with its training examples.
    """
    points, chosen = few_points(subject)
    n = min(points.shape[1], len(points) // 2)
    # the features of least variance go; the last column is the 1 of the bias
    points = points[: 2 * n, points.shape[1] - n :]
    labelings = 2 ** len(points)
    half = torch.tensor(labelings // 2)
    weights = min(LONGEST, sum(p.numel() for p in subject.model.parameters()))
    ratios = torch.linspace(0.5, 4, 36)
    sizes = [max(1, round(float(ratio) * weights)) for ratio in ratios]
    return Finding(
        statement=f"Half of the {labelings} labelings of {len(points)} training examples can be separated by "
        f"{n} weights: of features {chosen[-(n - 1) :] if n > 1 else []} and the bias.",
        value=torch.tensor(dichotomy_counts(points)[-1]),
        unit="labelings",
        range=(0.0, float(labelings)),
        low=half,
        high=half,
        premises=(general_position(points),),
        reference="Cover 1965, Section III (the separating capacity is 2n)",
        curves={
            "examples per weight": torch.tensor([s / weights for s in sizes]),
            "separable share": torch.tensor([float(separable_share(s, weights)) for s in sizes]),
        },
    )


def few_points(subject: Subject) -> tuple[Float[Tensor, "points weights"], list[int]]:
    """At most 8 training examples in at most 3 features, a 1 appended, and which, by rising variance.

    The examples are drawn at random; the variance is that of all.

    Raises:
        ValueError: There are fewer than two examples.
    """
    x, _ = training_rows(subject)
    if len(x) < 2:
        raise ValueError(f"dichotomies need two training examples: got {len(x)}")
    chosen = x.var(0).argsort()[-(MOST_WEIGHTS - 1) :]
    points = training_rows(subject, MOST_POINTS)[0][:, chosen]
    return torch.cat((points, torch.ones_like(points[:, :1])), 1), chosen.tolist()


def general_position(points: Float[Tensor, "points weights"]) -> Premise:
    """The theorem's hypothesis on these very points: every subset of at most n is linearly independent."""
    n, text = min(points.shape), "the points (x, 1) are in general position"
    if subset := dependent_subset(points):
        return Premise(text, "refuted", f"examples {', '.join(map(str, subset))} are linearly dependent")
    return Premise(text, "proved", f"all {math.comb(len(points), n)} subsets of {n} have rank {n}")


def demo() -> Subject:
    """Eight Gaussian points of space, in general position with probability 1."""
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    batches = [Batch((x,), torch.arange(8) % 2)]
    model = Perceptron(3, 2)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))
