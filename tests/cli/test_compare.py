"""The paired difference of two runs: scipy's paired t interval, over examples and not over terms."""

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from margin.runs.comparing import paired
from margin.theory.prediction.held_out import Terms


@pytest.mark.parametrize("terms", [1, 3])
def test_the_interval_of_a_difference_is_that_of_a_paired_t_test(terms: int) -> None:
    """Mutants: a normal quantile or one side's, degrees of freedom of the terms, the unpaired error."""
    generator = torch.Generator().manual_seed(2)
    base = torch.randn(9, terms, generator=generator, dtype=torch.float64) * 5
    own = base + 0.3 + 0.4 * torch.randn(9, terms, generator=generator, dtype=torch.float64)
    example = torch.arange(9)[:, None].expand(9, terms).flatten()
    weight = torch.ones(9 * terms, dtype=torch.float64)
    found = paired(Terms(own.flatten(), weight, example), Terms(base.flatten(), weight, example))
    a, b = own.mean(1).numpy(), base.mean(1).numpy()
    interval = ttest_rel(a, b).confidence_interval(0.95)
    assert found["mean"] == pytest.approx(a.mean(), rel=1e-12)
    assert found["stderr"] == pytest.approx(a.std(ddof=1) / 3, rel=1e-9)
    assert found["difference"] == pytest.approx(np.mean(a - b), rel=1e-9)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_two_that_are_right_on_the_same_examples_may_still_differ() -> None:
    """Without an example that tells them apart the score test keeps all |d| <= z^2 / (n + z^2)."""
    right = Terms(*(torch.ones(20, dtype=torch.float64),) * 2, torch.arange(20))
    found = paired(right, right)
    widest = 1.959964**2 / (20 + 1.959964**2)
    assert found["difference"] == 0
    assert (found["low"], found["high"]) == pytest.approx((-widest, widest), rel=1e-5)


def test_the_interval_lies_on_the_side_of_the_one_that_is_right_more_often() -> None:
    """Mutant: the two in the other order, whose interval is the same behind the other sign."""
    example, one = torch.arange(40), torch.ones(40, dtype=torch.float64)
    own, base = (Terms((example < right).double(), one, example) for right in (38, 24))
    found, other = paired(own, base), paired(base, own)
    assert found["difference"] == pytest.approx(14 / 40)
    assert 0 < found["low"] < found["difference"] < found["high"]
    assert (other["low"], other["high"]) == pytest.approx((-found["high"], -found["low"]))
