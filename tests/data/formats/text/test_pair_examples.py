"""A pair is a source, the target shown after <bos>, and the target asked for up to <eos>."""

import pytest
import torch
from torch import Generator

from margin.data.formats.sequences.rows import Ragged
from margin.data.formats.text.pair_examples import BOS, EOS, Pairs

SOURCES = Ragged.of([torch.tensor([7, 8, EOS]), torch.tensor([EOS]), torch.tensor([9, EOS])])
ANSWERS = Ragged.of([torch.tensor([5]), torch.tensor([6, 5, 6]), torch.tensor([], dtype=torch.int64)])


def test_a_batch_is_shifted_by_one_and_counts_the_end_not_padding() -> None:
    batch = Pairs(SOURCES, ANSWERS).take(torch.tensor([0, 1, 2]), Generator())
    source, lengths, shown = batch.inputs
    assert source.tolist() == [[7, 8, EOS], [EOS, 0, 0], [9, EOS, 0]]
    assert lengths.tolist() == [3, 1, 2]
    assert shown.tolist() == [[BOS, 5, 0, 0], [BOS, 6, 5, 6], [BOS, 0, 0, 0]]
    assert batch.targets.tolist() == [[5, EOS, 0, 0], [6, 5, 6, EOS], [EOS, 0, 0, 0]]
    assert batch.weight.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]


def test_an_empty_target_alone_is_its_end() -> None:
    batch = Pairs(SOURCES, ANSWERS).take(torch.tensor([2]), Generator())
    assert batch.inputs[2].tolist() == [[BOS]]
    assert batch.targets.tolist() == [[EOS]]


def test_sources_alone_show_the_begin() -> None:
    batch = Pairs(SOURCES).take(torch.tensor([2, 0]), Generator())
    assert batch.inputs[2].tolist() == [[BOS], [BOS]]
    assert batch.targets is None
    assert Pairs(SOURCES).targets is None


def test_lengths_and_targets_are_those_of_the_pairs() -> None:
    pairs = Pairs(SOURCES, ANSWERS)
    assert pairs.asked.tolist() == [2, 4, 1]
    assert pairs.lengths.tolist() == [5, 5, 3]
    assert pairs.targets.tolist() == [[5, EOS, 0, 0], [6, 5, 6, EOS], [EOS, 0, 0, 0]]
    assert pairs.part(torch.tensor([1])).take(torch.tensor([0]), Generator()).targets.tolist() == [
        [6, 5, 6, EOS]
    ]


def test_targets_that_are_not_one_a_source_are_refused() -> None:
    with pytest.raises(ValueError, match="equal in number: got 3, 2"):
        Pairs(SOURCES, ANSWERS.rows(torch.tensor([0, 1])))
