"""The gated linear recurrences z_t = a_t z_{t-1} + b_t inside a model, with their gates on its inputs."""

import math
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence, without_padding
from margin.sequence.linear.lru import LRU
from margin.sequence.linear.mingru import MinGRU, classifier
from margin.sequence.linear.minlstm import MinLSTM
from margin.sequence.recurrent.heard import Call, listening

ANY = (MinGRU, MinLSTM, LRU)
AVERAGES = (MinGRU, MinLSTM)

EXAMPLES, STEPS = 8, 2048
"""Held-out examples that a question is put to, and their first steps."""

NOTHING = torch.full((1,), math.nan, dtype=torch.float64)
"""The value where no layer was called on whole sequences."""


class Gated(NamedTuple):
    """A gated linear recurrence inside a model, as it was called: z_t = a_t z_{t-1} + b_t.

    The states are those that the layer returned; of a linear recurrent unit, which returns what it reads of
    them, there are none.
    """

    name: str
    layer: Recurrence
    a: Tensor
    b: Tensor
    start: Tensor
    lengths: Tensor | None
    x: Tensor
    states: Tensor | None


def kinds(subject: Subject, *wanted: type[nn.Module]) -> list[tuple[str, nn.Module]]:
    """The layers of these kinds in a model, by name."""
    named = subject.model.named_modules()
    return [(name.removeprefix("model."), layer) for name, layer in named if isinstance(layer, wanted)]


def has_gated(subject: Subject) -> bool:
    """Whether the model has a layer that is a gated linear recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and bool(kinds(subject, *ANY))


def has_average(subject: Subject) -> bool:
    """Whether the model has a layer that averages its input over time, and there are held-out examples."""
    return len(subject.test) > 0 and bool(kinds(subject, *AVERAGES))


def gated(subject: Subject, *wanted: type[nn.Module]) -> list[Gated]:
    """The layers with their gates and terms on the first held-out examples, in the model's own type.

    Args:
        subject: A model with such layers; one that is called several times is heard at its first call, and
            one that is called step by step is left out.
        wanted: The kinds of layers.
    """
    layers = kinds(subject, *wanted)
    with torch.no_grad(), eval_mode(subject.model), listening(layers) as calls:
        subject.model(*(x[:EXAMPLES] for x in subject.test[0].inputs))
        return [_terms(name, layer, calls[name][0]) for name, layer in layers if calls[name]]


def _terms(name: str, layer: Any, call: Call) -> Gated:
    lengths = call.lengths
    x = without_padding(call.x, lengths)[:, :STEPS]
    start = (layer.initial(x) if call.state is None else call.state)[0]
    lengths = None if lengths is None else lengths.clamp_max(STEPS)
    if isinstance(layer, LRU):
        return Gated(name, layer, layer.eigenvalues, layer.driven(x), start, lengths, x, None)
    gates = layer.logits(x).sigmoid()
    b = (1 - gates) * layer.candidate(x)
    return Gated(name, layer, gates, b, start, lengths, x, call.output[0][:, :STEPS])


def wide(x: Tensor) -> Tensor:
    """The tensor in 64 bits."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """The states by their definition, a step at a time."""
    states = []
    for a_t, b_t in zip(a.expand(b.shape).unbind(1), b.unbind(1), strict=True):
        start = a_t * start + b_t
        states.append(start)
    return torch.stack(states, 1) if states else b


def bounded(found: list[Gated]) -> Premise:
    """Whether no gate exceeds 1 in modulus, so that no product overflows; else the layer is named."""
    most = {one.name: float(one.a.abs().max()) if one.a.numel() else 0.0 for one in found}
    over = [
        f"{one.name} ({most[one.name]:.6g})"
        for one in found
        if most[one.name] > 1 + 4 * torch.finfo(one.a.dtype).eps
    ]
    evidence = (
        f"above it: {', '.join(over)}" if over else f"the largest is {max(most.values(), default=0):.6g}"
    )
    return Premise("no gate exceeds 1 in modulus", "refuted" if over else "proved", evidence)


def demo() -> Subject:
    """A minGRU with memories of up to 50 steps, on short noise of several lengths."""
    generator = Generator().manual_seed(0)
    torch.manual_seed(0)
    x = torch.randn(6, 50, 2, generator=generator)
    lengths = torch.tensor([50, 33, 0, 17, 1, 50])
    model = classifier(2, 3, hidden=8, layers=2, memory=50)
    batch = Batch((x, lengths), torch.tensor([0, 1, 2, 0, 1, 2]))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
