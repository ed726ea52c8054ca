"""The targets of the data: features each of which alone tells them, and classes with few examples or none.

A rule of one feature cuts its values into intervals of about equal counts and answers, in each, what is most
frequent there, or the mean (Holte 1993). Where that is as good as right, the feature gives the target away,
as do an identifier and a later measurement: the task is that simple, or the feature is not there when needed.

Of a class with n held-out examples the 95 % interval of its recall is at least 1 / (1 + n / 3.84) wide, the
width that Wilson's has where all were right: .28 for 10 examples.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.findings import Finding, NotAsked, Subject, has_labels
from margin.core.types import Batch
from margin.theory.evidence.duplicates import leak
from margin.theory.evidence.rows import (
    answer_to_one,
    class_name,
    drawn,
    kept_data,
    listed,
    part_labels,
)

INTERVALS = 32
"""Intervals of a feature's values at most, and training rows in each at least."""
ROWS = 20

TELLING = 0.99
"""Share of right answers, or of the targets' variance, from which on a feature gives the target away,"""

BESIDE = 0.05
"""where it leaves so small a share of the errors that the best constant makes."""

SHOWN = 3


class Rules(NamedTuple):
    """What rules of one feature achieve on the training rows.

    Args:
        score: Of each feature's rule: the share of right answers, or of the variance that it explains.
        constant: Of the best constant.
        words: Of which rows.
        names: What a message calls a feature.
    """

    score: Float[Tensor, " features"]
    constant: float
    words: str
    names: Callable[[int], str]

    @property
    def telling(self) -> list[int]:
        """The features that give the target away, the best first."""
        least = max(TELLING, 1 - BESIDE * (1 - self.constant))
        named = (self.score >= least).nonzero().flatten()
        return named[self.score[named].argsort(descending=True, stable=True)].tolist()


def _intervals(x: Float[Tensor, "rows features"]) -> Tensor:
    """The interval of each value: cut at quantiles of its feature, equal values together."""
    count = min(INTERVALS, len(x) // ROWS)
    ranked = x.sort(0).values.T.contiguous()
    places = (torch.arange(1, count) * len(x)) // count
    return torch.searchsorted(ranked[:, places].contiguous(), x.T.contiguous(), right=True)


def class_rules(x: Float[Tensor, "rows features"], labels: Tensor) -> tuple[Tensor, float]:
    """The share of rows that each feature's rule answers rightly, and that the commonest class is."""
    _, codes = labels.unique(return_inverse=True)
    classes, bins = int(codes.max()) + 1, _intervals(x)
    score = torch.empty(x.shape[1], dtype=torch.float64)
    for j, own in enumerate(bins):
        table = (own * classes + codes).bincount(minlength=(int(own.max()) + 1) * classes)
        score[j] = int(table.reshape(-1, classes).max(1).values.sum()) / len(x)
    return score, int(codes.bincount().max()) / len(x)


def value_rules(x: Float[Tensor, "rows features"], values: Tensor) -> Tensor:
    """The share of the values' variance that each feature's rule explains."""
    off = values.double() - values.double().mean()
    score = torch.empty(x.shape[1], dtype=torch.float64)
    for j, own in enumerate(_intervals(x)):
        size = own.bincount().clamp(min=1)
        total = torch.zeros(len(size), dtype=torch.float64).index_add(0, own, off)
        score[j] = (total.square() / size).sum() / off.square().sum().clamp(min=1e-300)
    return score


def rules(subject: Subject) -> Rules:
    """The rules of a subject with one real input whose training examples are known; computed once.

    Raises:
        NotAsked: There are fewer than 40 training rows, their targets are all equal, or a number is
            not finite.
    """
    train = drawn(subject)[1]
    x, targets = train.inputs, train.targets
    if targets is None or len(x) < 2 * ROWS:
        raise NotAsked(f"a rule of one feature needs {2 * ROWS} training rows: there are {len(x)}")
    if not bool(x.isfinite().all() and targets.isfinite().all()):
        raise NotAsked("an input or a target is not finite")
    y = targets.flatten()
    if bool((y == y[0]).all()):
        raise NotAsked("the training targets are all equal")

    def compute() -> Rules:
        if has_labels(subject):
            return Rules(*class_rules(x, y), train.words, train.names)
        return Rules(value_rules(x, y), 0.0, train.words, train.names)

    return kept_data(subject, "rules of one feature", compute)


def giveaway(subject: Subject) -> Finding:
    """How well the best features each tell the target alone, beside the best constant.

    Args:
        subject: A model with one real input and one target an example, whose training examples are known.
    """
    found = rules(subject)
    best = found.score.argsort(descending=True, stable=True)[:SHOWN].tolist()
    labeled = {found.names(j): float(found.score[j]) for j in best}
    labeled["the best constant"] = found.constant
    what = "of right answers" if has_labels(subject) else "of the targets' variance explained"
    remarks = []
    if found.telling:
        named = listed([found.names(j) for j in found.telling])
        remarks.append(
            f"The target is given away by {named}: see whether it is known when the model is used; if not, "
            "leave it out and train again."
        )
    return Finding(
        statement=f"The share {what} by a rule of one feature, on {found.words}.",
        value=torch.tensor(list(labeled.values()), dtype=torch.float64),
        range=(0.0, 1.0),
        labels=tuple(labeled),
        remarks=tuple(remarks),
    )


FEW = 10
"""Examples of a class below which little can be said of it."""

RAREST = 4
"""Classes that are shown of each part, the fewest examples first."""


def classes(subject: Subject) -> Finding:
    """The counts of the classes with the fewest examples, in each part.

    Args:
        subject: A model with one class label an example.
    """
    parts = {"held-out": part_labels(subject.test)}
    if len(subject.train):
        parts["training"] = part_labels(subject.train)
    seen = [int(part.max()) + 1 for part in parts.values() if len(part)]
    total = max([len(subject.class_names), _scored(subject), *seen])
    counts = {kind: part.bincount(minlength=total) for kind, part in parts.items()}
    labeled: dict[str, float] = {}
    remarks = []
    for kind, count in counts.items():
        for k in count.argsort(stable=True)[:RAREST].tolist():
            labeled[f"{class_name(subject, k)}, {kind}"] = float(count[k])
        named = [class_name(subject, k) for k in (count == 0).nonzero().flatten().tolist()]
        if named:
            remarks.append(f"Classes without a {kind} example: {listed(named)}.")
        few = ((count > 0) & (count < FEW)).nonzero().flatten().tolist()
        if few:
            named = [f"{class_name(subject, k)} ({int(count[k])})" for k in few]
            remarks.append(f"Classes with fewer than {FEW} {kind} examples: {listed(named)}.")
    return Finding(
        statement=f"The examples of the classes that have the fewest, of {total}.",
        value=torch.tensor(list(labeled.values()), dtype=torch.float64),
        unit="examples",
        range=(0.0, float(max(len(part) for part in parts.values()))),
        labels=tuple(labeled),
        curves={f"{kind} examples of each class": count for kind, count in counts.items() if total > RAREST},
        remarks=tuple(remarks),
    )


def _scored(subject: Subject) -> int:
    """How many classes the model has a score for: 2 of one score."""
    outputs = answer_to_one(subject)
    if isinstance(outputs, Tensor) and outputs.ndim > 1 and outputs.shape[-1] > 1:
        return outputs.shape[-1]
    return 2


def demo() -> Subject:
    """Feature 4 is the label with a little noise."""
    subject = leak(0)
    return dataclasses.replace(subject, test=_telling(subject.test), train=_telling(subject.train))


def _telling(batches: Sequence[Batch]) -> list[Batch]:
    told = []
    for batch in batches:
        x = batch.inputs[0].clone()
        x[:, 4] = 0.01 * x[:, 4] + (0 if batch.targets is None else batch.targets)
        told.append(batch._replace(inputs=(x,)))
    return told


def classes_demo() -> Subject:
    """Two classes, about a hundred held-out examples of each."""
    return leak(0)
