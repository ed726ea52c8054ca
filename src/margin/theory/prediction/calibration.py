"""Calibration: whether events that were given probability p happen with frequency p.

Guo, Pleiss, Sun and Weinberger (2017), Equation 3: the expected calibration error averages
|frequency - probability| over bins of equal width. Beside it
stand the Brier score and the log likelihood.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from margin.core.deadline import check_deadline
from margin.core.findings import Finding, NotAsked, Premise, Subject, has_probabilities
from margin.theory.prediction.held_out import (
    Terms,
    held_out_answers,
    independent_draws,
    limits_of,
    output_of_one,
    position_of,
    stated,
    trials_of,
    unanswered,
    weighted_mean,
)

Probability = Float[Tensor, " n"]
Outcome = Float[Tensor, " n"] | Bool[Tensor, " n"]
Weight = Float[Tensor, " n"] | None

DRAWS_AT_ONCE = 2_000_000
"""Random numbers held at once while resampling: 16 MB."""


class Reliability(NamedTuple):
    """A reliability diagram: per bin the mean probability, the frequency of the event, the weight.

    An empty bin has weight 0 and NaN for the other two.
    """

    probability: Float[Tensor, " bins"]
    frequency: Float[Tensor, " bins"]
    weight: Float[Tensor, " bins"]


def bin_of(probability: Probability, bins: int) -> Int[Tensor, " n"]:
    r"""The bin of each probability: ((m - 1) / M, m / M] for m = 1 .. M, counted from 0, the first closed.

    Every probability has a bin: 0 lies in the first, 1 in the last.

    Args:
        probability: In [0, 1], up to rounding.
        bins: M, at least 1.

    Raises:
        ValueError: ``bins`` is below 1, or a probability is NaN or outside [0, 1].

    Reference: Guo, Pleiss, Sun and Weinberger 2017, Section 2.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1: got {bins}")
    inside = (probability >= -1e-6) & (probability <= 1 + 1e-6)
    if not bool(inside.all()):
        raise ValueError(f"probabilities must lie in [0, 1]: got {float(probability[~inside][0])}")
    inner = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]
    return torch.bucketize(probability.double().contiguous(), inner)


def reliability(
    probability: Probability, happened: Outcome, *, bins: int = 15, weight: Weight = None
) -> Reliability:
    """The reliability diagram of stated probabilities.

    Args:
        probability: The probability given to each event.
        happened: 1 where the event happened, else 0.
        bins: Bins of equal width.
        weight: Weight of each event; None: 1.
    """
    index = bin_of(probability, bins)
    w = torch.ones(len(index), dtype=torch.float64) if weight is None else weight.double()
    zeros = torch.zeros(bins, dtype=torch.float64)
    total = zeros.index_add(0, index, w)
    return Reliability(
        zeros.index_add(0, index, w * probability.double()) / total,
        zeros.index_add(0, index, w * happened.double()) / total,
        total,
    )


def top_label(probability: Any, happened: Any) -> tuple[Probability, Outcome]:
    """Stated probabilities and outcomes as tensors; of K classes the likeliest, and whether it was the label.

    Args:
        probability: (n,) of an event, or (n, K) of each class; a tensor or an array.
        happened: (n,) outcomes, 0 or 1; of (n, K) probabilities the labels 0 .. K - 1.

    Raises:
        ValueError: The shapes do not fit, an outcome is neither 0 nor 1, or a label is no class.
    """
    p, y = torch.as_tensor(probability), torch.as_tensor(happened)
    if p.ndim not in (1, 2) or y.shape != p.shape[:1]:
        raise ValueError(
            "probabilities must be (n,) or (n, classes), beside n outcomes or labels: "
            f"got {tuple(p.shape)} and {tuple(y.shape)}"
        )
    if p.ndim == 1:
        if not bool(((y == 0) | (y == 1)).all()):
            raise ValueError(f"outcomes must be 0 or 1: got {y[(y != 0) & (y != 1)][0]}")
        return p, y.double()
    if y.is_floating_point() or y.dtype == torch.bool or not bool(((y >= 0) & (y < p.shape[1])).all()):
        raise ValueError(
            f"labels must be integers from 0 to {p.shape[1] - 1}: got {y.dtype}, {y[:3].tolist()}"
        )
    confidence, label = p.max(1)
    return confidence, label == y


def expected_calibration_error(
    probability: Any, happened: Any, *, bins: int = 15, weight: Weight = None
) -> Float[Tensor, ""]:
    r"""The expected calibration error of stated probabilities, a number in [0, 1].

    .. math:: \mathrm{ECE} = \sum_{m=1}^{M} \frac{w(B_m)}{w} \, |\mathrm{freq}(B_m) - \mathrm{prob}(B_m)|

    with w(B) the weight of the events in bin B. For a classifier's top-label reading, ``probability`` is
    its confidence and ``happened`` whether it was right; for two classes the other reading takes the
    probability of the positive class and whether it was the label. The two differ.

    Args:
        probability: The probability given to each event, (n,), a tensor or an array; or (n, K), that of each
            class, which is then read by its top label.
        happened: 1 where the event happened, else 0; of (n, K) probabilities the labels 0 .. K - 1.
        bins: M, bins of equal width; see :func:`bin_of` for their ends.
        weight: Weight of each event; None: 1.

    Raises:
        ValueError: The shapes do not fit, or an outcome, a label or a probability is none.

    Reference: Guo, Pleiss, Sun and Weinberger 2017, Equation 3.
    """
    probability, happened = top_label(probability, happened)
    index = bin_of(probability, bins)
    w = torch.ones(len(index), dtype=torch.float64) if weight is None else weight.double()
    excess = w * (happened.double() - probability.double())
    return torch.zeros(bins, dtype=torch.float64).index_add(0, index, excess).abs().sum() / w.sum()


def calibrated_errors(
    probability: Probability,
    generator: Generator,
    *,
    bins: int = 15,
    weight: Weight = None,
    resamples: int = 1000,
) -> Float[Tensor, " resamples"]:
    """The calibration error that perfectly calibrated probabilities would measure on samples of this size.

    Each event is drawn to happen with its stated probability. The errors are above 0 for no other reason
    than chance: below their 95 % quantile, a measured error shows no miscalibration.

    Args:
        probability: The probability given to each event.
        generator: Source of the draws.
        bins: Bins of equal width.
        weight: Weight of each event; None: 1.
        resamples: Number of samples.

    Reference: Bröcker and Smith 2007 (consistency resampling).
    """
    index = bin_of(probability, bins)
    p, n = probability.double(), len(index)
    w = torch.ones(n, dtype=torch.float64) if weight is None else weight.double()
    found = []
    for rows in torch.arange(resamples).split(max(1, DRAWS_AT_ONCE // max(n, 1))):
        check_deadline()
        happened = torch.rand(len(rows), n, generator=generator, dtype=torch.float64) < p
        sums = torch.zeros(len(rows), bins, dtype=torch.float64)
        sums.scatter_add_(1, index.expand(len(rows), n), w * (happened.double() - p))
        found.append(sums.abs().sum(1) / w.sum())
    return torch.cat(found)


def signed_errors(
    probability: Probability,
    happened: Outcome,
    terms: Terms,
    generator: Generator,
    *,
    bins: int = 15,
    resamples: int = 1000,
) -> Float[Tensor, " resamples"]:
    r"""The calibration error that samples of these examples would measure, were there none: a wild bootstrap.

    .. math:: e = \frac1w \sum_m \Big| \sum_i \xi_i \sum_{t \in i \cap B_m} w_t (y_t - p_t) \Big|

    with a random sign for each example i: its mean is 0, and the terms of one example go together as they do.
    What examples miss in truth is among it, so it is a little too large of a model that is not calibrated.

    Args:
        probability: The probability given to each event.
        happened: 1 where the event happened, else 0.
        terms: Weight and example of each event; the values are not read.
        generator: Source of the signs.
        bins: Bins of equal width.
        resamples: Number of samples.

    Reference: Cameron, Gelbach and Miller 2008, Section III.B (the wild bootstrap over clusters).
    """
    position, w = position_of(terms.example), terms.weight
    sums = torch.zeros(int(position.max()) + 1, bins, dtype=torch.float64)
    excess = w * (happened.double() - probability.double())
    sums.index_put_((position, bin_of(probability, bins)), excess, accumulate=True)
    signs = 2.0 * torch.randint(2, (resamples, len(sums)), generator=generator).double() - 1
    return (signs @ sums).abs().sum(1) / w.sum()


# 8 parameters: two of them, the weights and the examples, are one fact of each event
def calibration_interval(
    probability: Probability,
    happened: Outcome,
    calibrated: Float[Tensor, " c"],
    generator: Generator,
    *,
    bins: int = 15,
    weight: Weight = None,
    example: Int[Tensor, " n"] | None = None,
    level: float = 0.95,
) -> tuple[float, float]:
    r"""An interval of the binned calibration error of the population, :math:`\sum_m |\mu_m|`.

    The measured error e is biased upward, so that e + h is an upper limit. For the lower one the sample is
    halved at random: the signs of one half, applied to the excesses of the other, give a sum of expectation
    :math:`\sum_m E[\sigma_m] \mu_m` is at most the error. Both halves in turn, less h; 0 where e does not
    exceed the ``level`` quantile of what perfect calibration would measure. The half-width is

    .. math:: h = \sqrt{(t_{n-1} s / \sqrt n)^2 + (\log(2 / \alpha) / n)^2}

    with s the larger deviation of a signed excess in the two sums and the second term what n events without a
    single surprise leave possible (the exact binomial limit of 0 in n). The interval covers 95 % or more at
    every n in simulation, one event too, where it is nearly [0, 1]; it is wider than it need be below n = 50.
    Where examples have several events, they are halved, the deviations are over them, Student's quantile is
    of their number, and n is the number of trials that the events are worth.

    Args:
        probability: The probability given to each event.
        happened: 1 where the event happened, else 0.
        calibrated: Errors that perfectly calibrated probabilities would measure.
        generator: Source of the halves.
        bins: Bins of equal width.
        weight: Weight of each event; None: 1.
        example: The example that each event belongs to; None: each to its own.
        level: Intended probability of covering the truth, in (0, 1).

    Reference: Kumar, Liang and Ma 2019, Section 4 (the bias); Cox 1975 (signs from one half, a test on the
    other); Clopper and Pearson 1934 (0 in n).
    """
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level}")
    index = bin_of(probability, bins)
    w = torch.ones(len(index), dtype=torch.float64) if weight is None else weight.double()
    excess = happened.double() - probability.double()
    position = torch.arange(len(index)) if example is None else position_of(example)
    examples = int(position.max()) + 1
    n = trials_of(happened, Terms(w, w, position), level=level)
    error = float(expected_calibration_error(probability, happened, bins=bins, weight=weight))
    if n < 2:
        return 0.0, 1.0
    half = (torch.randperm(examples, generator=generator) % 2)[position]
    totals = torch.zeros(2, bins, dtype=torch.float64)
    totals.index_put_((half, index), w * excess, accumulate=True)
    crossed = totals[1 - half, index].sign() * excess
    own = totals.sum(0)[index].sign() * excess
    estimate = float((w * crossed).sum() / w.sum())
    spread = max(float(weighted_mean(Terms(signed, w, position)).stderr) for signed in (crossed, own))
    alpha = 1 - level
    h = math.hypot(-float(stdtrit(min(n, examples) - 1, alpha / 2)) * spread, math.log(2 / alpha) / n)
    below = 0.0 if error <= float(calibrated.quantile(level)) else max(estimate - h, 0.0)
    return min(below, error), min(error + h, 1.0)


def brier_score(probabilities: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""The Brier score of each forecast, :math:`\sum_k (p_k - 1[y = k])^2`, from 0 to 2.

    Over two classes it is twice (p_1 - y)^2, which some libraries call by this name.

    Args:
        probabilities: A distribution over the classes per row.
        labels: The classes that happened, 0 .. K-1.

    Reference: Brier 1950, Equation 2; Gneiting and Raftery 2007, Section 3.1, example 1.
    """
    own = probabilities.gather(-1, labels[:, None])[:, 0]
    return (1 - own).square() + probabilities.square().sum(-1) - own.square()


def negative_log_likelihood(
    probabilities: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """The logarithmic score -log p_y of each forecast, in nats: 0 for certainty, infinite for p_y = 0.

    Args:
        probabilities: A distribution over the classes per row.
        labels: The classes that happened, 0 .. K-1.

    Reference: Good 1952, Section 8; Gneiting and Raftery 2007, Section 3.1, example 3.
    """
    return -probabilities.gather(-1, labels[:, None])[:, 0].log()


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
    def terms(self) -> Terms:
        """Weight and example of each forecast, the weight standing for the values too."""
        return Terms(self.weight, self.weight, self.example)

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


def reading_of(
    probability: Tensor, happened: Tensor, terms: Terms, *, bins: int, level: float, resamples: int
) -> Reading:
    """One reading of probabilities and of whether what they are of happened; its draws are seeded.

    Args:
        probability: The probability given to each event.
        happened: 1 where the event happened, else 0.
        terms: Weight and example of each event; the values are not read.
        bins: Bins of equal width.
        level: That of the interval.
        resamples: Samples of what perfect calibration would measure.
    """
    _, weight, example = terms
    error = float(expected_calibration_error(probability, happened, bins=bins, weight=weight))
    drawn, by_chance = Generator().manual_seed(SEED), Generator().manual_seed(SEED + 1)
    if len(example) > int(position_of(example).max()) + 1:  # the events of an example go together
        ideal = signed_errors(probability, happened, terms, by_chance, bins=bins, resamples=resamples)
    else:
        ideal = calibrated_errors(probability, by_chance, bins=bins, weight=weight, resamples=resamples)
    low, high = calibration_interval(
        probability, happened, ideal, drawn, bins=bins, weight=weight, example=example, level=level
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
            label: reading_of(*event, found.terms, bins=bins, level=level, resamples=resamples)
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
