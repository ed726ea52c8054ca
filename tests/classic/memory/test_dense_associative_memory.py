"""Dense memories beside the energy itself: every choice of a unit by brute force, k = 2, overflow, recall."""

import math

import pytest
import torch

from margin.classic.memory.associative_memory import wrong_units
from margin.classic.memory.dense_associative_memory import (
    BLOCK,
    DenseAssociativeMemory,
    dense_energy,
    dense_field,
    dense_gains,
    dense_recall,
)
from margin.classic.memory.hopfield import correlations
from margin.classic.memory.hopfield_dynamics import asynchronous
from margin.core.types import Batch

KINDS = [("power", 2), ("power", 3), ("power", 4), ("rectified", 2), ("rectified", 3), ("exponential", 2)]
EVERY = pytest.mark.parametrize(("separation", "order"), KINDS)


def signs_of(seed: int, rows: int, n: int) -> torch.Tensor:
    return 2.0 * torch.randint(0, 2, (rows, n), generator=torch.Generator().manual_seed(seed)) - 1


def gains_of(separation: str, order: int):
    return lambda overlaps: dense_gains(overlaps, separation=separation, order=order)


@EVERY
def test_the_energy_is_its_sum(separation: str, order: int) -> None:
    P, x = signs_of(0, 5, 9), signs_of(1, 7, 9)
    for k in range(7):
        overlaps = [float(p @ x[k]) for p in P]
        if separation == "exponential":
            expected = -math.log(sum(math.exp(u) for u in overlaps))
        else:
            expected = -sum((max(u, 0) if separation == "rectified" else u) ** order for u in overlaps)
        found = dense_energy(P, x, separation=separation, order=order)[k].item()
        assert found == pytest.approx(expected, abs=1e-9)


@EVERY
def test_a_field_is_the_difference_of_two_energies(separation: str, order: int) -> None:
    P, x = signs_of(2, 6, 9), signs_of(3, 8, 9)
    field = dense_field(P, x, separation=separation, order=order)
    for i in range(9):
        up, down = x.clone(), x.clone()
        up[:, i], down[:, i] = 1, -1
        energies = [dense_energy(P, y, separation=separation, order=order) for y in (down, up)]
        if separation == "exponential":  # of the sums themselves, over exp(max u)
            largest = (x.double() @ P.double().T).amax(1)
            energies = [-(-energy - largest).exp() for energy in energies]
        assert torch.allclose(field[:, i], energies[0] - energies[1], atol=1e-9)


def naive(
    P: torch.Tensor, x: torch.Tensor, ties: str, **kind: object
) -> tuple[torch.Tensor, int, list[float]]:
    """One probe, one unit at a time, each to the value of lower energy."""
    x, sweeps = x.clone(), 0
    energies = [dense_energy(P, x[None], **kind).item()]
    while True:
        before = x.clone()
        for i in range(len(x)):
            values = []
            for value in (-1.0, 1.0):
                y = x.clone()
                y[i] = value
                values.append(dense_energy(P, y[None], **kind).item())
            if not math.isclose(values[0], values[1], rel_tol=1e-13) or ties == "up":
                x[i] = 1.0 if values[1] <= values[0] + 1e-13 * abs(values[0]) else -1.0
            energies.append(dense_energy(P, x[None], **kind).item())
        if torch.equal(before, x):
            return x, sweeps, energies
        sweeps += 1


@EVERY
@pytest.mark.parametrize("ties", ["up", "keep"])
def test_it_is_the_plain_loop_and_the_energy_never_rises(separation: str, order: int, ties: str) -> None:
    P, x = signs_of(4, 9, 17), signs_of(5, 12, 17)
    found, sweeps = dense_recall(P, x, gains_of(separation, order), ties=ties)
    for k in range(len(x)):
        state, times, energies = naive(P, x[k], ties, separation=separation, order=order)
        assert found[k].tolist() == state.tolist()
        assert int(sweeps[k]) == times
        steps = torch.tensor(energies).diff()
        assert (steps <= 1e-12 * abs(energies[-1])).all()


@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("ties", ["up", "keep"])
def test_the_square_is_the_hebbian_network_of_zero_diagonal(n: int, ties: str) -> None:
    P, x = signs_of(6, n // 6, n), signs_of(7, 25, n)
    found, sweeps = dense_recall(P, x, gains_of("power", 2), ties=ties)
    direct = asynchronous(correlations(P), torch.zeros(n), x, ties=ties)
    assert torch.equal(found, direct.state)
    assert torch.equal(sweeps, direct.sweeps)
    assert torch.equal(dense_field(P, x), 4 * (x @ correlations(P)).double())


def test_of_a_hundred_patterns_of_fifty_units_the_square_loses_and_the_exponential_recalls_all() -> None:
    P = signs_of(8, 100, 50)
    square, _ = dense_recall(P, P, gains_of("power", 2))
    exponential, _ = dense_recall(P, P, gains_of("exponential", 2))
    assert (square != P).any(1).double().mean() > 0.5
    assert torch.equal(exponential, P)


def test_the_exponential_does_not_overflow_at_two_thousand_units() -> None:
    P = signs_of(9, 20, 2000)
    flipped = torch.rand(P.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    probes = torch.where(flipped, -P, P)
    assert math.isinf(torch.tensor(2000.0).double().exp())  # the form printed, e^u
    found, _ = dense_recall(P, probes, gains_of("exponential", 2))
    assert torch.equal(found, P)
    energies = dense_energy(P, P, separation="exponential")
    assert energies.isfinite().all()
    assert torch.allclose(energies, torch.full((20,), -2000.0, dtype=torch.float64))


@EVERY
def test_the_exported_memory_is_the_same_with_room_left(separation: str, order: int) -> None:
    memory = DenseAssociativeMemory(12, 9, separation=separation, order=order, inputs="signs").eval()
    memory.store(signs_of(10, 5, 12), lambda x: x)
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(memory, (x,)).module()
    assert torch.equal(program(x), memory(x))


def test_a_memory_stores_and_recalls_and_an_empty_one_leaves_states_alone() -> None:
    P = signs_of(11, 10, 40)
    memory = DenseAssociativeMemory(40, 10, inputs="signs")
    assert torch.equal(memory(P), P)
    memory.store(P[:4], lambda x: x)
    memory.store(P[4:], lambda x: x)
    assert int(memory.stored) == 10
    assert wrong_units(memory, Batch((P,)), torch.Generator()).tolist() == [0] * 10
    assert memory(P.double()).dtype == torch.float64


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"order >= 2 and max_sweeps >= 1: got order=1, max_sweeps=100"):
        DenseAssociativeMemory(4, 4, order=1)
    with pytest.raises(ValueError, match=r"\^order must be a float64 number: got n=2000, order=100"):
        DenseAssociativeMemory(2000, 4, separation="rectified", order=100)
    with pytest.raises(ValueError, match="inputs of signs have no threshold"):
        DenseAssociativeMemory(4, 4, inputs="signs", threshold=0.0)
    with pytest.raises(ValueError, match=r"inputs must be finite: got nan \(row 0, unit 0\)"):
        DenseAssociativeMemory(1, 1)(torch.tensor([[math.nan]]))


def test_a_probe_that_does_not_rest_is_refused() -> None:
    memory = DenseAssociativeMemory(40, 30, separation="power", order=2, inputs="signs", max_sweeps=1)
    memory.store(signs_of(12, 30, 40), lambda x: x)
    with pytest.raises(ValueError, match=r"within max_sweeps=1 sweeps: \d+ of 20 do not; raise max_sweeps"):
        memory(signs_of(13, 20, 40))


@pytest.mark.parametrize("value", [0.0, 0.5, math.inf, math.nan])
def test_patterns_of_anything_but_signs_are_refused(value: float) -> None:
    P = signs_of(14, 3, 4)
    P[1, 2] = value
    memory = DenseAssociativeMemory(4, 3, inputs="signs")
    with pytest.raises(ValueError, match=r"must consist of -1 and \+1: got .* \(row 1, unit 2\)"):
        memory.store(P, lambda x: x)
    assert int(memory.stored) == 0
