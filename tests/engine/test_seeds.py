"""The interval of a mean over seeds: Student's; a share's holds Clopper and Pearson's too."""

import math

import pytest
from scipy import stats

from margin.runs.seed_interval import shares, summary


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_a_loss_is_students(level):
    values = [0.31, 0.27, 0.45, 0.36]
    found = summary([{"test_loss": v} for v in values], level=level)["test_loss"]
    low, high = stats.t.interval(level, 3, sum(values) / 4, stats.sem(values))
    assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-12)
    assert found["std"] == pytest.approx(stats.tstd(values)) and found["n"] == 4


@pytest.mark.parametrize(("right", "n"), [(23, 23), (0, 7), (19, 23)])
def test_seeds_that_agree_leave_the_binomials_error_of_the_examples(right, n):
    found = summary([{"test_accuracy": right / n}] * 3, examples={"test_accuracy": n})["test_accuracy"]
    exact = stats.binomtest(right, n).proportion_ci(0.95, "exact")  # of n examples, not of 3 n
    assert (found["low"], found["high"]) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert found["high"] > found["low"]


def test_the_errors_of_seeds_and_examples_add_in_squares():
    values = [30 / 40, 34 / 40, 38 / 40]
    found = summary([{"val_accuracy": v} for v in values], examples={"val_accuracy": 40})["val_accuracy"]
    low, high = stats.t.interval(0.95, 2, 34 / 40, stats.sem(values))
    exact = stats.binomtest(34, 40).proportion_ci(0.95, "exact")
    assert found["low"] == pytest.approx(0.85 - math.hypot(0.85 - low, 0.85 - exact.low), rel=1e-9)
    assert high > 1 and found["high"] == 1.0  # an accuracy ends at 1


def test_an_accuracy_is_a_share_of_examples_where_it_counts_them():
    rows = [
        {"val_loss": 0.5, "val_accuracy": 3 / 8, "test_accuracy": 0.3},
        {**dict.fromkeys(("val_loss",), 1.0)},
    ]
    rows[1] |= {"val_accuracy": 5 / 8, "test_accuracy": 0.41}  # of tokens: 0.41 of 10 examples is no count
    assert shares(rows, {"val": 8, "test": 10}) == {"val_accuracy": 8}
    assert shares(rows, {}) == {}


def test_one_training_has_no_interval():
    with pytest.raises(ValueError, match="at least two trainings: got 1"):
        summary([{"test_loss": 1.0}])
