"""A step of time in words, and which two are one: at the ratio where they part."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from margin.data.formats.series.step import TimeStep, check_step, usual_step
from margin.data.formats.series.table import load_steps


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(86_400, "1 day"), (5_400, "1.5 hours"), (60, "1 minute"), (1.0, "1 second"), (2e-6, "2 microseconds")],
)
def test_dates_are_told_in_their_largest_unit(tmp_path: Path, seconds: float, words: str) -> None:
    times = (datetime(2020, 1, 1) + timedelta(seconds=k * seconds) for k in range(5))
    rows = [f"{time.isoformat(timespec='microseconds')},{k}" for k, time in enumerate(times)]
    (tmp_path / "x.csv").write_text("\n".join(["time,a", *rows]))
    steps = load_steps(tmp_path / "x.csv")
    assert steps.step == TimeStep(pytest.approx(seconds), True)
    assert str(steps.step) == words
    assert steps.spacing.endswith(f", {words} a row")


def test_numbers_that_count_rows_have_a_step_and_one_row_has_none(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("year,a\n1990,1\n1995,2\n2000,3\n2010,4\n")
    assert load_steps(tmp_path / "n.csv").step == TimeStep(5.0, False)
    assert str(TimeStep(5.0, False)) == "5"
    (tmp_path / "n.csv").write_text("year,a\n1990,1\n")
    assert load_steps(tmp_path / "n.csv").step is None


def test_two_steps_are_one_up_to_a_ratio_that_months_stay_within() -> None:
    day = TimeStep(86_400.0, True)
    assert TimeStep(28 * 86_400.0, True).is_like(TimeStep(31 * 86_400.0, True))
    assert day.is_like(TimeStep(1.119 * day.length, True))
    assert not day.is_like(TimeStep(1.121 * day.length, True))
    assert not day.is_like(TimeStep(day.length / 1.121, True))
    assert not TimeStep(1.0, True).is_like(TimeStep(1.0, False))


def test_the_median_is_the_step_where_all_rows_lie_on_its_grid() -> None:
    """A clock that is not exact: the median of the steps 1.0 and 1.1, and of those that are one, is 1.05."""
    steps = np.array([1.0] * 5 + [1.1] * 5 + [2.1] * 3)
    assert usual_step(steps) == 1.1
    assert usual_step(np.array([1.0] * 5 + [2.0] * 9)) == 2.0  # single rows lie between
    assert usual_step(np.array([1.0] * 5 + [2.0] * 4 + [3.0] * 2)) == 1.0


def test_another_step_than_that_of_the_record_is_refused() -> None:
    check_step("x", TimeStep(3600.0, True), [3600.0, True])
    check_step("x", None, [3600.0, True])
    check_step("x", TimeStep(3600.0, True), None)
    with pytest.raises(ValueError, match=r"^x: rows must be as far apart .* on, 1 hour: got 1 day a row$"):
        check_step("x", TimeStep(86_400.0, True), [3600.0, True])
