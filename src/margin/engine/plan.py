"""The plan of a training: batches, step and evaluation, from its arguments alone.

Resuming makes the plan again, so nothing in it may depend on what was trained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import torch
from torch import nn

from margin.core.catalog import Entry, dictated, find, formats, heads_of, models, resolve, rules, supply
from margin.core.findings import without_loss
from margin.core.options import Training
from margin.core.tasks import Task
from margin.core.types import Batch, Examples, Objective
from margin.data.examples import ALL, Data, InOrder, Share, evaluation_batch
from margin.data.sampling.loading import Prefetched
from margin.engine.asking import evaluate
from margin.engine.descent import Descend, descent, risk
from margin.engine.parallel.processes import share
from margin.engine.plateau import on_plateau
from margin.engine.recipes import DTYPES
from margin.engine.state import State, Step, device_of
from margin.engine.target_scaling import in_own_units, scale_of, standardized_loss
from margin.engine.tracking import Tracks, tracks_of
from margin.engine.tricks import drawn, moving_objective, teacher_of
from margin.engine.wrappers import averaged, scheduled
from margin.optim.schedules import schedule_of

Taken = Callable[[Sequence[Batch]], Iterator[Batch]]
"""How an evaluation takes its batches."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All that a training needs besides its state.

    Args:
        feed: The batches of each step, as the data hold them.
        step: What advances the state.
        total: Steps in all.
        held: The parts that are held out, in order, in the model's type and on its device.
        task: How outputs are read.
        objective: What an evaluation averages; None where the entry has no loss.
        minimized: The same in the unit in which a step minimizes it, which a track measures.
        tracks: Further measurements of every evaluation, by name, and the training part for them.
        training: The resolved options.
        dtype: The type of real tensors.
        device: Where batches go.
    """

    feed: Prefetched
    step: Step
    total: int
    held: Mapping[str, InOrder]
    task: Task
    objective: Objective | None
    minimized: Objective | None
    tracks: Tracks
    training: Training
    dtype: torch.dtype
    device: torch.device

    @property
    def per_epoch(self) -> int:
        """Steps an epoch."""
        return self.feed.per_epoch

    @property
    def batch_size(self) -> int:
        """Examples a step."""
        return self.feed.batch_size

    def batches(self, step: int) -> Batch:
        """The batch of a step, in the model's type and on its device."""
        return self.feed(step).to(dtype=self.dtype, device=self.device)

    def evaluate(self, state: State, taken: Taken = iter) -> dict[str, float]:
        """Metrics of the current weights on the validation part; none where there is no such part.

        Args:
            state: Whose weights.
            taken: How its batches are taken: one after another, or until the training is to stop.
        """
        return self.judge_part(state.usable, "val", taken)

    def measure(self, state: State) -> dict[str, float]:
        """The columns of every track, of the current weights on the training part."""
        return self.tracks(state, self.minimized or without_loss)

    def judge(self, model: nn.Module) -> dict[str, float]:
        """Metrics of a module on every part that is held out."""
        return {
            f"{name}_{metric}": value
            for name in self.held
            for metric, value in self.judge_part(model, name).items()
        }

    def judge_part(self, model: nn.Module, name: str, taken: Taken = iter) -> dict[str, float]:
        """Metrics of a module on one part."""
        if self.objective is None or name not in self.held:
            return {}
        return evaluate(model, taken(self.held[name]), self.task, self.objective)


# more than 40 lines: every part of a plan is made here once
def plan_of(entry: Entry, data: Data, arguments: Mapping[str, Any], training: Training, state: State) -> Plan:
    """The plan of a training.

    Raises:
        ValueError: The rule, an option of the step or the data do not fit.
    """
    cut = cut_of(entry)
    examples = {name: cut(split) for name, split in data.splits.items()}
    count = len(examples["train"])
    size = count if training.batch_size == "all" else int(training.batch_size or 1)
    dtype, device = DTYPES[str(training.precision)], device_of(state.model)
    task = resolve(entry.task)
    objective = objective_of(entry, task)

    def in_order(part: Examples, share: Share = ALL) -> InOrder:
        return InOrder(part, evaluation_batch(part, size), dtype=dtype, device=device, share=share)

    source = drawn(examples["train"], size, data, training)
    if entry.whole and source.per_epoch > 1:
        raise ValueError(f"{entry.name} takes all {count} examples at once: set --batch-size all, got {size}")
    epochs = int(training.epochs or 0) * source.per_epoch
    total = epochs if training.max_steps is None else training.max_steps
    held = {name: in_order(part, share()) for name, part in examples.items() if name != "train" and len(part)}
    given = {
        "task": task,
        "domain": data.domain,
        "total_steps": total,
        "teacher": teacher_of(training),
        "model": state.core,
    }
    scale = scale_of(state.model)
    minimized = standardized_loss(objective, scale)
    moving = moving_objective(minimized, task, data, training)
    if training.schedule == "plateau" and entry.optimizers and ("val" not in held or objective is None):
        raise ValueError("the schedule plateau watches the validation loss: nothing is held out")
    return Plan(
        feed=Prefetched(source, int(training.workers or 0), total),
        step=in_own_units(_step(entry, arguments, training, given, moving), scale),
        total=total,
        held=held,
        task=task,
        objective=objective,
        minimized=minimized,
        tracks=tracks_of(training, lambda: in_order(examples["train"])),
        training=training,
        dtype=dtype,
        device=device,
    )


def cut_of(entry: Entry) -> Callable[[Any], Examples]:
    """How the entry cuts a split into examples: its own way, or the split as it is."""
    cut: Callable[[Any], Examples] = resolve(entry.examples) if entry.examples else lambda split: split
    return cut


def objective_of(entry: Entry, task: Task) -> Objective | None:
    """The entry's own objective, else the task's loss; None where there is neither."""
    if entry.objective:
        objective: Objective = resolve(entry.objective)
        return objective
    return risk(task) if task.loss else None


def factory_of(entry: Entry, rule: str) -> Any:
    """The factory of the step: the rule's, else the entry's own, else descent on the objective.

    Raises:
        ValueError: There is no such rule, or the entry is not trained by gradients.
    """
    if not rule:
        return resolve(entry.step) if entry.step else descent
    row = find(rules(), rule, "rule")
    if not entry.optimizers:
        raise ValueError(f"the rule {row.name} needs a model trained by gradients: {entry.name} is not")
    return resolve(row.step)


def _step(
    entry: Entry,
    arguments: Mapping[str, Any],
    training: Training,
    given: Mapping[str, Any],
    objective: Objective | None,
) -> Step:
    pieces, sharded = (
        int(training.accumulate or 1),
        training.strategy == "fsdp" and (training.processes or 1) > 1,
    )
    if sharded and pieces > 1:
        raise ValueError(f"accumulate must be 1 where weights are in shares (fsdp): got {pieces}")
    descend = Descend(float(training.clip or 0), pieces, synchronized=sharded)
    factory = factory_of(entry, arguments["rule"])
    what = f"the rule {arguments['rule']}" if arguments["rule"] else f"the step of {entry.name}"
    offered = {**given, "objective": objective, "descend": descend}
    if "teacher" in dictated(factory) and not given["teacher"]:
        raise ValueError(f"{what} learns from a trained model: give --teacher RUN")
    if training.teacher and "teacher" not in dictated(factory):
        raise ValueError(f"{what} has no teacher: leave out --teacher, or choose --rule distillation")
    step: Step = supply(factory, offered, arguments["step"], what)
    if entry.optimizers:
        step = paced_rate(step, training, given["total_steps"])
    return averaged(step, training.average, int(training.average_start or 0)) if training.average else step


def paced_rate(step: Step, training: Training, total: int) -> Step:
    """The step under the training's schedule of the learning rate."""
    name, warmup = training.schedule or "constant", int(training.warmup or 0)
    options = training.schedule_options or {}
    if name == "constant" and not warmup and not options:
        return step
    if name == "plateau":
        step, name, options = on_plateau(step, options), "constant", {}
    return scheduled(step, schedule_of(name, total=total, warmup=warmup, options=options))


def inputs() -> dict[str, tuple[str, str]]:
    """What a model takes that asks for a key of the spec, and the prefix by which a file is read as such."""
    found: dict[str, tuple[str, str]] = {}
    for row in formats().values():
        for key, what in row.gives.items():
            found.setdefault(key, (what, f"{row.name}:" * row.prefix))
    return found


KINDS = {"graph": "the nodes of one graph", "graphs": "many graphs"}
"""What data of a kind are, where the inputs of two kinds look the same."""

TARGETS = {
    "values": "values",
    "tokens": "tokens",
    "point_classes": "point_classes",
    "series": "series",
    "quantiles": "series",
}
"""The targets that a task reads which predicts no classes."""


def reading_of(entry: Entry, source: str) -> str:
    """How a file is to be read that was taken for a table or for arrays; "" where an entry takes these."""
    known = inputs()
    keys = [key for key in dictated(resolve(entry.build)) if known.get(key, ("", ""))[1]]
    if not keys:
        return ""
    wanted, prefix = known["horizon" if "horizon" in keys else keys[0]]
    return f"{entry.name} needs {wanted}: read a file of them as {prefix}{source}"


def head_for(entry: Entry, data: Data) -> Entry:
    """The head of the entry's body that fits the data: the entry itself, else the first of its others.

    Raises:
        ValueError: None fits; the message is that of the entry itself.
    """
    refused: ValueError | None = None
    for head in heads_of(entry):
        try:
            check_task(head, data)
        except ValueError as error:
            refused = refused or error
        else:
            return head
    raise refused or ValueError(f"{entry.name} has no head")


def check_task(entry: Entry, data: Data) -> None:
    """Refuse classes for a model of values, values for a model of classes, features for a model of images.

    Raises:
        ValueError: The data's targets or inputs are of the other kind.
    """
    for key, (wanted, prefix) in inputs().items():
        if key in dictated(resolve(entry.build)) and key not in data.spec:
            kind = data.encoding.get("kind") or f"{data.spec.get('in_features')} features"
            remedy = f"; read a file of them as {prefix}FILE" if prefix else ""
            if wanted == "tokens" and data.encoding.get("format") == "audio":
                remedy = "; of sound that is read as audio:PATH, set --data.task tokens"
            raise ValueError(f"{entry.name} needs {wanted}: an example of {data.name} has {kind}{remedy}")
    kind = data.encoding.get("kind", entry.takes)
    if entry.takes and kind != entry.takes:
        raise ValueError(f"{entry.name} takes {KINDS[entry.takes]}: {data.name} is {KINDS.get(kind, kind)}")
    task, kind = resolve(entry.task), data.encoding.get("task", "")
    wanted = "classes" if task.classes is not None else TARGETS.get(task.name, kind)
    if kind and kind != wanted:
        such = ", ".join(islice(alternatives(entry, data), 3))
        raise ValueError(
            f"{entry.name} needs {wanted} as targets: those of {data.name} are {kind}"
            + (f"; models that fit: {such}" if such else "")
        )


def alternatives(entry: Entry, data: Data) -> Iterator[str]:
    """The names of the entries that learn the targets of these data, those of the same family first.

    Modules are loaded as names are taken, and each model is built once: its constructor may refuse the data.
    """

    def distance(other: Entry) -> tuple[int, bool]:
        paths = (row.build.partition(":")[0].split(".") for row in (entry, other))
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(*paths, strict=False))
        alike = other.name.startswith(entry.name) or entry.name.startswith(other.name)
        return -len([*shared]), not alike

    for other in sorted(models().values(), key=distance):
        task = resolve(other.task)
        wanted = "classes" if task.classes is not None else TARGETS.get(task.name, "")
        if other.name == entry.name or wanted != data.encoding["task"]:
            continue
        try:
            check_task(other, data)
            with torch.random.fork_rng(devices=[]):
                supply(resolve(other.build), data.spec, {}, other.name)
        except ValueError:
            continue
        yield other.name
