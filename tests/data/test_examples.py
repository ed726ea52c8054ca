"""Batches are a function of the step: every example once a pass, no batch of one, the same on resuming."""

import pytest
import torch

from margin.core.types import Batch
from margin.data.examples import Arrays, InOrder, Shuffled, fingerprint, offsets_of, ranges
from margin.data.open import open_data


def numbers(count: int) -> Arrays:
    return Arrays((torch.arange(count)[:, None].float(),), torch.arange(count))


@pytest.mark.parametrize(
    ("count", "size"), [(10, 3), (10, 5), (11, 5), (7, 7), (7, 100), (5, 1), (1, 4), (61, 30)]
)
def test_a_pass_shows_every_example_once(count: int, size: int) -> None:
    batches = Shuffled(numbers(count), size, seed=0)
    for epoch in range(3):
        seen = [batches(epoch * batches.per_epoch + i).targets for i in range(batches.per_epoch)]
        assert sorted(torch.cat(seen).tolist()) == list(range(count))
        if size > 1 and count > 1:
            assert min(map(len, seen)) > 1


def test_a_batch_is_a_function_of_the_step() -> None:
    one, two = (Shuffled(numbers(50), 8, seed=4) for _ in range(2))
    straight = [one(step).targets.tolist() for step in range(20)]
    assert [two(step).targets.tolist() for step in reversed(range(20))] == straight[::-1]
    other = Shuffled(numbers(50), 8, seed=5)
    assert [other(step).targets.tolist() for step in range(7)] != straight[:7]


def test_orders_differ_between_passes() -> None:
    batches = Shuffled(numbers(100), 10, seed=0)
    passes = [torch.cat([batches(10 * e + i).targets for i in range(10)]).tolist() for e in range(5)]
    assert len({tuple(order) for order in passes}) == 5


def test_one_batch_a_pass_keeps_the_datas_order() -> None:
    assert Shuffled(numbers(20), 20, seed=0)(3).targets.tolist() == list(range(20))


def test_in_order_batches_are_the_examples() -> None:
    batches = InOrder(numbers(10), 4, dtype=torch.float64)
    assert [len(b.targets) for b in batches] == [4, 4, 2]
    assert torch.cat([b.targets for b in batches]).tolist() == list(range(10))
    assert batches[0].inputs[0].dtype == torch.float64
    assert batches[-1].targets.tolist() == [8, 9]
    assert [len(b.targets) for b in batches[1:]] == [4, 2]
    with pytest.raises(IndexError):
        batches[3]


def test_a_fingerprint_sees_every_bit() -> None:
    one = numbers(5)
    same = Arrays((one.inputs[0].clone(),), one.targets.clone())
    other = Arrays((one.inputs[0].clone(),), one.targets.clone())
    other.inputs[0][3, 0] += 1e-6
    assert fingerprint({"train": one}) == fingerprint({"train": same})
    assert fingerprint({"train": one}) != fingerprint({"train": other})
    assert fingerprint({"train": one}) != fingerprint({"test": one})
    assert fingerprint({"train": one}) != fingerprint(
        {"train": Arrays((one.inputs[0].double(),), one.targets)}
    )


@pytest.mark.parametrize(("count", "size", "message"), [(0, 3, "is empty"), (3, 0, "at least 1: got 0")])
def test_impossible_batches_are_refused(count: int, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shuffled(numbers(count), size, seed=0)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match=r"one length: got \[3, 4\]"):
        Arrays((torch.zeros(3, 1),), torch.zeros(4))


def test_what_is_drawn_for_a_batch_depends_on_seed_and_step() -> None:
    class Noise(Arrays):
        def take(self, index: torch.Tensor, generator: torch.Generator) -> Batch:
            return Batch((torch.rand(4, generator=generator),))

    part = Noise((torch.zeros(10, 1),))
    drawn = [
        tuple(Shuffled(part, 5, seed=seed)(step).inputs[0].tolist()) for seed in (0, 1) for step in range(4)
    ]
    assert len(set(drawn)) == 8
    assert tuple(Shuffled(part, 5, seed=1)(3).inputs[0].tolist()) == drawn[-1]


@pytest.mark.parametrize(
    ("starts", "counts"),
    [([], []), ([5], [0]), ([5], [3]), ([7, 0, 7], [2, 0, 3]), ([0, 10, 20], [0, 0, 1]), ([3, 1], [1, 4])],
)
def test_ranges_are_pythons(starts: list[int], counts: list[int]) -> None:
    expected = [place for s, n in zip(starts, counts, strict=True) for place in range(s, s + n)]
    got = ranges(torch.tensor(starts, dtype=torch.int64), torch.tensor(counts, dtype=torch.int64))
    assert got.tolist() == expected
    assert got.dtype == torch.int64


def test_offsets_begin_with_nought_and_end_with_the_total() -> None:
    assert offsets_of(torch.tensor([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert offsets_of(torch.zeros(0, dtype=torch.int64)).tolist() == [0]


def test_data_say_in_one_line_what_they_are() -> None:
    assert repr(open_data("iris", {})) == (
        "<Data iris: train 90, val 23, test 37; in_features 4, num_examples 90, num_classes 3>"
    )
