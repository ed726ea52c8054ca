"""Baselines: by how much a model is better than the best constant, and than a linear model of the inputs.

A share of right predictions tells little alone: .95 is poor where one class makes up .97 of the examples.
Both models answer the same examples, so the interval is that of the difference, which is much narrower than
those of the two shares apart.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.deadline import check_deadline
from margin.core.findings import Finding, NotAsked, Premise, Subject, has_labels
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.evaluation import ExampleSample, eval_mode, rows_of, sample_examples, weight_of_terms
from margin.engine.loop import risk
from margin.theory.evidence.rows import SUMS, Sketch
from margin.theory.evidence.words import Bag, has_tokens
from margin.theory.prediction.calibration import is_distribution
from margin.theory.prediction.confusion import classified, name_of
from margin.theory.prediction.differences import at_both_levels, paired_shares, scalar
from margin.theory.prediction.held_out import (
    Terms,
    held_out_answers,
    held_out_terms,
    independent_draws,
    stated,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.residuals import Interval, has_values, ratio_interval, residuals_of

BY_ACCURACY = Premise(
    "the model is meant to be right as often as possible",
    "assumed",
    "one that was trained for rare classes or unequal costs may be right less often than a constant",
)


ROUNDING = 1e-9

ITSELF_LINEAR = "The model is itself linear in its inputs."

OF_WORDS = "Its inputs are a bag of words: how often each token stands in a text, and not in which order."

STOPPED = "The linear model was stopped before its fit converged: a better one may exist."

WORDS = 10.0
"""One over the penalty of a linear model of words, whose rows have length 1."""

COPIED, NO_BOTTLENECK = "the targets are the inputs", "it has no bottleneck"
"""What is said of a model that restores its inputs, and of one that can copy them."""

PROBED = 8
"""Rows at which that is tried."""

MOST_EXAMPLES, MOST_FEATURES, MOST_NUMBERS = 20_000, SUMS, 20_000_000
"""What a linear model is fitted to at most: examples, features, and their product (160 MB)."""

WORK = 2e10
"""Multiplications of a logistic regression's fit."""

A_SECOND = 2e9
"""How many of them one core does in a second, about."""

FEWEST_STEPS, MOST_STEPS = 20, 1000
"""Steps of its optimizer: with fewer it would tell nothing."""


class Rival(NamedTuple):
    """A simpler model's answers, how a statement calls it, and of which examples it is.

    Args:
        answers: Its class or value for each held-out term of weight > 0.
        words: How a statement calls it.
        sample: Of which examples it is, where not of all training examples.
        remarks: What a reader must know of it.
    """

    answers: Tensor
    words: str
    sample: str = ""
    remarks: tuple[str, ...] = ()


def has_right_answers(subject: Subject) -> bool:
    """Whether predictions are classes or real values that the targets state."""
    return has_labels(subject) or has_values(subject)


def constant(subject: Subject) -> Finding:
    r"""How much better the model is than always answering the same, on the same examples.

    Of classes: the model's accuracy less that of the most frequent class. Of values: the share of the
    squared error about the mean that the model takes away, :math:`1 - \sum (y - f)^2 / \sum (y - c)^2`. The
    constant is the training part's, and the held-out part's own where that is not known, the best in
    hindsight.

    The promise is that it is at least 0. Every model with a bias can answer a constant, so one whose
    interval lies below 0 has learned something else than these labels: they are in another order, the
    inputs are scaled otherwise, or the training diverged. Of classes an untrained or a constant model is
    *inconclusive*; one that is meant for rare classes is no counter-example, which is a premise.

    Args:
        subject: A model of classes or of real values.

    Raises:
        NotAsked: All held-out targets are equal to the constant value, which then makes no error.

    Reference: Tango 1998 (paired proportions); Cochran 1977, Section 2.11 (a ratio of means).
    """
    given = subject.train or subject.test
    sample = "" if subject.train else "the constant is the held-out part's own"
    if has_labels(subject):
        answered = held_out_answers(subject)
        counts = label_counts(given)
        commonest = int(counts.argmax())
        words = f"always answering {name_of(subject, commonest)!r}"
        rival = Rival(torch.full_like(answered.targets, commonest), words, sample)
        return compared(subject, rival, promised=True)
    mean = mean_target(given)
    values = held_out_terms(
        subject.model, subject.test, lambda model, batch, _: _of_batch(mean, batch)
    ).values
    return compared(subject, Rival(values, "always answering the mean", sample), promised=True)


def _of_batch(mean: Tensor, batch: Batch) -> Tensor:
    return mean if batch.targets is None else mean.expand(batch.targets.shape)


def label_counts(batches: Iterable[Batch]) -> Tensor:
    """The weight of each label in batches, from 0 on.

    Raises:
        ValueError: A batch has no targets.
    """
    counts = torch.zeros(1, dtype=torch.float64)
    for batch in batches:
        targets, weight = _weighed(batch)
        here = torch.bincount(targets.flatten().long(), weight.flatten())
        longer = max(len(here), len(counts))
        counts = torch.nn.functional.pad(counts, (0, longer - len(counts)))
        counts[: len(here)] += here
    return counts


def mean_target(batches: Iterable[Batch]) -> Tensor:
    """The weighted mean target, component by component.

    Raises:
        ValueError: A batch has no targets, or all weights are 0.
    """
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for batch in batches:
        targets, weight = _weighed(batch)
        total = total + torch.where(weight > 0, weight * targets.double(), 0).sum(0)
        count = count + weight.sum(0)
    if not bool((count > 0).all()):
        raise ValueError("a mean target needs examples of weight above 0: got none")
    return total / count


def _weighed(batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.targets is None:
        raise ValueError("a baseline needs the targets of the examples: got a batch without")
    return batch.targets.cpu(), weight_of_terms(batch.targets, batch)


def compared(subject: Subject, rival: Rival, *, promised: bool) -> Finding:
    """How much better the model is than a rival on the same held-out terms, with paired intervals.

    Args:
        subject: A model of classes or of real values.
        rival: The other's answers.
        promised: Whether the model is promised to be no worse.
    """
    return (_classes if has_labels(subject) else _values)(subject, rival, promised)


def _classes(subject: Subject, rival: Rival, promised: bool) -> Finding:
    found, failure = classified(subject)
    right, other = found.predicted == found.labels, rival.answers == found.labels
    terms = Terms(found.weight, found.weight, found.example)
    own, others = (float(weighted_mean(terms._replace(values=x.double())).mean) for x in (right, other))

    def measure(level: float) -> list[Interval]:
        return [Interval(*(math.nan,) * 3) if failure else paired_shares(right, other, terms, level=level)]

    return Finding(
        statement=f"The accuracy of the model less that of {rival.words} on the same {found.examples:,} "
        f"held-out examples: {own:.1%} less {others:.1%}, with its paired 95 % interval.",
        range=(-1.0, 1.0),
        premises=(independent_draws(subject), *((BY_ACCURACY,) if promised else ())),
        kind="estimate",
        low=torch.tensor(0.0) if promised else None,
        tolerance=ROUNDING,
        sample=rival.sample,
        remarks=rival.remarks,
        failure=failure,
        **scalar(at_both_levels(measure))._asdict(),
    )


def _values(subject: Subject, rival: Rival, promised: bool) -> Finding:
    answered, residuals = residuals_of(subject)
    off = (answered.targets.double() - rival.answers).square()
    failure = unanswered(residuals.values, "the residual")
    if not failure and not bool((off * answered.weight).sum() > 0):
        raise NotAsked(f"{rival.words} makes no error on the held-out examples: there is nothing to gain")
    errors = residuals._replace(values=residuals.values.square())

    def measure(level: float) -> list[Interval]:
        if failure:
            return [Interval(*(math.nan,) * 3)]
        ratio = ratio_interval(errors, off, level=level)
        return [Interval(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)]

    own, others = (math.sqrt(float(weighted_mean(answered.terms(x)).mean)) for x in (errors.values, off))
    return Finding(
        statement=f"The share of the squared error of {rival.words} that the model takes away on "
        f"{len(answered.example.unique()):,} held-out examples: root mean squared error {own:.4g} "
        f"against {others:.4g}, with a paired 95 % interval.",
        range=(-math.inf, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        low=torch.tensor(0.0) if promised else None,
        tolerance=ROUNDING,
        sample=rival.sample,
        remarks=rival.remarks,
        failure=failure,
        **scalar(at_both_levels(measure))._asdict(),
    )


def linear(subject: Subject, *, seed: int = 0) -> Finding:
    """How much better the model is than a linear model of the same inputs, on the same examples.

    Logistic regression for classes, ridge regression for values, both with a penalty of 1 on weights of
    standardized features, fitted here on the training part. Of the model's accuracy that is what its depth,
    or whatever else a linear model lacks, is worth; the share of the squared error that is taken away, of
    values. Nothing is promised: where the truth is linear, the simpler model is as good.

    Of tokens it is one of a bag of words, weighed counts without their order
    (:mod:`~margin.theory.evidence.words`), with a penalty of 1/10.

    At most 20,000 training examples are drawn, fewer of many features; more than 4,096 features are added up
    with random signs in 4,096 sums, a random projection. Where the fit was stopped before it converged, a
    better linear model may exist.

    Args:
        subject: A model of classes or of real values, of one real input, whose training examples are known.
        seed: Of the drawing and of the projection.

    Raises:
        NotAsked: An example has several targets, or its inputs for targets, an input is not finite, the
            training part has one class, or a linear model of so many weights takes too long.

    Reference: Hastie, Tibshirani and Friedman 2009, Sections 3.4.1 and 4.4 (the two linear models); Charikar,
        Chen and Farach-Colton 2002 (the projection); Joulin et al. 2017, Section 2 (a bag of words).
    """
    first = subject.train[0].targets
    if has_labels(subject) and first is not None and first[:1].numel() != 1:
        raise NotAsked("a linear model of the inputs needs one label for each example")
    if has_tokens(subject):
        return compared(subject, _of_words(subject, seed), promised=False)
    width = math.prod(subject.train[0].inputs[0].shape[1:])
    features = min(width, MOST_FEATURES)
    # The inputs that are drawn are held at once, before their projection.
    most = min(MOST_EXAMPLES, MOST_NUMBERS // features, 5 * MOST_NUMBERS // width)
    found = sample_examples(subject.train, max(most, 1), seed=seed)
    if all(b.targets is not None and torch.equal(b.inputs[0], b.targets) for b in found.batches):
        raise NotAsked(
            f"{COPIED}, which a linear model copies{_bottleneck(subject, found.batches[0], width)}"
        )
    sketch = Sketch(width, seed) if width > features else None
    X, y, w = _rows(found.batches, sketch)
    fitted = (_logistic if has_labels(subject) else _ridge)(X, y, w)
    answers = held_out_terms(
        subject.model,
        subject.test,
        lambda model, batch, _: fitted.of(flat(batch, sketch)).reshape(_shape(batch)),
    ).values
    remarks = [] if sketch is None else [f"Its {width:,} features were projected at random on {features:,}."]
    if is_linear(subject, found.batches[0]):
        remarks.append(ITSELF_LINEAR)
    if not fitted.converged:
        remarks.append(STOPPED)
    words = "a logistic regression" if has_labels(subject) else "a ridge regression"
    return compared(subject, Rival(answers, words, _sample(found), tuple(remarks)), promised=False)


def _of_words(subject: Subject, seed: int) -> Rival:
    """A linear model of the words of the training texts."""
    from sklearn.linear_model import LogisticRegression, Ridge

    time = subject.train[0].inputs[0].shape[1]
    found = sample_examples(subject.train, max(1, min(MOST_EXAMPLES, MOST_NUMBERS // time)), seed=seed)
    bag = Bag.of(found.batches, subject.vocabulary)
    X, parts = bag(found.batches), [_weighed(batch) for batch in found.batches]
    y = torch.cat([targets.reshape(len(targets), -1) for targets, _ in parts])
    w = torch.cat([weight.reshape(len(weight), -1)[:, 0] for _, weight in parts]).numpy()
    remarks = [OF_WORDS]
    if has_labels(subject):
        steps = _steps(X.nnz, len(y.unique()), X.shape[1])
        model = LogisticRegression(C=WORDS, max_iter=steps)
        with _unconverged():
            model.fit(X, y[:, 0].numpy(), sample_weight=w)
        remarks += [STOPPED] if bool((model.n_iter_ >= steps).any()) else []
    else:
        model = Ridge(alpha=1 / WORDS).fit(X, y.double().numpy(), sample_weight=w)
    answers = held_out_terms(
        subject.model,
        subject.test,
        lambda _, batch, __: torch.as_tensor(model.predict(bag([batch]))).reshape(_shape(batch)),
    ).values
    words = f"a {'logistic' if has_labels(subject) else 'ridge'} regression of a bag of words"
    return Rival(answers, words, _sample(found), tuple(remarks))


def _shape(batch: Batch) -> torch.Size:
    return torch.Size() if batch.targets is None else batch.targets.shape


def _sample(found: ExampleSample) -> str:
    return "" if found.whole else f"the linear model is of {found.taken:,} training examples drawn"


@torch.no_grad()
def _bottleneck(subject: Subject, batch: Batch, width: int) -> str:
    """How many numbers an example becomes in the narrowest layer of a model that restores its inputs."""
    rows = rows_of(batch, torch.arange(min(2, len(batch.inputs[0]))))
    numbers = [width]

    def looked_at(module: nn.Module, args: Any, out: Any) -> None:
        if isinstance(out, Tensor) and len(out) == len(rows.inputs[0]):
            numbers.append(out[0].numel())

    leaves = [module for module in subject.model.modules() if not list(module.children())]
    handles = [module.register_forward_hook(looked_at) for module in leaves]
    try:
        with eval_mode(subject.model):
            subject.model(*rows.inputs)
    finally:
        for handle in handles:
            handle.remove()
    if min(numbers) == width:
        return f"; {NO_BOTTLENECK}: no layer is narrower than the {width:,} numbers of an example"
    return f"; its narrowest layer gives {min(numbers):,} numbers for {width:,}"


@torch.no_grad()
def is_linear(subject: Subject, batch: Batch) -> bool:
    """Whether the outputs, or the logarithms of the odds that they state, are affine in the inputs.

    Asked at a few rows and beyond them: between two points lies the mean of what they give. A network of
    rectifiers has a kink on almost every such line.

    A model whose examples read each other may take no other batch than its own: it is not asked.

    Args:
        subject: A model of one input.
        batch: Some of its examples.
    """
    x = batch.inputs[0][:PROBED]
    if not (subject.independent and x.is_floating_point() and len(x) > 1 and len(batch.inputs) == 1):
        return False
    a = 2 * x - x.roll(1, 0)
    b = a.roll(1, 0)
    with eval_mode(subject.model):
        out = subject.model(torch.cat((a, b, (a + b) / 2)))
    if not (isinstance(out, Tensor) and out.is_floating_point() and len(out) == 3 * len(x)):
        return False
    rounding = 1e3 * max(torch.finfo(kind).eps for kind in (out.dtype, torch.float32))
    scores = out.double().reshape(len(out), -1)
    if is_distribution(scores).status != "refuted" and scores.shape[1] > 1:
        scores = scores.log() - scores[:, :1].log()
    first, second, middle = scores.reshape(3, len(x), -1)
    off = ((first + second) / 2 - middle).abs().max()
    return bool(off <= rounding * scores.abs().max())


def flat(batch: Batch, sketch: Sketch | None = None) -> Float[Tensor, "n features"]:
    """The first input of each example as a row of features, on the CPU.

    Raises:
        NotAsked: The inputs are not one row an example with one target, or not finite.
    """
    x, y = batch.inputs[0], batch.targets
    if not batch.divisible or y is None or len(x) != len(y):
        raise NotAsked("a linear model of the inputs needs an input and a target for each example")
    X = x.detach().cpu().reshape(len(x), -1).double()
    if not bool(X.isfinite().all()):
        raise NotAsked("a linear model of the inputs needs finite ones")
    return X if sketch is None else sketch(X)


def _rows(batches: Sequence[Batch], sketch: Sketch | None) -> tuple[Tensor, Tensor, Tensor]:
    """Features, targets and weights of training examples."""
    rows = []
    for batch in batches:
        X, (targets, weight) = flat(batch, sketch), _weighed(batch)
        rows.append((X, targets.reshape(len(X), -1), weight.reshape(len(X), -1)[:, 0]))
    X, y, w = (torch.cat(column) for column in zip(*rows, strict=True))
    return X, y, w


class Fitted(NamedTuple):
    """A fitted linear model of standardized features.

    Args:
        predict: Classes or values of standardized rows.
        mean: Of each feature, in the training part.
        scale: Their standard deviations; 1 where a feature does not vary.
        converged: Whether its optimizer came to an end.
    """

    predict: Callable[[Any], Any]
    mean: Tensor
    scale: Tensor
    converged: bool = True

    def of(self, X: Float[Tensor, "n features"]) -> Tensor:
        """What it answers for rows of features."""
        return torch.as_tensor(self.predict(((X - self.mean) / self.scale).numpy()))


def _standardized(X: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    share = w / w.sum()
    mean = share @ X
    deviation = (share @ (X - mean).square()).sqrt()
    return mean, torch.where(deviation > 1e-12 * mean.abs(), deviation, 1.0)


def _steps(numbers: int, classes: int, features: int) -> int:
    """How many steps a logistic regression's fit may take.

    Raises:
        NotAsked: There is one class, or the steps are too few, or take too long.
    """
    if classes < 2:
        raise NotAsked("a linear model of classes needs two of them in the training part: it has one")
    steps = int(WORK / (4.0 * max(numbers, 1) * classes))
    if steps < FEWEST_STEPS:
        raise NotAsked(f"a linear model of {features * classes:,} weights takes too long to fit")
    steps = min(steps, MOST_STEPS)
    check_deadline(steps * 4.0 * numbers * classes / A_SECOND, "the fit of a linear model")
    return steps


@contextmanager
def _unconverged() -> Iterator[None]:
    """Within the block a fit that is stopped does not warn: it is said."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _logistic(X: Tensor, y: Tensor, w: Tensor) -> Fitted:
    from sklearn.linear_model import LogisticRegression

    steps = _steps(X.numel(), len(y.unique()), X.shape[1])
    mean, scale = _standardized(X, w)
    model = LogisticRegression(max_iter=steps)
    with _unconverged():
        model.fit(((X - mean) / scale).numpy(), y[:, 0].numpy(), sample_weight=w.numpy())
    return Fitted(model.predict, mean, scale, bool((model.n_iter_ < model.max_iter).all()))


def _ridge(X: Tensor, y: Tensor, w: Tensor) -> Fitted:
    from sklearn.linear_model import Ridge

    mean, scale = _standardized(X, w)
    model = Ridge(alpha=1.0).fit(((X - mean) / scale).numpy(), y.double().numpy(), sample_weight=w.numpy())
    return Fitted(model.predict, mean, scale)


def linear_demo() -> Subject:
    """Exclusive or of the signs of two features: the model is always right, a linear one half of the time."""
    x = torch.randn(400, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    labels = (x.prod(1) > 0).long()
    parts = [Batch((half,), of_half) for half, of_half in zip(x.split(200), labels.split(200), strict=True)]
    return Subject(model=Products(), train=parts[:1], test=parts[1:], task=CLASSES, objective=risk(CLASSES))


class Products(nn.Module):
    """The scores (0, x_1 x_2) of two classes."""

    def forward(self, x: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch 2"]:
        """Both scores of each row."""
        return torch.stack((torch.zeros_like(x[:, 0]), x.prod(1)), 1)


def constant_demo() -> Subject:
    """A hundred of 120 right, 60 of each class: 5/6 against 1/2, 50 times ahead and 10 behind."""
    labels = torch.tensor([0, 1] * 60)
    predicted = torch.cat((1 - labels[:20], labels[20:]))
    subject = stated(torch.nn.functional.one_hot(predicted, 2).double(), labels, task=CLASSES)
    return dataclasses.replace(subject, train=subject.test)


def values_demo() -> Subject:
    """Targets 0 .. 9, about their mean 82.5 squares, predicted half a unit off: 2.5 of 82.5 are left."""
    targets = torch.arange(10.0).double()
    subject = stated(targets + 0.5, targets, task=VALUES)
    return dataclasses.replace(subject, train=subject.test)
