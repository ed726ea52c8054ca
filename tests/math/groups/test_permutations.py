"""Permutations by hand, their matrices by linear algebra."""

import pytest
import torch
from torch import Generator, Tensor

from margin.math.groups import permutations as p

CYCLE = torch.tensor([1, 2, 0])


def many() -> list[Tensor]:
    generator = Generator().manual_seed(0)
    return [p.drawn(size, generator) for size in (1, 2, 3, 5, 8) for _ in range(4)]


@pytest.mark.parametrize("pi", many())
def test_the_matrix_moves_rows_and_is_orthogonal(pi: Tensor) -> None:
    P, x = p.matrix(pi), torch.randn(len(pi), 3, dtype=torch.float64)
    assert torch.equal(P @ x, x[pi])
    assert torch.equal(x.T @ P.T, x.T[:, pi])
    assert torch.equal(P @ P.T, torch.eye(len(pi), dtype=torch.float64))
    assert torch.equal(p.matrix(p.inverse(pi)), P.T)
    assert torch.equal(p.of_matrix(P), pi)
    assert round(float(torch.linalg.det(P))) == p.sign(pi)


def test_composition_keeps_the_order_of_matrices() -> None:
    one, two = CYCLE, torch.tensor([0, 2, 1])
    assert torch.equal(p.matrix(p.composed(one, two)), p.matrix(two) @ p.matrix(one))
    assert p.composed(one, two).tolist() == [1, 0, 2]
    assert not torch.equal(p.composed(one, two), p.composed(two, one))


def test_cycles_and_two_lines_by_hand() -> None:
    assert p.cycles(torch.tensor([2, 1, 4, 3, 0])) == [[0, 2, 4], [1], [3]]
    assert p.two_lines(CYCLE) == "1 2 3\n2 3 1"
    assert p.sign(CYCLE) == 1
    assert p.sign(torch.tensor([1, 0, 2])) == -1


def test_each_order_is_as_likely() -> None:
    """6,000 draws of 6 orders: chi-square with 5 degrees above 25.7 has probability 1e-4."""
    generator = Generator().manual_seed(1)
    counts: dict = {}
    for _ in range(6000):
        key = tuple(p.drawn(3, generator).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 6
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 25.7


def test_what_is_no_permutation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"each of 0 .. 2 once: got \[0, 0, 2\]"):
        p.matrix(torch.tensor([0, 0, 2]))
    for wrong in (
        torch.eye(2) * 0.5,
        torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        torch.tensor([[2.0, -1.0], [-1.0, 2.0]]),
    ):
        with pytest.raises(ValueError, match="one 1 in every row and column"):
            p.of_matrix(wrong)
