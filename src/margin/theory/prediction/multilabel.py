"""Several labels at once: how often each is told rightly, and how often all of an example are.

Zhang and Zhou (2014), Section 2.2.2. A label is a question of its own, of two classes: it is there or not.
What is said of all labels together is an average over labels.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import MULTILABEL
from margin.engine.evaluation import eval_mode, weight_of_terms
from margin.theory.prediction.held_out import (
    Terms,
    described,
    independent_draws,
    share_of,
    stated,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.risk import share_interval


class LabelRows(NamedTuple):
    """Outputs, whether each label is told rightly, and its weight: a row an example, a column a label."""

    outputs: Float[Tensor, "examples labels"]
    right: Bool[Tensor, "examples labels"]
    weight: Float[Tensor, "examples labels"]


def has_several_labels(subject: Subject) -> bool:
    """Whether an example has several labels of 0 or 1, one beside the other."""
    first = subject.test[0].targets if subject.task.name == MULTILABEL.name and subject.test else None
    return first is not None and first.ndim == 2


@torch.no_grad()
def label_rows(subject: Subject) -> LabelRows:
    """The held-out answers, a row an example; leaves no trace."""
    task, rows = subject.task, []
    if task.classes is None:
        raise ValueError(f"labels need a task with classes: got task {task.name!r}")
    with eval_mode(subject.model):
        for batch in subject.test:
            if batch.targets is None:
                raise ValueError("the held-out examples have no targets")
            outputs = subject.model(*batch.inputs)
            right = task.classes(outputs).argmax(-1) == batch.targets
            weight = weight_of_terms(outputs, batch)
            rows.append((outputs.cpu(), (right & ~outputs.isnan()).cpu(), weight))
    return LabelRows(*(torch.cat(column) for column in zip(*rows, strict=True)))


def by_label(subject: Subject, *, level: float = 0.95) -> Finding:
    """The share of examples for which each label is told rightly, with Wilson's limits.

    Args:
        subject: A model of several labels an example.
        level: Intended probability with which each interval holds the truth, in (0, 1).
    """
    outputs, right, weight = label_rows(subject)
    count = outputs.shape[1]
    names = subject.label_names or tuple(f"label {k}" for k in range(count))
    limits, known = [], []
    for k in range(count):
        keep = (weight[:, k] > 0).nonzero().flatten()
        if len(keep):
            terms = Terms(weight[keep, k], weight[keep, k], keep)
            limits.append(share_of(right[keep, k], terms, len(outputs), level=level)[:3])
            known.append(names[k])
    value, low, high = torch.tensor(limits, dtype=torch.float64).reshape(-1, 3).unbind(1)
    worst = f"; the least often {known[int(value.argmin())]}" if known else ""
    return Finding(
        statement=f"The share of {len(outputs):,} held-out examples for which each of {count} labels is told "
        f"rightly, with its {level:.0%} interval{worst}.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        failure=unanswered(outputs[weight > 0], "the output"),
        labels=tuple(known),
    )


def subset(subject: Subject, *, level: float = 0.95) -> Finding:
    """The share of examples all of whose labels are told rightly, with its exact binomial interval.

    Args:
        subject: A model of several labels an example.
        level: Least probability with which the interval covers the truth, in (0, 1).
    """
    outputs, right, weight = label_rows(subject)
    counted = weight > 0
    keep = counted.any(1)
    whole = (right | ~counted).all(1)[keep]
    terms = Terms(whole.double(), weight.amax(1)[keep], keep.nonzero().flatten())
    estimate = weighted_mean(terms)
    failure = unanswered(outputs[counted], "the output")
    return Finding(
        statement=f"The share of {described(terms, estimate)} all of whose labels are told rightly, with its "
        f"exact {level:.0%} interval.",
        value=estimate.mean,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=None if failure else share_interval(estimate.mean, estimate.examples, level=level),
        failure=failure,
    )


def demo() -> Subject:
    """Three labels of eight examples: the first always told rightly, the others in 6 and in 7 of 8."""
    targets = torch.tensor([[i & 1, (i >> 1) & 1, (i >> 2) & 1] for i in range(8)])
    outputs = 4.0 * targets.double() - 2
    outputs[:2, 1] *= -1
    outputs[1, 2] *= -1
    return stated(outputs, targets, task=MULTILABEL)
