"""What each held-out example came to, kept with an audit, by which two audits are compared in pairs."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from margin.core.findings import Subject, has_loss, has_probabilities, has_targets
from margin.data.files.writing import write_whole
from margin.theory.prediction.calibration import brier_score, forecasts
from margin.theory.prediction.held_out import Terms, held_out_answers, held_out_losses, per_example

FILE = "examples.safetensors"
"""The name of the file in an audit's directory."""

COLUMNS = ("weight", "example")
"""What stands in the file beside the values: each term's weight, and the example that it belongs to."""


def outcomes(subject: Subject) -> dict[str, Terms]:
    """Loss, and where each example has one target scores of the task and Brier score, term by term, by name.

    They come of what the claims have computed; {} where there are no targets. Where an example has several
    the loss is its mean over them.
    """
    if not has_targets(subject):
        return {}
    found = {"loss": held_out_losses(subject)} if has_loss(subject) else {}
    targets = subject.test[0].targets
    if targets is None or targets.ndim != 1:
        return {name: of_examples(terms) for name, terms in found.items()}
    answered = held_out_answers(subject)
    for name, score in subject.task.scores.items():
        values = score(answered.outputs, answered.targets)
        if values.shape == answered.weight.shape:
            found[name] = answered.terms(values)
    if has_probabilities(subject):
        stated = forecasts(subject)
        found["Brier score"] = answered.terms(brier_score(stated.probabilities, stated.labels))
    return found


def of_examples(terms: Terms) -> Terms:
    """The weighted mean of each example's terms, which weighs what they do."""
    total, weight = per_example(terms)
    return Terms(total / weight, weight, terms.example.unique())


def write_outcomes(path: Path, found: Mapping[str, Terms]) -> None:
    """Write the terms of every name; those of other terms than the first's are left out."""
    from safetensors.torch import save

    first = next(iter(found.values()))
    alike = {
        name: terms.values.contiguous()
        for name, terms in found.items()
        if torch.equal(terms.example, first.example) and torch.equal(terms.weight, first.weight)
    }
    write_whole(path, save({**alike, **{name: getattr(first, name).contiguous() for name in COLUMNS}}))


def read_outcomes(path: Path) -> dict[str, Terms]:
    """The terms that :func:`write_outcomes` wrote.

    Raises:
        ValueError: The file is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        read: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    sizes = {(column.ndim, len(column)) for column in read.values() if column.ndim}
    if not set(COLUMNS) <= read.keys() or len(sizes) != 1 or sizes.pop()[0] != 1:
        raise ValueError(f"{path} is damaged: it must hold columns of one length, {' and '.join(COLUMNS)}")
    weight, example = (read.pop(name) for name in COLUMNS)
    return {name: Terms(values, weight, example) for name, values in read.items()}
