"""Rows that count: weights of 0 are left out, what is not finite is named."""

import pytest
import torch

from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State
from margin.generative.latent.counted_rows import counted_rows


def test_rows_of_weight_0_are_left_out_and_all_is_float64() -> None:
    state = State(modules={"model": torch.nn.Identity()})
    x = torch.arange(12.0).reshape(3, 1, 2, 2)
    rows, weight = counted_rows(state, Batch((x,), weight=torch.tensor([1.0, 0.0, 2.0])))
    assert rows.tolist() == [[0.0, 1.0, 2.0, 3.0], [8.0, 9.0, 10.0, 11.0]]
    assert weight.tolist() == [1.0, 2.0]
    assert rows.dtype == weight.dtype == torch.float64
    assert counted_rows(state, Batch((x,)))[1].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("weight", [[0.0, 0.0], [1.0, -1.0], [1.0, torch.nan], [1.0, torch.inf]])
def test_weights_that_count_nothing_are_refused(weight: list[float]) -> None:
    state = State(modules={"model": torch.nn.Identity()})
    with pytest.raises(ValueError, match="finite, at least 0, and one above: got from"):
        counted_rows(state, Batch((torch.ones(2, 1),), weight=torch.tensor(weight)))


def test_the_first_number_that_is_not_finite_is_named_by_its_row_of_the_batch() -> None:
    state = State(modules={"model": torch.nn.Identity()})
    x = torch.ones(3, 2)
    x[0, 0] = x[2, 1] = torch.inf
    with pytest.raises(NonFiniteError, match="got inf in row 2 of the batch, feature 1"):
        counted_rows(state, Batch((x,), weight=torch.tensor([0.0, 1.0, 1.0])))
