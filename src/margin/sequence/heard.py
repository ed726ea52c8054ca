"""What the recurrences inside a model are given: their inputs, by asking the whole model once in float64."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.engine.asking import asking, in_double
from margin.findings import Premise, Subject
from margin.sequence.recurrence import Recurrence, State
from margin.types import Batch

EXAMPLES, STEPS = 4, 512
"""Held-out examples that a question is put to, and their first steps."""


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
    calls: dict[str, tuple[Any, ...]] = {}

    def listen(name: str, recurrence: Recurrence) -> Any:
        def hook(module: nn.Module, given: tuple[Any, ...]) -> None:
            calls.setdefault(name, given)

        return recurrence.register_forward_pre_hook(hook)

    recurrences = find(model)
    handles = [listen(name, recurrence) for name, recurrence in recurrences]
    with torch.no_grad(), asking(model):
        model(*some(subject.test[0]))
    for handle in handles:
        handle.remove()
    return [_kept(name, recurrence, calls[name]) for name, recurrence in recurrences if name in calls]


def _kept(name: str, recurrence: Recurrence, given: Sequence[Any]) -> Heard:
    x = given[0].detach()[:, :STEPS]
    lengths, state = (*given[1:], None, None)[:2]
    return Heard(name, recurrence, x, None if lengths is None else lengths.clamp_max(x.shape[1]), state)


def from_the_front(name: str, recurrence: Recurrence) -> Premise:
    """The premise that a recurrence states to be causal; whether it is, is asked."""
    text = f"{name} states that it reads its sequences from the front alone"
    if recurrence.causal:
        return Premise(text, "proved", "its attribute causal is True")
    return Premise(text, "refuted", f"{name} reads later steps too: its attribute causal is False")


def has_recurrence(subject: Subject) -> bool:
    """Whether the model contains a recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and len(outermost(subject.model)) > 0
