"""Whether a model is less sure of examples of another source than of its own (out-of-distribution detection).

Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution examples",
Section 2: the area under the ROC curve of an uncertainty, here the entropy of the predicted classes and one
less the largest probability, or the variance of a stated law.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES, VALUES, Task
from margin.core.types import Batch
from margin.engine.evaluation import sample_examples
from margin.engine.loop import risk
from margin.math.evenly import in_order
from margin.nn.predictive import predictive_of, states_law
from margin.theory.prediction.held_out import (
    Terms,
    held_out_terms,
    independent_draws,
    output_of_one,
    unanswered,
)
from margin.theory.prediction.ranking import auroc

MOST = 10_000
"""Examples of either side at most."""

MOST_POINTS = 400
"""Quantiles of a picture at most."""

OF_CLASSES = ("predictive entropy", "1 - largest probability")
OF_VALUES = ("predictive variance",)
"""The uncertainties, by which an example of either side is ranked."""


def has_other_source(subject: Subject) -> bool:
    """Whether examples of another source are given, and examples are answered one by one."""
    return len(subject.ood) > 0 and subject.independent


def is_unsure(subject: Subject) -> bool:
    """Whether the model states class probabilities of each example, or the law of its one value."""
    if subject.task.name == VALUES.name:
        return states_law(subject.model)
    if subject.task.probabilities is None or not len(subject.test):
        return False
    outputs = output_of_one(subject)
    if not isinstance(outputs, Tensor):
        return False
    stated = subject.task.probabilities(outputs)
    return stated.ndim == 2 and stated.shape[1] > 1


def uncertainties(task: Task, model: nn.Module, batch: Batch) -> Float[Tensor, "rows kinds"]:
    r"""How unsure a model is of each example, in float64.

    .. math:: H = -\sum_k p_k \log p_k, \quad 1 - \max_k p_k, \qquad \operatorname{Var} y

    Args:
        task: Of classes, the entropy in nats and one less the largest probability; of values the variance.
        model: In evaluation mode.
        batch: Examples, whose targets are not read.
    """
    if task.name == VALUES.name:
        return predictive_of(model, batch.inputs[0]).variance.double()[:, None]
    if task.probabilities is None:
        raise ValueError(f"task {task.name} states no probabilities")
    p = task.probabilities(model(*batch.inputs).double())  # in float32 those near 1 would be tied
    return torch.stack((-torch.xlogy(p, p).sum(1), 1 - p.amax(1)), 1)


def _measured(subject: Subject, batches: Sequence[Batch]) -> tuple[Tensor, Terms]:
    """The uncertainties of examples, drawn where they are many, and the weight and draw of each."""

    def measure(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return uncertainties(subject.task, model, batch)

    whole = sample_examples(batches, MOST)
    found = held_out_terms(subject.model, whole.batches, measure)
    width = 1 if subject.task.name == VALUES.name else len(OF_CLASSES)
    rows = found.values.reshape(-1, width)
    return rows, Terms(rows[:, 0], found.weight[::width], found.example[::width])


def out_of_distribution(subject: Subject) -> Finding:
    """How often an example of another source has a larger uncertainty than a held-out one, ties half.

    Args:
        subject: A model that states probabilities or laws, with examples of another source.
    """
    (own, held), (other, strange) = (_measured(subject, part) for part in (subject.test, subject.ood))
    every = torch.cat((own, other))
    first = int(held.example.max()) + 1 if len(own) else 0
    example = torch.cat((held.example, strange.example + first))
    terms = Terms(every[:, 0], torch.cat((held.weight, strange.weight)), example)
    positive, count = torch.arange(len(every)) >= len(own), int(example.max()) + 1 if len(every) else 0
    labels = OF_VALUES if subject.task.name == VALUES.name else OF_CLASSES
    failure = unanswered(every, "the uncertainty")
    areas = [] if failure else [auroc(column, positive, terms, count) for column in every.unbind(1)]
    nothing = torch.full((len(labels),), math.nan, dtype=torch.float64)
    value, low, high = (
        torch.tensor([getattr(area, name) for area in areas], dtype=torch.float64) if areas else nothing
        for name in ("value", "low", "high")
    )
    return Finding(
        statement="How often an example of the other source has a larger uncertainty than a held-out one "
        f"(area under the ROC curve, DeLong's 95% interval), of {len(other):,} and {len(own):,} examples: "
        "0.5 where uncertainty does not tell them apart, 1 where it always does.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        labels=labels,
        failure=failure,
        curves={}
        if failure
        else {"held-out": in_order(own[:, 0], MOST_POINTS), "other": in_order(other[:, 0], MOST_POINTS)},
    )


def demo() -> Subject:
    """Logits (x, 0): held-out x from 1 to 3 and others from 0 to 2, of which 7/8 of pairs are in order."""
    model = nn.Linear(1, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.bias.zero_()
    x = ((torch.arange(200, dtype=torch.float64) + 0.5) / 100)[:, None]
    held = Batch((x + 1,), torch.zeros(200, dtype=torch.int64))
    return Subject(model=model, test=[held], ood=[Batch((x,))], task=CLASSES, objective=risk(CLASSES))
