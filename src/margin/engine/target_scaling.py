"""Targets of mean 0 and variance 1 while a model is trained by gradients; all else in the user's units.

The model's own output z stands for y = m + s z. A step minimizes ((y - target) / s)^2, the squared error of
the standardized target; what it reports, an evaluation averages and an audit asks is (y - target)^2.
"""

from dataclasses import replace

from torch import Generator, Tensor, nn

from margin.core.catalog import Entry, resolve
from margin.core.options import Training
from margin.core.tasks import VALUES
from margin.core.types import Batch, Metrics, Objective
from margin.data.examples import Data
from margin.data.preprocess import Standardize, fit_standardize
from margin.engine.loop import State, Step


def can_scale(entry: Entry) -> bool:
    """Whether an entry's targets can be scaled: values, learned by gradients of their squared error."""
    return bool(entry.optimizers) and not entry.objective and resolve(entry.task) is VALUES


def with_outcome(data: Data, entry: Entry, training: Training) -> tuple[Data, tuple[str, ...]]:
    """The data with the map from a model's own output to the user's units, and what is said of it.

    Args:
        data: From a source; only where its encoding says that targets are values are they scaled.
        entry: What is trained.
        training: The resolved options.
    """
    values = getattr(data.splits["train"], "targets", None)
    asked = can_scale(entry) and training.scale_targets == "standard"
    if not asked or data.encoding.get("task") != "values" or values is None or not len(values):
        return data, ()
    target = fit_standardize(values.double().reshape(-1, 1), per="feature")
    mean, std = target.mean[0], target.std[0]
    # y = m + s z is a standardization too: y = (z - (-m / s)) / (1 / s)
    outcome = Standardize(-mean / std, 1 / std)
    note = (
        f"the targets are scaled for the training, by their mean {float(mean):.6g} and deviation "
        f"{float(std):.6g}; losses and predictions are in their own units; --scale-targets none leaves them"
    )
    return replace(data, outcome=outcome), (note,)


def with_precision(data: Data, training: Training) -> tuple[Training, tuple[str, ...]]:
    """The options, with float64 where numbers vary less than float32 resolves, and what is said of it.

    Raises:
        ValueError: bfloat16 was asked for.
    """
    if not data.encoding.get("wide") or training.precision == "float64":
        return training, ()
    if training.precision == "bfloat16":
        raise ValueError(
            f"{data.name} holds numbers that vary less than float32 resolves: set --precision float64"
        )
    note = f"{data.name} holds numbers that vary less than float32 resolves: the precision is float64"
    return replace(training, precision="float64"), (note,)


def scale_of(model: nn.Module) -> float:
    """s, what a unit of the model's own output stands for; 1 where targets are as they are."""
    outcome = getattr(model, "outcome", None)
    return 1.0 if outcome is None else 1 / float(outcome.std)


def standardized_loss(objective: Objective | None, scale: float) -> Objective | None:
    """A squared error in units of the targets' variance."""
    if objective is None or scale == 1.0:
        return objective
    inner = objective

    def scaled(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return inner(model, batch, generator) / scale**2

    return scaled


def in_own_units(step: Step, scale: float) -> Step:
    """A step whose reported loss is in the square of the user's units."""
    if scale == 1.0:
        return step

    def reporting(state: State, batch: Batch) -> Metrics:
        metrics = step(state, batch)
        return {name: value * scale**2 if name == "loss" else value for name, value in metrics.items()}

    return reporting
