"""The classifier two-sample test (Lopez-Paz & Oquab 2017): can a classifier tell two samples apart?

Its accuracy a on examples that it has not seen bounds the total variation from below: TV >= 2 a - 1.
"""

from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.math.two_samples.distances import blocks, pair
from margin.theory.prediction.risk import clopper_pearson

Classifier = Literal["neighbors", "kernel", "logistic", "net"]


class Told(NamedTuple):
    """How well the two samples are told apart.

    Args:
        accuracy: Share of examples that a classifier trained on the others names rightly; 1/2 is chance.
        low: Lower confidence limit of the mean accuracy of the classifiers that were trained.
        high: Upper limit.
        stderr: Binomial standard error of the accuracy, for comparisons of large samples.
    """

    accuracy: float
    low: float
    high: float
    stderr: float

    @property
    def total_variation(self) -> float:
        """A lower confidence limit of the total variation between the two laws: 2 low - 1, at least 0."""
        return max(0.0, 2 * self.low - 1)


def told_apart(
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."],
    *,
    generator: Generator,
    classifier: Classifier = "neighbors",
    folds: int = 2,
    level: float = 0.95,
) -> Told:
    r"""The accuracy of telling two samples apart, each fold judged by a classifier trained on the others.

    A classifier right with probability a on balanced classes has :math:`2 a - 1 \le \sup_A P(A) - Q(A) = TV`.
    Given its classifier, the right answers of a fold are independent, and the exact binomial interval covers
    their mean probability though the two classes have one each (Hoeffding 1956). The folds share
    the error; their intervals are averaged.

    Args:
        x: Examples.
        y: Examples to compare with, as many (m = n).
        generator: Where the folds, and the start of a net, are drawn from.
        classifier: ``neighbors`` (the majority of the about sqrt(N) nearest of N), ``kernel`` (a support
            vector machine with a Gaussian kernel), ``logistic`` (a linear one), ``net`` (one hidden layer of
            64 units). Features are standardized first. Neighbors see fine structure in few dimensions; in
            many, noise has no neighbors, and they see less than a kernel.
        folds: At least 2; each must hold an example of either sample.
        level: Least probability of covering the mean accuracy of the classifiers.

    Raises:
        ValueError: The sizes differ, a sample is too small or not finite, or an option is out of range.

    Reference:
        Lopez-Paz and Oquab 2017, Section 3; Clopper and Pearson 1934.
    """
    x, y = pair(x, y)
    n = len(x)
    if n != len(y):
        raise ValueError(f"two samples must have one size to be told apart: got {n} and {len(y)} rows")
    if folds < 2 or n < 2 * folds:
        raise ValueError(
            f"folds must be at least 2, with 2 rows of either sample in each: got {folds} of {n}"
        )
    rows, labels = torch.cat((x, y)).cpu(), torch.arange(2).repeat_interleave(n)
    order = torch.stack(
        [torch.randperm(n, generator=generator), n + torch.randperm(n, generator=generator)], 1
    )
    seed = int(torch.randint(2**31, (), generator=generator))
    hits: list[int] = []
    parts = [part.flatten() for part in order.tensor_split(folds)]
    for k, part in enumerate(parts):
        rest = torch.cat(parts[:k] + parts[k + 1 :])
        answers = _answers(classifier, rows[rest], labels[rest], rows[part], seed)
        hits.append(int((answers == labels[part]).sum()))
    return _pooled(hits, [len(part) for part in parts], level)


def _pooled(hits: list[int], sizes: list[int], level: float) -> Told:
    total = sum(sizes)
    each = 1 - (1 - level) / len(hits)
    ends = [clopper_pearson(k, size, level=each) for k, size in zip(hits, sizes, strict=True)]
    low, high = (
        sum(end[side] * size for end, size in zip(ends, sizes, strict=True)) / total for side in (0, 1)
    )
    accuracy = sum(hits) / total
    return Told(accuracy, low, high, (accuracy * (1 - accuracy) / total) ** 0.5)


def _answers(
    classifier: Classifier, rows: Tensor, labels: Tensor, judged: Tensor, seed: int
) -> Int[Tensor, " judged"]:
    """What a classifier trained on labeled rows answers on others."""
    if classifier not in get_args(Classifier):
        raise ValueError(f"classifier must be one of {', '.join(get_args(Classifier))}: got {classifier!r}")
    mean, spread = rows.mean(0), rows.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    rows, judged = (rows - mean) / spread, (judged - mean) / spread
    if classifier == "neighbors":
        count = max(1, int(len(rows) ** 0.5))
        count -= count % 2 == 0  # an odd number, so that no vote is tied
        votes = [labels[apart.topk(count, largest=False).indices] for _, apart in blocks(judged, rows)]
        return (torch.cat(votes).double().mean(1) > 0.5).long()
    model = _untrained(classifier, seed).fit(rows.numpy(), labels.numpy())
    return torch.from_numpy(model.predict(judged.numpy()))


def _untrained(classifier: Classifier, seed: int) -> Any:
    if classifier == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000, random_state=seed)
    if classifier == "kernel":
        from sklearn.svm import SVC

        return SVC(random_state=seed)  # without a seed it draws one from NumPy's global generator
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        (64,),
        learning_rate_init=0.01,
        early_stopping=True,
        n_iter_no_change=20,
        max_iter=1000,
        random_state=seed,
    )
