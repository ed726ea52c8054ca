"""Cover's theorem (1965) on the training examples themselves: every dichotomy tried, the count compared."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from margin.classic.perceptron.cover import cover_count, dichotomy_counts, separable_share
from margin.classic.perceptron.model import Perceptron
from margin.classic.perceptron.separation import dependent_subset
from margin.classic.perceptron.training_rows import training_rows
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import HALFSPACE
from margin.core.types import Batch
from margin.engine.loop import risk

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
        reference="Cover 1965, Theorem 1",
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
