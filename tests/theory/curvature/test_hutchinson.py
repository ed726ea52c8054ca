"""Hutch++ against exact traces: unbiased, exact where it can be, within its interval."""

import math

import pytest
import torch
from scipy.stats import kurtosis, t
from torch import Generator

from margin.theory.curvature.hutchinson import (
    PRINTED_MISS,
    deflated_trace,
    half_width,
    hutchinson_trace,
    random_signs,
)


def symmetric(spectrum, seed=0):
    generator = Generator().manual_seed(seed)
    d = torch.as_tensor(spectrum, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(len(d), len(d), generator=generator, dtype=torch.float64))
    return Q @ torch.diag(d) @ Q.T


OUTLIERS = torch.cat((torch.tensor([50.0, 30, 20, 10, 5, -3]), torch.linspace(-0.1, 0.1, 94)))


@pytest.mark.parametrize("spectrum", [torch.ones(100), torch.linspace(-2, 3, 100), OUTLIERS])
def test_it_is_unbiased_and_within_its_interval(spectrum):
    A = symmetric(spectrum)
    truth, errors, misses = A.trace().item(), [], 0
    for seed in range(200):
        value, _, draws = deflated_trace(lambda v: A @ v, 100, Generator().manual_seed(seed))
        assert value.item() == pytest.approx(draws.mean().item(), abs=1e-10)
        errors.append(value.item() - truth)
        misses += abs(errors[-1]) > half_width(draws).item()
    errors = torch.tensor(errors)
    assert abs(errors.mean()) <= 4 * errors.std() / math.sqrt(200)  # probability 6e-5
    assert misses <= 1  # of 200 at 6e-5 each: probability of two 8e-5


def test_a_matrix_of_low_rank_is_exact():
    A = symmetric([3.0, -2.0, 1.0] + [0.0] * 60)
    value, stderr, _ = deflated_trace(lambda v: A @ v, 63, Generator().manual_seed(0), rank=4, probes=2)
    assert value.item() == pytest.approx(2, abs=1e-10) and stderr.item() < 1e-10
    # Hutchinson's estimate of the same cost is not.
    assert hutchinson_trace(lambda v: A @ v, 63, Generator().manual_seed(0), probes=10)[1] > 0.1


def test_it_is_the_printed_algorithm():
    A = torch.randn(20, 20, generator=Generator().manual_seed(4), dtype=torch.float64)
    A = A + A.T
    generator = Generator().manual_seed(5)
    draws = [random_signs(20, generator, dtype=torch.float64, device="cpu") for _ in range(3 + 4)]
    Q = torch.linalg.qr(A @ torch.stack(draws[:3]).T).Q
    P = torch.eye(20).double() - Q @ Q.T
    forms = torch.stack([z @ P @ A @ P @ z for z in draws[3:]])
    found = deflated_trace(lambda v: A @ v, 20, Generator().manual_seed(5), rank=3, probes=4)
    torch.testing.assert_close(found[2], (Q.T @ A @ Q).trace() + forms, rtol=1e-10, atol=1e-10)
    assert found[1].item() == pytest.approx(forms.std().item() / 2, rel=1e-9)


def test_outliers_cost_it_less_than_hutchinson():
    A = symmetric(OUTLIERS)
    ours = deflated_trace(lambda v: A @ v, 100, Generator().manual_seed(1))[1]
    plain = hutchinson_trace(lambda v: A @ v, 100, Generator().manual_seed(1), probes=40)[1]
    assert ours < plain / 20


def test_the_interval_is_students():
    # Quantiles of tables: scipy.stats.t.isf(3.167e-5, n - 1).
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for n, quantile in ((10, 6.9987), (10**6, 4.0)):
        even = signs.repeat(n // 2)  # of kurtosis 1: n - 1 degrees of freedom
        stderr = float(even.std()) / math.sqrt(n)
        assert half_width(even).item() == pytest.approx(quantile * stderr, abs=1e-3 * stderr)
    generator = Generator().manual_seed(0)
    draws = torch.randn(5, 200_000, generator=generator, dtype=torch.float64)
    beyond = draws.mean(0).abs() > 4 * draws.std(0) / math.sqrt(5)
    assert 3000 < beyond.sum() < 3500  # what four standard errors, the least half width, would miss
    missed = draws.mean(0).abs()[beyond] > half_width(draws[:, beyond])
    # 12.7 expected, Poisson; above 30 with probability 1e-5
    assert missed.sum() <= 30


def test_draws_with_long_tails_have_fewer_degrees_of_freedom():
    """Of squares of 48 normal numbers, as one large eigenvalue gives, Student's 47 miss too often."""
    draws = torch.randn(48, 4000, generator=Generator().manual_seed(1), dtype=torch.float64).square()
    stderr = draws.std(0) / math.sqrt(48)
    held = ((draws.mean(0) - 1).abs() <= half_width(draws, PRINTED_MISS)).double().mean()
    plain = ((draws.mean(0) - 1).abs() <= 2.0117 * stderr).double().mean()
    assert plain < 0.925 < held < 0.96  # standard error of each: .004
    one = draws[:, 0]
    off = (one - one.mean()).numpy()
    freedom = min(47, 2 * 48 / (kurtosis(off, fisher=False) - 1))
    expected = t.ppf(0.975, freedom) * float(stderr[0])
    assert half_width(one, PRINTED_MISS).item() == pytest.approx(expected, rel=1e-9)


def test_what_is_not_finite_is_nan_and_bad_options_are_refused():
    value, stderr, draws = deflated_trace(lambda v: v * math.nan, 30, Generator(), rank=3)
    assert value.isnan() and stderr.isnan() and len(draws) == 16
    for options in ({"probes": 1}, {"rank": 0}, {"rank": 31}):
        with pytest.raises(ValueError, match="probes must be at least 2, rank in 1"):
            deflated_trace(lambda v: v, 30, Generator(), **options)


def test_signs_are_signs():
    z = random_signs(1000, Generator().manual_seed(0), dtype=torch.float32, device="cpu")
    assert set(z.tolist()) == {-1.0, 1.0} and z.dtype == torch.float32
    assert abs(z.sum()) <= 4 * math.sqrt(1000)  # probability 6e-5
