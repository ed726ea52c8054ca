"""Pooling of sets: by hand, by any order, with padding that is never read, and of sets without elements."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Generator

from margin.geometric.sets.deep_sets import SetPool, pooled_sets, without_padding

X = torch.tensor([[[1.0, -2.0], [3.0, -5.0], [torch.nan, torch.inf]]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False]])


@pytest.mark.parametrize(
    ("how", "expected"), [("sum", [4.0, -7.0]), ("mean", [2.0, -3.5]), ("max", [3.0, -2.0])]
)
def test_padding_is_not_read_even_where_it_is_no_number(how: str, expected: list[float]) -> None:
    # A mask that multiplies gives NaN; a mean over the padded length gives 4 / 3; a maximum over zeros 0.
    assert pooled_sets(X, MASK, how=how).tolist() == [expected]
    assert pooled_sets(X[:, :2], how=how).tolist() == [expected]
    assert SetPool(how)(X, MASK).tolist() == [expected]


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_a_set_without_elements_gives_zero(how: str) -> None:
    none = torch.zeros(1, 3, dtype=torch.bool)
    assert pooled_sets(X, none, how=how).tolist() == [[0.0, 0.0]]
    assert pooled_sets(X[:, :0], how=how).tolist() == [[0.0, 0.0]]
    assert pooled_sets(X[:, :0], none[:, :0], how=how).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_the_gradient_reaches_elements_alone(how: str) -> None:
    x = torch.randn(2, 4, 3, generator=Generator().manual_seed(0)).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False] * 4])
    pooled_sets(x, mask, how=how).sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert not bool(x.grad[~mask].any())
    assert bool(x.grad[0].any())


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_whole_numbers_pool_to_the_bit_in_any_order(how: str) -> None:
    # Sums of small whole numbers are exact, so only the order could tell.
    x = torch.randint(-99, 99, (5, 8, 3), generator=Generator().manual_seed(0)).double()
    before = pooled_sets(x, how=how)
    for seed in range(20):
        order = torch.randperm(8, generator=Generator().manual_seed(seed))
        assert torch.equal(pooled_sets(x[:, order], how=how), before)


def test_a_number_that_is_none_is_not_hidden() -> None:
    for how in ("sum", "mean", "max"):
        assert bool(pooled_sets(X, how=how).isnan()[0, 0])


def test_other_poolings_are_refused() -> None:
    # the import hook of the tests refuses it first, by its type
    for make in (SetPool, lambda how: pooled_sets(X, how=how)):
        with pytest.raises((ValueError, TypeCheckError), match=r"sum.*mean.*max"):
            make("median")


def test_padding_is_replaced() -> None:
    assert without_padding(X, MASK)[0, 2].tolist() == [0.0, 0.0]
    assert without_padding(X, None) is X
