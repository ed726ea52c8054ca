"""What theory promises of a Hopfield network: a falling energy, which patterns last, how many bits err."""

import math

import torch
from torch import Tensor

from margin.classic.memory.associative_memory import (
    WithoutTargets,
    memory_of,
    nearest,
    states_of,
    stored_patterns,
    wrong_units,
)
from margin.classic.memory.hopfield import Hopfield, correlations, flaw
from margin.classic.memory.hopfield_dynamics import asynchronous, trajectory
from margin.classic.memory.hopfield_theory import (
    exact_recall_capacity,
    fixed_patterns,
    flip_probability,
    flip_probability_limit,
)
from margin.core.findings import Finding, Premise, Status, Subject
from margin.core.tasks import MEMORY
from margin.data.examples import Arrays, InOrder
from margin.engine.evaluation import drawn_rows, eval_mode
from margin.math.evenly import evenly

PROBES = 4
"""Held-out probes whose every step is looked at."""

FRAMES = 12
"""States of a trajectory that a finding carries."""

POINTS = 1000
"""Points of an energy curve that a finding carries."""

NETS = 64
"""Random networks from which the share of unstable bits is estimated."""

LITERATURE = "Hertz, Krogh and Palmer 1991, Section 2.2"


def is_hopfield(subject: Subject) -> bool:
    """Whether the model is the catalog's Hopfield network, with a pattern stored."""
    memory = memory_of(subject.model)
    return isinstance(memory, Hopfield) and int(memory.stored) > 0


@torch.no_grad()
def falling_energy(subject: Subject) -> Finding:
    """The largest rise of the energy at an asynchronous update, over every update of a few held-out probes.

    Each energy is computed from its definition, in whole numbers (n H), which float64 holds exactly.

    Args:
        subject: A Hopfield network.
    """
    memory = memory_of(subject.model)
    W, b = memory.correlation.double(), memory.drive.double()
    drawn = drawn_rows(subject.test, PROBES)
    with eval_mode(subject.model):
        probes = torch.cat([states_of(subject.model, batch) for batch in drawn.batches]).double()
    orders = memory.orders()
    paths = [
        trajectory(W, b, x, orders=orders, ties=memory.ties, max_sweeps=memory.max_sweeps) for x in probes
    ]
    energies = [-((path @ W) * path).sum(1) / 2 + path @ b for path in paths]
    units = len(b)
    shape = tuple(drawn.batches[0].inputs[0].shape[1:])
    picture = shape if len(shape) > 1 else (1, units)
    first = paths[0]
    frames = evenly(len(first), FRAMES)
    points = evenly(len(first), POINTS)
    return Finding(
        statement=f"The largest rise of the energy n H at one of {sum(len(p) - 1 for p in paths)} "
        f"asynchronous updates of {drawn.words()}.",
        value=torch.stack([energy.diff().max() for energy in energies]).max(),
        unit="n H",
        range=(-math.inf, math.inf),
        high=torch.tensor(0.0, dtype=torch.float64),
        premises=_weights(W),
        curves={
            "step": points,
            "energy": energies[0][points] / units,
            "stimulus": first[0].reshape(picture),
            "trajectory": first[frames].reshape(len(frames), *picture),
            "retrieved": first[-1].reshape(picture),
            "memory": nearest(stored_patterns(memory).double(), first[:1]).reshape(picture),
        },
    )


@torch.no_grad()
def crosstalk_criterion(subject: Subject) -> Finding:
    """On how many stored patterns the cross-talk criterion and a sweep of the network disagree.

    Args:
        subject: A Hopfield network.
    """
    memory = memory_of(subject.model)
    patterns = stored_patterns(memory).double()
    W, b = memory.correlation.double(), memory.drive.double()
    swept = asynchronous(W, b, patterns, ties=memory.ties, max_sweeps=1)
    foreseen = fixed_patterns(patterns, b / len(b), ties=memory.ties)
    lost = int((~swept.settled).sum())
    return Finding(
        statement=f"The number of stored patterns on which the cross-talk criterion and a sweep of the "
        f"network disagree, of {len(patterns)}, {lost} of which are no fixed points.",
        value=(swept.settled != foreseen).sum(),
        unit="patterns",
        range=(0.0, float(len(patterns))),
        low=torch.tensor(0),
        high=torch.tensor(0),
        premises=(_hebbian(W, patterns),),
    )


@torch.no_grad()
def exact_recall_limit(subject: Subject) -> Finding:
    """The share of stored patterns that are fixed points, beside its limit for many units.

    The limit is 1 for loads below n / (2 ln n) patterns and 0 above.

    Args:
        subject: A Hopfield network.
    """
    memory = memory_of(subject.model)
    patterns = stored_patterns(memory).double()
    count, units = patterns.shape
    W, b = memory.correlation.double(), memory.drive.double()
    swept = asynchronous(W, b, patterns, ties=memory.ties, max_sweeps=1)
    edge = exact_recall_capacity(units) if units > 1 else math.inf
    limit = torch.tensor(1.0 if count <= edge else 0.0, dtype=torch.float64)
    return Finding(
        statement=f"The share of {count} stored patterns that are fixed points of {units} units; the edge of "
        f"exact recall is n / (2 ln n) = {edge:.4g} patterns.",
        value=swept.settled.double().mean(),
        range=(0.0, 1.0),
        equals=limit,
        scope="limit",
        tolerance=1e-12,
        premises=(_hebbian(W, patterns), _no_thresholds(b), _random(patterns)),
    )


@torch.no_grad()
def unstable_bits(subject: Subject) -> Finding:
    """The share of bits of the stored patterns that are not aligned with their fields, beside its limit.

    Args:
        subject: A Hopfield network.
    """
    memory = memory_of(subject.model)
    patterns = stored_patterns(memory).double()
    count, units = patterns.shape
    W, b = memory.correlation.double(), memory.drive.double()
    field = patterns @ W.T - b
    unstable = (patterns * field < 0) | ((field == 0) & (patterns < 0) & (memory.ties == "up"))
    limit = torch.tensor(flip_probability_limit(count / units), dtype=torch.float64)
    return Finding(
        statement=f"The share of bits of {count} stored patterns of {units} units that the network would "
        "flip, beside Q(sqrt(n / s)).",
        value=unstable.double().mean(),
        range=(0.0, 1.0),
        equals=limit,
        scope="limit",
        premises=(_hebbian(W, patterns), _no_thresholds(b), _random(patterns)),
    )


@torch.no_grad()
def unstable_bits_of_random_patterns(subject: Subject, *, nets: int = NETS) -> Finding:
    """The share of unstable bits in fresh random networks of this size and load, beside its exact law.

    The standard error is over networks: the bits of one are correlated.

    Args:
        subject: A Hopfield network, whose numbers of units and patterns are taken.
        nets: Networks drawn, of a fixed seed.
    """
    memory = memory_of(subject.model)
    count, units = stored_patterns(memory).shape
    generator = torch.Generator().manual_seed(0)
    shares = torch.stack([_unstable_share(count, units, memory.ties, generator) for _ in range(nets)])
    law = flip_probability(units, count, ties=memory.ties)
    exact = torch.tensor(law, dtype=torch.float64)
    return Finding(
        statement=f"The share of unstable bits in {nets} random nets of {units} units and {count} patterns.",
        value=shares.mean(),
        range=(0.0, 1.0),
        kind="estimate",
        stderr=shares.std() / math.sqrt(nets),
        equals=exact,
        tolerance=max(1e-3, law / 10),  # what so many networks resolve
        premises=(
            Premise(
                "the patterns are independent fair signs", "proved", f"{nets} networks of them are drawn"
            ),
        ),
        reference=f"{LITERATURE}, with the binomial law in place of the normal",
    )


def _unstable_share(count: int, units: int, ties: str, generator: torch.Generator) -> Tensor:
    x = 2.0 * torch.randint(0, 2, (count, units), generator=generator) - 1
    field = (x @ x.T) @ x - count * x
    return ((x * field < 0) | ((field == 0) & (x < 0) & (ties == "up"))).double().mean()


# premises


def _weights(W: Tensor) -> tuple[Premise, ...]:
    found = flaw(W)
    status: Status = "refuted" if found else "proved"
    return (
        Premise("the weights are symmetric, of zero diagonal", status, found or "every entry was compared"),
    )


def _hebbian(W: Tensor, patterns: Tensor) -> Premise:
    text = "the weights are the Hebbian ones of the stored patterns"
    wanted = correlations(patterns)
    if torch.equal(W, wanted):
        return Premise(text, "proved", "every entry was compared")
    i, j = (wanted != W).nonzero()[0].tolist()
    units = len(W)
    return Premise(
        text, "refuted", f"w[{i}, {j}] = {W[i, j] / units:g}, of the patterns {wanted[i, j] / units:g}"
    )


def _no_thresholds(b: Tensor) -> Premise:
    units = b.nonzero().flatten().tolist()
    status: Status = "refuted" if units else "proved"
    found = f"unit {units[0]} has the threshold {b[units[0]] / len(b):g}" if units else "every one is 0"
    return Premise("the thresholds are 0", status, found)


def _random(patterns: Tensor, *, level: float = 1e-6) -> Premise:
    """Whether the patterns could be independent fair signs, by their sums and overlaps.

    By Hoeffding's inequality a sum of n such signs exceeds t sqrt(n) with probability at most
    2 exp(-t^2 / 2), and so does the overlap of two patterns.
    """
    count, units = patterns.shape
    text = "the patterns are independent fair signs"
    overlaps = (patterns @ patterns.T).fill_diagonal_(0).abs() / math.sqrt(units)
    sums = patterns.sum(1).abs() / math.sqrt(units)
    most = math.sqrt(2 * math.log(2 * (count * (count - 1) / 2 + count) / level))
    if float(sums.max()) > most:
        t = int(sums.argmax())
        share = float((patterns[t] > 0).double().mean())
        return Premise(text, "refuted", f"in pattern {t} {share:.0%} of the units are +1")
    if float(overlaps.max()) > most:
        r, t = divmod(int(overlaps.argmax()), count)
        shared = float(overlaps[r, t]) / math.sqrt(units)
        return Premise(text, "refuted", f"patterns {r} and {t} overlap (up to sign) by {shared:.2f}")
    return Premise(text, "sampled", f"no sum or overlap of patterns is beyond {most:.1f} standard deviations")


def demo() -> Subject:
    """Five random patterns of sixty units, probed with a tenth of their bits flipped."""
    return _random_memory(60, 5)


def loaded_demo() -> Subject:
    """Sixty units with so many random patterns, 36, that about a tenth of the bits would flip."""
    return _random_memory(60, 36)


def crowded_demo() -> Subject:
    """A hundred units at the critical load, 14 random patterns, of which some come back with wrong bits."""
    return _random_memory(100, 14)


def _random_memory(units: int, count: int) -> Subject:
    generator = torch.Generator().manual_seed(0)
    patterns = 2.0 * torch.randint(0, 2, (count, units), generator=generator) - 1
    memory = Hopfield(units, count, num_patterns=count, inputs="signs")
    memory.store(patterns, lambda x: x)
    noise = torch.rand(patterns.shape, generator=generator) < 0.1
    probes = WithoutTargets(Arrays((torch.where(noise, -patterns, patterns),)))
    return Subject(model=memory, test=InOrder(probes, 512), task=MEMORY, objective=wrong_units)
