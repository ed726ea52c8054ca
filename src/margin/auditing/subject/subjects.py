"""A stranger's module and data become a subject: what was not stated is inferred, checked and said.

Nothing is broadcast, clamped or guessed silently: an inference is a sentence of ``Subject.assumed``.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from margin.auditing.subject.named_inputs import ByName, Naming
from margin.auditing.subject.output_part import Read
from margin.auditing.subject.outputs import (
    IGNORED,
    SINGLE,
    TERMS,
    check_label_shape,
    in_unit,
    layout_of,
    name_of,
    say_infinite,
    shape_of,
    task_of,
)
from margin.auditing.subject.probing import (
    FEW,
    Probed,
    few_of,
    first_answer,
    independent_rows,
    probe,
    run,
    with_one_output,
)
from margin.auditing.subject.user_data import batches_of, read, retyped
from margin.auditing.subject.user_modules import (
    Asked,
    check_copyable,
    check_materialized,
    eager,
    from_export,
    unwrapped,
)
from margin.core.findings import Subject
from margin.core.tasks import MULTILABEL, VALUES, Task
from margin.core.types import Batch, Domain
from margin.data.examples import Data, held_out_part
from margin.data.formats.encodings import feature_names_of, table_record
from margin.data.source import is_frame
from margin.engine.evaluation import eval_mode, pieces_of
from margin.engine.loop import risk


# 9 parameters: the model, its data and how both are read, for how long
def subject_of(
    model: Any,
    data: Any,
    *,
    task: str | None = None,
    train: Any = None,
    domain: Domain | tuple[float | int, float | int] | None = None,
    class_names: Sequence[str] = (),
    output: str | int | None = None,
    seconds: float = math.inf,
) -> Subject:
    """The subject of an audit: any module, with the data it is judged on.

    Args:
        model: A module, or a program of torch.export, that maps a batch of inputs to outputs with a row per
            example; left as it is. Of a compiled one what was compiled is taken; one that overwrites its
            inputs is given copies.
        data: Held-out examples: ``(x, y)`` arrays or tensors (x may be a tuple of inputs), inputs by name
            with their target (``{"input_ids": ..., "labels": ...}``), a Dataset or DataLoader of either,
            batches, Examples, or Data, of which the test part is taken, else the validation part. Real
            numbers are given to the model in its own type, on its own device.
        task: ``classes`` (a score per class), ``binary`` (the logit of class 1, labels 0 and 1),
            ``multilabel`` (a logit for each of several labels 0 or 1), ``terms`` (a score per class at each
            place), ``halfspace`` (one signed score, labels 0 and 1), ``values``; or ``logits`` or
            ``probabilities``, of class 1 or of each class or label, which leave no doubt where all outputs
            lie in [0, 1]. Inferred from outputs and targets if not given.
        train: The training examples, in any of these forms; a Data brings its own.
        domain: Where one input may lie, in the data's units: a Domain or (low, high); a Data brings its own.
        class_names: Names of the classes, or of several labels, in the order of the outputs.
        output: Which part of what the model returns is its outputs: an index, a key or an attribute; the
            obvious one if not given.
        seconds: What trying it out may take: of a model that needs more for a few passes less is tried, which
            is said.

    Raises:
        ValueError: The data are empty or do not fit the model or the task.
    """
    assumed: list[str] = []
    feature_names, groups = _columns(data), _group_column(data)
    encoding = table_record(data.encoding) if isinstance(data, Data) else {}
    if isinstance(data, Data):
        assumed += [*data.notes, *_without(data)]
        train = data.splits.get("train") if train is None else train
        domain = data.domain if domain is None else domain
        class_names = class_names or tuple(str(c) for c in data.encoding.get("classes", ()))
        data = data.splits[held_out_part(data.splits)]
    model = eager(unwrapped(from_export(model, assumed), assumed), assumed)
    naming = Naming(model)
    handed = [read(data, class_names, "the held-out data", naming)]
    if train is not None:
        handed.append(read(train, class_names, "the training data", naming))
    model = naming.asked(assumed)
    check_materialized(model)
    check_copyable(model)
    held_out = batches_of(handed[0], model)
    as_given = model
    few = few_of(model, held_out[0], seconds)
    model, first = with_one_output(model, first_answer(model, held_out[0], few), output, assumed)
    probed = _laid_out(probe(model, first, assumed, seconds), first.batch, task, assumed)
    outputs, targets = _read(probed, held_out, task, few)
    chosen = task_of(task, outputs, targets, assumed)
    _check_names(class_names, chosen, outputs)
    dtype = outputs.dtype if chosen is VALUES else torch.int64
    parts = []
    for one, name in zip(handed, ("held-out", "training"), strict=False):
        ignored = _check(batches_of(one, model), chosen, outputs, name)
        if ignored:
            assumed.append(f"targets: {ignored:,} {name} labels of {IGNORED} are left out (weight 0)")
        parts.append(batches_of(retyped(one, dtype, IGNORED if ignored else None), model))
    say_infinite(chosen, outputs, targets, assumed)
    several = chosen.name == MULTILABEL.name
    return Subject(
        model=probed.model,
        test=parts[0],
        train=parts[1] if len(parts) > 1 else (),
        task=chosen,
        objective=risk(chosen),
        domain=_domain(domain, parts[0]),
        independent=independent_rows(probed, first.batch, assumed),
        assumed=tuple(assumed),
        feature_names=feature_names,
        encoding=encoding,
        groups=groups,
        remark=probed.remark,
        as_given=as_given,
        class_names=() if several else tuple(class_names),
        label_names=tuple(class_names) if several else (),
    )


def _laid_out(probed: Probed, batch: Batch, task: str | None, assumed: list[str]) -> Probed:
    """The same with the scores of the classes on the last axis, where it answers at several places."""
    layout = layout_of(task, probed.outputs, batch.targets, assumed)
    if layout is None or (layout.axis == probed.outputs.ndim - 1 and not layout.single):
        return probed
    moved = Read(probed.model, axis=layout.axis, single=layout.single)
    return probed._replace(model=moved, outputs=moved.laid_out(probed.outputs))


def alike(model: nn.Module, other: nn.Module) -> nn.Module:
    """Another module, asked and read as a subject's model is."""
    if isinstance(model, Read):
        return Read(alike(model.model, other), model.path, model.axis, model.single)
    if isinstance(model, Asked):
        return Asked(alike(model.model, other), model.copies, model.anew)
    if isinstance(model, ByName):
        return ByName(alike(model.model, other), model.names)
    return other


def _group_column(data: Any) -> str:
    """What the split of a Data kept together, "" where nothing: its parts number their groups each anew."""
    return str(data.encoding.get("group", {}).get("column", "")) if isinstance(data, Data) else ""


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


@torch.no_grad()
def _read(
    probed: Probed, batches: Sequence[Batch], task: str | None, few: int
) -> tuple[Tensor, Tensor | None]:
    """Outputs and targets that tell the task: of the first batch, or of all where all decide.

    One output that lies outside [0, 1] tells logits from probabilities, in whichever batch it stands. Where
    one of the first does, these stand for the rest of the batch: no target is read beside its own output.
    """
    outputs, targets = probed.outputs, batches[0].targets
    if task in ("logits", "values") or outputs.ndim > 2 or targets is None or not in_unit(outputs):
        length = len(batches[0].inputs[0])
        return outputs[torch.arange(length) % len(outputs)] if length > len(outputs) else outputs, targets
    if few < FEW:  # large ones: as many at once as hold some memory
        batches = list(pieces_of(batches, few))
    with eval_mode(probed.model):
        found = [run(probed.model, batch.inputs) for batch in batches]
    known = [batch.targets for batch in batches if batch.targets is not None]
    return torch.cat(found), torch.cat(known)


def _check(batches: Sequence[Batch], task: Task, outputs: Tensor, part: str) -> int:
    """Refuse data that do not fit the task; returns how many labels are to be left out."""
    start = ignored = 0
    for batch in batches:
        for x in batch.inputs:
            _check_finite(x, "inputs", part, start)
        if batch.targets is not None:
            _check_finite(batch.targets, "targets", part, start)
            if task is VALUES:
                _check_values(batch.targets, outputs)
            elif task.name in SEVERAL:
                ignored += _check_several(batch.targets, task, outputs, f"{part} example", start)
            else:
                _check_labels(batch.targets, task, outputs, f"{part} example", start)
        start += len(batch.inputs[0])
    return ignored


SEVERAL = (MULTILABEL.name, TERMS)
"""The tasks of several labels an example."""


def _check_several(labels: Tensor, task: Task, outputs: Tensor, what: str, start: int) -> int:
    """Refuse labels that are not one at each output, or no class; returns how many say to be left out."""
    binary = task.name == MULTILABEL.name
    shape = outputs.shape[1:] if binary else outputs.shape[1:-1]
    if labels.shape[1:] != shape or labels.ndim < 2:
        needed = "a number for each label" if binary else "a score per class at each label's place"
        raise ValueError(
            f"task {task.name} needs {needed}: "
            f"the outputs are {shape_of(outputs)}, the labels {shape_of(labels)}"
        )
    left_out = labels == IGNORED
    count = 2 if binary else outputs.shape[-1]
    whole = labels == labels.round() if labels.is_floating_point() else torch.ones_like(left_out)
    odd = ~left_out & ((labels < 0) | (labels >= count) | ~whole)
    if bool(odd.any()):
        row = int(odd.flatten(1).any(1).nonzero()[0])
        raise ValueError(
            f"labels must lie in 0 .. {count - 1}, or be {IGNORED} where they are left out: "
            f"got {labels[row][odd[row]][0].item():g} ({what} {start + row})"
        )
    return int(left_out.sum())


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
            + ("; give y.flatten()" if outputs.ndim == 1 and targets.shape[1:] == (1,) else "")
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
    count = 2 if task.name in SINGLE else outputs.shape[-1]
    if len(names) != count:
        kind = "labels" if task.name == MULTILABEL.name else "classes"
        raise ValueError(f"class_names must name each of the {count} {kind}: got {len(names)}")


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
            at = int((~inside[row]).nonzero()[0])
            low, high = (end.expand(x.shape[1:]).flatten()[at] for end in (domain.low, domain.high))
            least, most = min(b.inputs[0].min() for b in test), max(b.inputs[0].max() for b in test)
            raise ValueError(
                f"inputs must lie in the domain: held-out example {start + row} has "
                f"{x[row].flatten()[at]:.6g}, outside [{low:g}, {high:g}]; all span [{least:.6g}, {most:.6g}]"
            )
        start += len(x)
    return domain
