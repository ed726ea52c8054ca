"""The plan of a training: batches, step and evaluation, from its arguments alone.

Resuming makes the plan again, so nothing in it may depend on what was trained. Examples are ordered from
easy to hard, then augmented at random. Further metrics of each evaluation (tracks) are parts of the
catalog.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.catalog import (
    Entry,
    Part,
    call_with,
    completed,
    data_parameters,
    find,
    parts,
    resolve,
    rules,
    user_options,
)
from margin.core.findings import without_loss
from margin.core.options import Training
from margin.core.tasks import Task, class_loss
from margin.core.types import Batch, Examples, Objective
from margin.data.examples import ALL, Batches, Data, InOrder, Share, evaluation_batch
from margin.data.preprocess import Standardize
from margin.data.sampling.loading import Prefetched, reads_files
from margin.engine.build import DTYPES
from margin.engine.evaluation import eval_mode, evaluate
from margin.engine.loop import GradientUpdate, State, Step, averaged, descent, on_plateau, risk, scheduled
from margin.engine.objectives import (
    check_mixable,
    in_own_units,
    moving_objective,
    scale_of,
    standardized_loss,
    unweighed,
    weighed,
)
from margin.engine.parallel.processes import world
from margin.engine.runs import load, run_at
from margin.nn.preprocessed import device_of, dtype_of
from margin.optim.schedules import schedule_of


def long_enough(entry: Entry, data: Data, training: Training) -> tuple[Training, tuple[str, ...]]:
    """The options with epochs enough for an entry's least steps, where the user has said none; a note."""
    resolved = training.over(entry.defaults)
    said = training.epochs is not None or resolved.max_steps is not None
    if said or not entry.least_steps or resolved.epochs is None:
        return training, ()
    examples, size = len(data.splits["train"]), resolved.batch_size
    steps = 1 if size is None or size == "all" else -(-examples // size)
    epochs = -(-entry.least_steps // steps)
    if epochs <= resolved.epochs:
        return training, ()
    note = (
        f"{resolved.epochs} epochs of {examples} examples are {resolved.epochs * steps} steps: {epochs} are "
        f"trained, {epochs * steps} steps; --epochs says otherwise"
    )
    return replace(training, epochs=epochs), (note,)


def make_sampler(examples: Any, batch_size: int, data: Data, training: Training) -> Batches:
    """The batches of examples or of a stream: shuffled, or the easy first; changed at random where asked for.

    Raises:
        ValueError: A transform does not fit the data, or a stream would be ordered.
    """
    from margin.data.formats.objects.streams import Stream, ordered

    seed = int(training.seed or 0)
    changed = examples
    if not isinstance(examples, Stream) and (training.mix == "mixup" or training.mix == "cutmix"):
        check_mixable(examples.take(torch.arange(1), Generator()), training.mix)
    if training.augment:
        if isinstance(examples, Stream):
            raise ValueError(f"{data.name} is a stream, which brings its own changes: leave out --augment")
        from margin.data.transforms.augmentation import augmented, transforms_of

        changed = augmented(examples, transforms_of(training.augment, setting(data)))
    if not training.curriculum:
        return ordered(changed, batch_size, seed=seed, share=world())
    if isinstance(examples, Stream) or isinstance(changed, Stream):
        raise ValueError(f"{data.name} is a stream, in its own order: leave out --curriculum")
    if batch_size >= len(examples):
        raise ValueError(
            f"a curriculum needs batches of less than all {len(examples)} examples: got {batch_size}"
        )
    from margin.data.sampling.curriculum import paced

    return paced(
        changed,
        difficulty(training.curriculum, examples),
        batch_size,
        pacing=training.pacing or "linear",
        start=float(training.pacing_start or 1),
        end=float(training.pacing_end or 1),
        total=int(training.max_steps or 0),
        epochs=int(training.epochs or 0),
        seed=seed,
        share=world(),
    )


def setting(data: Data) -> dict[str, object]:
    """The spec with what a transform must know besides: the unit of noise, its bounds, the value of nothing.

    Noise is in standard deviations where inputs are standardized. What comes into an image from outside has
    the least value of its domain.
    """
    more: dict[str, object] = {"domain": data.domain} if data.domain is not None else {}
    if data.domain is not None and float(data.domain.low.max()) == float(data.domain.low.min()):
        more["background"] = float(data.domain.low.min())
    if isinstance(data.preprocess, Standardize):
        more["spread"] = data.preprocess.std
    return {**data.spec, **more}


def difficulty(path: str, examples: Examples) -> Tensor:
    """The rank of each training example in its class by its loss under the model of another run.

    Raises:
        FileNotFoundError: There is no such run.
        ValueError: Its model predicts no classes, takes other inputs, or its loss is no number.
    """
    from margin.data.sampling.curriculum import within_classes

    model = load(run_at(path, "curriculum"))
    found, labels = [], []
    with torch.no_grad(), eval_mode(model):
        for batch in InOrder(examples, evaluation_batch(examples), dtype=dtype_of(model)):
            if batch.targets is None or batch.targets.is_floating_point():
                raise ValueError("a curriculum orders labeled examples: these have no classes")
            found.append(_losses(model, batch.inputs, batch.targets, path))
            labels.append(batch.targets)
    losses = torch.cat(found)
    if bool(losses.isnan().any()):
        raise ValueError(f"a curriculum needs a loss of each example: {path} gives some that are no numbers")
    return within_classes(losses, torch.cat(labels))


def _losses(model: nn.Module, inputs: tuple[Tensor, ...], labels: Tensor, path: str) -> Tensor:
    """The losses of labels under the model of a run."""
    try:
        outputs = model(*inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # what torch raises where shapes do not fit
        shapes = ", ".join(str(tuple(x.shape[1:])) for x in inputs)
        reason = str(error).splitlines()[0]
        raise ValueError(f"curriculum must be a run on inputs of shape {shapes}: {path}: {reason}") from error
    if outputs.ndim != 2 or int(labels.max()) >= outputs.shape[1]:
        raise ValueError(f"curriculum must be a run on these classes: the model of {path} has others")
    return class_loss(outputs, labels)


def teacher_of(training: Training) -> nn.Module | None:
    """The model of the run that a rule learns from, on the training's device; None where none is named."""
    if not training.teacher:
        return None
    return load(run_at(training.teacher, "teacher")).to(str(training.device)).requires_grad_(False)


Track = Callable[[State, Objective, Sequence[Batch]], dict[str, float]]
"""``(state, objective, training batches) -> columns of the history``; leaves no trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """Several tracks as one.

    Args:
        functions: By name.
        batches: The training part, in order.
    """

    functions: Mapping[str, Track]
    batches: Sequence[Batch] = ()

    def __call__(self, state: State, objective: Objective) -> dict[str, float]:
        """The columns of all tracks."""
        columns: dict[str, float] = {}
        for track in self.functions.values():
            columns |= track(state, objective, self.batches)
        return columns


def tracks() -> dict[str, Part]:
    """The parts that are tracks, by name."""
    return {name: part for name, part in parts().items() if part.kind == "track"}


def tracks_of(training: Training, batches: Callable[[], Sequence[Batch]]) -> Tracks:
    """The tracks that a training names.

    Args:
        training: Its options.
        batches: Makes the training part, in order, where it is needed.

    Raises:
        ValueError: There is no such track, or the weights lie in shares.
    """
    if not training.track:
        return Tracks({})
    if training.strategy == "fsdp" and (training.processes or 1) > 1:
        raise ValueError("a track measures whole weights: leave out --track, or set --strategy ddp")
    rows = [find(tracks(), name, "track") for name in training.track]
    return Tracks({row.name: resolve(row.target) for row in rows}, batches())


@dataclass(frozen=True, slots=True)
class Weighed(Sequence[Batch]):
    """Batches whose terms count what the task's loss lets them count.

    Args:
        batches: As the data hold them.
        task: How outputs are read.
    """

    batches: Sequence[Batch]
    task: Task

    @classmethod
    def of(cls, batches: Sequence[Batch], task: Task) -> Sequence[Batch]:
        """Batches as they are where every term counts as one."""
        return batches if task.weigh is None else cls(batches, task)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: Any) -> Any:
        return weighed(self.batches[index], self.task)


Taken = Callable[[Sequence[Batch]], Iterator[Batch]]
"""How an evaluation takes its batches."""

Conclude = Callable[[State], dict[str, float]]
"""``state -> metrics`` that a rule tells at the end of a training; leaves no trace."""

Measure = Callable[[nn.Module, Sequence[Batch]], dict[str, float]]
"""``(model, held-out batches) -> further metrics of an evaluation``; leaves no trace."""


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
        measure_rule: What the rule adds to every evaluation.
        conclude: What it tells at the end.
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
    measure_rule: Measure
    conclude: Conclude
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
        return weighed(self.feed(step).to(dtype=self.dtype, device=self.device), self.task)

    def evaluate(self, state: State, taken: Taken = iter) -> dict[str, float]:
        """Metrics of the current weights on the validation part; none where there is no such part.

        Args:
            state: Whose weights.
            taken: How its batches are taken: one after another, or until the training is to stop.
        """
        return self.evaluate_part(state.usable, "val", taken)

    def measure(self, state: State) -> dict[str, float]:
        """The columns of every track, of the current weights on the training part."""
        return self.tracks(state, self.minimized or without_loss)

    def evaluate_held_out(self, model: nn.Module) -> dict[str, float]:
        """Metrics of a module on every part that is held out."""
        return {
            f"{name}_{metric}": value
            for name in self.held
            for metric, value in self.evaluate_part(model, name).items()
        }

    def evaluate_part(self, model: nn.Module, name: str, taken: Taken = iter) -> dict[str, float]:
        """Metrics of a module on one part."""
        if self.objective is None or name not in self.held:
            return {}
        held = self.held[name]
        return evaluate(model, taken(held), self.task, self.objective) | self.measure_rule(model, held)


# more than 40 lines: every part of a plan is made here once
def plan_of(entry: Entry, data: Data, arguments: Mapping[str, Any], training: Training, state: State) -> Plan:
    """The plan of a training.

    Raises:
        ValueError: The rule, an option of the step or the data do not fit.
    """
    cut = cut_of(entry, arguments["options"])
    examples = {name: cut(split) for name, split in data.splits.items()}
    count = len(examples["train"])
    size = count if training.batch_size == "all" else int(training.batch_size or 1)
    dtype, device = DTYPES[str(training.precision)], device_of(state.model)
    task = resolve(entry.task)
    objective = objective_of(entry, task)

    def in_order(part: Examples, share: Share = ALL) -> InOrder:
        return InOrder(part, evaluation_batch(part, size), dtype=dtype, device=device, share=share)

    epochs, most = int(training.epochs or 0), training.max_steps
    given: dict[str, Any] = {
        "task": unweighed(task),  # of batches that have the weights
        "domain": data.domain,
        "examples": examples["train"],
        "seed": int(training.seed or 0),
        "scale": training.scale or "standard",
        "init_from": training.init_from or "",
        "cut": partial(make_sampler, batch_size=size, data=data, training=training),
        "total_of": lambda per_epoch: epochs * per_epoch if most is None else most,
    }
    by_rule = partial(_of_rule, arguments)
    source = by_rule("feed", given, lambda: make_sampler(examples["train"], size, data, training))
    if entry.whole and source.per_epoch > 1:
        raise ValueError(f"{entry.name} takes all {count} examples at once: set --batch-size all, got {size}")
    total: int = given["total_of"](source.per_epoch)
    held = {name: in_order(part, world()) for name, part in examples.items() if name != "train" and len(part)}
    given |= {"total_steps": total, "teacher": teacher_of(training), "model": state.core}
    scale = scale_of(state.model)
    minimized = standardized_loss(objective_of(entry, given["task"]), scale)
    moving = moving_objective(minimized, task, data, training)
    if training.schedule == "plateau" and entry.optimizers and ("val" not in held or objective is None):
        raise ValueError("the schedule plateau watches the validation loss: nothing is held out")
    return Plan(
        feed=Prefetched(source, int(training.workers or 0), total, ahead=reads_files(examples["train"])),
        step=in_own_units(_step(entry, arguments, training, given, moving), scale),
        total=total,
        held=held,
        task=task,
        objective=objective,
        minimized=minimized,
        tracks=tracks_of(training, lambda: Weighed.of(in_order(examples["train"]), task)),
        measure_rule=by_rule("measure", {**given, "task": task}, lambda: lambda model, batches: {}),
        conclude=by_rule("conclude", {**given, "task": task}, lambda: lambda state: {}),
        training=training,
        dtype=dtype,
        device=device,
    )


def cut_of(entry: Entry, options: Mapping[str, Any]) -> Callable[[Any], Examples]:
    """How the entry cuts a split into examples: its own way, or the split as it is.

    Args:
        entry: Its cut may have keyword-only parameters, options of the model by name: a window of words.
        options: Of the model; one that is not given has the default of its constructor.
    """
    if not entry.examples:
        return lambda split: split
    cut: Callable[..., Examples] = resolve(entry.examples)
    chosen = completed(resolve(entry.build), options) if user_options(cut) else {}
    return partial(cut, **{name: chosen[name] for name in user_options(cut)})


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


def _of_rule(
    arguments: Mapping[str, Any], field: str, given: Mapping[str, Any], otherwise: Callable[[], Any]
) -> Any:
    """What the rule of a training makes beside its step, by a factory that its row names in a field."""
    rule = find(rules(), arguments["rule"], "rule") if arguments["rule"] else None
    if rule is None or not getattr(rule, field):
        return otherwise()
    factory = resolve(getattr(rule, field))
    options = {name: arguments["step"][name] for name in user_options(factory) if name in arguments["step"]}
    return call_with(factory, given, options, f"the {field} of {rule.name}")


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
    descend = GradientUpdate(float(training.clip or 0), pieces, synchronized=sharded)
    factory = factory_of(entry, arguments["rule"])
    what = f"the rule {arguments['rule']}" if arguments["rule"] else f"the step of {entry.name}"
    offered = {**given, "objective": objective, "descend": descend}
    if "teacher" in data_parameters(factory) and not given["teacher"]:
        raise ValueError(f"{what} learns from a trained model: give --teacher RUN")
    if "domain" in data_parameters(factory) and given["domain"] is None:
        raise ValueError(
            f"{what} needs the domain in which an input may lie, and these data state none: of a table or an "
            "array give its ends, as --data.domain=-4,4"
        )
    if training.teacher and "teacher" not in data_parameters(factory):
        raise ValueError(f"{what} has no teacher: leave out --teacher, or choose --rule distillation")
    step: Step = call_with(factory, offered, arguments["step"], what)
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
