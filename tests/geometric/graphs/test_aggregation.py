"""Groups of rows: by hand, with none, with ties, and a softmax that no score overflows."""

import math

import pytest
import torch
from torch import Generator

from margin.geometric.graphs.message_passing import aggregate, pooled, softmax_over

MESSAGES = torch.tensor([[1.0, -4.0], [3.0, -2.0], [5.0, 0.5]], dtype=torch.float64)
TARGET = torch.tensor([2, 2, 0])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("sum", [[5.0, 0.5], [0.0, 0.0], [4.0, -6.0]]),
        ("mean", [[5.0, 0.5], [0.0, 0.0], [2.0, -3.0]]),
        ("max", [[5.0, 0.5], [0.0, 0.0], [3.0, -2.0]]),  # of negative numbers it is not 0
    ],
)
def test_by_hand(how: str, expected: list[list[float]]) -> None:
    assert aggregate(MESSAGES, TARGET, 3, how).tolist() == expected
    assert pooled(MESSAGES[[2, 0, 1]], torch.tensor([1, 0, 2]), how).tolist() == expected


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_nothing_gives_0_and_a_gradient(how: str) -> None:
    empty = torch.zeros(0, 2, requires_grad=True)
    found = aggregate(empty, torch.zeros(0, dtype=torch.int64), 3, how)
    assert found.tolist() == [[0.0, 0.0]] * 3
    found.sum().backward()
    assert pooled(empty, torch.tensor([0, 0]), how).tolist() == [[0.0, 0.0]] * 2
    assert pooled(empty, torch.zeros(0, dtype=torch.int64), how).shape == (0, 2)


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_derivatives(how: str) -> None:
    x = torch.randn(6, 2, dtype=torch.float64, generator=Generator().manual_seed(0), requires_grad=True)
    target = torch.tensor([0, 0, 2, 2, 2, 3])
    assert torch.autograd.gradcheck(lambda z: aggregate(z, target, 5, how), (x,))
    assert torch.autograd.gradgradcheck(lambda z: aggregate(z, target, 5, how).square(), (x,))


def test_rows_that_tie_share_the_gradient_of_the_largest() -> None:
    x = torch.tensor([[2.0], [2.0], [1.0]], requires_grad=True)
    aggregate(x, torch.zeros(3, dtype=torch.int64), 1, "max").sum().backward()
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == [0.5, 0.5, 0.0]


def test_the_softmax_is_that_of_each_group() -> None:
    scores = torch.randn(9, 2, dtype=torch.float64, generator=Generator().manual_seed(0))
    target = torch.tensor([0, 3, 0, 1, 3, 3, 0, 5, 3])
    found = softmax_over(scores, target, 6)
    for node in (0, 1, 3, 5):
        torch.testing.assert_close(found[target == node], scores[target == node].softmax(0))


@pytest.mark.parametrize("size", [100.0, 1000.0, 1e30])
def test_scores_of_any_size_are_safe(size: float) -> None:
    scores = torch.tensor([size, -size, size, 0.0, -size, -size]).requires_grad_()
    target = torch.tensor([0, 0, 0, 1, 2, 2])
    found = softmax_over(scores, target, 3)
    assert found.tolist() == [0.5, 0.0, 0.5, 1.0, 0.5, 0.5]
    (gradient,) = torch.autograd.grad(found[0], scores)
    assert gradient.tolist() == [0.25, 0.0, -0.25, 0.0, 0.0, 0.0]
    naive = scores.exp() / torch.zeros(3).index_add(0, target, scores.exp())[target]
    assert not bool(naive.isfinite().all())


def test_the_softmax_has_second_derivatives() -> None:
    x = torch.randn(5, dtype=torch.float64, generator=Generator().manual_seed(0), requires_grad=True)
    target = torch.tensor([0, 1, 0, 1, 1])
    assert torch.autograd.gradcheck(lambda z: softmax_over(z, target, 2), (x,))
    assert torch.autograd.gradgradcheck(lambda z: softmax_over(z, target, 2), (x,))


def test_it_refuses() -> None:
    with pytest.raises(Exception, match="min"):  # in tests the type is refused first
        aggregate(MESSAGES, TARGET, 3, "min")  # type: ignore[arg-type]


def test_nan_stays_nan() -> None:
    for how in ("sum", "mean", "max"):
        assert math.isnan(aggregate(torch.tensor([[math.nan], [1.0]]), torch.tensor([0, 0]), 1, how).item())  # type: ignore[arg-type]
