"""Risk: the mean loss over the population, estimated on held-out examples and compared with training.

Vapnik (1998), Chapter 1: R(f) = E[loss(y, f(x))] is unknown; R_hat(f) = sum(w loss) / sum(w) estimates it on
examples that were not used for training.

Inequalities of probability on held-out examples: Chebyshev (1867) on the losses, Jensen (1906) on the
probabilities, Shannon (1948) on the predicted classes. Each speaks of the empirical law of the held-out
examples and holds for every law: it tells by how much.
"""

import dataclasses
import math

import torch
from torch import Tensor

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES, VALUES, class_accuracy
from margin.figures.digits import figures
from margin.math.probability.inequalities import chebyshev_bound
from margin.theory.evidence.rows import training_draw
from margin.theory.prediction.held_out import (
    Estimate,
    are_whole,
    described,
    held_out_answers,
    held_out_losses,
    independent_draws,
    limits_of,
    losses_of,
    per_example,
    stated,
    trials_of,
    unanswered,
    weighted_mean,
    window_blocks,
)

NOT_NEGATIVE = Premise("no loss is negative", "sampled", "none of the held-out examples has one below 0")


def clopper_pearson(
    successes: int | float, trials: int | float, *, level: float = 0.95
) -> tuple[float, float]:
    r"""The exact binomial interval: the success probabilities that no one-sided test rejects.

    .. math:: [\,B(\alpha/2;\, k,\, n-k+1),\; B(1-\alpha/2;\, k+1,\, n-k)\,], \quad \alpha = 1 - level

    with B(q; a, b) the q-quantile of the beta distribution; 0 where k = 0, 1 where k = n.

    Args:
        successes: k, from 0 to ``trials``; a real number where it is an effective count.
        trials: n > 0.
        level: Least probability of covering the truth, in (0, 1).

    Raises:
        ValueError: A count or the level is out of range.

    Reference: Clopper and Pearson 1934; Brown, Cai and DasGupta 2001, Section 4.2.1.
    """
    from scipy.special import betaincinv

    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level}")
    if not 0 <= successes <= trials or trials <= 0:
        raise ValueError(f"successes must lie in [0, trials], trials > 0: got {successes} of {trials}")
    alpha = 1 - level
    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, alpha / 2)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - alpha / 2)) if failures > 0 else 1.0
    return low, high


def share_interval(shares: Tensor, examples: float, *, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """The exact binomial interval of each of several shares of a sample.

    Args:
        shares: Measured shares, any shape.
        examples: The number of equally weighted examples, or trials, that the sample is worth, > 0.
        level: Least probability with which one interval covers its truth, in (0, 1).

    Returns:
        The lower and the upper ends, in the shape of the shares.
    """
    # The mean of ones may round to just above 1 under unequal weights.
    counts = shares.double().clamp(0.0, 1.0).flatten() * examples
    ends = [clopper_pearson(min(k, examples), examples, level=level) for k in counts.tolist()]
    low, high = torch.tensor(ends, dtype=torch.float64).reshape(*shares.shape, 2).unbind(-1)
    return low, high


def accuracy(subject: Subject, *, level: float = 0.95) -> Finding:
    """The probability of a right prediction, with its exact binomial interval.

    With unequal weights the counts are effective ones, as for so many equally weighted examples. Where
    examples have several terms, as an image has pixels, they follow from how much the examples differ
    (:func:`~margin.theory.prediction.held_out.trials_of`; Korn and Graubard 1998). A prediction is the class
    of the largest score as the task reads it; an output with a NaN fails the finding.

    Args:
        subject: A model with class labels.
        level: Least probability with which the interval covers the truth, in (0, 1).
    """
    answered = held_out_answers(subject)
    task = subject.task
    if task.classes is None:
        raise ValueError(f"accuracy needs a task with classes: got task {task.name!r}")
    score = task.scores.get("accuracy")
    if score is None:
        right = class_accuracy(task.classes(answered.outputs), answered.targets)
    else:
        right = score(answered.outputs, answered.targets)
    estimate = weighted_mean(answered.terms(right))
    failure = unanswered(answered.outputs.nan_to_num(torch.nan, 0, 0), "the output")
    interval, whole = None, are_whole(*per_example(answered.terms(right)))
    if not failure:
        trials = trials_of(right, answered.terms(right), level=level)
        interval = share_interval(estimate.mean, trials, level=level)
    return Finding(
        statement=f"The share of right predictions on {described(answered, estimate)}, with its "
        + (f"exact {level:.0%} interval." if whole else f"{level:.0%} interval, of how examples differ."),
        value=estimate.mean,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=interval,
        failure=failure,
    )


def loss(subject: Subject) -> Finding:
    """The risk: the mean held-out loss, with a 95 % interval that heeds how skewed the losses are.

    Args:
        subject: A model with an objective; the loss is the objective's, in its own unit.
    """
    terms = held_out_losses(subject)
    estimate = weighted_mean(terms)
    called = "blocks of neighboring held-out windows" if window_blocks(subject.test) else "held-out examples"
    negative = bool((terms.values < 0).any())
    return Finding(
        statement=f"The mean loss on {described(terms, estimate, called)}.",
        value=estimate.mean,
        unit="loss",
        range=(-torch.inf if negative else 0.0, torch.inf),
        premises=(independent_draws(subject), *(() if negative else (NOT_NEGATIVE,))),
        kind="estimate",
        stderr=estimate.stderr,
        printed=limits_of(terms),
        failure=unanswered(terms.values, "the loss") or _one_example(estimate.stderr),
    )


def gap(subject: Subject) -> Finding:
    r"""The generalization gap R(f) - R_hat(f): held-out risk less training risk, in evaluation mode.

    The training risk is that of the very sample the model was trained on, a known number where all N examples
    are asked: the error of the difference is then the held-out risk's. Of n drawn without replacement its
    error is added,

    .. math:: s^2 = s_{\mathrm{test}}^2 + (1 - n / N)\, s_{\mathrm{train}}^2

    Args:
        subject: A model whose training examples are known.

    Reference: Cochran 1977, Equation 2.23 (the mean of a sample without replacement).
    """
    from margin.theory.evidence.shift import same_distribution

    test = held_out_losses(subject)
    train = losses_of(subject, "train")
    risk, empirical = weighted_mean(test), weighted_mean(train)
    drawn = training_draw(subject)
    unasked = math.sqrt(1 - drawn.taken / max(drawn.among, 1))
    low, high = _gap_limits(risk, limits_of(test), empirical, limits_of(train), unasked)
    negative = bool((torch.cat((test.values, train.values)) < 0).any())
    failure = unanswered(test.values, "the held-out loss") or unanswered(train.values, "the training loss")
    stderr = risk.stderr.hypot(unasked * empirical.stderr) if unasked else risk.stderr
    means = figures([risk.mean.item(), empirical.mean.item()], float(high - low))
    return Finding(
        statement=f"The mean loss on held-out examples ({means[0]}) exceeds that on the training examples "
        f"({means[1]}) by this much.",
        value=risk.mean - empirical.mean,
        unit="loss",
        range=(-torch.inf if negative or failure else -float(empirical.mean), torch.inf),
        premises=(independent_draws(subject), same_distribution(subject)),
        kind="estimate",
        stderr=stderr,
        printed=(low, high),
        sample="" if drawn.whole else f"{drawn.taken:,} of {drawn.among:,} training examples drawn",
        failure=failure or _one_example(stderr),
    )


def _gap_limits(
    risk: Estimate,
    limits: tuple[Tensor, Tensor],
    empirical: Estimate,
    of_training: tuple[Tensor, Tensor],
    unasked: float,
) -> tuple[Tensor, Tensor]:
    """The limits of the gap, from those of both risks: of the training risk by what was not asked of it."""
    low, high = (end - empirical.mean for end in limits)
    if not unasked:
        return low, high
    value = risk.mean - empirical.mean
    below, above = (unasked * (end - empirical.mean) for end in of_training)
    return value - (value - low).hypot(above), value + (high - value).hypot(below)


def _one_example(stderr: Tensor) -> str:
    return "" if bool(stderr.isfinite()) else "a standard error needs two examples"


def accuracy_demo() -> Subject:
    """Nine of ten right: the exact 95 % interval is [0.5550, 0.9975]."""
    labels = torch.arange(10) % 2
    logits = torch.nn.functional.one_hot(labels, 2).double()
    logits[0] = logits[0].flip(0)
    return stated(logits, labels)


def loss_demo() -> Subject:
    """Four predictions off by 0, 1, 2 and 3: mean squared error 3.5."""
    return stated(torch.arange(4.0).double(), torch.zeros(4).double(), task=VALUES)


def gap_demo() -> Subject:
    """Held-out mean squared error 3.5, training mean squared error 1: the gap is 2.5."""
    subject = loss_demo()
    train = subject.test[0]._replace(inputs=(torch.ones(4).double(),))
    return dataclasses.replace(subject, train=[train])


DEVIATIONS = (2.0, 3.0, 5.0)
"""Distances from the mean loss at which the tail is looked at, in standard deviations."""

ROUNDING = 1e-9


def chebyshev(subject: Subject) -> Finding:
    """The share of the held-out losses k standard deviations or more from their mean, at most 1 / k^2.

    Args:
        subject: A model with an objective.

    Raises:
        NotAsked: The losses are all equal.
    """
    terms = held_out_losses(subject)
    failure = unanswered(terms.values, "the loss")
    share, bound = torch.full((2, len(DEVIATIONS)), math.nan, dtype=torch.float64)
    if not failure:
        p = terms.weight / terms.weight.sum()
        distance = (terms.values - p @ terms.values).abs()
        variance = p @ distance.square()
        deviation = float(variance.sqrt())
        if deviation <= ROUNDING * float(terms.values.abs().max()):
            raise NotAsked("the losses are all equal: they have no spread to measure by")
        share = torch.stack([p[distance >= k * deviation].sum() for k in DEVIATIONS])
        bound = torch.stack([chebyshev_bound(variance, k * deviation) for k in DEVIATIONS])
    return Finding(
        statement="The share of the held-out losses that lie k standard deviations or more from their mean.",
        value=share,
        range=(0.0, 1.0),
        high=None if failure else bound,
        tolerance=ROUNDING,
        labels=tuple(f"k = {k:g}" for k in DEVIATIONS),
        failure=failure,
    )


def jensen(subject: Subject) -> Finding:
    """The mean probability given to the true class: at least exp(-log loss), the geometric mean.

    The two are equal where every example is given the same. One example given 0 makes the log loss infinite,
    and the promise 0.

    Args:
        subject: A model that states class probabilities.
    """
    answered = held_out_answers(subject)
    if subject.task.probabilities is None:
        raise ValueError(f"this needs a task with probabilities: got task {subject.task.name!r}")
    probabilities = subject.task.probabilities(answered.outputs).double()
    given = probabilities.gather(-1, answered.targets.long()[:, None]).squeeze(-1)
    failure = unanswered(given, "the probability of the true class")
    share = answered.weight / answered.weight.sum()
    return Finding(
        statement="The mean probability given to the true class is at least exp(-log loss).",
        value=share @ given,
        range=(0.0, 1.0),
        low=None if failure else (share @ given.log()).exp(),
        tolerance=ROUNDING,
        failure=failure,
    )


def label_information(subject: Subject) -> Finding:
    """The mutual information of predicted and true class, in bits: at most the smaller of their entropies.

    0 says that the predictions tell nothing of the labels, whatever the accuracy: so it is where always the
    same class is predicted. The value is the sample's. Of n examples of K classes that are independent it is
    about (K - 1)^2 / (2 n log 2) on average, not 0 (Miller 1955).

    Args:
        subject: A model with class labels.
    """
    from margin.math.probability.information import entropy, mutual_information
    from margin.theory.prediction.confusion import classified, confusion_matrix

    found, failure = classified(subject)
    value = bound = torch.tensor(math.nan, dtype=torch.float64)
    if not failure:
        joint = confusion_matrix(found.labels, found.predicted, found.classes, found.weight)
        joint = joint / joint.sum()
        value = mutual_information(joint, base=2).clamp_min(0.0)  # rounding may leave -1e-17
        bound = torch.minimum(entropy(joint.sum(0), base=2), entropy(joint.sum(1), base=2))
    return Finding(
        statement="What the predicted class tells of the true one, at most the smaller of their entropies.",
        value=value,
        unit="bits",
        range=(0.0, math.log2(found.classes)),
        high=None if failure else bound,
        tolerance=ROUNDING,
        failure=failure,
    )


def inequality_demo() -> Subject:
    """Eight examples of two classes, given 0.9 six times, 0.6 once, and 0.4 once: a mistake."""
    of_one = torch.tensor([0.1, 0.1, 0.1, 0.4, 0.9, 0.9, 0.4, 0.9], dtype=torch.float64)
    logits = torch.stack((1 - of_one, of_one), 1).log()
    return stated(logits, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), task=CLASSES)
