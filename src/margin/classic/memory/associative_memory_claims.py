"""What an associative memory loses, and what theory promises of dense and of continuous ones."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.classic.memory.associative_memory import (
    WithoutTargets,
    memory_of,
    squared_distance,
    states_of,
    stored_patterns,
    wrong_units,
)
from margin.classic.memory.dense_associative_memory import (
    DenseAssociativeMemory,
    ModernHopfield,
    continuous_energy,
    continuous_update,
    dense_energy,
    separations,
)
from margin.classic.memory.hopfield import Hopfield
from margin.core.findings import Finding, Subject
from margin.core.tasks import MEMORY
from margin.data.examples import Arrays, InOrder
from margin.engine.evaluation import ExampleSample, drawn_rows, eval_mode

MOST_PATTERNS = 200
"""Stored patterns that are retrieved, the first."""

SWEPT, UPDATED = 16, 64
"""Held-out probes that are swept by a dense memory, and updated by a continuous one, at most."""

UPDATES = 20
"""Updates along which a continuous energy is followed."""

NEAR = 1e-3
"""Relative distance below which a real pattern counts as retrieved."""

ZERO = torch.tensor(0.0, dtype=torch.float64)


def is_memory(subject: Subject) -> bool:
    """Whether the model is an associative memory of the catalog, with a pattern stored."""
    memory = memory_of(subject.model)
    kinds = (Hopfield, DenseAssociativeMemory, ModernHopfield)
    return isinstance(memory, kinds) and int(memory.stored) > 0


def is_dense(subject: Subject) -> bool:
    """Whether the model is a dense associative memory with a pattern stored."""
    return is_memory(subject) and isinstance(memory_of(subject.model), DenseAssociativeMemory)


def is_continuous(subject: Subject) -> bool:
    """Whether the model is a continuous Hopfield network with a pattern stored."""
    return is_memory(subject) and isinstance(memory_of(subject.model), ModernHopfield)


@torch.no_grad()
def lost(subject: Subject) -> Finding:
    """The share of stored patterns that are not what they themselves retrieve.

    A pattern of -1 and +1 must come back whole, a real one to within a thousandth of its length.

    Args:
        subject: An associative memory.
    """
    memory = memory_of(subject.model)
    with eval_mode(subject.model):
        patterns = stored_patterns(memory)[:MOST_PATTERNS]
        if isinstance(memory, ModernHopfield):
            found = memory(patterns)
            gone = (found - patterns).norm(dim=1) > NEAR * patterns.norm(dim=1)
        else:
            found = memory.retrieve(patterns)
            gone = (found != patterns).any(1)
    overlap = F.cosine_similarity(found, patterns, dim=1)
    return Finding(
        statement=f"The share of stored patterns that are lost, of {len(patterns)} of {int(memory.stored)}; "
        f"what they retrieve overlaps them by {overlap.mean().item():.3f} on average.",
        value=gone.double().mean(),
        range=(0.0, 1.0),
        curves={"overlap of what each pattern retrieves": overlap},
    )


@torch.no_grad()
def falling_dense_energy(subject: Subject) -> Finding:
    """The largest rise of a dense memory's energy over the sweeps of held-out probes.

    Args:
        subject: A dense associative memory.
    """
    memory = memory_of(subject.model)
    patterns = stored_patterns(memory)
    drawn = drawn_rows(subject.test, SWEPT)
    with eval_mode(subject.model):
        path = [_states(subject, drawn)]
        while len(path) <= memory.max_sweeps and (len(path) < 2 or not torch.equal(path[-1], path[-2])):
            path.append(memory.sweep(path[-1]))
    energy = torch.stack(
        [dense_energy(patterns, x, separation=memory.separation, order=memory.order) for x in path]
    )
    rise = (energy.diff(dim=0) / energy[:-1].abs().clamp(min=1)).max()
    return Finding(
        statement=f"The largest relative rise of the energy over {len(path) - 1} sweeps of {drawn.words()}.",
        value=rise,
        range=(-math.inf, math.inf),
        high=ZERO,
        tolerance=1e-12,
        curves={"energy": energy[:, 0]},
    )


@torch.no_grad()
def attention(subject: Subject) -> Finding:
    """The largest difference between the network's update, by its formula, and softmax attention.

    Args:
        subject: A continuous Hopfield network.
    """
    memory, patterns, x, drawn = _continuous(subject)
    ours = continuous_update(patterns, x, memory.beta)
    theirs = F.scaled_dot_product_attention(x[None], patterns[None], patterns[None], scale=memory.beta)[0]
    largest = patterns.abs().max()
    return Finding(
        statement=f"The largest difference, relative to the largest entry of a pattern, between one update "
        f"of {drawn.words()} and attention with the patterns as keys and values.",
        value=(ours - theirs).abs().max() / largest,
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-9,
        reference="Ramsauer et al. 2021, Section 2 (the update is attention)",
    )


@torch.no_grad()
def falling_continuous_energy(subject: Subject) -> Finding:
    """The largest rise of the continuous energy along the updates of held-out probes.

    Args:
        subject: A continuous Hopfield network.
    """
    memory, patterns, x, drawn = _continuous(subject)
    path = [x]
    for _ in range(UPDATES):
        path.append(continuous_update(patterns, path[-1], memory.beta))
    energy = torch.stack([continuous_energy(patterns, state, memory.beta) for state in path])
    scale = patterns.square().sum(1).max()
    shape = tuple(subject.test[0].inputs[0].shape[1:])
    picture = shape if len(shape) > 1 else (1, *shape)
    return Finding(
        statement=f"The largest rise of the energy, relative to the largest |x_t|^2, along {UPDATES} updates "
        f"of {drawn.words()}.",
        value=energy.diff(dim=0).max() / scale,
        range=(-math.inf, math.inf),
        high=ZERO,
        tolerance=1e-12,
        curves={
            "energy": energy[:, 0],
            "stimulus": x[0].reshape(picture),
            "trajectory": torch.stack([state[0] for state in path]).reshape(-1, *picture),
            "retrieved": path[-1][0].reshape(picture),
        },
    )


@torch.no_grad()
def retrieval_error(subject: Subject) -> Finding:
    r"""How far one update moves each stored pattern, beside its bound.

    .. math:: |\xi' - x_t| \le 2 (s - 1) M e^{-\beta \Delta_t}, \quad M = \max_r |x_r|

    because the weight of each of the other s - 1 patterns is at most exp(-beta Delta_t).

    Args:
        subject: A continuous Hopfield network.
    """
    memory, patterns, *_ = _continuous(subject)
    M, count = patterns.norm(dim=1).max(), len(patterns)
    shown = patterns[:MOST_PATTERNS]
    error = (continuous_update(patterns, shown, memory.beta) - shown).norm(dim=1)
    gap = separations(patterns)[:MOST_PATTERNS]
    return Finding(
        statement=f"How far one update moves each of {len(shown)} stored patterns, relative to the longest.",
        value=error / M,
        range=(0.0, 2.0),
        high=2 * (count - 1) * (-memory.beta * gap).exp(),
        tolerance=1e-12,
        reference="Ramsauer et al. 2021, Theorem 5 (here at the pattern itself)",
    )


def _continuous(subject: Subject) -> tuple[ModernHopfield, Tensor, Tensor, ExampleSample]:
    memory, drawn = memory_of(subject.model), drawn_rows(subject.test, UPDATED)
    with eval_mode(subject.model):
        probes = _states(subject, drawn)
    return memory, stored_patterns(memory).double(), probes.double(), drawn


def _states(subject: Subject, drawn: ExampleSample) -> Tensor:
    return torch.cat([states_of(subject.model, batch) for batch in drawn.batches])


def demo_dense() -> Subject:
    """Twenty random patterns of forty units in an exponential memory, a tenth of their bits flipped."""
    generator = torch.Generator().manual_seed(0)
    patterns = 2.0 * torch.randint(0, 2, (20, 40), generator=generator) - 1
    memory = DenseAssociativeMemory(40, 20, inputs="signs")
    memory.store(patterns, lambda x: x)
    noise = torch.rand(patterns.shape, generator=generator) < 0.1
    probes = WithoutTargets(Arrays((torch.where(noise, -patterns, patterns),)))
    return Subject(model=memory, test=InOrder(probes, 512), task=MEMORY, objective=wrong_units)


def demo_continuous() -> Subject:
    """Twenty normal patterns of sixty-four units, probed with noise of a third of their deviation."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(20, 64, generator=generator)
    memory = ModernHopfield(64, 20)
    memory.store(patterns, lambda x: x)
    probes = WithoutTargets(Arrays((patterns + torch.randn(20, 64, generator=generator) / 3,)))
    return Subject(model=memory, test=InOrder(probes, 512), task=MEMORY, objective=squared_distance)
