"""Cutting into parts: a partition, stratified within one example, seeded, refused where impossible."""

from fractions import Fraction

import pytest
import torch

from margin.data.splits import split_indices


def labels_of(counts: list[int], seed: int = 0) -> torch.Tensor:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def shares(test: str, val: str) -> dict[str, Fraction]:
    return {"test": Fraction(test), "val": Fraction(val), "train": 1 - Fraction(test) - Fraction(val)}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("test", "val"), [("0.25", "0.15"), ("0.2", "0"), ("0", "0.1"), ("0.33", "0.33")])
def test_every_class_is_within_one_of_its_exact_share(seed: int, test: str, val: str) -> None:
    draw = torch.Generator().manual_seed(seed)
    counts = torch.randint(12, 80, (7,), generator=draw).tolist()
    labels = labels_of(counts, seed)
    parts = split_indices(len(labels), labels, test=float(test), val=float(val), seed=seed)
    exact = shares(test, val)
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(len(labels)))
    assert set(parts) == {name for name, share in exact.items() if share}
    for name, index in parts.items():
        for k, count in enumerate(counts):
            got = int((labels[index] == k).sum())
            assert abs(got - count * exact[name]) < 1
            assert got >= 1
        # Without carrying the remainders, seven classes could drift by several examples.
        assert abs(len(index) - len(labels) * exact[name]) < 2


def test_an_exact_share_is_given_exactly() -> None:
    # In floating point .15 * 20 is 3.0000000000000004 or 2.9999999999999996, by the order of operations.
    labels = labels_of([20] * 6)
    parts = split_indices(120, labels, test=0.25, val=0.15, seed=3)
    for name, each in {"train": 12, "val": 3, "test": 5}.items():
        assert labels[parts[name]].bincount().tolist() == [each] * 6


def test_the_total_does_not_drift() -> None:
    # Each class has shares 7.8, 1.95, 3.25: rounding each class alone never gives test its fourth.
    labels = labels_of([13] * 40)
    parts = split_indices(520, labels, test=0.25, val=0.15, seed=0)
    assert {name: len(index) for name, index in parts.items()} == {"train": 312, "val": 78, "test": 130}


def test_values_are_cut_by_largest_remainder() -> None:
    parts = split_indices(442, None, test=0.25, val=0.15, seed=0)
    # 110.5, 66.3, 265.2: one example is left and goes to the remainder .5.
    assert {name: len(index) for name, index in parts.items()} == {"train": 265, "val": 66, "test": 111}


def test_the_seed_alone_decides() -> None:
    labels = labels_of([30, 30])
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = split_indices(60, labels, test=0.25, val=0.15, seed=5)
    torch.rand(3)
    again = split_indices(60, labels, test=0.25, val=0.15, seed=5)
    other = split_indices(60, labels, test=0.25, val=0.15, seed=6)
    torch.manual_seed(1)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["test"], other["test"])


def test_asking_leaves_the_global_generator() -> None:
    before = torch.get_rng_state()
    split_indices(60, labels_of([30, 30]), test=0.25, val=0.15, seed=5)
    assert torch.equal(before, torch.get_rng_state())


def test_membership_is_random_not_the_first_rows() -> None:
    parts = split_indices(1000, None, test=0.5, val=0.0, seed=0)
    # Hypergeometric: 250 of the first 500, standard deviation 7.9; 5 deviations fail once in 2e6.
    assert abs(int((parts["test"] < 500).sum()) - 250) < 40


@pytest.mark.parametrize(("test", "val"), [(1.0, 0.0), (-0.1, 0.0), (0.0, 1.0), (float("nan"), 0.0)])
def test_a_fraction_outside_its_range_is_refused(test: float, val: float, refused) -> None:
    with refused("must be in [0, 1)"):
        split_indices(10, None, test=test, val=val, seed=0)


def test_fractions_that_leave_no_training_part_are_refused(refused) -> None:
    with refused("test + val must be less than 1: got 0.7 + 0.3"):
        split_indices(10, None, test=0.7, val=0.3, seed=0)


def test_one_class_only_is_refused(refused) -> None:
    with refused("at least two classes", "all 10 examples are of one class"):
        split_indices(10, torch.zeros(10, dtype=torch.int64), test=0.2, val=0.1, seed=0)


def test_fewer_examples_than_classes_are_refused(refused) -> None:
    with refused("got 3 examples, 10 classes"):
        split_indices(3, torch.tensor([0, 4, 9]), test=0.0, val=0.0, seed=0)


def test_a_class_too_small_for_every_part_is_refused_by_name(refused) -> None:
    with refused("class '1' has 2 examples", "set --data.val 0"):
        split_indices(22, labels_of([20, 2]), test=0.25, val=0.15, seed=0)


def test_the_smallest_class_that_fits_is_cut() -> None:
    labels = labels_of([20, 3])
    parts = split_indices(23, labels, test=0.25, val=0.15, seed=0)
    assert [int((labels[index] == 1).sum()) for index in parts.values()] == [1, 1, 1]


def test_too_few_values_are_refused(refused) -> None:
    with refused("there are 2 examples", "set --data.val 0"):
        split_indices(2, None, test=0.25, val=0.15, seed=0)
