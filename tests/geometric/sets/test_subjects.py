"""What counts as sets, and the sets one by one without their padding."""

import torch
from torch import nn

from margin.core.findings import Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.geometric.sets.deep_sets import regressor
from margin.geometric.sets.pointnet import PointNet
from margin.geometric.sets.subjects import (
    has_maxima,
    has_pooling,
    has_sets,
    is_deep_sets,
    is_sets,
    pools,
    sets_of,
)
from margin.nn.preprocessed import Preprocessed


def subject(model: nn.Module, *inputs: torch.Tensor) -> Subject:
    return Subject(model=model, test=[Batch(inputs)], task=VALUES, objective=risk(VALUES))


def test_sets_are_told_from_other_inputs() -> None:
    x, mask = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    assert is_sets(Batch((x,))) and is_sets(Batch((x, mask)))
    lengths = torch.tensor([3, 2])  # of sequences
    for others in ((x[0],), (x.long(),), (x, lengths), (x, mask[:, :2]), (x, mask, mask)):
        assert not is_sets(Batch(others))


def test_sets_come_without_padding_and_without_empty_ones() -> None:
    x, mask = torch.randn(3, 3, 2), torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()
    found = sets_of(subject(regressor(2), x, mask))
    assert [len(one) for one in found] == [2, 3]
    assert torch.equal(found[0], x[0, [0, 2]].double())
    assert len(sets_of(subject(regressor(2), x, mask), 1)) == 1
    assert not has_sets(subject(regressor(2), x, torch.zeros_like(mask)))


def test_kinds_of_model() -> None:
    x = torch.randn(2, 5, 3)
    deep, point = subject(regressor(3), x), subject(PointNet(3, 2, features=4), x)
    assert has_pooling(deep) and not has_maxima(deep) and is_deep_sets(deep)
    assert has_pooling(point) and has_maxima(point) and not is_deep_sets(point)
    assert not has_pooling(subject(nn.Linear(3, 1), x))
    assert has_maxima(subject(regressor(3, pool="max"), x))
    behind = Preprocessed(nn.Identity(), regressor(3))
    assert is_deep_sets(subject(behind, x)) and list(pools(behind)) == ["pool"]
