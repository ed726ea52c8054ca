"""Examples drawn at random: every one equally likely in a file of any order, and the words say how many."""

import math

import pytest
import torch

from margin.core.types import Batch
from margin.engine.evaluation import sample_examples


def numbered(count: int, size: int, weight: torch.Tensor | None = None) -> list[Batch]:
    """Examples whose input, target and weight all tell their place in the file."""
    x = torch.arange(count).double()[:, None]
    weight = torch.arange(1.0, count + 1) if weight is None else weight
    parts = zip(x.split(size), x[:, 0].long().split(size), weight.split(size), strict=True)
    return [Batch((a,), b, w) for a, b, w in parts]


def places(batches) -> list[int]:
    return torch.cat([batch.targets for batch in batches]).tolist()


def test_a_sorted_file_gives_every_class_its_share() -> None:
    # 10 classes of 100: the number of one class among 300 drawn is hypergeometric, mean 30, sd 4.35.
    labels = torch.arange(1000) // 100
    batches = [Batch((labels[i : i + 64, None].double(),), labels[i : i + 64]) for i in range(0, 1000, 64)]
    found = sample_examples(batches, 300)
    each = torch.cat([b.targets for b in found.batches]).bincount(minlength=10)
    sd = math.sqrt(300 * 0.1 * 0.9 * 700 / 999)
    assert each.sum() == 300 and ((each - 30).abs() < 5 * sd).all()
    assert found.words("test") == "300 of 1,000 test examples, drawn at random"


def test_every_example_and_every_pair_is_equally_likely() -> None:
    # Simple random sampling of 3 of 7: inclusion 3/7, joint inclusion (3/7)(2/6) = 1/7; 2,000 seeds, 5 sd.
    seeds, single, both = 2000, torch.zeros(7), torch.zeros(7, 7)
    for seed in range(seeds):
        took = places(sample_examples(numbered(7, 3), 3, seed=seed).batches)
        assert len(took) == 3 and took == sorted(took)
        row = torch.zeros(7).scatter(0, torch.tensor(took), 1.0)
        single, both = single + row, both + row[:, None] * row
    pairs = both[~torch.eye(7, dtype=torch.bool)] / seeds
    assert ((single / seeds - 3 / 7).abs() < 5 * math.sqrt(3 / 7 * 4 / 7 / seeds)).all()
    assert ((pairs - 1 / 7).abs() < 5 * math.sqrt(1 / 7 * 6 / 7 / seeds)).all()


def test_inputs_targets_and_weights_stay_together_and_small_rests_are_joined() -> None:
    found = sample_examples(numbered(1000, 50), 60)
    for batch in found.batches:
        assert torch.equal(batch.inputs[0][:, 0].long(), batch.targets)
        assert torch.equal(batch.weight.long(), batch.targets + 1)
    sizes = [len(batch.targets) for batch in found.batches]
    assert sum(sizes) == 60 == len(set(places(found.batches))) and max(sizes) <= 50 and len(sizes) <= 3


def test_the_batches_do_not_change_the_choice_and_the_seed_does() -> None:
    first = places(sample_examples(numbered(40, 7), 11).batches)
    assert first == places(sample_examples(numbered(40, 40), 11).batches)
    assert first != places(sample_examples(numbered(40, 7), 11, seed=1).batches)


def test_what_weighs_nothing_is_neither_chosen_nor_counted() -> None:
    weight = torch.ones(20)
    weight[::2] = 0
    found = sample_examples(numbered(20, 6, weight), 5)
    assert all(i % 2 for i in places(found.batches)) and (found.taken, found.among) == (5, 10)
    tokens = Batch((torch.zeros(3, 2),), torch.arange(3), torch.tensor([[0, 0], [0, 1], [1, 0]]))
    assert places(sample_examples([tokens], 2).batches) == [0, 1, 2]  # all of it: handed on as it is
    assert places(sample_examples([tokens], 2, admits=lambda b: torch.ones(3, dtype=torch.bool)).batches) == [
        1,
        2,
    ]


def test_what_is_not_admitted_is_neither_chosen_nor_counted() -> None:
    found = sample_examples(numbered(20, 6), None, admits=lambda b: b.targets >= 15)
    assert places(found.batches) == [15, 16, 17, 18, 19] and found.words() == "all 5 held-out examples"


@pytest.mark.parametrize("limit", [None, 20, 21])
def test_all_are_handed_on_untouched(limit: int | None) -> None:
    batches = numbered(20, 6)
    found = sample_examples(batches, limit)
    assert found.batches is batches and found.whole and found.words("test") == "all 20 test examples"


def test_examples_that_read_each_other_come_in_whole_batches_of_a_random_order() -> None:
    batches = numbered(40, 8)
    found = sample_examples(batches, 10, whole_batches=True)
    assert found.taken == 16 and len(found.batches) == 2
    assert all(any(batch is own for own in batches) for batch in found.batches)
    firsts = {places(sample_examples(batches, 1, whole_batches=True, seed=s).batches)[0] for s in range(60)}
    assert firsts == {0, 8, 16, 24, 32}  # one of five is missing in 60 draws with probability 8e-6
    joined = [Batch((torch.zeros(5, 2), torch.zeros(2, 9)), torch.zeros(5)) for _ in range(3)]
    assert [len(b.inputs[0]) for b in sample_examples(joined, 4).batches] == [5]


def test_batches_of_other_shapes_are_not_joined() -> None:
    batches = [Batch((torch.zeros(4, n),), torch.arange(4)) for n in (3, 3, 5)]
    assert [b.inputs[0].shape[1] for b in sample_examples(batches, 10).batches] in ([3, 3, 5], [3, 5])


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1: got 0"):
        sample_examples(numbered(3, 3), 0)
