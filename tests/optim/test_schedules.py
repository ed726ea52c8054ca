"""Schedules at their ends and in the middle."""

import pytest

from margin.optim.schedules import schedule_of


@pytest.mark.parametrize(
    ("name", "middle", "last"), [("constant", 1, 1), ("linear", 0.5, 0), ("cosine", 0.5, 0)]
)
def test_the_factor_runs_from_one_to_its_end(name: str, middle: float, last: float) -> None:
    factor = schedule_of(name, total=100, warmup=0)
    assert factor(0) == 1
    assert abs(factor(50) - middle) <= 1e-12
    assert abs(factor(100) - last) <= 1e-12
    assert abs(factor(1000) - last) <= 1e-12


def test_the_rise_is_linear_and_ends_at_one() -> None:
    factor = schedule_of("cosine", total=20, warmup=5)
    assert [factor(k) for k in range(5)] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert factor(5) == 1.0
