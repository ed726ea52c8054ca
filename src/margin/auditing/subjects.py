"""A stranger's module and data become a subject: what was not stated is inferred, checked and said.

Nothing is broadcast, clamped or guessed silently: an inference is a sentence of ``Subject.assumed``.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.auditing.copies import check_copyable
from margin.auditing.handed import batches_of, read, retyped
from margin.auditing.reading import SINGLE, check_label_shape, name_of, shape_of, task_of
from margin.auditing.trace import same_bits
from margin.data.examples import Data, judged
from margin.engine.asking import Kept, asking
from margin.engine.descent import risk
from margin.findings import Subject
from margin.tasks import VALUES, Task
from margin.types import Batch, Domain

IGNORED = -100
"""The label that torch's cross-entropy leaves out."""

NOISE = 10.0
"""By how many of the distances between two draws outputs may move where nothing but draws moves them."""


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
        model: Maps a batch of inputs to one tensor with a row per example; left as it is. Of a compiled one
            what was compiled is taken; one that overwrites its inputs is given copies.
        data: Held-out examples: ``(x, y)`` arrays or tensors (x may be a tuple of inputs), batches, Examples,
            or Data, of which the test part is taken, else the validation part. Real numbers are given
            to the model in its own type, on its own device.
        task: ``classes`` (a score per class), ``binary`` (the logit of class 1, labels 0 and 1),
            ``halfspace`` (one signed score, labels 0 and 1), ``values``; or ``logits`` or ``probabilities``,
            of class 1 or of each class, which leave no doubt where all outputs lie in [0, 1]. Inferred from
            outputs and targets if not given.
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
    model = _eager(model, assumed)
    check_copyable(model)
    first = batches_of(handed[0], model)[0]
    probed = _probe(model, first, assumed)
    outputs = probed.outputs
    chosen = task_of(task, outputs, first.targets, assumed)
    _check_names(class_names, chosen, outputs)
    dtype = outputs.dtype if chosen is VALUES else torch.int64
    parts = []
    for one, name in zip(handed, ("held-out", "training"), strict=False):
        _check(batches_of(one, model), chosen, outputs, name)
        parts.append(batches_of(retyped(one, dtype), model))
    independent = _independent(probed, first, assumed)
    return Subject(
        model=probed.model,
        test=parts[0],
        train=parts[1] if len(parts) > 1 else (),
        task=chosen,
        objective=risk(chosen),
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
    passed = ", ".join(f"{tuple(x.shape)} {name_of(x)}" for x in inputs)
    try:
        outputs = model(*inputs)
    except Exception as error:
        reason = (str(error).strip() or "no message").splitlines()[0]
        raise ValueError(
            f"the model must accept the data: given {passed}, it raised {type(error).__name__}: {reason}"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(inputs[0]):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else _described(outputs)
        raise ValueError(
            f"the model must return one tensor with a row per example: given {passed}, got {got}"
        )
    return outputs


def _described(outputs: Any) -> str:
    """The kind of outputs that are not one tensor, and a module that returns one tensor of them."""
    kind = type(outputs).__name__
    parts: list[str] = []
    if isinstance(outputs, Mapping):
        parts = [f"[{name!r}]" for name, part in outputs.items() if isinstance(part, Tensor)]
    elif isinstance(outputs, tuple | list):
        parts = [f"[{i}]" for i, part in enumerate(outputs) if isinstance(part, Tensor)]
    else:
        parts = [
            f".{name}" for name, part in getattr(outputs, "__dict__", {}).items() if isinstance(part, Tensor)
        ]
    if not parts:
        return kind
    part = next((part for part in parts if "logits" in part), parts[0])
    return f"{kind} of {', '.join(parts)}; audit a module whose forward returns model(x){part}"


class Asked(nn.Module):
    """A module that is asked with care.

    Args:
        model: The module.
        copies: Whether it is given copies of its inputs, because it overwrites them.
    """

    def __init__(self, model: nn.Module, copies: bool) -> None:
        super().__init__()
        self.model = model
        self.copies = copies

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the module returns, torch running its operations one by one."""
        if self.copies:
            inputs = tuple(x.clone() for x in inputs)
        with torch.compiler.set_stance("force_eager") if _is_compiled(self.model) else nullcontext():
            outputs: Tensor = self.model(*inputs)
            return outputs

    def _get_name(self) -> str:
        return self.model._get_name()


def _is_compiled(model: nn.Module) -> bool:
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


def _eager(model: nn.Module, assumed: list[str]) -> nn.Module:
    """A model without compiled parts: torch has no second derivative of what it compiled."""
    if isinstance(model, nn.Module) and not _is_compiled(model):
        return model
    assumed.append("the model is compiled: it is audited as what was compiled, torch running it step by step")
    inner = getattr(model, "_orig_mod", model)
    return Asked(inner, copies=False) if _is_compiled(inner) else inner


class Probed(NamedTuple):
    """A model as it can be asked, what it returned, and by how much that moves when it is asked again."""

    model: nn.Module
    outputs: Tensor
    noise: Tensor


@torch.no_grad()
def _probe(model: nn.Module, batch: Batch, assumed: list[str]) -> Probed:
    """Ask the first batch twice; what the model does besides answering is said."""
    flags = {module: module.training for module in model.modules()}
    given = tuple(x.clone() for x in batch.inputs)
    with asking(model):
        kept = Kept(model)
        outputs = _run(model, given)
        written = kept.written(model)
        kept.restore()
        if not all(map(same_bits, given, batch.inputs)):
            assumed.append("the model overwrites its input: each call is given a copy")
            model = Asked(model, copies=True)
        again = _run(model, batch.inputs)
    noise = _apart(outputs, again)
    if written:
        names = ", ".join(map(repr, written))
        assumed.append(f"forward writes buffer {names}: it is put back after each question")
    if noise > 0:
        assumed.append("the model draws at random in evaluation mode: a finding is about one draw")
    elif any(flags.values()) and _moves_in(flags, model, batch, outputs):
        assumed.append("the model came in training mode, where it answers otherwise: it is asked in eval()")
    return Probed(model, outputs, noise)


def _moves_in(flags: Mapping[nn.Module, bool], model: nn.Module, batch: Batch, outputs: Tensor) -> bool:
    """Whether the model answers otherwise, or not at all, in the mode that it came in."""
    with asking(model):
        for module, flag in flags.items():
            module.training = flag
        try:
            return bool(_apart(outputs, _run(model, batch.inputs)) > 0)
        except ValueError:  # batch normalization of a single example
            return True


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """The largest distance of two outputs; a NaN is where a NaN is."""
    moved = torch.where(a.isnan() == b.isnan(), (a - b).nan_to_num(), torch.inf)
    return moved.abs().max().double()


@torch.no_grad()
def _independent(probed: Probed, batch: Batch, assumed: list[str]) -> bool:
    """Whether the first examples get the same outputs with and without the rest of their batch."""
    model, outputs, noise = probed
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
    gap = _apart(alone, outputs[:few])
    # of a model that draws, other draws alone move the outputs
    if gap > torch.finfo(outputs.dtype).eps ** 0.5 * scale + NOISE * noise:
        assumed.append(
            f"the examples of a batch read each other: without the rest, outputs move by {gap:.2g}"
        )
        return False
    return True


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
            f"got outputs {shape_of(outputs)}, targets {shape_of(targets)}"
        )


def _check_labels(labels: Tensor, task: Task, outputs: Tensor, what: str, start: int) -> None:
    if labels.is_floating_point():
        raise ValueError(f"labels must be integers: got targets of type {name_of(labels)}; give y.long()")
    check_label_shape(labels)
    single = task.name in SINGLE
    one = outputs.ndim == 1 or outputs.shape[1:] == (1,)
    if not (one if single else outputs.ndim == 2 and not one):
        form = "one number an example (N,) or (N, 1)" if single else "a score for each class (N, K)"
        raise ValueError(f"task {task.name} needs {form}: the outputs are {shape_of(outputs)}")
    count = 2 if single else outputs.shape[1]
    odd = ((labels < 0) | (labels >= count)).nonzero()
    if not len(odd):
        return
    row = int(odd[0])
    label, made = int(labels[row]), "one output" if single else f"{count} outputs"
    cure = ""
    if label == IGNORED:
        cure = f"; leave such examples out: (x[y != {IGNORED}], y[y != {IGNORED}])"
    elif int(labels.min()) == 1 and int(labels.max()) == count:
        cure = "; of labels that begin at 1 give y - 1"
    raise ValueError(
        f"labels must lie in 0 .. {count - 1}: got label {label} with {made} ({what} {start + row}){cure}"
    )


def _check_names(names: Sequence[str], task: Task, outputs: Tensor) -> None:
    if not names or task is VALUES:
        return
    count = 2 if task.name in SINGLE or outputs.ndim != 2 else outputs.shape[1]
    if len(names) != count:
        raise ValueError(f"class_names must name each of the {count} classes: got {len(names)}")


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
