"""What the recurrences inside a model are given: their inputs, by asking the whole model once in float64."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.core.findings import Premise, Subject
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double
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


class Heard(NamedTuple):
    """A recurrence inside a model, with the inputs that it was given there."""

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


def some(batch: Batch, examples: int = EXAMPLES) -> tuple[Tensor, ...]:
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
def listening(layers: Sequence[tuple[str, nn.Module]]) -> Iterator[dict[str, list[Call]]]:
    """The calls of each recurrence by its name, in their order, while the model is asked by others.

    Args:
        layers: The recurrences, with their names.
    """
    calls: dict[str, list[Call]] = {name: [] for name, _ in layers}

    def listen(name: str, layer: nn.Module) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            calls[name].append(Call(*arguments(module, args, named), output))

        return layer.register_forward_hook(hook, with_kwargs=True)

    handles = [listen(name, layer) for name, layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def heard(
    subject: Subject, find: Callable[[nn.Module], list[tuple[str, Recurrence]]] = outermost
) -> list[Heard]:
    """Recurrences of a model, in float64, with what the first held-out batch gives them.

    A recurrence that is called several times is returned with its first call's inputs, of which
    :data:`EXAMPLES` examples and :data:`STEPS` steps are kept. One that was not called as a whole, but step
    by step, is left out.

    Args:
        subject: A model with recurrences, and held-out batches.
        find: Which recurrences, with their names.
    """
    model = in_double(subject.model)
    recurrences = find(model)
    with torch.no_grad(), eval_mode(model), listening(recurrences) as calls:
        model(*some(subject.test[0]))
    return [_kept(name, recurrence, calls[name][0]) for name, recurrence in recurrences if calls[name]]


def _kept(name: str, recurrence: Recurrence, call: Call) -> Heard:
    x, lengths = call.x.detach()[:, :STEPS], call.lengths
    return Heard(name, recurrence, x, None if lengths is None else lengths.clamp_max(x.shape[1]), call.state)


def from_the_front(name: str, recurrence: Recurrence) -> Premise:
    """The premise that a recurrence states to be causal; whether it is, is asked."""
    text = f"{name} states that it reads its sequences from the front alone"
    if recurrence.causal:
        return Premise(text, "proved", "its attribute causal is True")
    return Premise(text, "refuted", f"{name} reads later steps too: its attribute causal is False")


def has_recurrence(subject: Subject) -> bool:
    """Whether the model contains a recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and len(outermost(subject.model)) > 0
