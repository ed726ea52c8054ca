"""A stranger's module and data become a subject: what was not stated is inferred, checked and said.

Nothing is broadcast, clamped or guessed silently: an inference is a sentence of ``Subject.assumed``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.auditing.subject.outputs import (
    SINGLE,
    check_label_shape,
    in_unit,
    name_of,
    say_infinite,
    shape_of,
    task_of,
)
from margin.auditing.subject.user_data import batches_of, read, retyped
from margin.auditing.subject.user_modules import Asked, check_copyable, described, eager, unwrapped
from margin.core.findings import Subject
from margin.core.tasks import VALUES, Task
from margin.core.types import Batch, Domain, shortest
from margin.data.examples import Data, held_out_part
from margin.data.source import is_frame
from margin.engine.evaluation import Kept, eval_mode, same_bits
from margin.engine.loop import risk

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
    feature_names = _columns(data)
    if isinstance(data, Data):
        assumed += [*data.notes, *_without(data)]
        train = data.splits.get("train") if train is None else train
        domain = data.domain if domain is None else domain
        class_names = class_names or tuple(str(c) for c in data.encoding.get("classes", ()))
        data = data.splits[held_out_part(data.splits)]
    handed = [read(data, class_names, "the held-out data")]
    if train is not None:
        handed.append(read(train, class_names, "the training data"))
    model = eager(unwrapped(model, assumed), assumed)
    check_copyable(model)
    held_out = batches_of(handed[0], model)
    first = held_out[0]
    probed = _probe(model, first, assumed)
    outputs, targets = _read(probed, held_out, task)
    chosen = task_of(task, outputs, targets, assumed)
    _check_names(class_names, chosen, outputs)
    dtype = outputs.dtype if chosen is VALUES else torch.int64
    parts = []
    for one, name in zip(handed, ("held-out", "training"), strict=False):
        _check(batches_of(one, model), chosen, outputs, name)
        parts.append(batches_of(retyped(one, dtype), model))
    say_infinite(chosen, outputs, targets, assumed)
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
        feature_names=feature_names,
    )


def feature_names_of(encoding: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the features of a table, by the record of how it was read."""
    if encoding.get("format") != "table":
        return ()
    from margin.data.formats.tables.columns import feature_names

    return tuple(feature_names(encoding["columns"]))


def _columns(data: Any) -> tuple[str, ...]:
    """The names of the features, of a Data or of a data frame that the inputs are."""
    if isinstance(data, Data):
        return feature_names_of(data.encoding)
    x: Any = data[0] if isinstance(data, tuple | list) and len(data) == 2 else None
    return tuple(map(str, x.columns)) if is_frame(x) else ()


def _without(data: Data) -> list[str]:
    part = held_out_part(data.splits)
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
    plain = isinstance(outputs, Tensor) and outputs.layout == torch.strided and not outputs.is_nested
    if not plain or outputs.ndim == 0 or len(outputs) != len(inputs[0]):
        got = tuple(outputs.shape) if plain else described(outputs)
        raise ValueError(
            f"the model must return one tensor with a row per example: given {passed}, got {got}"
        )
    if outputs.is_complex():
        raise ValueError(
            f"the model must return real numbers: got {name_of(outputs)}; audit a module whose forward "
            "returns model(x).real, or model(x).abs()"
        )
    return outputs


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
    with eval_mode(model):
        kept = Kept(model)
        outputs = _run(model, given)
        written = kept.written(model)
        kept.restore()
        overwrites = not all(map(same_bits, given, batch.inputs))
        again, later = (_run(model, tuple(x.clone() for x in batch.inputs)) for _ in range(2))
        kept.restore()
        with torch.enable_grad():
            recorded = _run(model, tuple(x.clone() for x in batch.inputs)).detach()
    noise = _apart(outputs, again)
    remembers = bool(noise == 0) and bool(_apart(outputs, later) > 0)
    if overwrites:
        assumed.append("the model overwrites its input: each call is given a copy")
    if remembers:
        assumed.append(
            "the model answers by what it keeps of the calls before: each call begins in the state it came in"
        )
    if overwrites or remembers or outputs.is_inference():
        model, outputs = Asked(model, overwrites, remembers), outputs.clone()
    if written:
        names = ", ".join(map(repr, written))
        assumed.append(f"forward writes buffer {names}: it is put back after each question")
    if noise > 0:
        assumed.append("the model draws at random in evaluation mode: a finding is about one draw")
    elif _apart(outputs, recorded) > _rounding(outputs):
        assumed.append(
            "the model answers otherwise while torch records gradients: accuracy and loss are of the one "
            "function, curvature and attacks of the other"
        )
    elif any(flags.values()) and _moves_in(flags, model, batch, outputs):
        assumed.append("the model came in training mode, where it answers otherwise: it is asked in eval()")
    return Probed(model, outputs, noise)


def _moves_in(flags: Mapping[nn.Module, bool], model: nn.Module, batch: Batch, outputs: Tensor) -> bool:
    """Whether the model answers otherwise, or not at all, in the mode that it came in."""
    with eval_mode(model):
        for module, flag in flags.items():
            module.training = flag
        try:
            return bool(_apart(outputs, _run(model, batch.inputs)) > 0)
        except ValueError:  # batch normalization of a single example
            return True


def _rounding(outputs: Tensor) -> Tensor:
    """By how much outputs may move that are computed in another order."""
    scale = torch.where(outputs.isfinite(), outputs, 0).abs().max().double()
    return torch.finfo(outputs.dtype).eps ** 0.5 * scale


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """The largest distance of two outputs; a NaN is where a NaN is."""
    moved = torch.where((a == b) | (a.isnan() & b.isnan()), 0, a - b).nan_to_num(torch.inf)
    return moved.abs().max().double()


@torch.no_grad()
def _read(probed: Probed, batches: Sequence[Batch], task: str | None) -> tuple[Tensor, Tensor | None]:
    """Outputs and targets that tell the task: of the first batch, or of all where all decide.

    One output that lies outside [0, 1] tells logits from probabilities, in whichever batch it stands.
    """
    outputs, targets = probed.outputs, batches[0].targets
    if task in ("logits", "values") or outputs.ndim > 2 or targets is None or not in_unit(outputs):
        return outputs, targets
    with eval_mode(probed.model):
        rest = [_run(probed.model, batch.inputs) for batch in batches[1:]]
    known = [batch.targets for batch in batches if batch.targets is not None]
    return torch.cat([outputs, *rest]), torch.cat(known)


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
    with eval_mode(model):
        alone = _run(model, tuple(x[:few] for x in batch.inputs))
    gap = _apart(alone, outputs[:few])
    # of a model that draws, other draws alone move the outputs
    if gap > _rounding(outputs) + NOISE * noise:
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
            raise ValueError(
                f"inputs must lie in the domain: held-out example {start + row} has {shortest(value)}"
            )
        start += len(x)
    return domain
