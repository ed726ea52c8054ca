"""A model as a user gives it: an entry's name, the path of one's own module, a class, a function, a module.

How the outputs of one's own are read follows from the data's targets, or is stated; before the first step
they are looked at on two examples, so that a wrong shape is told in one line.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from margin.core.catalog import Entry, completed, data_parameters, find, models, resolve
from margin.core.hints import flag
from margin.core.options import Training
from margin.core.tasks import CLASSES, PIXEL_CLASSES, POINT_CLASSES, TOKENS, Task
from margin.core.types import Batch
from margin.core.user_losses import check_mean, recorded_loss
from margin.core.user_modules import (
    TASKS,
    builder_of,
    check_builder,
    check_sized,
    is_nameable,
    is_user_model,
    name_of,
    named_object,
    reported,
    source_of,
    user_entry,
)
from margin.data.examples import Data, InOrder
from margin.data.formats.objects.streams import Stream
from margin.data.preprocess import Column
from margin.engine.build import build, module_of, record_preprocess
from margin.engine.check_options import head_for
from margin.engine.evaluation import eval_mode
from margin.engine.loop import State
from margin.engine.plan import Plan, cut_of
from margin.nn.preprocessed import Preprocessed, core_of, device_of, dtype_of

KINDS = {
    "classes": ("classes", "binary", "multilabel", "scores", "halfspace"),
    "values": ("values",),
    "tokens": ("tokens",),
    "point_classes": ("point_classes",),
    "pixel_classes": ("pixel_classes",),
    "series": ("series", "quantiles"),
}
"""The tasks that read targets of each kind, the first where none is stated; a reconstruction needs none."""


class Chosen(NamedTuple):
    """What is trained.

    Args:
        entry: A row of the catalog, or the user's own module as one.
        own: Of the user's own module, what a record keeps of it; else None.
        handed: The user's own class, function or module, where no name finds it again.
    """

    entry: Entry
    own: dict[str, Any] | None = None
    handed: Any = None


def choose(model: Any, data: Data, task: str = "", objective: Any = None) -> Chosen:
    """The entry that a model is trained as.

    Args:
        model: The name of an entry, of which the head that fits the data is taken; or the user's own: a path
            ``package.module:name``, a class, a function that builds a module, or a module.
        data: What it is trained on.
        task: How the outputs of the user's own are read; by the data's targets if not given.
        objective: The loss of the user's own, ``(outputs, targets) -> loss``; the task's if not given.

    Raises:
        BuilderError: The user's code raises.
        ValueError: There is no such model, or the task does not fit the data.
    """
    if isinstance(model, str) and not is_user_model(model):
        if task or objective is not None:
            given = "task" if task else "objective"
            raise ValueError(
                f"{model} is a model of the catalog, with a task and a loss of its own: leave out {given}"
            )
        return Chosen(head_for(find(models(), model, "model"), data))
    target = named_object(model) if isinstance(model, str) else model
    if not callable(target):
        raise ValueError(
            "train takes the name of a model of the catalog, as 'mlp' (see margin.models()), or a module of "
            f"your own, the class or function that builds it, or its path: got {type(model).__name__}"
        )
    path = model if isinstance(model, str) else name_of(target)
    if isinstance(target, nn.Module):
        check_sized(target, path)
    found_again = isinstance(model, str) or (not isinstance(model, nn.Module) and is_nameable(model))
    handed = "" if found_again else "module" if isinstance(model, nn.Module) else "code"
    if found_again:
        check_builder(target, path)  # as whoever loads the run will
    file, sha256 = source_of(target)
    loss, loss_options = ("", {}) if objective is None or objective == "" else recorded_loss(objective)
    own = {
        "task": task_for(data, task, path),
        "loss": loss,
        "loss_options": loss_options,
        "file": file,
        "sha256": sha256,
        "handed": handed,
    }
    entry = user_entry(path, builder_of(target, path, data.spec), own, file)
    if handed == "module":
        entry = replace(entry, defaults={**entry.defaults, "precision": precision_of(target, path)})
    return Chosen(entry, own, target if handed else None)


def check_own(chosen: Chosen, training: Training) -> None:
    """Refuse what a user's own module, or its loss, has no use for.

    Raises:
        ValueError: Several processes are asked for, of which the others could not build a module that no name
            finds again; or the labels of a loss are to be smoothed or weighted, which is done to the task's.
    """
    if chosen.handed is not None and (training.processes or 1) > 1:
        raise ValueError(
            f"several processes build the model by its name, and {chosen.entry.name} was handed over, which "
            "the others do not have: leave out processes, or hand over a class at the top of a file, or a "
            "function there that builds it"
        )
    for name in ("label_smoothing", "confusion", "class_weight"):
        if chosen.own and chosen.own["loss"] and getattr(training, name):
            raise ValueError(
                f"{name} changes the loss of the task, and the objective is {chosen.own['loss']}: leave out "
                f"{flag(name)}, or give it to the objective"
            )


def made_by(handed: Any) -> Callable[..., Preprocessed]:
    """What makes the module of a record: one that is handed over is itself trained, in place."""
    return partial(module_of, handed=handed, in_place=isinstance(handed, nn.Module))


def in_own_type(
    chosen: Chosen, data: Data, options: Mapping[str, Any] | None, training: Training
) -> tuple[Training, tuple[str, ...]]:
    """The precision in which the user's class or function builds its module, and a note; None keeps it."""
    if options is None or chosen.own is None or isinstance(chosen.handed, nn.Module):
        return training, ()
    name, build_it = chosen.entry.name, resolve(chosen.entry.build)
    spec = {key: data.spec[key] for key in data_parameters(build_it) if key in data.spec}
    with torch.random.fork_rng([]):
        built = build({"model": name, "spec": spec, "options": completed(build_it, options)}, chosen.handed)
    if (own := precision_of(built, name)) == training.precision:
        return training, ()
    note = f"{name} has weights of {own}, in which it is trained; --precision says otherwise"
    return replace(training, precision=own), (note,)


def precision_of(model: nn.Module, path: str) -> Literal["float32", "float64"]:
    """The precision in which a module that is handed over is trained: its own, so that it is as it came.

    Raises:
        ValueError: Its weights are of a type in which none is trained.
    """
    types = {x.dtype for x in (*model.parameters(), *model.buffers()) if x.is_floating_point()}
    if odd := types - {torch.float32, torch.float64}:
        kind = str(next(iter(odd))).removeprefix("torch.")
        raise ValueError(
            f"weights must be of float32 or float64: some of {path} are of {kind}; call its float(), and set "
            "precision bfloat16 to compute in half of it"
        )
    return "float64" if torch.float64 in types else "float32"


def task_for(data: Data, stated: str, path: str) -> str:
    """How the outputs of a module are read: as stated, where that fits the targets, else by these.

    Raises:
        ValueError: The stated task is unknown or does not fit.
    """
    if stated and stated not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}: got {stated!r}")
    targets = getattr(data.splits["train"], "targets", None)
    kind = str(data.encoding.get("task", ""))
    if not kind and isinstance(targets, Tensor):
        kind = (
            "values" if targets.is_floating_point() else "classes" if targets.ndim == 1 else "point_classes"
        )
    if kind in ("", "none"):
        return stated or "reconstruction"
    if stated in ("", "reconstruction"):
        return stated or KINDS[kind][0]
    if stated not in KINDS[kind]:
        raise ValueError(
            f"the task of {path} must fit the targets of {data.name}, which are {kind}: got {stated}; they "
            f"are read by {', '.join((*KINDS[kind], 'reconstruction'))}"
        )
    if stated in ("binary", "halfspace") and (classes := data.spec.get("num_classes", 2)) != 2:
        raise ValueError(f"the task {stated} must have two classes: {data.name} has {classes}")
    return stated


NUMBERS = ("values", "binary", "halfspace")
"""The tasks of one number an example, which a last layer of one unit gives in a column (N, 1)."""


def check_outputs(chosen: Chosen, data: Data, model: nn.Module, plan: Plan) -> bool:
    """Refuse a module of the user's own that fails on the first two examples, or returns another shape.

    Args:
        chosen: What is trained.
        data: What it is trained on.
        model: Built, in the user's units.
        plan: The training's.

    Returns:
        Whether it returns (N, 1) where one number an example is read: :func:`put_in_row` reads it so.

    Raises:
        BuilderError: The user's code raises.
        ValueError: The outputs are of another shape.
    """
    examples = cut_of(chosen.entry, {})(data.splits["train"])
    if chosen.own is None or isinstance(examples, Stream):
        return False
    # a last batch may be of one example, which squeeze() takes for none
    two, one = (InOrder(examples, count, dtype=plan.dtype, device=plan.device)[0] for count in (2, 1))
    column = _check_batch(chosen, data, model, plan, two)
    if _check_batch(chosen, data, model, plan, one) != column:
        raise ValueError(f"{chosen.entry.name} must return as many axes of one example as of two")
    return column


def put_in_row(state: State, record: dict[str, Any]) -> None:
    """Read the outputs (N, 1) of a module as one number an example, in a state and in its run's record."""
    for module in state.modules.values():
        core, old = core_of(module), getattr(module, "outcome", None)
        mean, std = (torch.zeros(()), torch.ones(())) if old is None else (old.mean.clone(), old.std.clone())
        module.outcome = outcome = Column(mean, std).to(device_of(core), dtype_of(core))
        record["outcome"] = record_preprocess(outcome)


def _check_batch(chosen: Chosen, data: Data, model: nn.Module, plan: Plan, batch: Batch) -> bool:
    path, task, own = chosen.entry.name, plan.task, chosen.own or {}
    with torch.no_grad(), eval_mode(model) as generator:
        with reported(path), torch.enable_grad():
            outputs = model(*batch.inputs)
        if not isinstance(outputs, Tensor):
            raise ValueError(f"{path} must return one tensor: got {type(outputs).__name__}")
        if own["task"] == "reconstruction":
            plan.objective(model, batch, generator) if plan.objective else None
            return False
        if batch.targets is None:
            raise ValueError(
                f"the task {task.name} needs targets: {data.name} has none; set task reconstruction"
            )
        column = task.name in NUMBERS and batch.targets.ndim == 1 and outputs.shape == (len(batch.targets), 1)
        outputs = outputs.squeeze(-1) if column else outputs
        check_shape(outputs, batch.inputs[0], batch.targets, task, path, data.spec)
        check_logits(outputs, task, path)
        outputs = outputs.detach()
        if own["loss"] and task.loss is not None:
            check_mean(task.loss, own["loss"], outputs, batch.targets)
        elif task.loss is not None:
            with reported(f"the loss of {task.name} of {path}"):
                task.loss(outputs, batch.targets)
    return column


def check_shape(
    outputs: Tensor, inputs: Tensor, targets: Tensor, task: Task, path: str, spec: Mapping[str, Any]
) -> None:
    """Refuse outputs of another shape than the one that a task reads.

    Raises:
        ValueError: They are; the message names a remedy.
    """
    shape, classes = tuple(targets.shape), spec.get("num_classes")
    wanted, what = shape, "one number a target"
    if task.name in (CLASSES.name, POINT_CLASSES.name, PIXEL_CLASSES.name, TOKENS.name, "scores"):
        count = spec.get("vocab_size") if task.name == TOKENS.name else classes
        what = f"a score for each of {count or 'the'} {'tokens' if task.name == TOKENS.name else 'classes'}"
        wanted = (*shape, count or outputs.shape[-1])
    elif task.name == "quantiles":
        return  # its loss knows them
    if tuple(outputs.shape) == wanted:
        return
    remedy = ""
    if tuple(outputs.shape) == (*wanted, 1):
        remedy = "; end its forward with .squeeze(-1)"
    elif outputs.ndim == 4 and tuple(outputs.movedim(1, -1).shape) == wanted:
        remedy = "; end its forward with .movedim(1, -1)"
    elif targets.shape == (1,) and outputs.ndim == len(wanted) - 1:
        remedy = "; squeeze() drops a batch of one: write squeeze(-1)"
    elif task.name == CLASSES.name and classes == 2 and outputs.ndim == 1:
        remedy = "; one logit an example is the task binary"
    elif outputs.shape == inputs.shape:
        remedy = "; outputs like the inputs are the task reconstruction"
    raise ValueError(f"{path} must return {what}, {_shape(wanted)}: got {_shape(outputs.shape)}{remedy}")


VIEWS = ("Squeeze", "Unsqueeze", "View", "UnsafeView", "Select", "Alias", "Permute", "Transpose", "Clone")
"""What autograd calls operations that only rearrange, of which the name goes on with Backward0."""


def check_logits(outputs: Tensor, task: Task, path: str) -> None:
    """Refuse outputs that end in a softmax or a sigmoid where a task takes that itself.

    Trained so it learns worse, and its probabilities would be softmaxes of probabilities, all near alike.

    Args:
        outputs: As the module gave them, with their graph; without one nothing is known.
        task: How they are read.
        path: How the message calls the module.

    Raises:
        ValueError: They do; the message names the remedy.
    """
    node = outputs.grad_fn
    while node is not None and node.name().partition("Backward")[0] in VIEWS:
        node = node.next_functions[0][0]
    last = "" if node is None else node.name().partition("Backward")[0]
    if task.probabilities is None and task.name not in (TOKENS.name, POINT_CLASSES.name):
        return
    one = task.name in ("binary", "multilabel")
    if last == ("Sigmoid" if one else "Softmax"):
        other = "" if one else ", or set task scores, which states no probabilities"
        raise ValueError(
            f"{path} must return logits, of which the task {task.name} takes the {last.lower()} itself: its "
            f"outputs are of one already; leave it out of its forward{other * (task.name == CLASSES.name)}"
        )


def _shape(shape: Any) -> str:
    """A shape of a batch: (N, 3)."""
    return f"({', '.join(['N', *map(str, tuple(shape)[1:])])})"
