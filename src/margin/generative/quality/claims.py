"""Claims of generators: distances of samples from held-out examples, coverage, memorization, modes.

The demonstration is a generator whose law is known: a mixture of round Gaussians on a ring. Modes are counted
as Srivastava et al. 2017 do, where classes are components.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.data.sets.mixture_plane import ring
from margin.engine.objectives import negative_log_density
from margin.generative.quality.measures import (
    WITHIN,
    Classifier,
    TwoSampleAccuracy,
    classifier_two_sample,
    copying,
    good_share,
    memorized,
    mode_coverage,
    nearest,
)
from margin.generative.quality.sample_comparison import Compared, can_be_sampled, compared
from margin.math.two_samples.distances import distances
from margin.math.two_samples.mmd import squared_mmd
from margin.math.two_samples.precision_recall import Overlap, expected_coverage, overlap, overlap_stderr
from margin.math.two_samples.sliced_wasserstein import sliced_wasserstein
from margin.theory.prediction.differences import PRINTED_LEVEL
from margin.theory.prediction.risk import clopper_pearson

LEVEL = 1 - 1e-4
"""Probability with which an interval is to hold the truth."""

PERMUTATIONS = 199
NEIGHBORS = 5
CLASSIFIERS: dict[str, Classifier] = {"nearest neighbors": "neighbors", "a Gaussian kernel": "kernel"}
SHOWN, PICTURES = 300, 12
"""Points and images that a report shows, at most."""

NAN = torch.full((), math.nan, dtype=torch.float64)


def _seeded() -> Generator:
    return Generator().manual_seed(0)


def _number(x: float | list[float]) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def shown(found: Compared) -> dict[str, Tensor]:
    """Samples and data as the report draws them: points of the plane, or images."""
    if found.failure:
        return {}
    if found.test.ndim == 4:
        return {"sample images": found.samples[:PICTURES], "held-out images": found.test[:PICTURES]}
    if found.test.shape[1:] == (2,):
        return {"sample points": found.samples[:SHOWN], "held-out points": found.test[:SHOWN]}
    return {}


def sliced(subject: Subject) -> Finding:
    """The sliced Wasserstein distance of samples from held-out rows, compared with that of training rows.

    Args:
        subject: Its model can be sampled.
    """
    found, value, stderr, beside = compared(subject), NAN, NAN, ""
    if not found.failure:
        test = found.scaled(found.test)
        distance = sliced_wasserstein(found.scaled(found.samples), test, generator=_seeded())
        value, stderr = _number(distance.value), _number(distance.stderr)
        if len(found.train):
            # with replacement: a part has as many of each class as the other, which no generator would have
            chosen = torch.randint(len(found.train), (len(test),), generator=_seeded())
            own = sliced_wasserstein(found.scaled(found.train[chosen]), test, generator=_seeded())
            beside = f" As many draws from the training examples are at {own.value:.3g}."
    return Finding(
        statement=f"The sliced Wasserstein distance of {len(found.samples):,} samples from as many held-out "
        f"examples; the error is that of the directions.{beside}",
        value=value,
        stderr=stderr,
        kind="estimate",
        unit=found.unit,
        range=(0.0, math.inf),
        failure=found.failure,
        curves=shown(found),
    )


def mmd(subject: Subject) -> Finding:
    """The squared kernel discrepancy of samples from held-out rows, with the p-value of "one law".

    Args:
        subject: Its model can be sampled.
    """
    found, value, stderr, said = compared(subject), NAN, NAN, ""
    if not found.failure:
        answer = squared_mmd(
            found.scaled(found.samples),
            found.scaled(found.test),
            permutations=PERMUTATIONS,
            generator=_seeded(),
        )
        value, stderr = _number(answer.value), _number(answer.stderr)
        said = (
            f" Were both of one law, a value as large had probability {answer.p_value:.3g} "
            f"({PERMUTATIONS} permutations: at least {1 / (1 + PERMUTATIONS):.3g}). The kernel is Gaussian, "
            f"its bandwidth {answer.bandwidth:.3g}, the median distance."
        )
    return Finding(
        statement=f"The squared maximum mean discrepancy of {len(found.samples):,} samples from as many "
        f"held-out examples, without bias: 0 in the mean where both are of one law.{said}",
        value=value,
        stderr=stderr,
        kind="estimate",
        range=(-2.0, 2.0),
        failure=found.failure,
    )


def two_sample(subject: Subject) -> Finding:
    """A lower bound of the total variation between generator and data, from a classifier's accuracy.

    Args:
        subject: Its model can be sampled.
    """
    found, value, wide, printed, said = compared(subject), NAN, (NAN, NAN), (NAN, NAN), ""
    if not found.failure:
        name, told = best_classifier(found.scaled(found.samples), found.scaled(found.test))
        both = told, told.at(1 - (1 - PRINTED_LEVEL) / len(CLASSIFIERS))
        value = _number(max(0.0, 2 * told.accuracy - 1))
        wide, printed = ((_number(max(0.0, 2 * x.low - 1)), _number(max(0.0, 2 * x.high - 1))) for x in both)
        said = (
            f" with accuracy {told.accuracy:.3f} in [{told.low:.3f}, {told.high:.3f}], .5 is chance: {name}"
        )
    return Finding(
        statement=f"A classifier tells {len(found.samples):,} samples from as many held-out examples{said}. "
        "The total variation between generator and data is at least 2 accuracy - 1.",
        value=value,
        interval=wide,
        printed=printed,
        kind="lower",
        range=(0.0, 1.0),
        failure=found.failure,
    )


def best_classifier(samples: Tensor, real: Tensor) -> tuple[str, TwoSampleAccuracy]:
    """The classifier that tells two samples apart best, and how well; its limits count that there were two.

    Neighbors see fine structure in few dimensions; in many, noise has no neighbors, and a kernel sees more.
    """
    level = 1 - (1 - LEVEL) / len(CLASSIFIERS)
    told = {
        words: classifier_two_sample(samples, real, generator=_seeded(), classifier=name, level=level)
        for words, name in CLASSIFIERS.items()
    }
    best = max(told, key=lambda words: told[words].low)
    return best, told[best]


def limits(answer: Overlap, error: Tensor) -> tuple[Tensor, Tensor]:
    """Value -+ error, no narrower than the binomial intervals of the three shares and within their range.

    At 0 and 1 the jackknife knows no error.
    """
    low, high = (answer.values - error).clamp(min=0), answer.values + error
    for i, told in ((0, answer.precise), (1, answer.recalled), (3, answer.covered)):
        ends = clopper_pearson(int(told.sum()), len(told), level=LEVEL)
        low[i], high[i] = min(float(low[i]), ends[0]), min(max(float(high[i]), ends[1]), 1.0)
    return low, high


def precision_recall(subject: Subject) -> Finding:
    """Precision, recall, density and coverage of samples against held-out rows.

    Args:
        subject: Its model can be sampled.
    """
    found, said = compared(subject), ""
    value = low = high = NAN.expand(4)
    if not found.failure:
        real, generated = found.scaled(found.test), found.scaled(found.samples)
        answer = overlap(real, generated, neighbors=NEIGHBORS)
        error = 4 * overlap_stderr(real, generated, neighbors=NEIGHBORS, generator=_seeded())
        value = answer.values
        low, high = limits(answer, error)
        ideal = expected_coverage(len(real), len(generated), neighbors=NEIGHBORS)
        said = f" A generator of the data's own law has density 1 and coverage {ideal:.3f} in the mean"
        if len(found.train) >= len(real):
            own = overlap(real, found.scaled(found.train[: len(real)]), neighbors=NEIGHBORS)
            said += f"; as many training examples have precision {own.precision:.3f}, recall {own.recall:.3f}"
        said += "."
    return Finding(
        statement=f"How the supports of {len(found.samples):,} samples and of as many held-out examples "
        f"overlap, by balls to the {NEIGHBORS}th neighbor in raw coordinates.{said}",
        value=value,
        interval=(low, high),
        kind="estimate",
        range=(0.0, math.inf),
        labels=("precision", "recall", "density", "coverage"),
        failure=found.failure,
    )


def memorization(subject: Subject) -> Finding:
    """Whether samples are nearer to training rows than held-out rows are.

    Args:
        subject: Its model can be sampled; its training examples are known.
    """
    found, value, wide, printed, said = compared(subject), NAN, (NAN, NAN), (NAN, NAN), ""
    curves: dict[str, Tensor] = {}
    if not found.failure:
        train = found.scaled(found.train)
        samples, held = (nearest(found.scaled(x), train, count=2) for x in (found.samples, found.test))
        both = [
            copying(samples.distance[:, 0], held.distance[:, 0], level=level)
            for level in (LEVEL, PRINTED_LEVEL)
        ]
        answer = both[0]
        value = _number(answer.farther)
        wide, printed = ((_number(x.low), _number(x.high)) for x in both)
        said = (
            f" z = {answer.z:.2f}, p = {answer.p_value:.3g} against new draws of the data's law; "
            f"{memorized(samples):.1%} of the samples are 3 times nearer to one training row than to any "
            f"other, {memorized(held):.1%} of the held-out examples."
        )
        if found.test.ndim == 4:
            closest = samples.distance[:, 0].argsort()[:PICTURES]
            rows = samples.row[closest, 0]
            curves = {"sample images": found.samples[closest], "nearest training images": found.train[rows]}
    return Finding(
        statement="The probability that a sample is farther from the nearest of "
        f"{len(found.train):,} training rows than a held-out example is: 1/2 for new draws of the data's "
        f"law, less where training rows are copied, more where samples are far from all data.{said}",
        value=value,
        interval=wide,
        printed=printed,
        kind="estimate",
        range=(0.0, 1.0),
        premises=(
            Premise(
                "held-out examples are independent of the training rows", "assumed", "as they were split"
            ),
        ),
        failure=found.failure,
        curves=curves,
    )


APART = 6.0
"""Standard deviations between two means, at least: then balls of 3 do not meet."""

ROUND = 2.0
"""Ratio of the largest to the least variance along an axis within the classes, at most."""

EACH = 8
"""Training rows of each class that are needed."""

FEATURES = 16
"""Features at most: in more no class of real data is a ball, and looking for one costs."""


class Components(NamedTuple):
    """The components of a mixture of round Gaussians, estimated from labeled rows."""

    means: Float[Tensor, "modes dim"]
    std: float
    weights: Float[Tensor, " modes"]


def components_of(found: Compared) -> Components | None:
    """The classes as components, where they are round, of one size and apart; else None.

    Args:
        found: Its training rows are labeled.
    """
    labels, x = found.labels, found.train
    if x.ndim != 2 or not len(labels) or not 1 <= x.shape[1] <= FEATURES:
        return None
    counts = torch.bincount(labels)
    if len(counts) < 2 or int(counts.min()) < EACH:
        return None
    means = torch.zeros(len(counts), x.shape[1], dtype=x.dtype).index_add(0, labels, x) / counts[:, None]
    inner = x - means[labels]
    covariance = inner.T @ inner / (len(x) - len(counts))
    spectrum = torch.linalg.eigvalsh(covariance)
    std = float(spectrum.mean()) ** 0.5
    gaps = distances(means, means).fill_diagonal_(math.inf)
    if not float(spectrum[0]) * ROUND >= float(spectrum[-1]) > 0 or not float(gaps.min()) >= APART * std:
        return None
    return Components(means, std, counts.double() / len(x))


def has_components(subject: Subject) -> bool:
    """Whether the classes are components of a mixture of round Gaussians that are apart."""
    if not can_be_sampled(subject) or not len(subject.train):
        return False
    first = subject.test[0]
    if first.inputs[0].ndim != 2 or first.inputs[0].shape[1] > FEATURES or first.targets is None:
        return False
    return not first.targets.is_floating_point() and components_of(compared(subject)) is not None


def modes(subject: Subject) -> Finding:
    """The share of the modes that the samples cover, and the share of the samples that are good.

    Args:
        subject: Its classes are the components of a mixture.
    """
    found, said = compared(subject), ""
    parts = components_of(found)
    if parts is None:
        raise ValueError("mode coverage needs classes that are round Gaussians, apart from each other")
    means, std, weights = parts
    value = low = high = torch.full((2,), math.nan, dtype=torch.float64)
    real = mode_coverage(found.test, means, std, weights=weights)
    if not found.failure:
        answer = mode_coverage(found.samples, means, std, weights=weights)
        count, covered = len(found.samples), answer.covered / len(means)
        ends = clopper_pearson(round(answer.good * count), count, level=LEVEL)
        value = torch.tensor([covered, answer.good], dtype=torch.float64)
        # what so many samples covered, they covered
        low, high = (torch.tensor([covered, end], dtype=torch.float64) for end in ends)
        said = f" The divergence of the good samples' modes from the data's is {answer.divergence:.3g} nats."
    return Finding(
        statement=f"Of {len(means)} modes, those that {len(found.samples):,} samples cover, and the share of "
        f"samples within {WITHIN:g} standard deviations of a mode; of held-out examples it is "
        f"{real.good:.3f}, of the mixture {good_share(means.shape[1]):.3f}.{said}",
        value=value,
        interval=(low, high),
        kind="estimate",
        range=(0.0, 1.0),
        labels=("share of modes covered", "share of good samples"),
        premises=(_round(real.good, len(found.test), means.shape[1]),),
        failure=found.failure,
    )


def _round(share: float, count: int, dim: int) -> Premise:
    """Whether as many held-out examples are good as of a mixture of round Gaussians."""
    low, high = clopper_pearson(round(share * count), count, level=LEVEL)
    expected = good_share(dim)
    fits = low <= expected <= high
    return Premise(
        "each class is a round Gaussian",
        "sampled" if fits else "refuted",
        f"{share:.3f} of {count:,} held-out examples lie within {WITHIN:g} standard deviations, of a "
        f"Gaussian {expected:.3f}",
    )


class RoundMixture(nn.Module):
    r"""The law of equal weights on Gaussians N(m_k, std^2 I): sampled, and its density, exactly.

    Args:
        means: (K, d).
        std: Standard deviation of each coordinate, positive.
    """

    means: Tensor

    def __init__(self, means: Float[Tensor, "modes dim"], *, std: float) -> None:
        super().__init__()
        self.register_buffer("means", means)
        self.std = std

    def sample(self, count: int, *, generator: Generator) -> Float[Tensor, "count dim"]:
        """Rows drawn from the mixture; the components at random."""
        mode = torch.randint(len(self.means), (count,), generator=generator).to(self.means.device)
        noise = torch.randn(count, self.means.shape[1], generator=generator).to(self.means)
        return self.means[mode] + self.std * noise

    def log_prob(self, x: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """The log-density of each row, in nats."""
        apart = (x[:, None] - self.means).square().sum(-1) / self.std**2
        constant = x.shape[1] * math.log(self.std * math.sqrt(2 * math.pi)) + math.log(len(self.means))
        return (-apart / 2).logsumexp(1) - constant

    def forward(self, x: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """The log-density of each row."""
        return self.log_prob(x)


def subject_of(model: nn.Module, *, examples: int = 400) -> Subject:
    """A generator and the ring of eight Gaussians, half of it held out.

    Args:
        model: Draws points of the plane.
        examples: Of both parts together.
    """
    data = ring(examples=examples, test=0.5, val=0.0)
    parts = {name: (Batch((arrays.inputs[0],), arrays.targets),) for name, arrays in data.splits.items()}
    return Subject(
        model=model,
        test=parts["test"],
        train=parts["train"],
        task=DENSITY,
        objective=negative_log_density,
        class_names=tuple(str(k) for k in range(8)),
    )


def ring_subject() -> Subject:
    """The ring's own law and examples of it."""
    truth = ring(examples=8, test=0.0, val=0.0).encoding["truth"]
    return subject_of(RoundMixture(torch.tensor(truth["means"]), std=truth["std"]))
