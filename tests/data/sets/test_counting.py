"""Strings a^n b^n: each token asks for the next, and only what counting determines is counted."""

from collections.abc import Callable

import torch
from torch import Generator

from margin.data.sets.counting import anbn

A, B, END = range(3)


def test_a_string_asks_for_its_next_token_and_counts_from_the_first_b() -> None:
    data = anbn(examples=200, longest=5, test_longest=9)
    for name, part in data.splits.items():
        batch = part.take(torch.arange(len(part)), Generator())
        tokens, lengths = batch.inputs
        for row in range(len(part)):
            n = int(lengths[row]) // 2
            assert 1 <= n <= 5 if name != "test" else 6 <= n <= 9
            string = [A] * n + [B] * n + [END]
            assert tokens[row, : 2 * n].tolist() == string[:-1]
            assert batch.targets[row, : 2 * n].tolist() == string[1:]
            assert batch.weight[row].tolist() == [0] * n + [1] * n + [0] * (tokens.shape[1] - 2 * n)


def test_the_test_part_has_each_larger_n_once() -> None:
    data = anbn(examples=200, longest=5, test_longest=9)
    assert data.splits["test"].lengths.tolist() == [12, 14, 16, 18]
    assert set(data.splits["train"].lengths.tolist()) == {2, 4, 6, 8, 10}
    assert data.spec == {"vocab_size": 3, "longest": 10, "num_examples": 160}


def test_options_that_leave_a_part_empty_are_refused(refused: Callable) -> None:
    with refused("anbn: test_longest must be at least 6: got 5"):
        anbn(longest=5, test_longest=5)
    with refused("anbn: longest must be at least 1: got 0"):
        anbn(longest=0)
