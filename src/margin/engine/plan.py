"""The plan of a training: batches, step and evaluation, from its arguments alone.

Resuming makes the plan again, so nothing in it may depend on what was trained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from margin.catalog import Entry, dictated, find, resolve, rules, supply
from margin.data.examples import Data, InOrder
from margin.data.loading import Prefetched
from margin.data.streams import ordered
from margin.engine.asking import evaluate
from margin.engine.descent import Descend, descent, risk
from margin.engine.processes import share
from margin.engine.recipes import DTYPES
from margin.engine.state import State, Step, device_of
from margin.engine.wrappers import autocast, averaged, scheduled
from margin.optim.schedules import schedule_of
from margin.options import Training
from margin.tasks import Task
from margin.types import Batch, Examples, Objective

EVALUATION_BATCH = 512
"""Examples a batch of an evaluation, where the training's own batches are smaller."""


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

    def evaluate(self, state: State) -> dict[str, float]:
        """Metrics of the current weights on the validation part; none where there is no such part."""
        return self.judge_part(state.usable, "val")

    def judge(self, model: nn.Module) -> dict[str, float]:
        """Metrics of a module on every part that is held out."""
        return {
            f"{name}_{metric}": value
            for name in self.held
            for metric, value in self.judge_part(model, name).items()
        }

    def judge_part(self, model: nn.Module, name: str) -> dict[str, float]:
        """Metrics of a module on one part."""
        if self.objective is None or name not in self.held:
            return {}
        return evaluate(model, self.held[name], self.task, self.objective)


def plan_of(entry: Entry, data: Data, arguments: Mapping[str, Any], training: Training, state: State) -> Plan:
    """The plan of a training.

    Raises:
        ValueError: The rule, an option of the step or the data do not fit.
    """
    cut = cut_of(entry)
    examples = {name: cut(split) for name, split in data.splits.items()}
    count = len(examples["train"])
    size = count if training.batch_size == "all" else int(training.batch_size or 1)
    source = ordered(examples["train"], size, seed=int(training.seed or 0), share=share())
    if entry.whole and source.per_epoch > 1:
        raise ValueError(f"{entry.name} takes all {count} examples at once: set --batch_size all, got {size}")
    total = int(training.epochs or 0) * source.per_epoch
    if training.max_steps is not None:
        total = training.max_steps
    feed = Prefetched(source, int(training.workers or 0), total)
    dtype, device = DTYPES[str(training.precision)], device_of(state.model)
    held = {
        name: InOrder(part, max(size, EVALUATION_BATCH), dtype=dtype, device=device, share=share())
        for name, part in examples.items()
        if name != "train" and len(part)
    }
    task = resolve(entry.task)
    objective = objective_of(entry, task)
    step = _step(
        entry, arguments, training, {"task": task, "domain": data.domain, "total_steps": total}, objective
    )
    return Plan(feed, step, total, held, task, objective, training, dtype, device)


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
    if training.precision == "bfloat16" and objective is not None:
        objective = autocast(objective, torch.device(str(training.device)).type)
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
    step: Step = supply(factory, offered, arguments["step"], what)
    if entry.optimizers and (training.schedule != "constant" or training.warmup):
        schedule = schedule_of(
            training.schedule or "constant", total=given["total_steps"], warmup=training.warmup or 0
        )
        step = scheduled(step, schedule)
    return averaged(step, training.average) if training.average else step


def check_task(entry: Entry, data: Data) -> None:
    """Refuse classes for a model of values, values for a model of classes, features for a model of images.

    Raises:
        ValueError: The data's targets or inputs are of the other kind.
    """
    if "channels" in dictated(resolve(entry.build)) and "channels" not in data.spec:
        features = data.spec.get("in_features")
        raise ValueError(f"{entry.name} needs images: an example of {data.name} has {features} features")
    task, kind = resolve(entry.task), data.encoding.get("task", "")
    wanted = "classes" if task.classes is not None else "values" if task.name == "values" else kind
    if kind and kind != wanted:
        raise ValueError(f"{entry.name} needs {wanted} as targets: those of {data.name} are {kind}")
