"""What is kept: computed once for the same tensors, anew where one was written into, gone with them."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

from margin.geometric.graphs import sparsity as module
from margin.geometric.graphs.sparsity import cached_by_tensor

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def total(*arguments: object) -> Tensor:
    CALLS.append("total")
    return sum((x.sum() for x in arguments if isinstance(x, Tensor)), torch.zeros(()))


def test_it_is_computed_once_for_the_same_tensors() -> None:
    a, b = torch.ones(3), torch.ones(2)
    assert cached_by_tensor(total, (a, b)) is cached_by_tensor(total, (a, b))
    assert len(CALLS) == 1
    cached_by_tensor(total, (a,))
    cached_by_tensor(total, (a, b), "an option")
    cached_by_tensor(total, (a, b.clone()))
    cached_by_tensor(total, (a.clone(), b))
    assert len(CALLS) == 5


def test_it_is_computed_anew_where_a_tensor_was_written_into() -> None:
    a, b = torch.ones(3), torch.ones(2)
    assert float(cached_by_tensor(total, (a, b))) == 5
    a[0] = 3
    assert float(cached_by_tensor(total, (a, b))) == 7
    b.mul_(2)
    assert float(cached_by_tensor(total, (a, b))) == 9
    b.view(2, 1)[1] = 0  # through a view
    assert float(cached_by_tensor(total, (a, b))) == 7


def test_nothing_outlives_its_tensors() -> None:
    a, b = torch.ones(3), torch.ones(2)
    value = weakref.ref(cached_by_tensor(total, (a, b)))
    other = weakref.ref(cached_by_tensor(total, (a, torch.ones(4))))
    cached_by_tensor(total, (a, torch.ones(5)))  # throws out what belongs to tensors that are gone
    assert other() is None
    assert value() is not None
    shelves = len(module._SHELVES)
    del a
    gc.collect()
    assert value() is None
    assert len(module._SHELVES) == shelves - 1


def test_what_needs_a_gradient_is_computed_each_time_and_has_it() -> None:
    a = torch.ones(3, requires_grad=True)
    cached_by_tensor(total, (a,)).backward()
    cached_by_tensor(total, (a,)).backward()
    assert len(CALLS) == 2
    assert a.grad is not None
    assert a.grad.tolist() == [2.0, 2.0, 2.0]


def test_what_inference_mode_computes_can_be_used_in_a_training() -> None:
    a = torch.ones(3)
    with torch.inference_mode():
        inside = torch.ones(3)
        cached_by_tensor(total, (inside,))
        cached_by_tensor(total, (inside,))
        value = cached_by_tensor(total, (a,))
    assert len(CALLS) == 3
    w = torch.ones((), requires_grad=True)
    (w * value).backward()
    assert w.grad is not None
    assert float(w.grad) == 3


def test_under_a_transform_it_is_computed_each_time() -> None:
    rows = torch.arange(6.0).reshape(2, 3)
    found = torch.vmap(lambda row: cached_by_tensor(total, (row,)))(rows)
    assert found.tolist() == [3.0, 12.0]
