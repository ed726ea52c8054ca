"""Newton and Girard: multisets read back from their power sums, exactly and in float64."""

import random
from fractions import Fraction
from itertools import combinations
from math import prod

import pytest
import torch

from margin.math.groups.power_sums import elementary, from_power_sums, power_sums, recovered


def sums(numbers: list[int]) -> list[int]:
    return [sum(number**j for number in numbers) for j in range(1, len(numbers) + 1)]


def test_elementary_polynomials_are_those_of_the_definition() -> None:
    numbers = [Fraction(1, 3), Fraction(-2), Fraction(5, 7), Fraction(4)]
    p = [sum(number**j for number in numbers) for j in range(1, 5)]
    expected = [sum(prod(some) for some in combinations(numbers, k)) for k in range(1, 5)]
    assert elementary(p) == expected


@pytest.mark.parametrize("seed", range(20))
def test_whole_numbers_are_read_back_exactly(seed: int) -> None:
    draw = random.Random(seed)
    numbers = sorted(draw.randint(-(10 ** draw.randint(0, 15)), 10**15) for _ in range(draw.randint(1, 8)))
    assert recovered(sums(numbers)) == numbers


@pytest.mark.parametrize("numbers", [[0], [0, 0, 0], [7, 7, 7, 8], [-3, -3, 2], [-1, 0, 1], [-5, -4, -3]])
def test_equal_and_near_and_negative_numbers_are_read_back(numbers: list[int]) -> None:
    # Steps of Newton's method that round to 0 before a multiple root, or pass a root, fail here.
    assert recovered(sums(numbers)) == numbers


@pytest.mark.parametrize("p", [[1, 2], [0, 4], [0, -2], [0, 2, 3]])
def test_sums_of_no_whole_numbers_are_refused(p: list[int]) -> None:
    with pytest.raises(ValueError, match=r"no .*whole numbers have these power sums"):
        recovered(p)


def test_power_sums_are_sums_of_powers() -> None:
    x = torch.tensor([[2.0, -1.0, 3.0]])
    assert power_sums(x, 3).tolist() == [[4.0, 14.0, 34.0]]
    with pytest.raises(ValueError, match="degree must be at least 1: got 0"):
        power_sums(x, 0)


def test_in_floating_point_they_are_read_back_to_rounding() -> None:
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).expand(3, 6) * torch.tensor([[1.0], [0.5], [0.3]])
    torch.testing.assert_close(from_power_sums(power_sums(x, 6)), x.sort().values, rtol=0, atol=1e-10)
    # one sum too few does not determine them: these two have equal p_1 and p_2
    a, b = torch.tensor([0.0, 3.0, 3.0]), torch.tensor([1.0, 1.0, 4.0])
    assert torch.equal(power_sums(a, 2), power_sums(b, 2))
    assert not torch.equal(power_sums(a, 3), power_sums(b, 3))
