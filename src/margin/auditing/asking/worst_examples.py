"""The worst examples: the held-out examples of largest loss, ties by the smallest margin.

What an average hides: a wrong label, a bad scan, a class that was never seen.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from margin.core.findings import Subject, has_loss, has_targets
from margin.core.tasks import MULTILABEL, class_accuracy
from margin.core.types import Batch
from margin.engine.evaluation import counts, eval_mode, expand_weight
from margin.engine.loop import Risk
from margin.theory.prediction.held_out import Terms, losses_of, outputs_of, per_example
from margin.theory.prediction.margins import output_margins

RIGHT = "share right"
"""The column of an example that has a class at each of many places."""


@dataclass(frozen=True, slots=True, eq=False)
class WorstExamples:
    """Held-out examples of largest loss, the hardest first.

    Args:
        index: Position among the held-out examples that count, in their order.
        inputs: Their first input, in the user's units.
        targets: Their targets; None where an example has a class at each of many places.
        predictions: The task's columns of each: class and probability, score, value; of many places the share
            that is right.
        losses: Loss of each; NaN is the hardest of all.
        margins: Score of the label less the largest other score; None without classes.
        texts: The first inputs as texts, where they are tokens that are known.
    """

    index: Tensor
    inputs: Tensor
    targets: Tensor | None
    predictions: Mapping[str, Tensor]
    losses: Tensor
    margins: Tensor | None
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    def as_json(self) -> list[dict[str, Any]]:
        """One record an example, without its input; non-finite numbers become strings."""
        known = {"index": self.index, "target": self.targets, **self.predictions, "loss": self.losses}
        columns = {name: column for name, column in known.items() if column is not None}
        if self.margins is not None:
            columns["margin"] = self.margins
        texts = [{"text": text} for text in self.texts] or [{}] * len(self)
        return [
            {name: _plain(column[i].tolist()) for name, column in columns.items()} | text
            for i, text in enumerate(texts)
        ]


@torch.no_grad()
def worst_examples(subject: Subject, count: int = 12) -> WorstExamples | None:
    """The ``count`` held-out examples of largest loss; leaves no trace.

    Args:
        subject: Whose examples, with the loss of its objective (a mean over the terms of an example).
        count: How many to keep.

    Returns:
        None where the examples have no targets, losses and outputs do not belong to one example each, or an
        example has values at several steps: no line of a table shows it.

    Raises:
        ValueError: ``count`` is not positive.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1: got {count}")
    if not (has_loss(subject) and has_targets(subject)):
        return None
    kept = _worst(subject, count)
    if kept is None or not subject.vocabulary or kept.inputs.dtype != torch.int64 or kept.inputs.ndim != 2:
        return kept
    from margin.data.formats.text.vocabulary import written

    return replace(kept, texts=tuple(written(row, subject.vocabulary) for row in kept.inputs.tolist()))


def _worst(subject: Subject, count: int) -> WorstExamples | None:
    found = _of_places(subject, count) if _has_places(subject) else _of_outputs(subject, count)
    if found is not None or _has_places(subject):
        return found
    kept: WorstExamples | None = None
    position = 0
    with eval_mode(subject.model) as generator:
        for batch in subject.test:
            found = _of_batch(subject, batch, generator)
            if found is None:
                return None
            found = replace(found, index=found.index + position)
            position += len(found)
            kept = _top(found if kept is None else _columns(_together, kept, found), count)
    return kept


def _of_outputs(subject: Subject, count: int) -> WorstExamples | None:
    """They by the outputs that the claims read, without another pass; None where a loss is of no example."""
    cheap = isinstance(subject.objective, Risk) or "losses on test" in subject.kept
    if not cheap or any(batch.targets is None or batch.targets.ndim != 1 for batch in subject.test):
        return None
    answers = outputs_of(subject, "test").answers
    if answers is None or not len(answers.outputs):
        return None
    outputs, targets, (losses, _, example) = answers.outputs, answers.targets, losses_of(subject, "test")
    if not torch.equal(example, answers.example):
        return None
    margins = None
    if subject.task.classes is not None:
        margins = output_margins(subject.task.classes(outputs), targets).double()
    index = _hardest(losses, margins, count)
    predictions = {name: column[index] for name, column in subject.task.predict(outputs).items()}
    inputs = _inputs(subject, index)
    return WorstExamples(
        index, inputs, targets[index], predictions, losses[index], None if margins is None else margins[index]
    )


def _has_places(subject: Subject) -> bool:
    """Whether an example has a class at each of several places: pixels, tokens."""
    targets = subject.test[0].targets
    several = targets is not None and targets.ndim > 1 and not targets.is_floating_point()
    return several and subject.task.name != MULTILABEL.name


def _of_places(subject: Subject, count: int) -> WorstExamples | None:
    """They by the mean loss over the places of each; None where a loss is of no place."""
    from margin.theory.prediction.failures import places_of

    answers, losses = outputs_of(subject, "test").answers, losses_of(subject, "test")
    example = places_of(subject)[:, 0]
    if answers is None or not len(example) == len(losses.values) == len(answers.outputs):
        return None
    score = subject.task.scores.get("accuracy", class_accuracy)
    right = score(answers.outputs, answers.targets).double()
    columns = []
    for values in (losses.values, right):
        total, weight = per_example(Terms(values, losses.weight, example))
        columns.append(total / weight)
    index = _hardest(columns[0], None, count)
    loss, share = (column[index] for column in columns)
    return WorstExamples(index, _inputs(subject, index), None, {RIGHT: share}, loss, None)


def _inputs(subject: Subject, index: Tensor) -> Tensor:
    """The first inputs of the examples at these positions among those that count."""
    wanted, found, first = set(index.tolist()), {}, 0
    for batch in subject.test:
        rows = counts(batch).nonzero().flatten()
        for i in wanted.intersection(range(first, first + len(rows))):
            found[i] = batch.inputs[0][rows[i - first]][None].cpu()
        first += len(rows)
    return functools.reduce(_together, [found[i] for i in index.tolist()])


def _of_batch(subject: Subject, batch: Batch, generator: torch.Generator) -> WorstExamples | None:
    losses = subject.objective(subject.model, batch, generator)
    outputs = subject.model(*batch.inputs)
    if (
        batch.targets is None
        or not losses.shape[:1] == batch.targets.shape[:1] == batch.inputs[0].shape[:1]
        or not isinstance(outputs, Tensor)
        or batch.targets.ndim > 2
    ):
        return None
    losses = _of_examples(losses.double(), batch.weight)
    margins = None
    if subject.task.classes is not None and batch.targets.ndim == 1:
        margins = output_margins(subject.task.classes(outputs), batch.targets).double()
    weight = batch.weight
    keep = (
        torch.ones_like(losses, dtype=torch.bool)
        if weight is None
        else weight.reshape(len(losses), -1)[:, 0] > 0
    )
    predictions = {name: column[keep].cpu() for name, column in subject.task.predict(outputs).items()}
    index = torch.arange(int(keep.sum()))
    rows = (batch.inputs[0], batch.targets)
    inputs, targets = (tensor[keep].cpu() for tensor in rows)
    kept = None if margins is None else margins[keep].cpu()
    return WorstExamples(index, inputs, targets, predictions, losses[keep].cpu(), kept)


def _of_examples(losses: Tensor, weight: Tensor | None) -> Tensor:
    """The mean loss of each example over its own terms."""
    if losses.ndim == 1:
        return losses
    counted = expand_weight(losses, weight)
    total = torch.where(counted != 0, counted * losses, 0).flatten(1).sum(1)
    return total / counted.flatten(1).sum(1)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(x) for x in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _columns(change: Callable[..., Tensor], *parts: WorstExamples) -> WorstExamples:
    """Every column of some examples, or of several such, changed by one function."""
    index, inputs, losses = (
        change(*(getattr(part, name) for part in parts)) for name in ("index", "inputs", "losses")
    )
    labels = [part.targets for part in parts if part.targets is not None]
    targets = change(*labels) if labels else None
    predictions = {name: change(*(part.predictions[name] for part in parts)) for name in parts[0].predictions}
    known = [part.margins for part in parts if part.margins is not None]
    margins = change(*known) if len(known) == len(parts) else None
    return WorstExamples(index, inputs, targets, predictions, losses, margins)


def _together(a: Tensor, b: Tensor) -> Tensor:
    """The rows of both, those of shorter sequences padded with 0."""
    shape = [max(sizes) for sizes in zip(a.shape[1:], b.shape[1:], strict=True)]
    pads = [
        [side for size, most in zip(x.shape[:0:-1], shape[::-1], strict=True) for side in (0, most - size)]
        for x in (a, b)
    ]
    return torch.cat([pad(x, sides) for x, sides in zip((a, b), pads, strict=True)])


def _top(h: WorstExamples, count: int) -> WorstExamples:
    order = _hardest(h.losses, h.margins, count)
    return _columns(lambda column: column[order], h)


def _hardest(losses: Tensor, margins: Tensor | None, count: int) -> Tensor:
    """Positions of the largest losses, NaN first, ties by the smallest margin."""
    order = torch.arange(len(losses))
    if margins is not None:
        order = order[margins.nan_to_num(-torch.inf).argsort(stable=True)]
    losses = torch.where(losses.isnan(), torch.inf, losses)
    return order[losses[order].argsort(descending=True, stable=True)][:count]
