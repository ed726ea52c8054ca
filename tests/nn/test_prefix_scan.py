"""Doubling gives all compositions in ceil(log2 T) steps, of any associative operation, and not in fewer."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.nn.scan import Elements, compose, doubling, doublings

TIMES = [1, 2, 3, 4, 5, 7, 8, 9, 100, 127, 128, 129]


def drawn(time: int) -> tuple[Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(time)
    a, b = torch.randn(2, 3, time, 5, dtype=torch.float64, generator=g)
    return a.tanh(), b, torch.randn(3, 5, dtype=torch.float64, generator=g)


@pytest.mark.parametrize("time", TIMES)
def test_it_is_the_loop_in_that_many_steps(time: int) -> None:
    a, b, z = drawn(time)
    found, states = doubling(a, b, z), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        z = a_t * z + b_t
        states.append(z)
    torch.testing.assert_close(found, torch.stack(states, 1), atol=1e-12, rtol=0)
    assert len(list(doublings(compose, (a, b)))) == math.ceil(math.log2(time))


@pytest.mark.parametrize("time", TIMES[1:])
def test_one_step_fewer_is_not_enough(time: int) -> None:
    """With gates 1 the last state is the sum of all terms; it is short of some before the last doubling."""
    ones = torch.ones(1, time, 1, dtype=torch.float64)
    sums = [elements[1][0, -1, 0].item() for elements in doublings(compose, (ones, ones))]
    assert sums[-1] == time
    assert all(total < time for total in sums[:-1])


def test_matrices_are_composed_in_their_order() -> None:
    """The products of matrices A_t .. A_1, which do not commute: the later one stands on the left."""
    g = Generator().manual_seed(0)
    matrices = torch.randn(1, 11, 2, 2, dtype=torch.float64, generator=g)

    def product(later: Elements, earlier: Elements) -> Elements:
        return (later[0] @ earlier[0],)

    *_, (found,) = doublings(product, (matrices,))
    expected = torch.eye(2, dtype=torch.float64)
    for t in range(11):
        expected = matrices[0, t] @ expected
        torch.testing.assert_close(found[0, t], expected)


def test_composition_is_associative_and_not_commutative() -> None:
    a, b, _ = drawn(3)
    one, two, three = ((a[:, i], b[:, i]) for i in range(3))
    torch.testing.assert_close(compose(compose(three, two), one), compose(three, compose(two, one)))
    assert not torch.allclose(compose(two, one)[1], compose(one, two)[1])
    z = torch.tensor(0.7, dtype=torch.float64)
    torch.testing.assert_close(
        compose(two, one)[0] * z + compose(two, one)[1], two[0] * (one[0] * z + one[1]) + two[1]
    )


def test_no_step_in_no_state_out() -> None:
    assert doubling(torch.ones(3, 0, 5), torch.ones(3, 0, 5), torch.ones(3, 5)).shape == (3, 0, 5)
