"""The divergence of coins and its inverse: by bisection in exact arithmetic, closed forms and the ends."""

import math

import mpmath
import pytest
import torch
from scipy.stats import entropy
from torch import Generator

from margin.theory.bounds.binary_kl import binary_kl, kl_lower, kl_upper


def rand(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, generator=Generator().manual_seed(seed), dtype=torch.float64)


def test_the_divergence_is_that_of_two_laws_on_two_outcomes() -> None:
    q, p = rand(50), rand(50, 1)
    expected = [entropy([a, 1 - a], [b, 1 - b]) for a, b in zip(q.tolist(), p.tolist(), strict=True)]
    torch.testing.assert_close(binary_kl(q, p), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("q", "p", "expected"),
    [(0, 0, 0), (1, 1, 0), (0, 0.25, math.log(4 / 3)), (1, 0.25, math.log(4)), (0.5, 0, math.inf),
     (0.5, 1, math.inf), (0, 1, math.inf)],
)  # fmt: skip
def test_the_ends_of_the_divergence(q: float, p: float, expected: float) -> None:
    found = binary_kl(torch.tensor(float(q)), torch.tensor(float(p)))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def bisected(q: float, c: float) -> float:
    """By halving, in 50 digits."""
    with mpmath.workdps(50):
        q, low, high = mpmath.mpf(q), mpmath.mpf(q), mpmath.mpf(1)
        for _ in range(60):
            p = (low + high) / 2
            kl = q * mpmath.log(q / p) + (1 - q) * mpmath.log((1 - q) / (1 - p))
            low, high = (p, high) if kl <= c else (low, p)
        return float(low)


def test_the_inverse_is_the_largest_bias_of_that_divergence() -> None:
    """Over shares from 1e-12 to 1 - 1e-12 and divergences from 1e-8 to 10. Kills a start below the root."""
    n = 150
    tiny = 10 ** (-12 * rand(n))
    q = torch.cat((rand(n, 1), tiny, 1 - tiny))
    c = 10 ** (9 * rand(3 * n, 2) - 8)
    pairs = zip(q.tolist(), c.tolist(), strict=True)
    expected = torch.tensor([bisected(*pair) for pair in pairs], dtype=torch.float64)
    found = kl_upper(q, c)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert bool((found >= q).all())


def test_closed_forms_of_the_inverse() -> None:
    """Of a share 0 it is 1 - e^-c, of 1 it is 1; of no divergence the share; both inverses mirror."""
    c = torch.tensor([0.0, 1e-9, 0.1, 3.0], dtype=torch.float64)
    torch.testing.assert_close(kl_upper(torch.zeros(4), c), -torch.expm1(-c), atol=1e-15, rtol=1e-12)
    assert kl_upper(torch.ones(4), c).tolist() == [1.0] * 4
    q = rand(20)
    assert torch.equal(kl_upper(q, torch.tensor(0.0)), q)
    torch.testing.assert_close(kl_lower(torch.ones(4), c), (-c).exp(), atol=1e-15, rtol=1e-12)
    torch.testing.assert_close(binary_kl(q, kl_lower(q, torch.tensor(0.02))), torch.full_like(q, 0.02))


def test_more_arguments_than_a_chunk_holds_keep_their_places_and_shape() -> None:
    q, c = 0.9 * rand(40_000).reshape(200, 200), torch.tensor(0.05, dtype=torch.float64)
    torch.testing.assert_close(binary_kl(q, kl_upper(q, c)), torch.full_like(q, 0.05), atol=1e-12, rtol=0)
    one = kl_upper(q[137, 81], c)
    assert kl_upper(q, c)[137, 81] == one
    assert one.shape == ()


@pytest.mark.parametrize(("q", "c"), [(-0.1, 0.1), (1.1, 0.1), (math.nan, 0.1), (0.5, -0.1), (0.5, math.nan)])
def test_what_is_no_share_and_no_divergence_is_refused(q: float, c: float) -> None:
    with pytest.raises(ValueError, match="must"):
        kl_upper(torch.tensor(q), torch.tensor(c))
