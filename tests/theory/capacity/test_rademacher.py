"""Rademacher complexity: by hand, by enumeration, and beside the bounds of it."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch import Generator

from margin.core.findings import Verdict
from margin.core.types import Batch
from margin.theory.capacity.rademacher import (
    demo,
    linear_bound,
    linear_complexity,
    massart,
    of_linear,
    of_values,
)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def test_one_function_has_none_and_both_signs_that_of_a_walk() -> None:
    """f and -f with f = 1 on 3 points: E|s1 + s2 + s3| / 3 = 1.5 / 3."""
    assert of_values(draw(1, 8)).value == pytest.approx(0, abs=1e-15)
    ones = torch.ones(1, 3)
    assert of_values(torch.cat((ones, -ones))).value == pytest.approx(0.5)
    every = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=5)))
    assert of_values(every).value == pytest.approx(1)  # it follows any coin tosses


def test_linear_functions_by_enumeration() -> None:
    x = draw(6, 3)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=6)), dtype=torch.float64)
    expected = 2.5 / 6 * (signs[:, :, None] * x).sum(1).norm(dim=1).mean()
    assert of_linear(x, 2.5).value == pytest.approx(float(expected))
    assert of_linear(x, 2.5).stderr == 0


def test_orthogonal_inputs_reach_the_bound_of_linear_functions() -> None:
    assert of_linear(3 * torch.eye(9)).value == pytest.approx(linear_bound(3 * torch.eye(9)))
    assert linear_bound(3 * torch.eye(9)) == pytest.approx(3 / math.sqrt(9))  # B C / sqrt(n)
    x = draw(12, 4)
    assert of_linear(x).value < linear_bound(x)


def test_draws_agree_with_the_whole_within_four_errors_and_fall_as_the_root_of_n() -> None:
    """Failure probability below 1e-4."""
    x = torch.eye(40)
    found = of_linear(x, generator=Generator().manual_seed(0))
    assert found.value == pytest.approx(1 / math.sqrt(40))  # the norm does not depend on the signs
    values = draw(20, 30, seed=2)
    some = of_values(values, draws=4000, generator=Generator().manual_seed(0))
    more = of_values(values, draws=40_000, generator=Generator().manual_seed(1))
    assert 0 < some.stderr < 0.005
    assert abs(some.value - more.value) < 4 * math.hypot(some.stderr, more.stderr)


def test_massart_lies_above() -> None:
    for n in (5, 9, 12):
        values = draw(17, n, seed=n)
        assert of_values(values).value <= massart(values)
    assert massart(torch.ones(8, 4)) == pytest.approx(2 * math.sqrt(2 * math.log(8)) / 4)


def test_no_example_is_refused() -> None:
    with pytest.raises(ValueError, match="got shape"):
        of_values(torch.empty(3, 0))
    with pytest.raises(ValueError, match="got none"):
        of_linear(torch.empty(0, 3))
    with pytest.raises(ValueError, match="draws must be at least 2"):
        of_linear(draw(20, 2), draws=1)


def test_the_claim_reaches_its_lower_side_on_inputs_that_are_alike_and_the_upper_on_orthogonal_ones() -> None:
    found = linear_complexity(demo())
    assert float(found.value) == pytest.approx(2.5)  # 5 / 2, half of the time both signs agree
    assert float(found.low) == pytest.approx(2.5)
    assert found.verdict is Verdict.HOLDS
    subject = dataclasses.replace(demo(), test=[Batch((torch.eye(2),), torch.tensor([0, 1]))])
    assert float(linear_complexity(subject).value) == pytest.approx(float(linear_complexity(subject).high))
