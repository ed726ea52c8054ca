"""A batch keeps its weights wherever it goes; a domain is a box with an inside."""

import pytest
import torch

from margin.core.types import Batch, Domain


def test_a_batch_that_is_moved_keeps_everything() -> None:
    batch = Batch((torch.ones(2, 3), torch.arange(2)), torch.arange(2), torch.tensor([0.5, 2.0]))
    moved = batch.to(dtype=torch.float64, device="cpu")
    assert [x.dtype for x in moved.inputs] == [torch.float64, torch.int64]
    assert moved.targets.dtype == torch.int64
    assert moved.weight.dtype == torch.float64
    assert moved.weight.tolist() == [0.5, 2.0]
    assert Batch((torch.ones(2),)).to(dtype=torch.float64, device="cpu")[1:] == (None, None)


def test_a_domain_is_a_box() -> None:
    box = Domain(torch.tensor([0.0, -1.0]), torch.tensor([1.0, 3.0]))
    assert box.width == 4.0
    assert box.clamp(torch.tensor([[2.0, -5.0], [0.5, 0.0]])).tolist() == [[1.0, -1.0], [0.5, 0.0]]
    assert box.contains(torch.tensor([[0.0, 3.0], [1.0, -1.0]]))
    assert not box.contains(torch.tensor([[0.5, 0.0], [0.5, 3.1]]))
    assert not box.contains(torch.tensor([[-0.1, 0.0]]))


@pytest.mark.parametrize("high", [[1.0, 0.0], [1.0, -1.0]])
def test_an_empty_or_flat_box_is_refused(high: list[float]) -> None:
    with pytest.raises(ValueError, match="low < high in every coordinate"):
        Domain(torch.tensor([0.0, 0.0]), torch.tensor(high))
