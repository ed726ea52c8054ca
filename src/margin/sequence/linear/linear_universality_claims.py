"""How far back the state of a linear recurrent unit can be read (Orvieto et al. 2024), with what error."""

import copy
import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.sequence.linear.linear_universality import capacity, memory, reconstructed
from margin.sequence.linear.lru import LRU, classifier, normalization
from margin.sequence.linear.lru_claims import layers, not_finite

LONGEST = 128
"""Steps that are read back, at most."""

EPS = torch.finfo(torch.float64).eps


class Readback(NamedTuple):
    """A signal read back from one layer's state.

    Args:
        error: ||x^ - x|| / ||x||.
        steps: T.
        condition: Of the map from signal to state.
        by_time: The condition for 1 .. T steps.
    """

    error: float
    steps: int
    condition: float
    by_time: Tensor


@torch.no_grad()
def readback(layer: LRU, longest: int, generator: Generator) -> Readback:
    """Give a layer in float64 a scalar signal along the input that it receives best, and read it back.

    Args:
        layer: The layer; a copy of it is asked.
        longest: Steps at most; no more than its states can hold are given.
        generator: Where the signal is drawn from.
    """
    wide = copy.deepcopy(layer).double()
    B = torch.view_as_complex((normalization(wide.nu)[:, None, None] * wide.B).movedim(1, 2).contiguous())
    pairs = torch.cat((B.real, B.imag))
    direction = torch.linalg.svd(pairs, full_matrices=False).Vh[0]
    received, values = (B @ direction.to(B.dtype))[:, None], wide.eigenvalues
    steps = min(longest, capacity(len(values), 1))
    signal = torch.randn(steps, generator=generator, dtype=torch.float64).to(values.device)
    _, (zeta,) = wide((signal[:, None] * direction)[None])
    found = reconstructed(zeta[0], values, received, steps)
    by_time = [torch.linalg.svdvals(memory(values, received, t)) for t in range(1, steps + 1)]
    error = float((found.x[:, 0] - signal).norm() / signal.norm())
    return Readback(error, steps, found.condition, torch.stack([s[0] / s[-1] for s in by_time]))


def longest_sequence(subject: Subject) -> int:
    """Steps of the longest held-out sequence, at most :data:`LONGEST`."""
    return max(1, min(LONGEST, max((batch.inputs[0].shape[1] for batch in subject.test), default=1)))


def reading(subject: Subject) -> Finding:
    """Whether a signal is read back from a layer's last state within condition times rounding.

    The signal is one number a step, along the direction of the layer's input that it receives best, as long
    as the held-out sequences or as the states hold, 2 m. What is read back exactly, a perceptron behind it
    can compute with: that the layer and a perceptron are universal rests on it. The condition says to how
    many digits the perceptron must read the state.

    Args:
        subject: A model with linear recurrent units.
    """
    found, failure = layers(subject), not_finite(layers(subject))
    generator, longest = Generator().manual_seed(0), longest_sequence(subject)
    lost = Readback(math.nan, 0, math.nan, torch.full((1,), torch.nan).double())
    answers = [lost if failure else readback(layer, longest, generator) for layer in found.values()]
    bounds = [answer.steps * answer.condition * EPS for answer in answers]
    # of a bound of 1 and more nothing is left: the matrix is singular to rounding
    high = torch.tensor([bound if bound < 1 else math.inf for bound in bounds], dtype=torch.float64)
    conditions = ", ".join(f"{answer.condition:.1e}" for answer in answers)
    clear = ", ".join(str(int((answer.by_time < 1 / EPS**0.5).sum())) for answer in answers)
    return Finding(
        statement=f"A signal of {answers[0].steps} steps is read back from the last state of each layer with "
        f"a relative error of at most T cond eps; the conditions are {conditions}. Half of the digits of "
        f"float64 remain up to {clear} steps.",
        value=torch.tensor([answer.error for answer in answers], dtype=torch.float64),
        unit="1",
        range=(0.0, math.inf),
        low=torch.zeros_like(high),
        high=high,
        tolerance=16 * EPS,
        labels=tuple(found),
        premises=(),
        reference="Orvieto, De, Gulcehre, Pascanu and Smith 2024, Section 3; Higham 2002, Theorem 20.1",
        failure=failure,
        curves={"steps": torch.arange(1.0, answers[0].steps + 1)}
        | {f"condition: {name}": answer.by_time for name, answer in zip(found, answers, strict=True)},
    )


def demo() -> Subject:
    """Two layers of 16 linear recurrent units near the unit circle, and sequences of 12 steps."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 3, width=4, states=16)
        batch = Batch((torch.randn(6, 12, 2),), torch.arange(6) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
