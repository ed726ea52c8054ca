"""Weighted examples as rows: the one reading of weights, strict, for steps and claims on whole training sets.

An example of weight 2 counts as two, and one of weight 0, which is left out, as none: weighted least squares
as in Seber and Lee (2003), Section 3.10.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, sample_examples
from margin.engine.loop import NonFiniteError, State
from margin.nn.preprocessed import features_of


class WeightedRows(NamedTuple):
    """The examples of weight above 0, as a model's core sees them.

    Args:
        x: Features, one example a row.
        targets: Of each row; empty where a model asks for none.
        weight: How much each counts, positive.
        places: Where each row stood among all.
    """

    x: Float[Tensor, "rows features"]
    targets: Tensor
    weight: Float[Tensor, " rows"]
    places: Int[Tensor, " rows"]

    def double(self) -> "WeightedRows":
        """The rows in float64, labels as numbers."""
        return WeightedRows(self.x.double(), self.targets.double(), self.weight.double(), self.places)


def weighted(
    x: Tensor, targets: Tensor | None, weight: Tensor | None, learner: str, *, least: int = 1, of: str = ""
) -> WeightedRows:
    """The rows of weight above 0, each number checked.

    Args:
        x: Features, one example a row.
        targets: Of each row; None: none are asked for.
        weight: Of each row; None: 1.
        learner: How a message calls what asks for the rows.
        least: Rows at least; 0 where a batch may hold fillers alone.
        of: What a message adds to the place of a row, as " of the batch".

    Raises:
        ValueError: A weight is negative or not finite, or fewer than ``least`` are above 0.
        NonFiniteError: A feature or a target of a row that counts is not finite.
    """
    full = weight is None
    weight = x.new_ones(len(x)) if weight is None else weight
    if not bool((sound := weight.isfinite() & (weight >= 0)).all()):
        row = int((~sound).nonzero()[0])
        raise ValueError(
            f"weights of examples must be finite and at least 0: got {float(weight[row]):g} in row {row}"
        )
    places = weight.nonzero()[:, 0]
    if len(places) < least:
        raise ValueError(f"{learner} needs an example of weight above 0: got {len(weight)} of weight 0")
    y = x.new_zeros(0) if targets is None else targets
    if not full and len(places) < len(x):
        x, weight = x[places], weight[places]
        y = y if targets is None else y[places]
    for what, values in (("features", x), ("targets", y)):
        if not bool(values.isfinite().all()):
            place = (~values.isfinite()).nonzero()[0].tolist()
            where = f"row {int(places[place[0]])}{of}" + "".join(f", feature {j}" for j in place[1:])
            raise NonFiniteError(f"{what} must be finite: got {float(values[tuple(place)])} in {where}")
    return WeightedRows(x, y, weight, places)


def batch_rows(
    state: State, batch: Batch, *, learner: str, targets: bool = True, least: int = 1
) -> WeightedRows:
    """The rows of a batch, as a step's core sees them.

    Args:
        state: Whose preprocessing is applied.
        batch: What a step is handed.
        learner: How a message calls what asks for them.
        targets: Whether targets are asked for.
        least: Rows at least; 0 where a batch may hold fillers alone.

    Raises:
        ValueError: There are no targets, a weight is negative or not finite, or all are 0.
        NonFiniteError: A feature or a target is not finite.
    """
    if targets and batch.targets is None:
        raise ValueError(f"{learner} needs targets: the data have none")
    x = state.features(batch).flatten(1)
    wanted = batch.targets if targets else None
    return weighted(x, wanted, batch.weight, learner, least=least, of=" of the batch")


def training_rows(subject: Subject, *, targets: bool = True, most: int | None = None) -> WeightedRows:
    """The training examples of a subject, as its core sees them, in order, on the CPU.

    Args:
        subject: One with training examples of one real input.
        targets: Whether targets are asked for.
        most: Rows at most, drawn at random; all if not given.

    Raises:
        ValueError: There are no targets, a weight is negative or not finite, or all are 0.
        NonFiniteError: A feature or a target is not finite.
    """
    batches = sample_examples(subject.train, most).batches
    rows = rows_of_batches(subject.model, batches, learner="the question", targets=targets)
    return WeightedRows(*(column.cpu() for column in rows))


def rows_of_batches(
    model: nn.Module, batches: Iterable[Batch], *, learner: str, targets: bool = True
) -> WeightedRows:
    """The rows of batches, as a model's core sees them, in order; a batch may hold fillers alone.

    Args:
        model: Whose preprocessing is applied.
        batches: Of one real input.
        learner: How a message calls what asks for them.
        targets: Whether targets are asked for.

    Raises:
        ValueError: There are no targets, a weight is negative or not finite, or all are 0.
        NonFiniteError: A feature or a target is not finite.
    """
    parts, first = [], 0
    with torch.no_grad(), eval_mode(model):
        for batch in batches:
            if targets and batch.targets is None:
                raise ValueError(f"{learner} needs targets: the examples have none")
            x = features_of(model, batch.inputs[0]).flatten(1)
            rows = weighted(x, batch.targets if targets else None, batch.weight, learner, least=0)
            parts.append(rows._replace(places=rows.places + first))
            first += len(x)
    found = WeightedRows(*(torch.cat(column) for column in zip(*parts, strict=True)))
    if not len(found.places):
        raise ValueError(f"{learner} needs an example of weight above 0: got {first} of weight 0")
    return found
