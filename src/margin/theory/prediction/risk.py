"""Risk: the mean loss over the population, estimated on held-out examples and compared with training.

Vapnik (1998), Chapter 1: R(f) = E[loss(y, f(x))] is unknown; R_hat(f) = sum(w loss) / sum(w) estimates it on
examples that were not used for training.
"""

import dataclasses

import torch
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES, class_accuracy
from margin.theory.prediction.held_out import (
    described,
    held_out_answers,
    held_out_losses,
    held_out_terms,
    independent_draws,
    stated,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.limits import limits_of

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
        examples: The number of equally weighted examples that the sample is worth, > 0.
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

    With unequal weights, or several terms an example, the counts are effective ones (Korn and Graubard
    1998): the interval is then as wide as for that many equally weighted examples. A prediction is the
    class of the largest score as the task reads it; an output with a NaN fails the finding.

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
    interval = None if failure else share_interval(estimate.mean, estimate.examples, level=level)
    return Finding(
        statement=f"The share of right predictions on {described(answered, estimate)}, "
        f"with its exact {level:.0%} interval.",
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
    negative = bool((terms.values < 0).any())
    return Finding(
        statement=f"The mean loss on {described(terms, estimate)}.",
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
    """The generalization gap R(f) - R_hat(f): held-out risk less training risk, in evaluation mode.

    The training risk is that of the very sample the model was trained on, a known number; the error of
    the difference is the held-out risk's.

    Args:
        subject: A model whose training examples are known.
    """
    test = held_out_losses(subject)
    train = held_out_terms(subject.model, subject.train, subject.objective)
    risk, empirical = weighted_mean(test), weighted_mean(train)
    low, high = limits_of(test)
    failure = unanswered(test.values, "the held-out loss") or unanswered(train.values, "the training loss")
    return Finding(
        statement=f"The mean loss on held-out examples ({risk.mean.item():.4g}) exceeds that on the "
        f"training examples ({empirical.mean.item():.4g}) by this much.",
        value=risk.mean - empirical.mean,
        unit="loss",
        range=(-torch.inf, torch.inf),
        premises=(independent_draws(subject),),
        kind="estimate",
        stderr=risk.stderr,
        printed=(low - empirical.mean, high - empirical.mean),
        failure=failure or _one_example(risk.stderr),
    )


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
