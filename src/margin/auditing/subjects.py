"""A stranger's module and data become a subject: what was not stated is inferred, checked and said.

Nothing is broadcast, clamped or guessed silently: an inference is a sentence of ``Subject.assumed``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.auditing.copies import check_copyable
from margin.auditing.handed import batches_of, read, retyped
from margin.data.examples import Data, judged
from margin.engine.asking import asking
from margin.findings import Subject
from margin.tasks import BINARY, CLASSES, HALFSPACE, VALUES, Task, class_accuracy
from margin.types import Batch, Domain, Objective

TASKS = {task.name: task for task in (CLASSES, BINARY, HALFSPACE, VALUES)}
SINGLE = (BINARY.name, HALFSPACE.name)
"""The tasks of one output for two classes."""


def subject_of(
    model: nn.Module,
    data: Any,
    *,
    task: str | None = None,
    train: Any = None,
    domain: Domain | tuple[float | int, float | int] | None = None,
    class_names: Sequence[str] = (),
) -> Subject:
    """The subject of an audit: any module, with the data it is judged on.

    Args:
        model: Maps a batch of inputs to one tensor with a row per example; left as it is.
        data: Held-out examples: ``(x, y)`` arrays or tensors (x may be a tuple of inputs), batches, Examples,
            or Data, of which the test part is taken, else the validation part. Real numbers are given
            to the model in its own type, on its own device.
        task: ``classes`` (a score per class), ``binary`` (the logit of class 1, labels 0 and 1),
            ``halfspace`` (one signed score, labels 0 and 1) or ``values``; inferred from outputs and
            targets if not given.
        train: The training examples, in any of these forms; a Data brings its own.
        domain: Where one input may lie, in the data's units: a Domain or (low, high); a Data brings its own.
        class_names: Names of the classes, in the order of the outputs.

    Raises:
        ValueError: The data are empty or do not fit the model or the task.
    """
    assumed: list[str] = []
    if isinstance(data, Data):
        assumed += [*data.notes, *_without(data)]
        train = data.splits.get("train") if train is None else train
        domain = data.domain if domain is None else domain
        class_names = class_names or tuple(str(c) for c in data.encoding.get("classes", ()))
        data = data.splits[judged(data.splits)]
    handed = [read(data, class_names, "the held-out data")]
    if train is not None:
        handed.append(read(train, class_names, "the training data"))
    check_copyable(model)
    first = batches_of(handed[0], model)[0]
    outputs = _probe(model, first, assumed)
    chosen = _task(task, outputs, first.targets, assumed)
    _check_names(class_names, chosen, outputs)
    dtype = outputs.dtype if chosen is VALUES else torch.int64
    parts = []
    for one, name in zip(handed, ("held-out", "training"), strict=False):
        _check(batches_of(one, model), chosen, outputs, name)
        parts.append(batches_of(retyped(one, dtype), model))
    independent = _independent(model, first, outputs, assumed)
    return Subject(
        model=model,
        test=parts[0],
        train=parts[1] if len(parts) > 1 else (),
        task=chosen,
        objective=_objective(chosen),
        domain=_domain(domain, parts[0]),
        independent=independent,
        assumed=tuple(assumed),
        class_names=tuple(class_names),
    )


def _without(data: Data) -> list[str]:
    part = judged(data.splits)
    if not part:
        raise ValueError(
            f"{data.name} must have a test or val part: it has {', '.join(data.splits) or 'none'}"
        )
    return [f"{data.name} has no test part: its validation part is taken as held out"] * (part == "val")


def _run(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    passed = ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in inputs)
    try:
        outputs = model(*inputs)
    except Exception as error:
        reason = (str(error).strip() or "no message").splitlines()[0]
        raise ValueError(
            f"the model must accept the data: given {passed}, it raised {type(error).__name__}: {reason}"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(inputs[0]):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(
            f"the model must return one tensor with a row per example: given {passed}, got {got}"
        )
    return outputs


@torch.no_grad()
def _probe(model: nn.Module, batch: Batch, assumed: list[str]) -> Tensor:
    with asking(model):
        outputs = _run(model, batch.inputs)
        again = _run(model, batch.inputs)
    if not torch.equal(outputs.nan_to_num(), again.nan_to_num()):
        assumed.append("the model draws at random in evaluation mode: a finding is about one draw")
    return outputs


@torch.no_grad()
def _independent(model: nn.Module, batch: Batch, outputs: Tensor, assumed: list[str]) -> bool:
    """Whether the first examples get the same outputs with and without the rest of their batch."""
    if not batch.divisible:
        assumed.append("the examples of a batch may read each other: its inputs are not one row an example")
        return False
    few = max(1, len(outputs) // 2)
    if few == len(outputs):
        assumed.append("the examples do not read each other (one example shows nothing)")
        return True
    with asking(model):
        alone = _run(model, tuple(x[:few] for x in batch.inputs))
    scale = outputs.nan_to_num().abs().max().double()
    gap = (alone - outputs[:few]).nan_to_num().abs().max().double()
    if gap > torch.finfo(outputs.dtype).eps ** 0.5 * scale:
        assumed.append(
            f"the examples of a batch read each other: without the rest, outputs move by {gap:.2g}"
        )
        return False
    return True


def _task(name: str | None, outputs: Tensor, targets: Tensor | None, assumed: list[str]) -> Task:
    if name is not None:
        if name not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}: got {name!r}")
        task = TASKS[name]
    elif targets is None:
        raise ValueError("state the task: without targets it cannot be inferred")
    elif targets.is_floating_point():
        task = VALUES
        assumed.append(f"task: values, because the targets are real numbers of shape {_shape(targets)}")
    elif outputs.ndim == 2 and outputs.shape[1] > 1:
        task = CLASSES
        assumed.append(f"task: classes, because the targets are integers and the outputs {_shape(outputs)}")
    else:
        raise ValueError(
            f"state the task: integer targets with outputs {_shape(outputs)} may mean binary (the logit of "
            "class 1), halfspace (a signed score) or values"
        )
    if task.name in SINGLE:
        return _single(task, outputs, assumed)
    if task is CLASSES and _are_probabilities(outputs):
        assumed.append("outputs: probabilities, because every row sums to 1; their logarithms are the scores")
        return PROBABILITIES
    if name is None and task is CLASSES:
        assumed.append("outputs: logits of a softmax; loss: cross-entropy")
    if name is None and task is VALUES:
        assumed.append("loss: squared error")
    return task


def _single(task: Task, outputs: Tensor, assumed: list[str]) -> Task:
    """The task of one output for two classes, which may stand in a column of its own."""
    if task is BINARY and bool(((outputs >= 0) & (outputs <= 1)).all()):
        assumed.append(
            "outputs: logits of class 1, as the task says, though all seen lie in [0, 1]; "
            "a model that ends in a sigmoid must be audited without it"
        )
    if outputs.ndim != 2 or outputs.shape[1] != 1:
        return task
    assumed.append("outputs: (N, 1), read as one number an example (N,)")
    return _of_column(task)


def _of_column(task: Task) -> Task:
    """The same task of outputs (N, 1)."""
    loss, classes, probabilities = task.loss, task.classes, task.probabilities
    if loss is None or classes is None:
        raise ValueError(f"task {task.name} has no loss or no classes")

    def scored(score: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda outputs, labels: score(outputs.squeeze(1), labels)

    return replace(
        task,
        loss=scored(loss),
        scores={name: scored(score) for name, score in task.scores.items()},
        predict=lambda outputs: task.predict(outputs.squeeze(1)),
        classes=lambda outputs: classes(outputs.squeeze(1)),
        probabilities=None if probabilities is None else lambda outputs: probabilities(outputs.squeeze(1)),
    )


def _shape(tensor: Tensor) -> str:
    return f"({', '.join(['N', *map(str, tensor.shape[1:])])}{',' if tensor.ndim == 1 else ''})"


def _are_probabilities(outputs: Tensor) -> bool:
    if outputs.ndim != 2 or bool((outputs < 0).any()):
        return False
    return bool(((outputs.double().sum(1) - 1).abs() < 1e-3).all())


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


PROBABILITIES = Task(
    "classes",
    lambda outputs, labels: nn.functional.nll_loss(_log(outputs), labels, reduction="none"),
    {"accuracy": class_accuracy},
    lambda outputs: {"class": outputs.argmax(-1), "probability": outputs.amax(-1)},
    classes=_log,
    probabilities=lambda outputs: outputs,
)
"""Outputs that are probabilities already, a softmax being the model's last layer."""


def _objective(task: Task) -> Objective:
    loss = task.loss
    if loss is None:
        raise ValueError(f"task {task.name} has no loss")

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return loss(model(*batch.inputs), batch.targets)  # type: ignore[arg-type]

    return objective


def _check(batches: Sequence[Batch], task: Task, outputs: Tensor, part: str) -> None:
    start = 0
    for batch in batches:
        for x in batch.inputs:
            _check_finite(x, "inputs", part, start)
        if batch.targets is not None:
            _check_finite(batch.targets, "targets", part, start)
            if task is VALUES:
                _check_values(batch.targets, outputs)
            else:
                _check_labels(batch.targets, task, outputs, f"{part} example", start)
        start += len(batch.inputs[0])


def _check_finite(x: Tensor, what: str, part: str, start: int) -> None:
    if not x.is_floating_point() or bool(x.isfinite().all()):
        return
    row = int((~x.isfinite()).reshape(len(x), -1).any(1).nonzero()[0])
    value = x[row][~x[row].isfinite()].flatten()[0].item()
    raise ValueError(f"{what} must be finite: {part} example {start + row} has {value}")


def _check_values(targets: Tensor, outputs: Tensor) -> None:
    if targets.shape[1:] != outputs.shape[1:]:
        raise ValueError(
            "outputs and targets must have one shape: "
            f"got outputs {_shape(outputs)}, targets {_shape(targets)}"
        )


def _check_labels(labels: Tensor, task: Task, outputs: Tensor, what: str, start: int) -> None:
    if labels.is_floating_point():
        raise ValueError(f"labels must be integers: got targets of type {_name(labels)}; give y.long()")
    if labels.ndim != 1:
        raise ValueError(f"labels must be one integer an example: got targets {_shape(labels)}")
    single = task.name in SINGLE
    fits = outputs.ndim == 1 or outputs.shape[1:] == (1,) if single else outputs.ndim == 2
    if not fits:
        form = "one number an example (N,) or (N, 1)" if single else "a score for each class (N, K)"
        raise ValueError(f"task {task.name} needs {form}: the outputs are {_shape(outputs)}")
    count = 2 if single else outputs.shape[1]
    odd = ((labels < 0) | (labels >= count)).nonzero()
    if len(odd):
        row = int(odd[0])
        model = "one output" if single else f"{count} outputs"
        got = f"label {int(labels[row])} with {model} ({what} {start + row})"
        raise ValueError(f"labels must lie in 0 .. {count - 1}: got {got}")


def _check_names(names: Sequence[str], task: Task, outputs: Tensor) -> None:
    if not names or task is VALUES:
        return
    count = 2 if task.name in SINGLE or outputs.ndim != 2 else outputs.shape[1]
    if len(names) != count:
        raise ValueError(f"class_names must name each of the {count} classes: got {len(names)}")


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _domain(domain: Domain | tuple[float | int, float | int] | None, test: Sequence[Batch]) -> Domain | None:
    """The box, checked against the inputs; an epsilon means nothing for inputs that lie outside."""
    if domain is None:
        return None
    if not isinstance(domain, Domain):
        domain = Domain(*(torch.tensor(float(end)) for end in domain))
    start = 0
    for batch in test:
        x = batch.inputs[0]
        if not domain.contains(x):
            inside = ((x >= domain.low.to(x)) & (x <= domain.high.to(x))).reshape(len(x), -1)
            row = int((~inside.all(1)).nonzero()[0])
            value = x[row].flatten()[~inside[row]][0].item()
            raise ValueError(f"inputs must lie in the domain: held-out example {start + row} has {value:g}")
        start += len(x)
    return domain
