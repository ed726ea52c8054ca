"""The copy memory task as published: where each token stands, and the loss without memory."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Generator

from margin.data.sets.copy_memory import copy_memory


@pytest.mark.parametrize("lag", [1, 2, 100])
def test_every_token_stands_where_the_task_has_it(lag: int) -> None:
    data = copy_memory(examples=50, lag=lag)
    assert data.spec == {"vocab_size": 10, "time": lag + 20, "num_examples": 40}
    batch = data.splits["train"].take(torch.arange(40), Generator())
    for tokens, answers in zip(batch.inputs[0].tolist(), batch.targets.tolist(), strict=True):
        symbols = tokens[:10]
        assert set(symbols) <= set(range(8))
        assert tokens == [*symbols, *[8] * (lag - 1), 9, *[8] * 10]
        assert answers == [*[8] * (lag + 10), *symbols]


def test_the_best_answer_without_memory_has_the_loss_that_is_told() -> None:
    data = copy_memory(examples=100, lag=30)
    batch = data.splits["train"].take(torch.arange(80), Generator())
    logits = torch.full((80, 50, 10), -math.inf, dtype=torch.float64)
    logits[:, :40, 8] = 0
    logits[:, 40:, :8] = 0
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    assert loss.item() == pytest.approx(10 * math.log(8) / 50, abs=1e-12)
    assert data.encoding["truth"]["loss without memory"] == pytest.approx(10 * math.log(8) / 50)


def test_no_lag_is_refused(refused: Callable) -> None:
    with refused("copy-memory: lag must be at least 1: got 0"):
        copy_memory(lag=0)
