"""Batches of similar length: every example once a pass, a function of the step, and little padding."""

import pytest
import torch
from torch import Generator

from margin.data.examples import Arrays, Share, Shuffled
from margin.data.sampling import length_batches
from margin.data.sampling.length_batches import BySimilarLength, padding, padding_line


def numbers(count: int) -> Arrays:
    return Arrays((torch.arange(count)[:, None].float(),), torch.arange(count))


def lengths_of(count: int) -> torch.Tensor:
    return torch.randint(0, 100, (count,), generator=Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("count", "size"), [(10, 3), (10, 5), (11, 5), (7, 7), (7, 100), (5, 1), (1, 4), (61, 30), (1000, 8)]
)
def test_a_pass_shows_every_example_once(count: int, size: int) -> None:
    batches = BySimilarLength(numbers(count), lengths_of(count), size, seed=0)
    plain = Shuffled(numbers(count), size, seed=0)
    assert (batches.per_epoch, batches.batch_size) == (plain.per_epoch, plain.batch_size)
    for epoch in range(3):
        seen = [batches(epoch * batches.per_epoch + i).targets for i in range(batches.per_epoch)]
        assert sorted(torch.cat(seen).tolist()) == list(range(count))
        shuffled = [len(plain(epoch * plain.per_epoch + i).targets) for i in range(plain.per_epoch)]
        assert sorted(map(len, seen)) == sorted(shuffled)


def test_a_batch_is_a_function_of_the_step() -> None:
    one, two = (BySimilarLength(numbers(50), lengths_of(50), 8, seed=4) for _ in range(2))
    straight = [one(step).targets.tolist() for step in range(20)]
    assert [two(step).targets.tolist() for step in reversed(range(20))] == straight[::-1]
    other = BySimilarLength(numbers(50), lengths_of(50), 8, seed=5)
    assert [other(step).targets.tolist() for step in range(7)] != straight[:7]


def test_what_is_drawn_for_an_example_is_drawn_as_in_shuffled_batches() -> None:
    class Noise:
        def __len__(self) -> int:
            return 4

        def take(self, index: torch.Tensor, generator: Generator):
            return (
                numbers(4).take(index, generator)._replace(weight=torch.rand(len(index), generator=generator))
            )

    ours = BySimilarLength(Noise(), torch.ones(4, dtype=torch.int64), 4, seed=3)
    assert torch.equal(ours(5).weight, Shuffled(Noise(), 4, seed=3)(5).weight)


def test_batches_and_their_order_differ_between_passes() -> None:
    # 64 distinct lengths, eight batches a pass: a single pool would give the same eight batches each time
    batches = BySimilarLength(numbers(64), torch.arange(64), 8, seed=0)
    passes = [[frozenset(b.tolist()) for b in batches.indices(epoch)] for epoch in range(30)]
    assert len({frozenset(p) for p in passes}) == 30
    # Long examples come first too: 3 of 8 batches hold such alone, (5/8)^30 < 1e-6
    assert any(min(p[0]) > 32 for p in passes)


def test_a_batch_holds_neighbors_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_batches, "POOLS", 1)
    batches = BySimilarLength(numbers(64), torch.arange(64).flip(0), 8, seed=0)
    found = sorted(sorted(63 - i for i in b.tolist()) for b in batches.indices(0))
    assert found == [list(range(8 * k, 8 * k + 8)) for k in range(8)]


def test_padding_is_counted_by_hand() -> None:
    lengths = torch.tensor([1, 3, 2, 2, 0])
    batches = [torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4])]
    assert padding(batches, lengths) == pytest.approx(1 - 8 / (6 + 4))
    assert padding([torch.tensor([4])], lengths) == 0.0
    sides = padding([torch.tensor([0, 1])], lengths, lengths.flip(0))
    assert sides == pytest.approx(1 - (4 + 2) / (6 + 4))


def test_similar_lengths_need_less_padding_than_chance() -> None:
    lengths = lengths_of(4000)
    near = BySimilarLength(numbers(4000), lengths, 20, seed=0).indices(0)
    plain = torch.randperm(4000, generator=Generator().manual_seed(0)).split(20)
    # Uniform lengths: by chance 20 of them leave 1 - .5/.95 empty; in pools of 32 batches, about 1/64 of that
    assert padding(plain, lengths) > 0.4
    assert padding(near, lengths) < 0.05
    assert padding_line(lengths, batch_size=20).startswith("4")


def test_processes_share_one_batch() -> None:
    whole = BySimilarLength(numbers(64), torch.arange(64), 8, seed=0)
    parts = [
        BySimilarLength(numbers(64), torch.arange(64), 8, seed=0, share=Share(rank, 2)) for rank in (0, 1)
    ]
    for step in range(16):
        ours = torch.cat([part(step).targets for part in parts])
        assert ours.tolist() == whole(step).targets.tolist()


def test_lengths_that_are_not_one_an_example_are_refused() -> None:
    with pytest.raises(ValueError, match="one an example: got 3 lengths, 4 examples"):
        BySimilarLength(numbers(4), torch.arange(3), 2, seed=0)
    with pytest.raises(ValueError, match="batch_size must be at least 1: got 0"):
        BySimilarLength(numbers(4), torch.arange(4), 0, seed=0)
