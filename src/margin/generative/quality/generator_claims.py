"""Questions to any generator: how far its samples are from held-out data, what they miss, what they copy.

Coordinates are raw: the features over their standard deviations, the pixels of images over one. None of the
answers is a promise that theory makes of every generator; each stands beside what the data themselves give.
"""

import math

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.generative.quality.classifier_two_sample import Classifier, Told, told_apart
from margin.generative.quality.generated import Compared, compared
from margin.generative.quality.nearest_neighbor import copying, memorized, nearest
from margin.math.two_samples.mmd import squared_mmd
from margin.math.two_samples.precision_recall import Overlap, expected_coverage, overlap, overlap_stderr
from margin.math.two_samples.sliced_wasserstein import sliced_wasserstein
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
    """The sliced Wasserstein distance of samples from held-out rows, beside that of training rows.

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
        premises=(),
        reference="Bonneel, Rabin, Peyre and Pfister 2015; Kolouri et al. 2019, Section 2",
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
        unit="1",
        range=(-2.0, 2.0),
        premises=(),
        reference="Gretton, Borgwardt, Rasch, Schoelkopf and Smola 2012, Lemma 6",
        failure=found.failure,
    )


def two_sample(subject: Subject) -> Finding:
    """A lower bound of the total variation between generator and data, from a classifier's accuracy.

    Args:
        subject: Its model can be sampled.
    """
    found, value, low, high, said = compared(subject), NAN, NAN, NAN, ""
    if not found.failure:
        name, told = best_told(found.scaled(found.samples), found.scaled(found.test))
        value, low, high = (_number(max(0.0, 2 * a - 1)) for a in (told.accuracy, told.low, told.high))
        said = (
            f" with accuracy {told.accuracy:.3f} in [{told.low:.3f}, {told.high:.3f}], .5 is chance: {name}"
        )
    return Finding(
        statement=f"A classifier tells {len(found.samples):,} samples from as many held-out examples{said}. "
        "The total variation between generator and data is at least 2 accuracy - 1.",
        value=value,
        interval=(low, high),
        kind="lower",
        unit="1",
        range=(0.0, 1.0),
        premises=(),
        reference="Lopez-Paz and Oquab 2017, Section 3",
        failure=found.failure,
    )


def best_told(samples: Tensor, real: Tensor) -> tuple[str, Told]:
    """The classifier that tells two samples apart best, and how well; its limits count that there were two.

    Neighbors see fine structure in few dimensions; in many, noise has no neighbors, and a kernel sees more.
    """
    level = 1 - (1 - LEVEL) / len(CLASSIFIERS)
    told = {
        words: told_apart(samples, real, generator=_seeded(), classifier=name, level=level)
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
    """Precision, recall, density and coverage of samples beside held-out rows.

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
        unit="1",
        range=(0.0, math.inf),
        labels=("precision", "recall", "density", "coverage"),
        premises=(),
        reference="Kynkaanniemi et al. 2019, Equations 1 and 2; Naeem, Oh, Uh, Choi and Yoo 2020, Section 3",
        failure=found.failure,
    )


def memorization(subject: Subject) -> Finding:
    """Whether samples are nearer to training rows than held-out rows are.

    Args:
        subject: Its model can be sampled; its training examples are known.
    """
    found, value, low, high, said = compared(subject), NAN, NAN, NAN, ""
    curves: dict[str, Tensor] = {}
    if not found.failure:
        train = found.scaled(found.train)
        samples, held = (nearest(found.scaled(x), train, count=2) for x in (found.samples, found.test))
        answer = copying(samples.distance[:, 0], held.distance[:, 0], level=LEVEL)
        value, low, high = (_number(x) for x in (answer.farther, answer.low, answer.high))
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
        interval=(low, high),
        kind="estimate",
        unit="1",
        range=(0.0, 1.0),
        premises=(
            Premise(
                "held-out examples are independent of the training rows", "assumed", "as they were split"
            ),
        ),
        reference="Meehan, Chaudhuri and Dasgupta 2020, Section 3",
        failure=found.failure,
        curves=curves,
    )
