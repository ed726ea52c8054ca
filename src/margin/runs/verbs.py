"""What is done with models and runs in Python, as on the command line: train, resume, predict, describe data.

Errors name arguments here, where the command line's name options.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from margin.core.arguments import by_argument
from margin.core.catalog import find, models
from margin.core.options import Schedule, Training, Weights
from margin.core.types import Batch
from margin.core.user_modules import is_user_model
from margin.data.description import describe, lines
from margin.engine.check_options import told_by
from margin.engine.runs import Run, run_of
from margin.figures.rows import html_text
from margin.runs.inference import predictions
from margin.runs.masks import mask_shares, predicts_masks
from margin.runs.notebook import notebook_progress
from margin.runs.training import finish, open_source, prepare, reopen
from margin.runs.user_models import choose


# 28 parameters: what is trained on what, and the options that every help lists, with some more
@by_argument()
def train(
    model: Any,
    data: Any,
    options: Mapping[str, Any] | None = None,
    training: Training | None = None,
    *,
    step: Mapping[str, Any] | None = None,
    rule: str = "",
    task: str = "",
    objective: Any = None,
    out: str | Path | None = None,
    seed: int | None = None,
    device: str | None = None,
    epochs: int | None = None,
    max_steps: int | None = None,
    batch_size: int | Literal["all"] | None = None,
    optimizer: str | None = None,
    lr: float | None = None,
    schedule: Schedule | None = None,
    warmup: int | None = None,
    clip: float | None = None,
    augment: list[str] | None = None,
    label_smoothing: float | None = None,
    class_weight: Weights | None = None,
    init_from: str | None = None,
    freeze: list[str] | None = None,
    patience: int | None = None,
    track: list[str] | None = None,
    scale: Literal["standard", "unit", "symmetric", "none"] | None = None,
) -> Run:
    """Train a model on data, and leave a run.

    Args:
        model: Name of an entry of the catalog, ``area/topic`` or the topic alone; or a module of your own:
            its path ``package.module:name``, its class or a function that builds it, whose positional
            parameters that bear a name of the spec (``in_features``, ``num_classes``, ``channels``, ...) the
            data fill; or the module itself, which is trained in place.
        data: A source's name, a file or a folder, arrays ``(x, y)``, a DataFrame, a torch Dataset or
            DataLoader, or Data; a reader's options go through ``margin.open_source(data, {...})``.
        options: The model's own options: keyword-only parameters of its constructor.
        training: Options common to all trainings; those that follow are the most used of them, by name.
        step: Options of the entry's step, or of the rule's.
        rule: Name of a rule whose step replaces the entry's own.
        task: Of a module of your own, how its outputs are read: classes, binary, values, reconstruction, ...;
            by the data's targets if not given.
        objective: Of a module of your own, its loss: one of torch.nn, or a function ``(outputs, targets) ->
            loss``; the task's if not given.
        out: Directory of the run; it must not exist. ``runs/<model>-<number>`` if not given.
        seed: See :class:`margin.Training`, as for all that follow.
        device: Where the training runs.
        epochs: Passes over the training examples.
        max_steps: Training steps; overrides epochs.
        batch_size: Examples a step, or all.
        optimizer: Of torch.optim or of the catalog.
        lr: Learning rate.
        schedule: Learning-rate schedule.
        warmup: Steps of the rise from 0.
        clip: Largest norm of a gradient.
        augment: Data augmentation, as ["shift:2", "flip"].
        label_smoothing: Probability of another label.
        class_weight: Weight of each class.
        init_from: Pretrained weights.
        freeze: Parameters that are not trained.
        patience: Evaluations without a better validation loss.
        track: Measurements at every evaluation.
        scale: Input scaling.

    Returns:
        The finished run.

    Raises:
        ValueError: A name, an option or the data do not fit.
        FileExistsError: ``out`` exists.
        NonFiniteError: The loss or a gradient stopped being finite; the last good checkpoint is kept.
        KeyboardInterrupt: Ctrl-C; the state is saved, and ``margin.resume`` goes on.
    """
    named = {
        "seed": seed,
        "device": device,
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "optimizer": optimizer,
        "lr": lr,
        "schedule": schedule,
        "warmup": warmup,
        "clip": clip,
        "augment": augment,
        "label_smoothing": label_smoothing,
        "class_weight": class_weight,
        "init_from": init_from,
        "freeze": freeze,
        "patience": patience,
        "track": track,
        "scale": scale,
    }
    arguments = {"options": dict(options or {}), "step": dict(step or {}), "rule": rule}
    common = _options(training, named)
    if isinstance(model, str) and not is_user_model(model):
        data = told_by(find(models(), model, "model"), data)
    opened = open_source(data, {})
    chosen = choose(model, opened, task, objective)
    return finish(prepare(chosen, opened, arguments, common, out), progress=notebook_progress())


# 8 parameters: the run, what it needs of what lay in memory, and what may change
@by_argument()
def resume(
    run: str | Path | Run,
    data: Any = None,
    training: Training | None = None,
    *,
    model: Any = None,
    epochs: int | None = None,
    max_steps: int | None = None,
    patience: int | None = None,
    device: str | None = None,
) -> Run:
    """Go on with a run from its last checkpoint; a run that ended stays as it is.

    Args:
        run: The run or its directory.
        data: Needed only for data that lay in memory.
        training: Options that change, for instance a larger ``epochs``; the following are some of them.
        model: The module of your own that was handed over, or its class or function.
        epochs: Passes over the training examples, in all.
        max_steps: Training steps, in all.
        patience: Evaluations without a better validation loss.
        device: Where the training runs.

    Raises:
        ValueError: The data are not those that the run began with.
    """
    named = {"epochs": epochs, "max_steps": max_steps, "patience": patience, "device": device}
    before = run_of(run, model)
    job = reopen(before, data, _options(training, named))
    try:
        return finish(job, progress=notebook_progress())
    finally:
        before.refresh()


def _options(training: Training | None, named: Mapping[str, Any]) -> Training:
    """The options common to all trainings, of which some are given by name.

    Raises:
        ValueError: One is given twice, or ``training`` is no Training.
    """
    if training is not None and not isinstance(training, Training):
        raise ValueError(
            f"training must be a margin.Training, as Training(epochs=3): got {type(training).__name__}"
        )
    given = {name: value for name, value in named.items() if value is not None}
    common = training or Training()
    if twice := [name for name in given if getattr(common, name) is not None]:
        raise ValueError(f"{twice[0]} must be given once: it is in training and by name")
    return replace(common, **given)


# using a run


@by_argument()
def predict(
    run: str | Path | Run,
    data: Any,
    *,
    model: Any = None,
    width: int = 1,
    longest: int = 100,
    out: str | Path = "",
) -> Any:
    """A run's predictions for data, in the data's own kind.

    Args:
        run: The run or its directory.
        data: Read as the run's training data were; targets are not needed. Of a set by name, the part that
            the run held out is taken; of a file, every row.
        model: The module of your own that was handed over, or its class or function.
        width: Of a model that translates, the width of the beam.
        longest: Of a model that translates, tokens at most.
        out: Of a model that tells a class for every pixel, the folder to which its masks are written as PNG.

    Returns:
        One row an example, of a mask the share of each class: of a pandas DataFrame a pandas DataFrame with
        its index, of arrays and tensors a structured NumPy array, of anything else a polars DataFrame.

    Raises:
        ValueError: The data do not fit the run.
    """
    one = run_of(run, model)
    masks = predicts_masks(one)
    columns = mask_shares(one, data, out) if masks else predictions(one, data, width=width, longest=longest)
    like = data[0] if isinstance(data, tuple) and not isinstance(data, Batch) else data
    kind = type(like).__module__.partition(".")[0]
    if kind == "pandas":
        frames: Any = sys.modules["pandas"]
        return frames.DataFrame(columns, index=like.index)
    if kind == "numpy" or isinstance(like, Tensor | list):
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        fields = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
        found = np.empty(len(next(iter(arrays.values()))), dtype=fields)
        for name, array in arrays.items():
            found[name] = array
        return found
    import polars

    return polars.DataFrame(columns)


class Description(dict[str, Any]):
    """What was understood of data, as JSON values; it shows itself as ``margin data show`` does."""

    def __repr__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        return html_text(repr(self))


@by_argument()
def describe_data(source: Any, options: Mapping[str, Any] | None = None) -> Description:
    """What is understood of data before a training: parts, columns, classes, ranges, what is missing.

    Args:
        source: As ``margin.train`` takes its data.
        options: The options of what reads it, as ``{"target": "price", "task": "values"}``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The data are wrong.
    """
    return Description(describe(open_source(source, options or {})))
