"""The training examples of a subject as rows: what theorems about hyperplanes speak of."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.core.findings import Subject
from margin.engine.evaluation import eval_mode, sample_examples
from margin.nn.preprocessed import features_of


def training_rows(
    subject: Subject, most: int | None = None
) -> tuple[Float[Tensor, "rows features"], Int[Tensor, " rows"]]:
    """Features, as the catalog's model sees them, and labels of the training examples that count.

    Args:
        subject: One with training examples of one real input.
        most: Rows at most, drawn at random; all if not given.

    Returns:
        The rows in float64 and the labels, in the order of the examples, on the CPU; examples of weight 0 are
        left out.

    Raises:
        ValueError: The examples have no targets, or a feature is not finite.
    """
    model, rows, labels = subject.model, [], []
    with torch.no_grad(), eval_mode(model):
        found = sample_examples(subject.train, most)
        for batch in found.batches:
            if batch.targets is None:
                raise ValueError("the training examples have no targets")
            x = features_of(model, batch.inputs[0]).flatten(1).double().cpu()
            kept = torch.ones(len(x), dtype=torch.bool) if batch.weight is None else batch.weight.cpu() > 0
            rows.append(x[kept])
            labels.append(batch.targets.cpu()[kept].long())
    x, y = torch.cat(rows), torch.cat(labels)
    if bad := (~x.isfinite()).nonzero().tolist():
        row, column = bad[0]
        where = f"training example {row}{'' if found.whole else ' of those drawn'}, feature {column}"
        raise ValueError(f"features must be finite: got {float(x[row, column])} in {where}")
    return x, y


def has_rows(subject: Subject) -> bool:
    """Whether the examples are one real input each, with a class."""
    first = subject.train[0] if len(subject.train) else None
    if first is None or first.targets is None or len(first.inputs) != 1:
        return False
    return bool(first.inputs[0].is_floating_point() and first.targets.ndim == 1)
