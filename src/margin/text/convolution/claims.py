"""What the filters of a text CNN have learned: the runs of words that they answer to most."""

import math

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.data.formats.text.vocabulary import written
from margin.engine.evaluation import drawn_rows, eval_mode
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.text.convolution.text_cnn import NgramFilters, TextHead

EXAMPLES = 2048
"""Held-out texts that are read."""

FILTERS, EACH = 10, 3
"""Filters that are shown, and the runs of words of each."""


def filters_of(model: nn.Module) -> NgramFilters | None:
    """The filters in a model, None where there are none."""
    return next((m for m in core_of(model).modules() if isinstance(m, NgramFilters)), None)


def has_filters(subject: Subject) -> bool:
    """Whether the model has filters over runs of words."""
    return filters_of(subject.model) is not None


@torch.no_grad()
def ngrams(subject: Subject) -> Finding:
    """The largest answers of the filters that count most, and the runs of held-out words behind them.

    A filter counts as much as its mean answer times the largest deviation of its weights in the last layer
    from their mean over the classes.

    Args:
        subject: A text CNN.
    """
    filters = filters_of(subject.model)
    if filters is None:
        raise ValueError("this is asked of a text CNN")
    drawn = drawn_rows(subject.test, EXAMPLES)
    best, runs = [], []
    with eval_mode(subject.model):
        for batch in drawn.batches:
            tokens, lengths = batch.inputs[0], batch.inputs[1] if len(batch.inputs) > 1 else None
            tops = [y.max(2) for y in filters.answers(tokens, lengths)]
            best.append(torch.cat([top.values for top in tops], 1).cpu())
            runs += _runs(tokens.cpu(), lengths, [top.indices.cpu() for top in tops], filters)
    answers = torch.cat(best).double()
    weight = _weight(core_of(subject.model), answers)
    spread = weight - weight.mean(0)
    order = (answers.mean(0) * spread.abs().amax(0)).argsort(descending=True)[:FILTERS].tolist()
    labels = []
    for k in order:
        found: dict[str, None] = {}
        for i in answers[:, k].argsort(descending=True).tolist():
            if answers[i, k] > 0 and len(found) < EACH:
                found.setdefault(
                    written(runs[i][k], subject.vocabulary) if subject.vocabulary else str(runs[i][k])
                )
        shown = " | ".join(found) or "nothing"
        if len(weight) > 1:
            to = int(spread[:, k].argmax())
            shown += f" (for {subject.class_names[to] if to < len(subject.class_names) else to})"
        labels.append(shown)
    return Finding(
        statement=f"The largest answers of the {len(order)} filters that count most, with the runs of words "
        f"that get them, over {drawn.words()}.",
        value=answers[:, order].amax(0),
        unit="answer of a filter",
        range=(0.0, math.inf),
        labels=_each_once(labels),
        curves={"mean answer": answers[:, order].mean(0)},
    )


def _runs(
    tokens: Tensor, lengths: Tensor | None, windows: list[Tensor], filters: NgramFilters
) -> list[list[list[int]]]:
    """Of each text, the tokens in the best window of each filter."""
    ends = [tokens.shape[1]] * len(tokens) if lengths is None else lengths.tolist()
    found = []
    for i, row in enumerate(tokens.tolist()):
        found.append(
            [
                row[max(0, t - width + 1) : min(t + 1, ends[i])]
                for width, at in zip(filters.widths, windows, strict=True)
                for t in at[i].tolist()
            ]
        )
    return found


def _weight(model: nn.Module, answers: Tensor) -> Tensor:
    """The last layer's weights, (classes, filters); ones where there is none of that size."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m.in_features == answers.shape[1]]
    return (
        layers[-1].weight.double().cpu() if layers else torch.ones(1, answers.shape[1], dtype=torch.float64)
    )


def _each_once(labels: list[str]) -> tuple[str, ...]:
    """Names with a number behind those that came before."""
    return tuple(
        f"{label} [{labels[:k].count(label) + 1}]" if label in labels[:k] else label
        for k, label in enumerate(labels)
    )


def demo() -> Subject:
    """One filter of width 2 that answers to "red dog", another of width 1 that answers to "tree"."""
    from margin.data.sets.tiny.texts import classes  # with the reading of tables, which no claim needs

    data = classes()
    words = data.encoding["vocabulary"]
    torch.manual_seed(0)
    body = NgramFilters(len(words), embedding=len(words), filters=1, widths=(1, 2))
    model = TextHead(body, num_classes=2, max_norm=0.0)
    with torch.no_grad():
        body.embedding.weight.copy_(torch.eye(len(words)))
        for convolution, wanted in zip(body.convolutions, (("tree",), ("red", "dog")), strict=True):
            weight, bias = convolution.parameters()
            weight.zero_()
            bias.zero_()
            for place, word in enumerate(wanted):
                weight[0, words.index(word), place] = 1.0
        model.head.weight.copy_(torch.tensor([[0.1, -1.0], [0.0, 1.0]]))
    part = data.splits["test"]
    batch = part.take(torch.arange(len(part)), torch.Generator())
    return Subject(
        model=model,
        test=[batch],
        task=CLASSES,
        objective=risk(CLASSES),
        class_names=("no", "yes"),
        vocabulary=tuple(words),
    )
