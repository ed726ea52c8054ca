"""The adding problem and parity: answers as defined, baselines as told."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator

from margin.data.sets.synthetic_sequences import adding, parity


def test_the_target_is_the_sum_of_two_marked_numbers_one_a_half() -> None:
    data = adding(examples=500, time=11)
    for part in data.splits.values():
        batch = part.take(torch.arange(len(part)), Generator())
        (x,) = batch.inputs
        numbers, marks = x.unbind(-1)
        assert torch.equal(marks[:, :5].sum(1), torch.ones(len(x)))
        assert torch.equal(marks[:, 5:].sum(1), torch.ones(len(x)))
        assert set(marks.unique().tolist()) == {0.0, 1.0}
        for row in range(0, len(x), 20):
            chosen = [numbers[row, t].item() for t in range(11) if marks[row, t] == 1]
            assert batch.targets[row].item() == pytest.approx(sum(chosen), abs=1e-6)


def test_the_constant_answer_has_the_error_that_is_told() -> None:
    data = adding(examples=20_000, time=20)
    targets = torch.cat([part.targets for part in data.splits.values()]).double()
    assert data.encoding["truth"]["mse of the constant"] == pytest.approx(1 / 6)
    # Var((S - 1)^2) = E(S - 1)^4 - 1/36 = 1/15 - 1/36: 5 standard errors, failing in one of 10^6 seeds
    error = math.sqrt((1 / 15 - 1 / 36) / 20_000)
    assert (targets - 1).square().mean().item() == pytest.approx(1 / 6, abs=5 * error)
    assert targets.mean().item() == pytest.approx(1, abs=5 * math.sqrt(1 / 6 / 20_000))


@pytest.mark.parametrize("time", [2, 3])
def test_the_shortest_sums_have_a_mark_a_half(time: int) -> None:
    (x,) = adding(examples=100, time=time).splits["train"].take(torch.arange(50), Generator()).inputs
    assert torch.equal(x[:, 0, 1], torch.ones(50))
    assert torch.equal(x[..., 1].sum(1), torch.full((50,), 2.0))


def test_parity_is_the_sum_of_the_bits_whatever_the_padding() -> None:
    data = parity(examples=300, shortest=0, longest=7)
    everything = []
    for part in data.splits.values():
        batch = part.take(torch.arange(len(part)), Generator())
        x, lengths = batch.inputs
        for row in range(len(x)):
            bits = [int(b) for b in x[row, : int(lengths[row]), 0]]
            assert set(bits) <= {0, 1}
            assert batch.targets[row].item() == sum(bits) % 2
        everything += lengths.tolist()
    assert set(everything) == set(range(8))
    assert data.encoding["classes"] == ["even", "odd"]


def test_a_seed_is_a_set(refused: Callable) -> None:
    assert adding(examples=50, time=5).fingerprint == adding(examples=50, time=5).fingerprint
    assert adding(examples=50, time=5).fingerprint != adding(examples=50, time=5, seed=1).fingerprint
    with refused("adding: time must be at least 2: got 1"):
        adding(time=1)
    with refused("parity: longest must be at least 3: got 2"):
        parity(shortest=3, longest=2)
    with refused("parity: longest must be at least 1: got 0"):
        parity(shortest=0, longest=0)
    with refused("adding: examples must be at least 1: got 0"):
        adding(examples=0)
