"""Inference: the predictions of a run for new data, the loss of each example that it held out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from margin.core.catalog import find, formats, resolve, rules
from margin.core.tasks import CODES, DENSITY, LEVELS, TOKENS, Task
from margin.core.types import Batch
from margin.data.examples import InOrder, evaluation_batch, is_independent
from margin.data.formats.text.pairs import decode
from margin.data.open import encode
from margin.data.preprocess import Standardize
from margin.data.source import Source
from margin.engine.evaluation import eval_mode, expand_weight, terms_of, weigh_loss
from margin.engine.plan import cut_of, objective_of
from margin.engine.runs import Run, load
from margin.nn.predictive import predictive_of, states_law
from margin.nn.preprocessed import core_of, dtype_of, features_of
from margin.runs.run_data import held_out, is_own
from margin.theory.prediction.held_out import Terms


def remark_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader of a run's predictions must know of the rule by which it was trained."""
    rule = record["arguments"]["rule"]
    found = find(rules(), rule, "rule").remark if rule else ""
    return (found,) if found else ()


def predictions(
    run: Run,
    data: Any,
    *,
    width: int = 1,
    longest: int = 100,
    tell: Callable[[str], None] = lambda note: None,
) -> dict[str, list[Any]]:
    """A run's predictions for data, as columns with class names in place of labels.

    Args:
        run: A training with at least one checkpoint.
        data: Read by the run's own encoding; targets are not needed. Of a set by name, the part that the
            run held out is taken; of a file, every row.
        width: Of a model that translates, the width of the beam; 1 takes the likeliest token each time.
        longest: Of a model that translates, tokens at most.
        tell: Is given what was assumed in reading the data, a sentence each: gaps in time, cells filled in.

    Raises:
        ValueError: The data do not fit the run, or an option is not of its model.
    """
    record = run.record
    model, entry = load(run), run.entry
    task, encoding = resolve(entry.task), record["data"]["encoding"]
    names = encoding.get("classes") or encoding.get("vocabulary", [])
    columns: dict[str, list[Any]] = {}
    source = Source.of(data)
    named = is_own(run, source) and not Path(source.bare).exists()
    examples = held_out(run) if named else encode(source, encoding)
    series = encoding.get("format") == "series"
    for note in (*getattr(examples, "notes", ()), *remark_of(record)):
        tell(note)
    if not named and (files := files_of(source, encoding)):
        columns["file"] = [str(path) for path in files]
    if not named and hasattr(examples, "ahead"):
        examples = examples.ahead()
    columns |= {key: list(values) for key, values in getattr(examples, "rows", {}).items()}
    translate = getattr(core_of(model), "translate", None)
    if translate is None and (width, longest) != (1, 100):
        raise ValueError(f"width and longest are of models that translate: {entry.name} does not")
    with torch.no_grad(), eval_mode(model):
        for batch in InOrder(examples, evaluation_batch(examples), dtype=dtype_of(model)):
            if translate is not None:
                found = translate(*batch.inputs[:2], width=width, longest=longest)
                shown = translated(found, encoding)
            else:
                outputs = closing(model(*batch.inputs), batch, task)
                if task is DENSITY:
                    outputs = outputs - log_volume(model, batch)
                weight = None if is_independent(examples) else batch.weight
                shown = forecast(outputs) if series else predicted(task, outputs, weight, names)
                shown |= bounded(model, batch) if task is CODES else {}
                shown |= spread(model, batch) if states_law(model) else {}
            for name, values in shown.items():
                columns.setdefault(name, []).extend(values)
    read = getattr(examples, "shown", None)
    return read(columns) if read else columns


def files_of(source: Source, encoding: Mapping[str, Any]) -> tuple[Path, ...]:
    """The files of new examples, where each has one."""
    if not isinstance(source.given, str | Path):
        return ()
    own = formats().get(encoding.get("format", ""))
    row = own if own and own.prefix else source.format
    return resolve(row.files)(source.bare) if row and row.files else ()


def log_volume(model: Any, batch: Batch) -> Tensor:
    """What the log-densities of a batch lose from the model's units to the user's, in nats."""
    x = batch.inputs[0]
    known = isinstance(model.preprocess, Standardize)
    return model.preprocess.log_volume(x) if known else x.new_zeros(())


def bounded(model: Any, batch: Batch) -> dict[str, list[float]]:
    """A lower bound of each example's log-density, of a model that knows one: an estimate, in nats.

    Each example meets the same draws, whichever others are asked about.
    """
    core, x = core_of(model), batch.inputs[0]
    if not hasattr(core, "bound"):
        return {}
    rows = [core.bound(z, generator=Generator().manual_seed(0)) for z in features_of(model, x).split(1)]
    bound = torch.cat(rows)
    if getattr(core, "discrete", False):
        return {"log probability, at least": bound.tolist()}
    return {"log density, at least": (bound - log_volume(model, batch)).tolist()}


def spread(model: Any, batch: Batch) -> dict[str, list[float]]:
    """The standard deviation of a new value at each input, and its central interval of 95 %."""
    law = predictive_of(model, batch.inputs[0])
    columns = {"std": law.variance.sqrt(), "low 95%": law.quantile(0.025), "high 95%": law.quantile(0.975)}
    return {name: values.tolist() for name, values in columns.items()}


def forecast(outputs: Tensor) -> dict[str, list[float]]:
    """The numbers of forecasts by window, then step, then column; of quantiles each of them."""
    if outputs.ndim == 3:
        return {"value": outputs.flatten().tolist()}
    levels = zip(LEVELS, outputs.unbind(-1), strict=True)
    return {f"q{level:g}": each.flatten().tolist() for level, each in levels}


def predicted(task: Task, outputs: Any, weight: Tensor | None, names: Sequence[str]) -> dict[str, list[Any]]:
    """What a user is shown of outputs; where a batch holds nodes of other parts, weight 0 leaves out."""
    columns = task.predict(outputs)
    kept = {name: found if weight is None else found[weight != 0] for name, found in columns.items()}
    return {
        name: named_classes(found.tolist(), names) if name == "class" else found.tolist()
        for name, found in kept.items()
    }


def translated(found: Any, encoding: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Decoded targets as text, how probable each is, and whether it came to an end."""
    return {
        "translation": [decode(row, encoding) for row in found.tokens.tolist()],
        "log probability": found.log_probability.tolist(),
        "ended": found.ended.tolist(),
    }


def closing(outputs: Any, batch: Batch, task: Task) -> Any:
    """Outputs that end with what is predicted: of tokens that are filled up, each example's own last place.

    A sequence of length 0 keeps its first place.
    """
    if task is not TOKENS:
        return outputs
    if len(batch.inputs) == 2:
        lengths = batch.inputs[1]
    elif batch.weight is not None:  # the last block of a text
        lengths = batch.weight.count_nonzero(1)
    else:
        return outputs
    last = (lengths - 1).clamp_min(0)
    return outputs[torch.arange(len(last)), last][:, None]


def named_classes(labels: list[Any], names: Sequence[str]) -> list[Any]:
    """Labels, or lists of labels, by the names of the classes where there are names."""
    if not names:
        return labels
    return [named_classes(one, names) if isinstance(one, list) else names[one] for one in labels]


class HeldOut(NamedTuple):
    """What a run's weights make of the part that it held out.

    Args:
        terms: The loss and the scores, by name, term by term; ``example`` counts what errors are over.
        examples: Held-out examples that count: of the nodes of a graph those of the held-out part, of
            examples in groups the groups.
        blocks: Blocks of neighboring windows, which overlap, of which ``example`` is one: 1 where there are
            too few windows for an error; 0 where it is an example.
        loss: Which loss the terms of that name are: those of two runs may be compared where it is one.
    """

    terms: dict[str, Terms]
    examples: int
    blocks: int
    loss: str = ""


def held_out_terms(run: Run) -> HeldOut:
    """The loss and scores of each held-out term under a run's weights, and the example it belongs to.

    The test part is taken, else the validation part.

    Raises:
        ValueError: The run held nothing out, or its data have changed.
    """
    model, part = load(run), held_out(run)
    entry = run.entry
    task = resolve(entry.task)
    objective = objective_of(entry, task)
    if objective is None:
        raise ValueError(f"{entry.name} has no loss that could be compared")
    examples, first = cut_of(entry, run.record["recipe"]["options"])(part), 0
    found: dict[str, list[tuple[Tensor, ...]]] = {}
    with torch.no_grad(), eval_mode(model) as generator:
        for batch in InOrder(examples, evaluation_batch(examples), dtype=dtype_of(model)):
            count = 0
            for name, values in terms_of(model, batch, task, objective, generator).items():
                values, each = weigh_loss(values, batch, task) if name == "loss" else (values, batch.weight)
                weight = expand_weight(torch.ones_like(values), each).double().flatten()
                count, own = len(values), values[:1].numel()
                example = torch.arange(first, first + count).repeat_interleave(own)
                kept = weight != 0
                columns = (values.double().flatten()[kept], weight[kept], example[kept])
                found.setdefault(name, []).append(columns)
            first += count
    terms = {name: Terms(*(torch.cat(c) for c in zip(*rows, strict=True))) for name, rows in found.items()}
    if (
        groups := getattr(examples, "groups", None)
    ) is not None:  # rows of one group are no independent draws
        terms = {name: t._replace(example=groups[t.example]) for name, t in terms.items()}
    blocks, counted = 0, max(len(each.example.unique()) for each in terms.values())
    if horizon := getattr(examples, "horizon", 0):  # windows of a series have one, and overlap
        from margin.sequence.forecast.backtest import (
            blocks_of,  # with polars, which no run but of a series needs
        )

        try:
            blocks = blocks_of(first, horizon)
        except ArithmeticError:  # too few windows: one block, whose mean has no known error
            blocks = 1
        terms = {name: t._replace(example=t.example * blocks // first) for name, t in terms.items()}
    return HeldOut(terms, counted, blocks, loss_named(run, task))


def loss_named(run: Run, task: Task) -> str:
    """Which loss a run states: its entry's own objective, -log of a stated probability, or its task's."""
    own = run.record.get("own") or {"loss": "", "task": ""}
    if own["loss"]:
        return " ".join([own["loss"], *(f"{name}={value}" for name, value in own["loss_options"].items())])
    if own["task"] == "reconstruction":
        return "squared error of the reconstruction"
    if run.entry.objective:
        name = str(run.entry.objective).rpartition(":")[2].replace("_", " ")
        return f"{name} of {task.name}"  # of forecasts it is one of values, another of quantiles
    # one logit, or one for each class: -log of the probability of the label, in nats
    return "-log probability of the label" if task.probabilities is not None else f"loss of {task.name}"
