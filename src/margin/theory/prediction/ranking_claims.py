"""How well a classifier's scores rank its classes: the area under the ROC curve, overall and by class."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from margin.core.findings import Finding, Subject, has_labels
from margin.core.types import ClassScores
from margin.theory.prediction.confusion_claims import class_scores, name_of
from margin.theory.prediction.held_out import Terms, independent_draws, output_of_one, stated, unanswered
from margin.theory.prediction.limits import Limited, mean_of
from margin.theory.prediction.ranking import auroc, roc_curve

MOST_POINTS = 500
"""Points of an ROC curve: more than a plot shows."""


def one_against_rest(scores: ClassScores) -> ClassScores:
    """The log-odds of each class, score less the log-sum-exp of the others': it ranks as the softmax does.

    A softmax near 1 rounds to 1 and ties what its log-odds tell apart.
    """
    if scores.shape[-1] == 2:
        return scores - scores.flip(-1)
    columns = [
        scores[:, k] - torch.cat((scores[:, :k], scores[:, k + 1 :]), 1).logsumexp(1)
        for k in range(scores.shape[-1])
    ]
    return torch.stack(columns, 1)


class Ranked:
    """The held-out terms with the score of each class against the rest.

    Args:
        subject: A model with class labels.

    Attributes:
        failure: Why there is no area, or "".
        scores: Score of each class against the rest, a row per term.
        labels: The true classes.
    """

    def __init__(self, subject: Subject) -> None:
        answered, scores = class_scores(subject)
        ids, example = answered.example.unique(return_inverse=True)
        self.scores = one_against_rest(scores) if subject.task.probabilities is not None else scores
        self.labels = answered.targets.long()
        self.terms = Terms(answered.weight, answered.weight, example)
        self.examples = len(ids)
        occurring = self.labels.unique().tolist()
        self.failure = unanswered(self.scores.nan_to_num(torch.nan, 0, 0), "the score")
        if not self.failure and len(occurring) < 2:
            name = name_of(subject, occurring[0])
            self.failure = f"ranking needs examples of two classes: all that are held out are of {name}"
        self.classes = [] if self.failure else occurring

    def area(self, k: int, level: float) -> Limited:
        """The area under the ROC curve of one class against the rest, with its limits."""
        return auroc(self.scores[:, k], self.labels == k, self.terms, self.examples, level=level)


def area(subject: Subject, *, level: float = 0.95) -> Finding:
    """The area under the ROC curve: of class 1 of two; of more, the mean over classes, each against the rest.

    Args:
        subject: A model with class labels.
        level: Intended probability with which the interval covers the truth, in (0, 1).
    """
    ranked = Ranked(subject)
    classes, curves = ranked.scores.shape[-1], {}
    rows: tuple[float, ...] = (math.nan,) * 3
    if classes == 2:
        statement = f"The chance that an example of {name_of(subject, 1)} scores above one of "
        statement += f"{name_of(subject, 0)}, a tie counting half"
        if not ranked.failure:
            rows = ranked.area(1, level)[:3]
            curves = _roc(ranked)
    else:
        statement = (
            "The chance that an example of a class scores above one of the rest, a tie counting half: the "
            f"mean over the {len(ranked.classes)} classes that occur"
        )
        if not ranked.failure:
            rows = mean_of(ranked.area(k, level) for k in ranked.classes)[:3]
    return _finding(subject, ranked, statement, [rows], level=level, curves=curves)


def area_by_class(subject: Subject, *, level: float = 0.95) -> Finding:
    """The area under the ROC curve of each class that occurs, against all others.

    Args:
        subject: A model with labels of three classes or more.
        level: Intended probability with which each interval covers its area, in (0, 1).
    """
    ranked = Ranked(subject)
    rows = [ranked.area(k, level)[:3] for k in ranked.classes] or [(math.nan,) * 3]
    statement = "For each class that occurs, the chance that an example of it scores above one of the rest"
    labels = tuple(name_of(subject, k) for k in ranked.classes)
    return _finding(subject, ranked, statement, rows, level=level, labels=labels)


def has_many_classes(subject: Subject) -> bool:
    """Whether the model scores three classes or more."""
    if not has_labels(subject) or subject.task.classes is None:
        return False
    outputs = output_of_one(subject)
    return isinstance(outputs, Tensor) and subject.task.classes(outputs).shape[-1] > 2


def _roc(ranked: Ranked) -> dict[str, Tensor]:
    false, true = roc_curve(ranked.scores[:, 1], ranked.labels == 1, ranked.terms.weight)
    keep = torch.linspace(0, len(false) - 1, min(len(false), MOST_POINTS)).round().long()
    return {"false positive rate": false[keep], "true positive rate": true[keep]}


def _finding(
    subject: Subject,
    ranked: Ranked,
    statement: str,
    rows: Sequence[tuple[float, ...]],
    *,
    level: float,
    labels: tuple[str, ...] = (),
    curves: dict[str, Tensor] | None = None,
) -> Finding:
    value, low, high = torch.tensor(rows, dtype=torch.float64).unbind(1)
    if not labels:
        value, low, high = value[0], low[0], high[0]
    return Finding(
        statement=f"{statement}; on {ranked.examples:,} held-out examples, with {level:.0%} intervals.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        failure=ranked.failure,
        labels=labels,
        curves=curves or {},
    )


def demo() -> Subject:
    """Positives scored 3, 2 and 1, negatives 2 and 0: of six pairs four are right and one tied, 4.5 / 6."""
    scores = torch.tensor([3.0, 2.0, 1.0, 2.0, 0.0]).double()
    return stated(torch.stack((torch.zeros(5).double(), scores), -1), torch.tensor([1, 1, 1, 0, 0]))


def many_demo() -> Subject:
    """Three classes of four examples each, one of each scored as its neighbour."""
    labels = torch.arange(12) % 3
    scores = torch.nn.functional.one_hot(labels, 3).double()
    scores[:3] = scores[:3].roll(1, 1)
    return stated(scores, labels)
