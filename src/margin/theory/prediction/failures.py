"""Where a model fails: the segment of a feature with the most errors, and the labels that are likely wrong.

A segment that is chosen because it looks worst looks worse than it is: it is chosen on one half of the
held-out examples and measured on the other. Labels are suspected that are likelier random than what the model
says (Lawrence and Schoelkopf 2001), made as sure as it is right.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from margin.core.deadline import check_deadline
from margin.core.findings import (
    Finding,
    NotAsked,
    Premise,
    Subject,
    has_labels,
    has_probabilities,
    has_real_input,
)
from margin.core.tasks import CLASSES
from margin.engine.evaluation import weight_of_terms
from margin.theory.evidence.label_noise import Suspects, fitted_noise, random_labels, still_right
from margin.theory.prediction.calibration import forecasts, is_distribution
from margin.theory.prediction.confusion import classified, name_of
from margin.theory.prediction.differences import at_both_levels, independent_difference, share_limits
from margin.theory.prediction.held_out import (
    Terms,
    independent_draws,
    mean_limits,
    stated,
    trials_of,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.residuals import Interval, residuals_of

SEED = 2021
NAMED = 10
"""Suspects that a finding names, the gravest first."""

MOST_LISTED = 1000
"""Suspects whose rows and classes are among the curves of a finding."""

FEWEST = 40
"""Held-out examples without which no half can choose a segment and the other judge it."""

MOST_FEATURES, FEW_VALUES = 200, 6
"""Features among which a segment is looked for, and values of one that are segments themselves."""

COLUMNS = ("row", "given", "likely", "probability of given", "probability of likely")

AXES = {1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
"""What the axes of a target are called, of an example that has several."""

UNSEEN = Premise(
    "the model was not trained on the held-out labels", "assumed", "one that has learned a label repeats it"
)

AS_SURE = Premise(
    "but for one temperature the model is as sure as it is right",
    "assumed",
    "a mistake of which it is surer looks like a wrong label",
)


def places_of(subject: Subject) -> Int[Tensor, "terms axes"]:
    """The held-out example, counted from 0, that each term of weight above 0 belongs to, and its place there.

    Raises:
        ValueError: A batch has no targets.
    """
    found, first = [], 0
    for batch in subject.test:
        if batch.targets is None:
            raise ValueError("the held-out examples have no targets")
        place = (weight_of_terms(batch.targets, batch) > 0).nonzero()
        place[:, 0] += first
        found.append(place)
        first += len(batch.targets)
    return torch.cat(found)


def place_words(example: int, place: Sequence[int]) -> str:
    """How a sentence calls a target: ``7``, or where an example has several ``7, row 3, column 12``."""
    names = AXES.get(len(place), tuple(f"axis {k}" for k in range(1, len(place) + 1)))
    return ", ".join([f"{example:,}", *(f"{name} {at:,}" for name, at in zip(names, place, strict=True))])


def shown_count(count: float) -> str:
    """A count, or the mean of several, with thousands apart."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def mislabeled(subject: Subject) -> Finding:
    """How many held-out labels are likely wrong, which they are, and how many of these are right after all.

    A label is suspected where it is likelier random than drawn from the model's probabilities, at the
    temperature that fits the labels together with the share that is random
    (:mod:`~margin.theory.evidence.label_noise`). Where that share adds nothing, no label is.

    Args:
        subject: A model that states class probabilities and was not trained on the held-out examples.

    Reference: Lawrence and Schoelkopf 2001, Section 2; Northcutt, Jiang and Chuang 2021, Section 3.
    """
    found = forecasts(subject)
    sound = is_distribution(found.probabilities)
    count, words = math.nan, ""
    curves: dict[str, Tensor] = {}
    if not found.failure and sound.status != "refuted":
        noise = fitted_noise(found.probabilities, found.labels, found.weight)
        suspects = random_labels(found.probabilities, found.labels, noise)
        count = float(suspects.found.sum())
        ends = still_right(suspects)
        words = f". At a temperature of {noise.temperature:.2g}, which fits best, a share of " + (
            f"{noise.share:.2g} of all labels is random; of those named {shown_count(ends[0])} are expected "
            f"to be right, {shown_count(ends[1])} at most in 95 %"
            if noise.share
            else "random labels explains them no better than chance does"
        )
        curves = _by_gravity(subject, suspects) | {"right": torch.tensor(ends, dtype=torch.float64)}
    return Finding(
        statement=f"Of {len(found.labels):,} held-out labels those that are likely wrong: likelier random "
        f"than drawn from the model's probabilities{words}.",
        value=torch.tensor(count, dtype=torch.float64),
        unit="labels",
        range=(0.0, max(1.0, len(found.labels))),
        premises=(sound, UNSEEN, AS_SURE),
        failure=found.failure,
        remarks=tuple(_named(subject, curves)) if curves else (),
        curves=curves,
    )


def _by_gravity(subject: Subject, suspects: Suspects) -> dict[str, Tensor]:
    """The suspected rows with both classes and their probabilities, the widest apart first.

    Where an example has several labels each has its place, and how many of its example are suspected.
    """
    found = forecasts(subject)
    index = suspects.found.nonzero().flatten()
    p, given, likely = found.probabilities[index], found.labels[index], suspects.likely[index]
    of_given, of_likely = (p.gather(1, k[:, None]).squeeze(1) for k in (given, likely))
    order = (of_given - of_likely).argsort(stable=True)[:MOST_LISTED]
    example, *places = places_of(subject)[index].T
    columns = dict(zip(COLUMNS, (example, given, likely, of_given, of_likely), strict=True))
    if places:
        columns |= {f"place {k}": place for k, place in enumerate(places)}
        columns["of example"] = example.bincount()[example]
    return {name: column[order] for name, column in columns.items()}


class Suspect(NamedTuple):
    """A label that is likely wrong.

    Args:
        where: The words for its example and its place there.
        given: The label.
        likely: The likelier class.
        more: How many other labels of its example are suspected.
        at: Its position in the curves of the finding.
    """

    where: str
    given: int
    likely: int
    more: int
    at: int


def gravest(curves: Mapping[str, Tensor]) -> list[Suspect]:
    """The gravest suspect of each example, the gravest first, by the curves of the finding."""
    example, given, likely = (curves[name].long().tolist() for name in COLUMNS[:3])
    axes = [curves[name].long().tolist() for name in curves if name.startswith("place ")]
    count = curves["of example"].long().tolist() if axes else [1] * len(example)
    found: dict[int, Suspect] = {}
    for i, row in enumerate(example):
        if row not in found:
            where = place_words(row, [axis[i] for axis in axes])
            found[row] = Suspect(where, given[i], likely[i], count[i] - 1, i)
    return list(found.values())


def _named(subject: Subject, curves: dict[str, Tensor]) -> Iterator[str]:
    for where, given, likely, more, i in gravest(curves)[:NAMED]:
        of_given, of_likely = (float(curves[name][i]) for name in COLUMNS[3:])
        yield (
            f"Held-out example {where}: labeled {name_of(subject, given)!r}, of probability {of_given:.2g}; "
            f"{name_of(subject, likely)!r} has {of_likely:.2g}"
            + (f" ({more:,} more of its labels are suspected)." if more else ".")
        )


class Segment(NamedTuple):
    """The examples of one value of a feature, or of a range of it.

    Args:
        feature: Its position among the features.
        low: What the feature exceeds; where it is ``high``, the value that it has.
        high: What it is at most.
    """

    feature: int
    low: float
    high: float

    def holds(self, X: Float[Tensor, "n features"]) -> Bool[Tensor, " n"]:
        """Which rows lie in it."""
        x = X[:, self.feature]
        return x == self.high if self.low == self.high else (x > self.low) & (x <= self.high)

    def words(self, names: Sequence[str]) -> str:
        """The feature and its range, in the user's units: ``age > 61``."""
        name = names[self.feature] if self.feature < len(names) else f"feature {self.feature}"
        if self.low == self.high:
            # A category is a feature that is 1: its name says both.
            return name if "=" in name and self.high == 1 else f"{name} = {self.high:.4g}"
        if self.low == -math.inf:
            return f"{name} <= {self.high:.4g}"
        return f"{name} > {self.low:.4g}" + ("" if self.high == math.inf else f", <= {self.high:.4g}")


def segments_of(X: Float[Tensor, "n features"]) -> list[Segment]:
    """The quarters of each feature, between its quartiles, or its values where these are at most six."""
    found = []
    for feature, x in enumerate(X.T):
        values = x.unique()
        if len(values) <= FEW_VALUES:
            found += [Segment(feature, v, v) for v in values.tolist() if len(values) > 1]
            continue
        quartiles = x.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=x.dtype)).unique().tolist()
        ends = [-math.inf, *quartiles, math.inf]
        found += [Segment(feature, low, high) for low, high in itertools.pairwise(ends)]
    return found


def worst_segment(X: Float[Tensor, "n features"], errors: Float[Tensor, " n"]) -> Segment:
    r"""The segment whose mean error stands out most, in standard errors of a segment like any other.

    .. math:: z = \frac{\bar e_S - \bar e_{\bar S}}{s \sqrt{1 / n_S + 1 / n_{\bar S}}}

    with s the deviation of all errors. Segments of less than 1/20 of the examples, or of ten, are left out,
    and so are those that leave out no more.

    Raises:
        NotAsked: All errors are equal, or no feature divides the examples.
    """
    n, s = len(errors), float(errors.std())
    if not s > 0:
        raise NotAsked("the errors of the examples are all equal: no segment can have more of them")
    least, best = max(10.0, n / 20), None
    for segment in segments_of(X):
        check_deadline()
        inside = segment.holds(X)
        count = int(inside.sum())
        if least <= count <= n - least:
            apart = float(errors[inside].mean() - errors[~inside].mean())
            z = apart / (s * math.sqrt(1 / count + 1 / (n - count)))
            best = max(best or (z, segment), (z, segment), key=lambda pair: pair[0])
    if best is None:
        raise NotAsked("no feature divides the held-out examples in parts of ten or more")
    return best[1]


def segments(subject: Subject) -> Finding:
    """The segment of a feature with the most errors, and how many more it has than all other examples.

    A segment is a quarter of a numeric feature, or a value of one that has few. It is chosen on one random
    half of the held-out examples and measured on the other, so that the interval is not of the worst of
    many. The error is the share of wrong predictions, or the mean distance of values. Where the interval of
    the difference holds 0, no segment stands out.

    Args:
        subject: A model of classes or of real values on one input of at most 200 features.

    Raises:
        NotAsked: There are fewer than 40 held-out examples, all errors are equal, or no feature divides them.

    Reference: Newcombe 1998, Section 2 (difference of independent proportions); Cox 1975 (one half chooses,
    the
        other judges).
    """
    X, terms, failure = _errors(subject)
    classes = has_labels(subject)
    measure: Callable[[float], list[Interval]] = lambda level: [Interval(*(math.nan,) * 3)] * 3
    words, counts = "the segment", [0, 0]
    remarks: tuple[str, ...] = ()
    if not failure:
        chooses, judges = halves(terms.example)
        segment = worst_segment(X[chooses], terms.values[chooses])
        inside = segment.holds(X[judges])
        parts = [Terms(*(x[judges][side] for x in terms)) for side in (inside, ~inside)]
        counts = [len(part.example.unique()) for part in parts]
        if min(counts) < 2:
            raise NotAsked("the segment that stands out in one half has no two examples in the other")
        measure = lambda level: _apart(parts, level, classes)
        words, remarks = segment.words(subject.feature_names), _by_confidence(subject, chooses, judges)
    return Finding(
        statement=("The share of wrong predictions" if classes else "The mean absolute error")
        + f" on {counts[0]:,} held-out examples of {words}, on {counts[1]:,} others, and the difference; "
        "the segment was chosen on another half of the examples.",
        unit="1" if classes else "target",
        range=(-1.0, 1.0) if classes else (-math.inf, math.inf),
        premises=(independent_draws(subject),),
        kind="estimate",
        sample="" if failure else f"half of the held-out examples, {sum(counts):,}",
        failure=failure,
        labels=(words, "all others", "difference"),
        remarks=remarks,
        **at_both_levels(measure)._asdict(),
    )


def has_features(subject: Subject) -> bool:
    """Whether an example is one row of real features, not so many that they mean nothing one by one."""
    if not has_real_input(subject):
        return False
    batch = subject.test[0]
    return batch.divisible and batch.inputs[0].ndim == 2 and batch.inputs[0].shape[1] <= MOST_FEATURES


def halves(example: Int[Tensor, " n"]) -> tuple[Tensor, Tensor]:
    """The terms of two random halves of the examples.

    Raises:
        NotAsked: There are fewer than 40 examples.
    """
    ids, position = example.unique(return_inverse=True)
    if len(ids) < FEWEST:
        raise NotAsked(f"a half that chooses and one that judges need {FEWEST} examples: got {len(ids)}")
    order = torch.randperm(len(ids), generator=Generator().manual_seed(SEED))
    first = torch.zeros(len(ids), dtype=torch.bool)
    first[order[: len(ids) // 2]] = True
    return first[position].nonzero().flatten(), (~first)[position].nonzero().flatten()


def _errors(subject: Subject) -> tuple[Tensor, Terms, str]:
    """The features and the error of each held-out term, and why there are none."""
    if has_labels(subject):
        found, failure = classified(subject)
        terms = Terms((found.predicted != found.labels).double(), found.weight, found.example)
    else:
        _, residuals = residuals_of(subject)
        terms = residuals._replace(values=residuals.values.abs())
        failure = unanswered(terms.values, "the residual")
    X = torch.cat([batch.inputs[0].detach().cpu().double() for batch in subject.test])
    return X[places_of(subject)[:, 0]], terms, failure


def _apart(parts: list[Terms], level: float, classes: bool) -> list[Interval]:
    """The mean error in both parts, and the difference, with limits of proportions or of means."""
    both = []
    for part in parts:
        mean = float(weighted_mean(part).mean)
        if classes:
            trials = trials_of(part.values, part, level=level)
            both.append(share_limits(min(mean, 1.0), trials, level=level))
        else:
            both.append(Interval(mean, *mean_limits(part, level=level)))
    return [*both, independent_difference(*both)]


def _by_confidence(subject: Subject, chooses: Tensor, judges: Tensor) -> tuple[str, ...]:
    """How often the least sure quarter is wrong, where probabilities are stated."""
    if not has_probabilities(subject):
        return ()
    confidence, right = forecasts(subject).top_label
    cut = confidence[chooses].quantile(0.25)
    unsure, wrong = confidence[judges] <= cut, 1 - right[judges]
    if not 0 < int(unsure.sum()) < len(unsure):
        return ()
    return (
        f"By confidence: at {cut:.2g} or below {wrong[unsure].mean():.1%} are wrong, above it "
        f"{wrong[~unsure].mean():.1%}.",
    )


def segments_demo() -> Subject:
    """Two features, the first from 0 to 1: above 3/4 every other prediction is wrong, elsewhere none."""
    x = torch.stack((torch.arange(400) / 400, torch.arange(400) % 7), 1).double()
    labels = torch.arange(400) % 2
    wrong = (x[:, 0] >= 0.75) & (torch.arange(400) % 4 < 2)
    subject = stated(nn.functional.one_hot(labels ^ wrong.long(), 2).double(), labels, task=CLASSES)
    (batch,) = subject.test
    # The model reads its answers, which stand behind the features.
    given = torch.cat((x, batch.inputs[0]), 1)
    model = LastTwo()
    return dataclasses.replace(subject, model=model, test=[batch._replace(inputs=(given,))])


class LastTwo(nn.Module):
    """The last two features of each row, as scores."""

    def forward(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch 2"]:
        """Both scores of each row."""
        return x[:, -2:]


def mislabeled_demo() -> Subject:
    """Two classes, as sure as right: of 20 examples at each of ten odds as many are wrong as stated, but two.

    These are of the surest twenty, of which one in 22,000 should be wrong.
    """
    odds = torch.arange(1.0, 11.0).double().repeat_interleave(20)
    wrong = torch.arange(20).repeat(10) < ((-odds).sigmoid() * 20).floor()
    wrong[[185, 190]] = True
    labels = torch.arange(200) % 2
    scores = nn.functional.one_hot(labels ^ wrong.long(), 2).double() * odds[:, None]
    return stated(scores, labels, task=CLASSES)
