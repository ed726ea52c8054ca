"""A model under test conditions that every number rests on: one answer for one input, whatever else is asked.

Each question runs the model on a few examples twice and compares outputs. Where they differ, the first layer
is named whose outputs differ though its inputs do not: hooks see every call of every submodule.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.core.findings import NO_MODEL, Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import Call, Kept, eval_mode, hooked, leaves, rows_of
from margin.engine.loop import risk
from margin.theory.prediction.held_out import held_out_answers

FEW = 16
"""Examples that the model is asked more than once."""

WATCHED = 2**16
"""Numbers of a row that are compared of what a layer is given and returns, evenly spaced: of a large image a
network has gigabytes of them."""

NAMED = 5
"""How many examples or buffers are named."""


class Seen(NamedTuple):
    """A call of a submodule: which it is, what it was given and what it returned."""

    path: str
    kind: str
    inputs: list[Tensor]
    outputs: list[Tensor]

    @property
    def place(self) -> str:
        """The layer, in words."""
        return f"layer {self.path!r} ({self.kind})" if self.path else f"the model's own forward ({self.kind})"


def has_model(subject: Subject) -> bool:
    """Whether there is a model that answers examples: predictions alone have no behavior.

    What is judged by no loss of its outputs, as a density or a chain of a thousand steps, is asked by others.
    """
    return subject.lacks != NO_MODEL and subject.task.loss is not None and len(subject.test) > 0


def has_rows(subject: Subject) -> bool:
    """Whether a batch holds two examples or more that may be asked one without the other."""
    # a graph's nodes read each other by nature; of a stranger's model that is what is asked
    apart = subject.independent or subject.as_given is not None
    return (
        bool(len(subject.test)) and apart and subject.test[0].divisible and len(subject.test[0].inputs[0]) > 1
    )


def asked(subject: Subject) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model as it came, and the inputs of its first examples: all of a batch that cannot be cut."""
    batch, model = subject.test[0], subject.as_given or subject.model
    if subject.independent or subject.as_given is not None:
        batch = first_rows(model, batch, FEW, surely=subject.independent)
    return model, batch.inputs


def first_rows(model: nn.Module, batch: Batch, few: int, *, surely: bool = False) -> Batch:
    """The first examples of a batch; all of one that cannot be cut, or whose model takes it whole or not.

    Args:
        model: It is given the few, which is what tells.
        batch: The batch.
        few: Examples at most.
        surely: Whether it is known that the model takes them.
    """
    if not batch.divisible or few >= len(batch.inputs[0]):
        return batch
    first = rows_of(batch, torch.arange(few))
    return first if surely or takes(model, first.inputs) else batch


@torch.no_grad()
def takes(model: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    """Whether a model answers these inputs: a graph's layers need its every node."""
    with eval_mode(model):
        kept = Kept(model)
        try:
            model(*copies(inputs))
        except Exception:  # what is wrong with the model, the whole batch tells
            return False
        finally:
            kept.restore()
    return True


def copies(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Copies, into which a model may write."""
    return tuple(x.clone() for x in inputs)


def tensors(value: Any, most: int = sys.maxsize) -> list[Tensor]:
    """Copies of the tensors in nested arguments, of each row so many numbers at most."""
    found = [x.detach() for x in leaves(value) if isinstance(x, Tensor) and x.layout == torch.strided]
    numbers = [x[:1].numel() if x.ndim else 1 for x in found]
    return [
        x.clone() if n <= most else x.flatten(1)[:, :: math.ceil(n / most)].clone()
        for x, n in zip(found, numbers, strict=True)
    ]


def watched(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Seen]:
    """Every call of every submodule while the model answers, in the order in which they end.

    The last one is the model itself. What is inside of a script cannot be watched.
    """
    paths = {m: path for path, m in model.named_modules() if not isinstance(m, torch.jit.ScriptModule)}
    seen: list[Seen] = []
    entered: list[list[Tensor]] = []

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        entered.append(tensors(args, WATCHED))

    def leave(call: Call) -> None:
        given = entered.pop()
        seen.append(
            Seen(paths[call.module], type(call.module).__name__, given, tensors(call.output, WATCHED))
        )

    with hooked([m for m in paths if m is not model], leave, enter):
        returned = model(*inputs)
    seen.append(Seen("", model._get_name(), tensors(inputs), tensors(returned)))
    return seen


def whole(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Seen]:
    """The call of the model alone: what its layers return is kept only where one is to be named."""
    return [Seen("", model._get_name(), tensors(inputs), tensors(model(*inputs)))]


Look = Callable[[nn.Module, tuple[Tensor, ...]], list[Seen]]
"""``(model, inputs) -> calls``: of every submodule, or of the model alone."""


EIGHT_BITS = 2.0**-4
"""What rounding to eight bits may move, as a share of the largest number: some steps of 1/127."""


def rounds_by_batch(model: nn.Module) -> bool:
    """Whether a layer is quantized dynamically: it rounds by the largest number of its batch."""
    return any("quantized.dynamic" in type(module).__module__ for module in model.modules())


def moved(a: Tensor, b: Tensor, tolerance: float = 0.0) -> Tensor:
    """Whether each row differs by more than rounding, or a share of the largest number; NaN is as NaN."""
    if a.shape != b.shape:
        return torch.ones(len(a), dtype=torch.bool)
    if not (a.is_floating_point() or a.is_complex()):
        return (a != b).reshape(len(a), -1).any(1).cpu()
    size = torch.where(a.isfinite(), a, 0).abs().max() if a.numel() else 0
    same = (a == b) | (a.isnan() & b.isnan())
    apart = torch.where(same, 0, a - b).abs().nan_to_num(torch.inf)
    share = max(tolerance, torch.finfo(a.dtype).eps ** 0.5)
    return (apart > share * size).reshape(len(a), -1).any(1).cpu()


def differ(a: Sequence[Tensor], b: Sequence[Tensor], rows: int) -> bool:
    """Whether tensors differ in their first rows, where only these were asked again."""
    pairs = [
        (x[: len(y)] if len(y) == rows else x, y) for x, y in zip(a, b, strict=False) if x.ndim and y.ndim
    ]
    return len(a) != len(b) or any(x.numel() > 0 and bool(moved(x, y).any()) for x, y in pairs)


def culprit(before: Sequence[Seen], after: Sequence[Seen]) -> str:
    """The first layer that answers otherwise to the same inputs, in words."""
    rows = len(after[-1].inputs[0])
    for one, other in zip(before, after, strict=False):
        otherwise = one.path == other.path and differ(one.outputs, other.outputs, rows)
        if otherwise and not differ(one.inputs, other.inputs, rows):
            return one.place
    return before[-1].place


def moved_rows(before: Sequence[Seen], after: Sequence[Seen], tolerance: float = 0.0) -> Tensor:
    """Whether the model answers each example otherwise that it was asked again.

    Raises:
        NotAsked: It returns no tensor with a row per example.
    """
    (asked, again), (every, few) = (
        (before[-1], after[-1]),
        (len(calls[-1].inputs[0]) for calls in (before, after)),
    )
    pairs = zip(asked.outputs, again.outputs, strict=False)
    rows = [
        moved(a[:few], b, tolerance)
        for a, b in pairs
        if a.ndim and b.ndim and len(a) == every and len(b) == few
    ]
    if not rows:
        raise NotAsked("the model returns no tensor with a row per example")
    return torch.stack(rows).any(0)


def compared(
    statement: str,
    off: Tensor,
    place: Callable[[], str],
    remarks: tuple[str, ...] = (),
    *,
    promised: bool = True,
) -> Finding:
    """The share of examples for which something is so that should be for none, and the layer that does it."""
    share = off.double().mean()
    due = f"; the first that does so is {place()}" if bool(off.any()) else ""
    return Finding(
        statement=f"{statement}, of {len(off):,} asked{due}.",
        value=share,
        range=(0.0, 1.0),
        high=torch.zeros((), dtype=torch.float64) if promised else None,
        remarks=remarks,
    )


@torch.no_grad()
def _twice(subject: Subject, look: Look = whole, rows: int | None = None) -> tuple[list[Seen], list[Seen]]:
    """The calls of two runs in the same state, on the same inputs or the second on the first ``rows``."""
    model, inputs = asked(subject)
    with eval_mode(model):
        kept = Kept(model)
        first = look(model, copies(inputs))
        kept.restore()
        second = look(model, copies(tuple(x[:rows] for x in inputs)))
    return first, second


def random(subject: Subject) -> Finding:
    """The share of examples that the model, in evaluation mode, answers otherwise when it is asked again."""
    first, second = _twice(subject)
    off = moved_rows(first, second)
    return compared(
        "The share of examples that the model in evaluation mode answers otherwise when it is asked again",
        off,
        lambda: culprit(*_twice(subject, watched)),
        ("The model draws at random in evaluation mode: every other number is of one draw.",)
        if bool(off.any())
        else (),
    )


def _refuse_draws(subject: Subject) -> None:
    if bool(moved_rows(*_twice(subject)).any()):
        raise NotAsked("the model draws at random: its answers move without that")


@torch.no_grad()
def mates(subject: Subject) -> Finding:
    """The share of examples that are answered otherwise without the rest of their batch.

    Raises:
        NotAsked: The model draws at random, which moves its answers too, or takes no part of a batch.
    """
    _refuse_draws(subject)
    model, inputs = asked(subject)
    few = max(1, len(inputs[0]) // 2)
    if not takes(model, tuple(x[:few] for x in inputs)):
        raise NotAsked("the model takes the whole batch or none")
    first, alone = _twice(subject, rows=few)
    rounded = rounds_by_batch(model)
    said = "layers are quantized dynamically: the batch decides how they round, which counts as rounding"
    return compared(
        "The share of examples that the model answers otherwise without the rest of their batch",
        moved_rows(first, alone, EIGHT_BITS if rounded else 0.0),
        lambda: culprit(*_twice(subject, watched, few)),
        (said,) if rounded else (),
    )


@torch.no_grad()
def _later(subject: Subject, look: Look) -> tuple[Tensor, list[Seen], list[Seen], list[str]]:
    """Which answers move after calls before, the first calls, the last that moved, the buffers written."""
    model, inputs = asked(subject)
    with eval_mode(model):
        kept = Kept(model)
        first = later = look(model, copies(inputs))
        off = torch.zeros(len(inputs[0]), dtype=torch.bool)
        for _ in range(3):
            calls = look(model, copies(inputs))
            here = moved_rows(first, calls)
            off, later = off | here, calls if bool(here.any()) else later
        return off, first, later, kept.written(model)


def buffers(subject: Subject) -> Finding:
    """The share of examples that are answered otherwise after calls before, which may leave something behind.

    Raises:
        NotAsked: The model draws at random, which moves its answers too.
    """
    _refuse_draws(subject)
    off, _, _, written = _later(subject, whole)
    names = ", ".join(map(repr, written[:NAMED])) + (", ..." if len(written) > NAMED else "")
    effect = "on which its answers depend" if bool(off.any()) else "on which its answers do not depend"
    return compared(
        "The share of examples that the model answers otherwise after it was asked before",
        off,
        lambda: culprit(*_later(subject, watched)[1:3]),
        (f"forward writes buffer {names}, {effect}",) if written else (),
    )


@torch.no_grad()
def overwrites(subject: Subject) -> Finding:
    """The share of examples whose inputs the model overwrites; its own tensors it may."""
    model, inputs = asked(subject)
    given = copies(inputs)
    own = {x.untyped_storage().data_ptr() for x in given}
    places: list[str] = []
    before: list[list[tuple[Tensor, Tensor]]] = []
    paths = {m: path for path, m in model.named_modules() if not isinstance(m, torch.jit.ScriptModule)}

    def mine(args: Any) -> list[Tensor]:
        found = (x for x in leaves(args) if isinstance(x, Tensor) and x.layout == torch.strided)
        return [x for x in found if x.untyped_storage().data_ptr() in own]

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        before.append([(x, x.clone()) for x in mine(args)])

    def leave(call: Call) -> None:
        if any(bool(moved(x, was).any()) for x, was in before.pop() if x.ndim):
            places.append(Seen(paths[call.module], type(call.module).__name__, [], []).place)

    with eval_mode(model), hooked([m for m in paths if m is not model], leave, enter):
        model(*given)
    off = torch.stack([moved(x, y) for x, y in zip(inputs, given, strict=True) if len(x) == len(inputs[0])])
    return compared(
        "The share of examples whose inputs the model overwrites",
        off.any(0),
        lambda: places[0] if places else Seen("", model._get_name(), [], []).place,
    )


@torch.no_grad()
def _in_both_modes(subject: Subject, look: Look) -> list[list[Seen]]:
    """The calls in evaluation mode, and in the mode that each module came in, on the same inputs."""
    model, inputs = asked(subject)
    flags = [(module, module.training) for module in model.modules()]
    calls = []
    with eval_mode(model):
        kept = Kept(model)
        for training in (False, True):
            for module, flag in flags:
                module.training = flag and training
            try:
                calls.append(look(model, copies(inputs)))
            except (ValueError, RuntimeError) as error:  # batch normalization of a single example
                raise NotAsked(f"in training mode the model raises: {str(error).splitlines()[0]}") from error
            kept.restore()
    return calls


def mode(subject: Subject) -> Finding:
    """The share of examples that the model answers otherwise in the training mode that it came in."""
    off = moved_rows(*_in_both_modes(subject, whole))
    return compared(
        "The share of examples that the model answers otherwise in the mode that it came in than in eval()",
        off,
        lambda: culprit(*_in_both_modes(subject, watched)),
        ("all numbers are of eval(): call it before the model is used",) if bool(off.any()) else (),
        promised=False,
    )


def _not_numbers(subject: Subject, outputs: Tensor) -> Tensor:
    """Which rows hold what is no answer: a NaN, an infinity; a class may be ruled out by a score of -inf."""
    rows = outputs.reshape(len(outputs), -1)
    if subject.task.classes is None or rows.shape[1] < 2:
        return ~rows.isfinite().all(1)
    return rows.isnan().any(1) | (rows == torch.inf).any(1) | (rows == -torch.inf).all(1)


def finite(subject: Subject) -> Finding:
    """The share of held-out examples some of whose outputs are no numbers; the first are named."""
    answered = held_out_answers(subject)
    bad = _not_numbers(subject, answered.outputs)
    examples = answered.example.unique()
    odd = answered.example[bad].unique()
    first = ", ".join(str(i) for i in odd[:NAMED].tolist())
    named = f", the first of index {first}, {_where(subject)}" if len(odd) else ""
    return Finding(
        statement=f"The share of {len(examples):,} held-out examples whose answers are no numbers{named}.",
        value=torch.tensor(len(odd) / max(len(examples), 1), dtype=torch.float64),
        range=(0.0, 1.0),
        high=torch.zeros((), dtype=torch.float64),
        failure="" if len(examples) else "no held-out example has a weight above 0",
    )


@torch.no_grad()
def _where(subject: Subject) -> str:
    """The first layer that makes something else than numbers of numbers, in words."""
    model = subject.as_given or subject.model
    with eval_mode(model):
        for batch in subject.test:
            for call in watched(model, copies(batch.inputs)):
                real = [[x for x in part if x.is_floating_point()] for part in (call.inputs, call.outputs)]
                given, made = (all(bool(x.isfinite().all()) for x in part) for part in real)
                if given and not made:
                    return f"by {call.place}"
    return "by no layer that can be watched"


def demo() -> Subject:
    """A sound network: a batch normalization in evaluation mode, dropout that is off."""
    torch.manual_seed(0)
    layers = (nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    model = nn.Sequential(*layers).double().eval()
    x = torch.randn(20, 3, dtype=torch.float64)
    return Subject(
        model=model, test=[Batch((x,), (x[:, 0] > 0).long())], task=CLASSES, objective=risk(CLASSES)
    )
