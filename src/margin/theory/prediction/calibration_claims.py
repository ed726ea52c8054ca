"""What a classifier's stated probabilities are worth: calibration error, Brier score, log likelihood."""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, NotAsked, Premise, Subject, has_probabilities
from margin.theory.prediction.calibration import (
    Reliability,
    brier_score,
    calibrated_errors,
    calibration_interval,
    expected_calibration_error,
    negative_log_likelihood,
    reliability,
)
from margin.theory.prediction.held_out import (
    Terms,
    held_out_answers,
    independent_draws,
    output_of_one,
    stated,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.limits import limits_of

SEED = 2017
FEW = 50
"""Forecasts below which the interval of a calibration error is wider than it need be."""


class Forecasts(NamedTuple):
    """The distribution over classes stated of each held-out term, in float64, and what happened."""

    probabilities: Tensor
    labels: Tensor
    weight: Tensor
    example: Tensor
    failure: str

    @property
    def top_label(self) -> tuple[Tensor, Tensor]:
        """The confidence of each prediction, and 1 where it was right."""
        confidence, predicted = self.probabilities.max(-1)
        return confidence, (predicted == self.labels).double()

    @property
    def positive(self) -> tuple[Tensor, Tensor]:
        """The probability of class 1 of two, and 1 where it was the label."""
        return self.probabilities[:, 1], self.labels.double()


def forecasts(subject: Subject) -> Forecasts:
    """The probabilities a subject states for its held-out terms.

    Raises:
        ValueError: The task states no probabilities, or a label is none of the classes.
    """
    if subject.task.probabilities is None:
        raise ValueError(f"calibration needs stated probabilities: task {subject.task.name!r} has none")
    answered = held_out_answers(subject)
    # float64: the softmax of float32 logits may sum to 1 +- 1e-7, and underflows at a gap of 103.
    probabilities = subject.task.probabilities(answered.outputs.double())
    labels, classes = answered.targets, probabilities.shape[-1]
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}: got {int(labels.min())}..{int(labels.max())}")
    failure = unanswered(probabilities, "a probability")
    return Forecasts(probabilities, labels.long(), answered.weight, answered.example, failure)


def is_distribution(probabilities: Tensor) -> Premise:
    """The hypothesis that what the model states are distributions over the classes."""
    text = "each forecast is a distribution over the classes"
    if probabilities.numel() == 0 or not bool(probabilities.isfinite().all()):
        return Premise(text, "assumed", "there are forecasts that are not finite, or none")
    off = float((probabilities.sum(-1) - 1).abs().max())
    least = float(probabilities.min())
    sound = off < 1e-4 and least >= -1e-6
    evidence = f"sums differ from 1 by {off:.1e} at most, the least probability is {least:.2g}"
    return Premise(text, "proved" if sound else "refuted", evidence)


class Reading(NamedTuple):
    """One reading of forecasts: its error and interval, what chance alone would measure, its diagram."""

    error: float
    low: float
    high: float
    by_chance: float
    diagram: Reliability


def _read(
    probability: Tensor, happened: Tensor, weight: Tensor, *, bins: int, level: float, resamples: int
) -> Reading:
    error = float(expected_calibration_error(probability, happened, bins=bins, weight=weight))
    drawn, by_chance = Generator().manual_seed(SEED), Generator().manual_seed(SEED + 1)
    ideal = calibrated_errors(probability, by_chance, bins=bins, weight=weight, resamples=resamples)
    low, high = calibration_interval(
        probability, happened, ideal, drawn, bins=bins, weight=weight, level=level
    )
    diagram = reliability(probability, happened, bins=bins, weight=weight)
    return Reading(error, low, high, float(ideal.mean()), diagram)


def _calibration(
    subject: Subject,
    events: dict[str, tuple[Tensor, Tensor]],
    found: Forecasts,
    *,
    bins: int,
    level: float,
    resamples: int,
) -> Finding:
    """The finding of one or several readings, each (probability, happened) under its label."""
    sound = is_distribution(found.probabilities)
    readings: dict[str, Reading] = {}
    if not found.failure and sound.status != "refuted":
        readings = {
            label: _read(*event, found.weight, bins=bins, level=level, resamples=resamples)
            for label, event in events.items()
        }
    curves = {}
    for label, reading in readings.items():
        prefix = f"{label}: " if len(events) > 1 else ""
        for name, curve in zip(("confidence", "accuracy", "count"), reading.diagram, strict=True):
            curves[prefix + name] = curve
    by_chance = " and ".join(f"{reading.by_chance:.2g}" for reading in readings.values())
    rows = [reading[:3] for reading in readings.values()] or [(math.nan,) * 3] * len(events)
    value, low, high = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return Finding(
        statement=f"The mean distance between stated probability and frequency over {bins} bins of "
        f"{len(found.labels):,} held-out forecasts, with a {level:.0%} interval"
        + (" (wider than it need be: they are few)" if len(found.labels) < FEW else "")
        + (f"; perfect calibration would measure {by_chance} by chance." if by_chance else "."),
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject), sound),
        kind="estimate",
        interval=(low, high),
        failure=found.failure,
        labels=tuple(events),
        curves=curves,
    )


def ece(subject: Subject, *, bins: int = 15, level: float = 0.95, resamples: int = 1000) -> Finding:
    """The expected calibration error of the top label: confidence against frequency of being right.

    Args:
        subject: A model that states probabilities.
        bins: Bins of equal width; 0 lies in the first, 1 in the last.
        level: Intended probability with which the interval covers the binned error of the population.
        resamples: Samples of what perfect calibration would measure; their seed is fixed.
    """
    found = forecasts(subject)
    events = {"top-label confidence": found.top_label}
    return _calibration(subject, events, found, bins=bins, level=level, resamples=resamples)


def binary_ece(subject: Subject, *, bins: int = 15, level: float = 0.95, resamples: int = 1000) -> Finding:
    """Both calibration errors of a two-class model: of its top label, and of the positive class.

    The first compares the confidence max(p, 1 - p) with the frequency of being right, the second the
    probability p of class 1 with the frequency of class 1. Errors of opposite sign on the two sides of 1/2
    cancel in the first where the second sees both.

    Args:
        subject: A model that states the probabilities of two classes.
        bins: Bins of equal width; 0 lies in the first, 1 in the last.
        level: Intended probability with which each interval covers the binned error of the population.
        resamples: Samples of what perfect calibration would measure; their seed is fixed.
    """
    found = forecasts(subject)
    if (classes := found.probabilities.shape[-1]) != 2:
        raise ValueError(f"the binary calibration error needs two classes: got {classes}")
    events = {"top-label confidence": found.top_label, "frequency of positives": found.positive}
    return _calibration(subject, events, found, bins=bins, level=level, resamples=resamples)


def has_two_classes(subject: Subject) -> bool:
    """Whether the model states the probabilities of exactly two classes."""
    if not has_probabilities(subject) or subject.task.probabilities is None:
        return False
    outputs = output_of_one(subject)
    return isinstance(outputs, Tensor) and subject.task.probabilities(outputs).shape[-1] == 2


def brier(subject: Subject) -> Finding:
    """The mean Brier score over all classes, from 0 (certain and right) to 2 (certain and wrong).

    Args:
        subject: A model that states probabilities.
    """
    found = forecasts(subject)
    scores = brier_score(found.probabilities, found.labels)
    estimate = weighted_mean(Terms(scores, found.weight, found.example))
    classes = found.probabilities.shape[-1]
    return Finding(
        statement=f"The mean squared distance between forecast and outcome over {classes} classes; a "
        f"uniform forecast scores {1 - 1 / classes:.4g}.",
        value=estimate.mean,
        range=(0.0, 2.0),
        premises=(independent_draws(subject), is_distribution(found.probabilities)),
        kind="estimate",
        stderr=estimate.stderr,
        printed=limits_of(Terms(scores, found.weight, found.example)),
        failure=found.failure,
    )


def nll(subject: Subject) -> Finding:
    """The mean negative log-likelihood of what happened, in nats.

    Args:
        subject: A model that states probabilities.

    Raises:
        NotAsked: Something happened that was given probability 0: the mean is infinite, which is true of
            the model and no failure, but is no number with an interval.
    """
    found = forecasts(subject)
    scores = negative_log_likelihood(found.probabilities, found.labels)
    counted = (scores == math.inf) & (found.weight > 0)
    if not found.failure and bool(counted.any()):
        raise NotAsked(
            f"the mean is infinite: what happened was given probability 0 in {int(counted.sum()):,} of "
            f"{len(scores):,} held-out forecasts, the first of index {int(counted.nonzero()[0])}"
        )
    estimate = weighted_mean(Terms(scores, found.weight, found.example))
    classes = found.probabilities.shape[-1]
    return Finding(
        statement=f"The mean surprise -log p at what happened over {classes} classes; a uniform forecast "
        f"scores {math.log(classes):.4g}.",
        value=estimate.mean,
        unit="nat",
        range=(0.0, math.inf),
        premises=(independent_draws(subject), is_distribution(found.probabilities)),
        kind="estimate",
        stderr=estimate.stderr,
        printed=limits_of(Terms(scores, found.weight, found.example)),
        failure=found.failure or unanswered(scores, "the surprise"),
    )


def demo() -> Subject:
    """Ten forecasts of 0.9 of which nine came true, ten of 0.6 of which eight did: the error is 0.1."""
    p = torch.tensor([0.9] * 10 + [0.6] * 10, dtype=torch.float64)
    logits = torch.stack((torch.zeros_like(p), (p / (1 - p)).log()), -1)
    labels = torch.tensor([1] * 9 + [0] + [1] * 8 + [0] * 2)
    return stated(logits, labels)


def binary_demo() -> Subject:
    """Forecasts 0.7 that came true 8 times in 10, and 0.3 that did 4 times in 10.

    The confidence, 0.7 in all, is met on average: the top-label error is 0, that of the positives 0.1.
    """
    p = torch.tensor([0.7] * 10 + [0.3] * 10, dtype=torch.float64)
    logits = torch.stack((torch.zeros_like(p), (p / (1 - p)).log()), -1)
    return stated(logits, torch.tensor([1] * 8 + [0] * 2 + [1] * 4 + [0] * 6))
