"""Sets of several sizes as examples, against loops over the sets one by one."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator

from margin.data.formats.points.sets import Sets, sets_of

SETS = [torch.arange(2.0 * n).reshape(n, 2) + 100 * n for n in (2, 0, 3, 1)]


@pytest.mark.parametrize("index", [[0, 2], [2, 0], [3], [1], [1, 1], [2, 2, 1, 0], []])
def test_a_batch_is_padded_to_its_largest_set(index: list[int]) -> None:
    examples = sets_of(SETS, torch.tensor([0, 1, 2, 3]))
    batch = examples.take(torch.tensor(index, dtype=torch.int64), Generator())
    x, mask = batch.inputs
    most = max((len(SETS[k]) for k in index), default=0)
    assert x.shape == (len(index), most, 2)
    assert mask.shape == (len(index), most)
    assert mask.dtype == torch.bool
    for row, k in enumerate(index):
        size = len(SETS[k])
        assert mask[row].tolist() == [True] * size + [False] * (most - size)
        assert torch.equal(x[row, :size], SETS[k])
        assert not x[row, size:].any()
    assert batch.targets.tolist() == index
    assert batch.weight is None


def test_chosen_sets_keep_elements_sizes_and_targets() -> None:
    examples = sets_of(SETS, torch.tensor([0.0, 1.0, 2.0, 3.0])).chosen(torch.tensor([2, 1, 0]))
    assert examples.sizes.tolist() == [3, 0, 2]
    assert torch.equal(examples.elements, torch.cat((SETS[2], SETS[0])))
    assert examples.targets.tolist() == [2.0, 1.0, 0.0]
    assert sets_of(SETS).chosen(torch.tensor([0])).targets is None
    assert len(sets_of(SETS).tensors()) == 2
    assert len(examples.tensors()) == 3


@pytest.mark.parametrize("sizes", [[2, 1], [2, 2], [5, -2]])
def test_sizes_add_up_to_the_elements(sizes: list[int], refused: Callable) -> None:
    Sets(torch.ones(3, 1), torch.tensor([3, 0]))
    if sizes == [2, 1]:
        Sets(torch.ones(3, 1), torch.tensor(sizes))
        return
    with refused("sizes must be at least 0 and add up", f"got {sum(sizes)}, 3 elements"):
        Sets(torch.ones(3, 1), torch.tensor(sizes))
