"""Captured recurrences: the inputs of each recurrent layer in one forward pass of the model, in float64."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import Call as AnyCall
from margin.engine.evaluation import capture, drawn_rows, eval_mode, in_double
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence, State

EXAMPLES, STEPS = 4, 512
"""Held-out examples that a question is put to, and their first steps."""

NOT_WHOLE = "the model calls its recurrences step by step, not on whole sequences"
TOO_SHORT = "the held-out sequences have no step"


class Call(NamedTuple):
    """One call of a recurrence: its arguments, passed by place or by name, and what it gave back."""

    x: Tensor
    lengths: Tensor | None
    state: State | None
    output: Any


class Captured(NamedTuple):
    """A recurrence inside a model, with the inputs of its first call."""

    name: str
    recurrence: Recurrence
    x: Tensor
    lengths: Tensor | None
    state: State | None = None


def topmost(
    model: nn.Module, wanted: Callable[[nn.Module], bool], prefix: str = ""
) -> list[tuple[str, Recurrence]]:
    """The recurrences of a kind in a model that are in no other one of it, with their names.

    Args:
        model: Any module.
        wanted: Whether a module is a recurrence of that kind.
        prefix: The model's own name, which theirs begin with.
    """
    if wanted(model):
        return [(prefix or type(model).__name__, model)]  # type: ignore[list-item]
    return [
        found
        for name, child in model.named_children()
        for found in topmost(child, wanted, f"{prefix}.{name}" if prefix else name)
    ]


def outermost(model: nn.Module) -> list[tuple[str, Recurrence]]:
    """The recurrences of a model that are in no other recurrence, with their names."""
    return topmost(model, lambda module: isinstance(module, Recurrence))


def causal_ones(model: nn.Module) -> list[tuple[str, Recurrence]]:
    """The causal recurrences of a model that are in no other one, with their names.

    Of a recurrence that reads both ways they are its two directions.
    """
    return topmost(model, lambda module: isinstance(module, Recurrence) and module.causal)


def first_inputs(batch: Batch, examples: int = EXAMPLES) -> tuple[Tensor, ...]:
    """The inputs of the first examples of a batch, real ones in float64."""
    return tuple(x[:examples].double() if x.is_floating_point() else x[:examples] for x in batch.inputs)


def arguments(module: nn.Module, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """The x, lengths and state of a call, bound by the signature of the module's forward.

    Args:
        module: A recurrence.
        args: What was passed by place.
        named: What was passed by name.

    Raises:
        TypeError: The signature does not take these.
    """
    bound = inspect.signature(module.forward).bind(*args, **named)
    bound.apply_defaults()
    x, lengths, state = (*bound.args, *bound.kwargs.values(), None, None)[:3]
    return x, lengths, state


@contextmanager
def captured_calls(layers: Sequence[tuple[str, nn.Module]]) -> Iterator[dict[str, list[Call]]]:
    """The calls of each recurrence by its name, in their order, that end within the block.

    Args:
        layers: The recurrences, with their names.
    """
    calls: dict[str, list[Call]] = {name: [] for name, _ in layers}

    def keep(call: AnyCall) -> None:
        own = Call(*arguments(call.module, call.args, call.kwargs), call.output)
        for name, layer in layers:
            if layer is call.module:
                calls[name].append(own)

    with capture((layer for _, layer in layers), keep):
        yield calls


def captured(
    subject: Subject, find: Callable[[nn.Module], list[tuple[str, Recurrence]]] = outermost
) -> list[Captured]:
    """Recurrences of a model, in float64, with what :data:`EXAMPLES` drawn held-out examples give them.

    A recurrence that is called several times is returned with its first call's inputs, of which
    :data:`STEPS` steps are kept. One that was not called as a whole, but step by step, is left out. Examples
    of several shapes are several batches: then each recurrence is there once for each, named with its number.

    Args:
        subject: A model with recurrences, and held-out batches.
        find: Which recurrences, with their names.
    """
    model = in_double(subject.model)
    recurrences = find(model)
    batches, found = drawn_rows(subject.test, EXAMPLES).batches, list[Captured]()
    for number, batch in enumerate(batches):
        with torch.no_grad(), eval_mode(model), captured_calls(recurrences) as calls:
            model(*first_inputs(batch))
        called = [(name, layer, calls[name][0]) for name, layer in recurrences if calls[name]]
        found += [_kept(numbered(name, number, len(batches)), layer, call) for name, layer, call in called]
    return found


def numbered(name: str, number: int, count: int) -> str:
    """The name of a layer, with the number of the batch where there are several."""
    return name if count == 1 else f"{name}, batch {number + 1}"


def _kept(name: str, recurrence: Recurrence, call: Call) -> Captured:
    x, lengths = call.x.detach()[:, :STEPS], call.lengths
    return Captured(
        name, recurrence, x, None if lengths is None else lengths.clamp_max(x.shape[1]), call.state
    )


def stated_causal(name: str, recurrence: Recurrence) -> Premise:
    """The premise that a recurrence states to be causal; whether it is, is asked."""
    text = f"{name} states that it reads its sequences from the front alone"
    if recurrence.causal:
        return Premise(text, "proved", "its attribute causal is True")
    return Premise(text, "refuted", f"{name} reads later steps too: its attribute causal is False")


def has_recurrence(subject: Subject) -> bool:
    """Whether the model contains a recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and len(outermost(subject.model)) > 0


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """The model that is drawn with seed 0; the global generator stays where it is."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return build()


def example(
    build: Callable[[], nn.Module],
    shape: tuple[int, int, int],
    lengths: Sequence[int] = (),
    *,
    classes: int = 2,
) -> Subject:
    """The subject of a demonstration: a classifier drawn with seed 0, and noise in place of sequences.

    Args:
        build: Makes the model.
        shape: Sequences, steps and numbers of a step.
        lengths: Steps of each sequence, where the model is given them.
        classes: The labels are 0, 1, .. in turn.
    """
    x = torch.randn(shape, generator=Generator().manual_seed(0))
    inputs = (x, torch.tensor(lengths)) if lengths else (x,)
    batch = Batch(inputs, torch.arange(shape[0]) % classes)
    return Subject(model=seeded(build), test=[batch], task=CLASSES, objective=risk(CLASSES))
