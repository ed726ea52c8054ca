"""Subjects whose answers are known: a model of this area, solved on tiny data in float64."""

from collections.abc import Sequence

from torch import Generator, nn

from margin.core.findings import Subject
from margin.core.tasks import Task
from margin.core.types import Batch, Objective
from margin.data.examples import Data, InOrder
from margin.engine.loop import State, Step
from margin.nn.preprocessed import Preprocessed


def whole(data: Data, part: str = "train") -> Sequence[Batch]:
    """A part of the data as one batch, in float64."""
    examples = data.splits[part]
    dtype = examples.inputs[0].double().dtype
    return InOrder(examples, len(examples), dtype=dtype)


def solved(
    data: Data, core: nn.Module, task: Task, objective: Objective, step: Step | None = None
) -> Subject:
    """The subject of a model that has taken one step on the whole training part.

    Args:
        data: The examples.
        core: The model, in its own units.
        task: How its outputs are read.
        objective: The loss of each term.
        step: What solves it; None leaves it as it is.
    """
    model = Preprocessed(data.preprocess, core).double()
    train = whole(data)
    if step is not None:
        step(State({"model": model}, generator=Generator().manual_seed(0)), train[0])
    return Subject(model=model, test=whole(data, "test"), train=train, task=task, objective=objective)
