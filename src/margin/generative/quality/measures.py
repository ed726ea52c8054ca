"""Measures of a generated sample: two-sample tests, memorization, mode coverage.

- The classifier two-sample test (Lopez-Paz and Oquab 2017): can a classifier tell two samples apart? Its
  accuracy a on examples that it has not seen bounds the total variation from below: TV >= 2 a - 1.
- Memorization (Meehan, Chaudhuri and Dasgupta 2020): a generator that copies puts its samples closer to the
  training rows than held-out examples lie. The comparison is one of ranks (Mann and Whitney 1947).
- Mode coverage (Srivastava et al. 2017, Section 5.1; Metz et al. 2017, Section 3.1): modes of a known mixture
  that a generator covers, and the share of its samples that are good; so mode collapse is counted.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.math.two_samples.distances import blocks, distances, pair
from margin.theory.prediction.held_out import Terms
from margin.theory.prediction.ranking import auroc
from margin.theory.prediction.risk import clopper_pearson

Classifier = Literal["neighbors", "kernel", "logistic", "net"]


class TwoSampleAccuracy(NamedTuple):
    """The accuracy of a classifier of the two samples.

    Args:
        accuracy: Share of examples that a classifier trained on the others names rightly; 1/2 is chance.
        low: Lower confidence limit of the mean accuracy of the classifiers that were trained.
        high: Upper limit.
        stderr: Binomial standard error of the accuracy, for comparisons of large samples.
        hits: How many each fold's classifier names rightly.
        sizes: Of how many.
    """

    accuracy: float
    low: float
    high: float
    stderr: float
    hits: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    def at(self, level: float) -> "TwoSampleAccuracy":
        """The same with the limits of another level."""
        return _pooled(self.hits, self.sizes, level)

    @property
    def total_variation(self) -> float:
        """A lower confidence limit of the total variation between the two laws: 2 low - 1, at least 0."""
        return max(0.0, 2 * self.low - 1)


def classifier_two_sample(
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."],
    *,
    generator: Generator,
    classifier: Classifier = "neighbors",
    folds: int = 2,
    level: float = 0.95,
) -> TwoSampleAccuracy:
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
        raise ValueError(
            f"two samples must have one size in a classifier two-sample test: got {n} and {len(y)} rows"
        )
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


def _pooled(hits: Sequence[int], sizes: Sequence[int], level: float) -> TwoSampleAccuracy:
    total = sum(sizes)
    each = 1 - (1 - level) / len(hits)
    ends = [clopper_pearson(k, size, level=each) for k, size in zip(hits, sizes, strict=True)]
    low, high = (
        sum(end[side] * size for end, size in zip(ends, sizes, strict=True)) / total for side in (0, 1)
    )
    accuracy = sum(hits) / total
    stderr = (accuracy * (1 - accuracy) / total) ** 0.5
    return TwoSampleAccuracy(accuracy, low, high, stderr, tuple(hits), tuple(sizes))


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


RATIO = 1 / 3
"""A sample counts as memorized that is this much nearer to one training row than to any other."""


class Nearest(NamedTuple):
    """The nearest rows to each of a sample, the nearest first."""

    distance: Float[Tensor, "n count"]
    row: Int[Tensor, "n count"]


class Copying(NamedTuple):
    """Whether samples are nearer to the training rows than held-out examples are.

    Args:
        farther: P(a sample is farther) + P(as far) / 2. 1/2 where samples are as new as the data, below where
            the generator copies, above where its samples are far from all data.
        low: Lower confidence limit.
        high: Upper limit.
        z: The standardized statistic: below -3 speaks for copying.
        p_value: Chance of samples as near, were they drawn from the data's own law.
    """

    farther: float
    low: float
    high: float
    z: float
    p_value: float


def nearest(x: Float[Tensor, "n ..."], train: Float[Tensor, "m ..."], *, count: int = 1) -> Nearest:
    """The nearest training rows to each example.

    Args:
        x: Examples.
        train: Where neighbors are looked for.
        count: How many, at most the number of training rows.

    Raises:
        ValueError: There are too few training rows, the widths differ, or a number is not finite.
    """
    x, train = pair(x, train, names=("the sample", "the training rows"))
    if not 1 <= count <= len(train):
        raise ValueError(f"count must be in 1 .. the number of training rows, {len(train)}: got {count}")
    found = [apart.topk(count, dim=1, largest=False) for _, apart in blocks(x, train)]
    return Nearest(torch.cat([f.values for f in found]), torch.cat([f.indices for f in found]))


def copying(samples: Float[Tensor, " n"], held_out: Float[Tensor, " m"], *, level: float = 0.95) -> Copying:
    r"""The rank test of distances to the nearest training row: samples' against held-out examples'.

    .. math:: U = \#\{d_i > d'_j\} + \tfrac12 \#\{d_i = d'_j\}, \quad
        z = \frac{U - n m / 2}{\sqrt{n m (n + m + 1) / 12}}

    Given the training rows, both kinds of distances are independent draws, and of one law where the generator
    has the data's law and knows no training row; then the p-value, one-sided, is valid.

    Args:
        samples: Distance of each sample to its nearest training row.
        held_out: Distance of each held-out example to its own.
        level: Intended probability with which the limits hold the truth.

    Raises:
        ValueError: A distance is not finite, or there is none.

    Reference: Meehan, Chaudhuri and Dasgupta 2020, Section 3; Mann and Whitney 1947.
    """
    from scipy.stats import mannwhitneyu

    n, m = len(samples), len(held_out)
    scores = torch.cat((samples, held_out)).double().cpu()
    if not n or not m or not bool(scores.isfinite().all()):
        raise ValueError(
            f"copying compares finite distances of two kinds: got {n} and {m}, or one not finite"
        )
    terms = Terms(scores, torch.ones(n + m, dtype=torch.float64), torch.arange(n + m))
    area = auroc(scores, torch.arange(n + m) < n, terms, n + m, level=level)
    z = (area.value - 0.5) * n * m / math.sqrt(n * m * (n + m + 1) / 12)
    p_value = float(mannwhitneyu(scores[:n].numpy(), scores[n:].numpy(), alternative="less").pvalue)
    return Copying(area.value, area.low, area.high, z, p_value)


def memorized(found: Nearest, *, ratio: float = RATIO) -> float:
    """Share of examples whose nearest training row is nearer than ``ratio`` times the second nearest.

    Args:
        found: The two nearest training rows of each example.
        ratio: In (0, 1).

    Raises:
        ValueError: There are no two nearest, or the ratio is out of range.

    Reference: Yoon, Choi, Kwon and Ryu 2023, Diffusion probabilistic models generalize when they fail to
        memorize.
    """
    if found.distance.shape[1] < 2:
        raise ValueError("a ratio needs the two nearest training rows: got one")
    if not 0 < ratio < 1:
        raise ValueError(f"ratio must lie in (0, 1): got {ratio}")
    first, second = found.distance[:, 0], found.distance[:, 1]
    return float((first < ratio * second).double().mean())


WITHIN = 3.0
"""Standard deviations from the nearest mean within which a sample is good."""


class Coverage(NamedTuple):
    """What a sample covers of a mixture.

    Args:
        covered: Number of modes with enough good samples.
        good: Share of samples that are good: within so many deviations of the nearest mean.
        divergence: KL from the shares of the modes among the good samples to the mixture's weights, in nats;
            0 where they agree, log K where one of K equal modes has all; infinite without a good sample.
        counts: Good samples of each mode.
    """

    covered: int
    good: float
    divergence: float
    counts: Int[Tensor, " modes"]


def mode_coverage(
    samples: Float[Tensor, "n dim"],
    means: Float[Tensor, "modes dim"],
    std: float | Float[Tensor, " modes"],
    *,
    weights: Float[Tensor, " modes"] | None = None,
    within: float = WITHIN,
    least: int = 1,
) -> Coverage:
    r"""The modes of a mixture of round Gaussians that a sample covers.

    A sample belongs to the mode whose mean is the fewest deviations away; it is good within ``within`` of
    them.

    Args:
        samples: Points.
        means: Of the components.
        std: Standard deviation of each coordinate, of all components or of each; positive.
        weights: Of the components, positive with sum 1; equal if not given.
        within: Deviations, positive.
        least: Good samples that a covered mode has, at least 1.

    Raises:
        ValueError: A number is not finite, the widths differ, or an option is out of range.
    """
    samples, means = pair(samples, means, names=("the sample", "the means"))
    deviation = torch.as_tensor(std, dtype=torch.float64, device=means.device).expand(len(means))
    if not bool((deviation > 0).all()) or not within > 0 or least < 1:
        raise ValueError(
            f"std and within must be positive, least at least 1: got std={float(deviation.min())}, "
            f"within={within}, least={least}"
        )
    share = (
        torch.full_like(deviation, 1 / len(means)) if weights is None else weights.double().to(means.device)
    )
    if share.shape != deviation.shape or not bool((share > 0).all()) or abs(float(share.sum()) - 1) > 1e-6:
        raise ValueError(f"weights must be positive with sum 1, one for each mean: got {share.tolist()}")
    apart, mode = (distances(samples, means) / deviation).min(1)
    good = apart <= within
    counts = torch.bincount(mode[good], minlength=len(means))
    frequency = counts.double() / max(1, int(good.sum()))
    divergence = float((torch.xlogy(frequency, frequency) - torch.xlogy(frequency, share)).sum())
    return Coverage(
        covered=int((counts >= least).sum()),
        good=float(good.double().mean()),
        divergence=max(0.0, divergence) if bool(good.any()) else math.inf,
        counts=counts,
    )


def good_share(dim: int, *, within: float = WITHIN) -> float:
    r"""P(\|z\| <= within) of a standard normal z: the share of good samples of the mixture itself.

    The modes must be apart. In the plane it is 1 - exp(-within^2 / 2), .98889 for 3 deviations.

    Args:
        dim: Number of coordinates.
        within: Deviations.
    """
    half = torch.tensor([dim / 2, within**2 / 2], dtype=torch.float64)
    return float(torch.special.gammainc(half[0], half[1]))
