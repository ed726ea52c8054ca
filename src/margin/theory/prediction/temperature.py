"""Temperature scaling: the one number by which a model's logits are divided so that its probabilities fit.

Guo, Pleiss, Sun and Weinberger (2017): networks are sure of too much, and softmax(logits / T) with one T
repairs most of it. No prediction changes: only how sure each is.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.deadline import check_deadline
from margin.core.findings import Finding, NotAsked, Subject
from margin.theory.prediction.calibration import Forecasts, forecasts, is_distribution, reading_of
from margin.theory.prediction.differences import PRINTED_LEVEL, at_both_levels
from margin.theory.prediction.held_out import (
    Terms,
    held_out_answers,
    independent_draws,
    mean_limits,
    stated,
    student_quantile,
    weighted_mean,
)
from margin.theory.prediction.residuals import Interval

COOLEST, HOTTEST = 0.05, 20.0
"""The temperatures that are tried."""

MOST = 500_000
"""Scores, examples times classes, from which a temperature is fitted; of more, examples are drawn."""

SEED = 2017
ROWS = ("temperature", "NLL gained", "ECE before", "ECE after")


class Scored(NamedTuple):
    """Scores whose softmax is what the model states, with labels, weights and examples."""

    scores: Float[Tensor, "n classes"]
    labels: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]
    example: Int[Tensor, " n"]

    def of(self, index: Tensor) -> "Scored":
        """The same of some of the terms."""
        return Scored(*(x[index] for x in self))

    def excess(self, temperature: float) -> tuple[Tensor, Tensor]:
        """By how much the mean score under softmax(s / T) exceeds the label's, and the score's variance."""
        p = (self.scores / temperature).softmax(-1)
        s = torch.where(p > 0, self.scores, 0)
        mean = (p * s).sum(-1)
        return mean - self.own, (p * s.square()).sum(-1) - mean.square()

    def losses(self, temperature: float) -> Float[Tensor, " n"]:
        """The negative log-likelihood of each label at a temperature, in nats."""
        s = self.scores / temperature
        return s.logsumexp(-1) - self.own / temperature

    @property
    def own(self) -> Float[Tensor, " n"]:
        """The score of each label."""
        return self.scores.gather(-1, self.labels[:, None]).squeeze(-1)


def best_temperature(scored: Scored) -> float:
    r"""The temperature T of least mean negative log-likelihood, a convex function of 1/T.

    It is where :math:`\sum_i w_i (E_T[s] - s_{y_i}) = 0`, the mean score under the model as large as that of
    the labels; the coolest or hottest that is tried where there is no such T within.

    Reference: Guo, Pleiss, Sun and Weinberger 2017, Section 4.2.
    """
    from scipy.optimize import brentq

    def slope(x: float) -> float:
        check_deadline()
        return float(scored.weight @ scored.excess(math.exp(x))[0])

    ends = (math.log(COOLEST), math.log(HOTTEST))
    if slope(ends[0]) <= 0:
        return COOLEST
    return HOTTEST if slope(ends[1]) >= 0 else math.exp(brentq(slope, *ends, xtol=1e-10))


def temperature_limits(scored: Scored, fitted: float, level: float) -> Interval:
    r"""The temperatures that a likelihood ratio test does not reject.

    .. math:: 2 \sum_i w_i (\ell_i(T) - \ell_i(\hat T)) \le t^2 \max(1, J / I)

    with J the variance of the slope over examples and I the curvature, in 1/T: the two are equal where some
    temperature makes the probabilities right. 0 or infinity where the coolest or hottest is not rejected.

    Args:
        scored: Terms of two examples or more.
        fitted: The temperature of least negative log-likelihood.
        level: Intended probability of covering the truth, in (0, 1).

    Reference: Barndorff-Nielsen and Cox 1994, Section 3.4; White 1982 (J and I where no T is right).
    """
    from scipy.optimize import brentq

    _, position = scored.example.unique(return_inverse=True)
    n = int(position.max()) + 1
    # as many terms as they are worth: of terms that are alike in an example J is as much larger than I
    w = scored.weight * scored.weight.sum() / scored.weight.square().sum()
    slope, curvature = scored.excess(fitted)
    J = float(torch.zeros(n, dtype=torch.float64).index_add(0, position, w * slope).square().sum())
    allowed = student_quantile(level, n) ** 2 * max(1.0, J / max(float(w @ curvature), 1e-300))
    least = float(w @ scored.losses(fitted))

    def rejected(x: float) -> float:
        check_deadline()
        return 2 * (float(w @ scored.losses(math.exp(x))) - least) - allowed

    def end(x: float, beyond: float) -> float:
        if rejected(x) <= 0:
            return beyond
        return math.exp(brentq(rejected, *sorted((x, math.log(fitted))), xtol=1e-6))

    return Interval(fitted, end(math.log(COOLEST), 0.0), end(math.log(HOTTEST), math.inf))


def in_halves(scored: Scored, right: Tensor) -> tuple[Tensor, Tensor]:
    """The terms of two random halves of the examples, each with half of the examples that hold a mistake."""
    ids, position = scored.example.unique(return_inverse=True)
    wrong = torch.zeros(len(ids)).index_add(0, position, (~right).float()) > 0
    order = torch.randperm(len(ids), generator=Generator().manual_seed(SEED))
    order = order[wrong[order].long().argsort(stable=True)]
    second = torch.zeros(len(ids), dtype=torch.bool)
    second[order[1::2]] = True
    return (~second)[position].nonzero().flatten(), second[position].nonzero().flatten()


def temperature(subject: Subject, *, resamples: int = 200) -> Finding:
    """The temperature that repairs the probabilities best, and what it repairs out of sample.

    The temperature itself is fitted on all held-out examples, with a likelihood interval. What it gains is
    measured on examples that did not choose it: fitted on one random half and judged on the other, both ways.
    It is the fall of the mean negative log-likelihood in nats, and the expected calibration error of the top
    label before and after. T > 1 says that the model is sure of too much, T < 1 of too little.

    Args:
        subject: A model that states class probabilities.
        resamples: Samples of what perfect calibration would measure, for the intervals of the errors.

    Raises:
        NotAsked: There are fewer than two examples with a mistake: the likelihood then rises as T falls to
        0, or
            rests on one example. Or a label was given probability 0.

    Reference: Guo, Pleiss, Sun and Weinberger 2017, Section 4.2.
    """
    found = forecasts(subject)
    sound = is_distribution(found.probabilities)
    rows, sample = [Interval(*(math.nan,) * 3)] * 4, ""
    curves: dict[str, Tensor] = {}
    measure: Callable[[float], list[Interval]] = lambda level: rows
    if not found.failure and sound.status != "refuted":
        scored, sample = _scored(subject, found)
        measure, curves = _scaled(scored, resamples)
    levels = at_both_levels(measure)
    return Finding(
        statement=f"Logits divided by {float(levels.value[0]):.3g} state the probabilities that fit best; "
        "what this changes was measured out of sample: fitted on one half, judged on the other, both ways.",
        range=(-math.inf, math.inf),
        premises=(independent_draws(subject), sound),
        kind="estimate",
        failure=found.failure,
        sample=sample,
        labels=ROWS,
        curves=curves,
        **levels._asdict(),
    )


def _scored(subject: Subject, found: Forecasts) -> tuple[Scored, str]:
    """The scores, of as many examples as are gone through in seconds, and which they are where not all."""
    given = found.probabilities.gather(-1, found.labels[:, None]).squeeze(-1)
    if bool((given == 0).any()):
        raise NotAsked(
            f"what happened was given probability 0 in {int((given == 0).sum()):,} held-out forecasts: "
            "at every temperature the log loss is infinite"
        )
    p = found.probabilities
    # The scores of the classes, where these are logits; else the logarithms of the probabilities.
    scores = p.log() if subject.task.classes is None else subject.task.classes(_outputs(subject)).double()
    if not torch.allclose(scores.softmax(-1), p, rtol=1e-6, atol=1e-9):
        scores = p.log()
    scored = Scored(scores, found.labels, found.weight, found.example)
    most, n = max(1, MOST // p.shape[-1]), len(p)
    if n <= most:
        return scored, ""
    drawn = torch.randperm(n, generator=Generator().manual_seed(SEED))[:most].sort().values
    return scored.of(drawn), f"{most:,} held-out forecasts drawn"


def _outputs(subject: Subject) -> Tensor:
    return held_out_answers(subject).outputs.double()


def _scaled(scored: Scored, resamples: int) -> tuple[Callable[[float], list[Interval]], dict[str, Tensor]]:
    """The rows of the finding by their level, and the two reliability diagrams."""
    right = scored.scores.argmax(-1) == scored.labels
    if len(scored.example[~right].unique()) < 2:
        raise NotAsked(
            "a temperature needs two examples with a mistake: without one the log loss falls as T goes to 0"
        )
    halves = in_halves(scored, right)
    fitted, other = best_temperature(scored), torch.empty_like(scored.weight)
    for own, judged in (halves, halves[::-1]):
        other[judged] = best_temperature(scored.of(own))
    after = scored._replace(scores=scored.scores / other[:, None])
    gained = Terms(scored.losses(1.0) - after.losses(1.0), scored.weight, scored.example)
    mean = float(weighted_mean(gained).mean)
    readings = []
    for each in (scored, after):
        confidence, predicted = each.scores.softmax(-1).max(-1)
        readings.append(
            reading_of(
                confidence,
                (predicted == each.labels).double(),
                Terms(each.weight, each.weight, each.example),
                bins=15,
                level=PRINTED_LEVEL,
                resamples=resamples,
            )
        )

    def measure(level: float) -> list[Interval]:
        errors = [Interval(*reading[:3]) for reading in readings]
        return [
            temperature_limits(scored, fitted, level),
            Interval(mean, *mean_limits(gained, level=level)),
            *errors,
        ]

    curves = {
        f"{name}: {part}": curve
        for name, reading in zip(("before", "after"), readings, strict=True)
        for part, curve in zip(("confidence", "accuracy", "count"), reading.diagram, strict=True)
    }
    return measure, curves


def demo() -> Subject:
    """Logits twice as large as the frequencies .9 and .6 of being right allow: the temperature is 2."""
    p = torch.tensor([0.9] * 60 + [0.6] * 60, dtype=torch.float64)
    logits = torch.stack((torch.zeros_like(p), 2 * (p / (1 - p)).log()), -1)
    labels = torch.tensor([1] * 54 + [0] * 6 + [1] * 36 + [0] * 24)
    return stated(logits, labels)
