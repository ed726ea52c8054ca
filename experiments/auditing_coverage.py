"""How often the 95 % interval that a default claim prints holds the truth, at 10, 30 and 300 examples.

Each claim is asked of samples of a population whose truth is known: of three classes in shares of .5, .3 and
.2 with normal scores, of two classes with probabilities that are too sure, of real values with normal errors,
of losses with a long tail, and of three classes at each of many places of an example, whose terms are alike.
The truth is a formula, or the value of two million draws. Samples that lack a
class, or give no interval, are not counted. Rows are written as they come. Command:

    python -m experiments.auditing_coverage
"""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Generator, Tensor

from benchmarks.record import record
from margin.auditing.subject.outputs import PLACE_CLASSES
from margin.core.catalog import claims
from margin.core.findings import Finding, NotAsked, Subject, finding_of
from margin.core.tasks import VALUES
from margin.theory.prediction.calibration import expected_calibration_error, forecasts
from margin.theory.prediction.held_out import stated
from margin.theory.prediction.risk import clopper_pearson

SEED = 2020
REPEATS = 1000
SIZES = (10, 30, 300)
MANY = 2_000_000

Draw = Callable[[int, Generator], Subject]


def normal_scores(n: int, generator: Generator) -> Subject:
    """Scores N(2 e_y, 1): about .85 are right; the probabilities that they state are calibrated nearly."""
    labels = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), n, replacement=True, generator=generator)
    scores = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return stated(scores + 2 * torch.nn.functional.one_hot(labels, 3), labels)


def too_sure(n: int, generator: Generator) -> Subject:
    """Probabilities p uniform on [.05, .95] of an event of probability .5 + .7 (p - .5)."""
    p = 0.05 + 0.9 * torch.rand(n, generator=generator, dtype=torch.float64)
    happened = torch.rand(n, generator=generator, dtype=torch.float64) < 0.5 + 0.7 * (p - 0.5)
    return stated(torch.stack(((1 - p).log(), p.log()), 1), happened.long())


def normal_errors(n: int, generator: Generator) -> Subject:
    """Predictions N(0, 1), targets off by N(0, 1/4): mean absolute error .3989, root .5, R^2 .8."""
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    return stated(x, x + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64), task=VALUES)


def long_tails(n: int, generator: Generator) -> Subject:
    """Errors whose squares are lognormal of spread 1: the mean loss is exp(1/2)."""
    off = (0.5 * torch.randn(n, generator=generator, dtype=torch.float64)).exp()
    return stated(off, torch.zeros(n, dtype=torch.float64), task=VALUES)


TERMS = 40


def alike_terms(n: int, generator: Generator) -> Subject:
    """Examples of 20 to 40 terms, with class shares and a strength of the scores of their own.

    Scores are N(2 s e_y, 1) with s lognormal of spread 1/2; an eighth of the variance of being right, about,
    lies between examples, so that 300 examples of 30 terms are worth some 1,900 independent ones.
    """
    leaning = torch.tensor([0.5, 0.3, 0.2]).log() + torch.randn(n, 3, generator=generator)
    labels = torch.multinomial(leaning.softmax(-1), TERMS, replacement=True, generator=generator)
    strength = 2 * (0.5 * torch.randn(n, 1, 1, generator=generator, dtype=torch.float64)).exp()
    scores = torch.randn(n, TERMS, 3, generator=generator, dtype=torch.float64)
    scores = scores + strength * torch.nn.functional.one_hot(labels, 3)
    length = torch.randint(TERMS // 2, TERMS + 1, (n, 1), generator=generator)
    return stated(scores, labels, (torch.arange(TERMS) < length).double(), task=PLACE_CLASSES)


OF_TERMS = (
    "risk.accuracy",
    "risk.loss",
    "confusion.balanced_accuracy",
    "confusion.macro_f1",
    "confusion.recall",
    "confusion.precision",
    "ranking.auroc",
    "margins.distribution",
    "calibration.ece",
    "calibration.brier",
    "calibration.nll",
)

ASKED: tuple[tuple[str, Draw, dict[str, float] | None], ...] = (
    ("risk.accuracy", normal_scores, None),
    ("confusion.balanced_accuracy", normal_scores, None),
    ("confusion.macro_f1", normal_scores, None),
    ("confusion.recall", normal_scores, None),
    ("confusion.precision", normal_scores, None),
    ("ranking.auroc", too_sure, None),
    ("ranking.auroc_by_class", normal_scores, None),
    ("margins.distribution", normal_scores, None),
    ("calibration.ece", normal_scores, None),
    ("calibration.binary_ece", too_sure, None),
    ("calibration.brier", normal_scores, None),
    ("calibration.nll", normal_scores, None),
    ("residuals.mae", normal_errors, {"": 0.5 * math.sqrt(2 / math.pi)}),
    ("residuals.rmse", normal_errors, {"": 0.5}),
    ("residuals.r2", normal_errors, {"": 0.8}),
    ("risk.loss", normal_errors, {"": 0.25}),
    ("risk.loss", long_tails, {"": math.exp(0.5)}),
    *((name, alike_terms, None) for name in OF_TERMS),
)


def labeled(found: Finding, values: Tensor) -> dict[str, float]:
    """The elements that are numbers, by their label."""
    pairs = zip(found.labels or ("",), values.flatten().tolist(), strict=True)
    return {label: x for label, x in pairs if math.isfinite(x)}


@cache
def truth_of(name: str, draw: Draw) -> dict[str, float]:
    """The value on two million draws."""
    n = MANY // TERMS if draw is alike_terms else MANY
    subject = draw(n, Generator().manual_seed(SEED + 1))
    if name.startswith("calibration.") and name.endswith("ece"):  # without the resamples of its interval
        events = forecasts(subject)
        readings = {"top-label confidence": events.top_label}
        if name == "calibration.binary_ece":
            readings["frequency of positives"] = events.positive
        weight = events.weight
        return {
            label: float(expected_calibration_error(*pair, weight=weight)) for label, pair in readings.items()
        }
    found = finding_of(claims()[f"theory/{name}"], subject)
    return labeled(found, found.value)


def coverage(name: str, draw: Draw, truth: dict[str, float], n: int) -> dict[str, tuple[int, int]]:
    """For each element how many intervals held its truth, and how many there were."""
    generator = Generator().manual_seed(SEED)
    classes = 0 if draw in (normal_errors, long_tails) else (2 if draw is too_sure else 3)
    counted = dict.fromkeys(truth, (0, 0))
    for _ in range(REPEATS):
        subject = draw(n, generator)
        targets = subject.test[0].targets
        if classes and targets is not None and len(targets.unique()) < classes:
            continue
        try:
            found = finding_of(claims()[f"theory/{name}"], subject)
        except NotAsked:  # the interval would be all of the range
            continue
        low, high = (labeled(found, end) for end in found.shown)
        for label, (held, asked) in counted.items():
            if not found.failure and label in low and label in high:
                counted[label] = (held + (low[label] <= truth[label] <= high[label]), asked + 1)
    return counted


def main() -> None:
    """Simulate, print and write row by row."""
    figures: list[dict[str, object]] = []
    for name, draw, known in ASKED:
        truth = known or truth_of(name, draw)
        for n in SIZES:
            for label, (held, asked) in coverage(name, draw, truth, n).items():
                if not asked:
                    continue
                element = f", {label}" if label else ""
                row = {
                    "what": f"{name}{element}, {draw.__name__.replace('_', ' ')}, n = {n}",
                    "unit": "1",
                    "value": held / asked,
                    "interval": list(clopper_pearson(held, asked)),
                    "samples": asked,
                }
                figures.append(row if n < 30 else row | {"target": ">= 0.93", "met": held / asked >= 0.93})
        record(
            "auditing/coverage",
            title="Coverage of the 95 % intervals that default claims print",
            figures=figures,
            seeds=str(SEED),
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
