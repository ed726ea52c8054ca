"""The smallest sequences are small, of every form, and never change."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator

from margin.data.examples import Data
from margin.data.sets.tiny import sequences as tiny_sequences

ALL = (
    tiny_sequences.ragged_classes,
    tiny_sequences.classes,
    tiny_sequences.values,
    tiny_sequences.tokens,
    tiny_sequences.ragged_tokens,
    tiny_sequences.copies,
    tiny_sequences.pairs,
    tiny_sequences.series,
)


@pytest.mark.parametrize("build", ALL, ids=lambda build: build.__name__)
def test_a_set_is_small_and_described(build: Callable[[], Data]) -> None:
    data, again = build(), build()
    assert sum(len(part) for part in data.splits.values()) <= 60
    assert set(data.splits) == {"train", "val", "test"}
    assert {"format", "kind", "task", "shape", "dtype", "classes", "split", "about"} <= set(data.encoding)
    for name, part in data.splits.items():
        one, two = (
            d.splits[name].take(torch.arange(len(part)), Generator().manual_seed(0)) for d in (data, again)
        )
        assert all(torch.equal(x, y) for x, y in zip(one.inputs, two.inputs, strict=True))
        assert one.inputs[0].shape[1] <= 22
    assert data.spec["num_examples"] == len(data.splits["train"])


def test_ragged_sets_hold_an_empty_sequence_in_training() -> None:
    assert 0 in tiny_sequences.ragged_classes().splits["train"].lengths.tolist()


def test_every_part_has_windows_and_the_scale_is_known():
    data = tiny_sequences.waves()
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 28, "val": 12, "test": 12}
    batch = data.splits["test"].take(torch.arange(12), torch.Generator())
    assert batch.inputs[0].shape == (12, 12, 2)
    assert batch.targets.shape == (12, 3, 2)
    (first, mean, std), second = data.spec["target_scale"]
    assert (first, second[0]) == (0, 1)
    assert 95 < mean < 105
    assert 5 < std < 10
