"""McCulloch-Pitts units: the gates on all inputs, two kinds of inhibition, XOR, bad inputs."""

from itertools import product

import pytest
import torch

from margin.classic.memory.threshold_units import threshold_unit


def cube(n: int) -> torch.Tensor:
    return torch.tensor(list(product((0, 1), repeat=n)))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_and_or_not_on_every_input(n: int) -> None:
    x, plus = cube(n), torch.ones(n, dtype=torch.long)
    assert threshold_unit(x, plus, n).tolist() == [all(row) for row in x.tolist()]
    assert threshold_unit(x, plus, 1).tolist() == [any(row) for row in x.tolist()]
    assert threshold_unit(cube(1), torch.tensor([-1]), 0).tolist() == [True, False]


def test_the_threshold_itself_fires() -> None:
    assert threshold_unit(torch.tensor([[1, 1]]), torch.tensor([1, 1]), 2.0).tolist() == [True]
    assert threshold_unit(torch.tensor([[1, 1]]), torch.tensor([1, 1]), 2.5).tolist() == [False]


@pytest.mark.parametrize("inhibition", ["subtractive", "absolute"])
def test_both_inhibitions_are_the_sum_spelled_out(inhibition: str) -> None:
    x, sign = cube(4), torch.tensor([1, 1, 1, -1])
    expected = []
    for a, b, c, veto in x.tolist():
        fires = a + b + c - veto >= 2 if inhibition == "subtractive" else a + b + c >= 2 and not veto
        expected.append(fires)
    assert threshold_unit(x, sign, 2, inhibition=inhibition).tolist() == expected


def test_one_inhibitory_input_vetoes_or_subtracts() -> None:
    x, sign = torch.tensor([[1, 1, 1, 1]]), torch.tensor([1, 1, 1, -1])
    assert threshold_unit(x, sign, 2, inhibition="subtractive").tolist() == [True]
    assert threshold_unit(x, sign, 2, inhibition="absolute").tolist() == [False]


@pytest.mark.parametrize("inhibition", ["subtractive", "absolute"])
def test_no_unit_is_xor(inhibition: str) -> None:
    x = cube(2)
    wanted = [a != b for a, b in x.tolist()]
    thresholds = [k / 2 for k in range(-5, 6)]
    for sign in product((-1, 1), repeat=2):
        for threshold in thresholds:
            fires = threshold_unit(x, torch.tensor(sign), threshold, inhibition=inhibition)
            # absolute inhibition writes "a and not b", never XOR
            assert fires.tolist() != wanted


def test_bad_inputs_are_named() -> None:
    with pytest.raises(ValueError, match=r"inputs must be 0 or 1: got 2 \(row 1, input 0\)"):
        threshold_unit(torch.tensor([[0, 1], [2, 0]]), torch.tensor([1, 1]), 1)
    with pytest.raises(ValueError, match=r"signs must be -1 or \+1: got 0 \(input 1\)"):
        threshold_unit(torch.tensor([[0, 1]]), torch.tensor([1, 0]), 1)
