"""A word and the word read backward."""

from collections.abc import Callable

import torch
from torch import Generator

from margin.data.formats.text.pair_examples import EOS
from margin.data.sets.reversal import reversal


def test_the_target_is_the_source_read_backward() -> None:
    data = reversal(examples=200, symbols=3, shortest=0, longest=6)
    seen = set()
    for part in data.splits.values():
        batch = part.take(torch.arange(len(part)), Generator())
        source, lengths, _ = batch.inputs
        for row in range(len(part)):
            word = source[row, : int(lengths[row])].tolist()
            assert word[-1] == EOS
            assert set(word[:-1]) <= {4, 5, 6}
            assert batch.targets[row, : len(word)].tolist() == [*word[:-1][::-1], EOS]
            assert batch.weight[row].sum() == len(word)
            seen.add(len(word) - 1)
    assert seen == set(range(7))
    assert data.spec == {"source_vocab_size": 7, "vocab_size": 7, "longest": 7, "num_examples": 160}


def test_options_that_leave_no_word_are_refused(refused: Callable) -> None:
    with refused("reversal: longest must be at least 3: got 2"):
        reversal(shortest=3, longest=2)
    with refused("reversal: symbols must be at least 1: got 0"):
        reversal(symbols=0)
