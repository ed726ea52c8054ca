"""The distance on the line beside scipy's and an assignment; sliced, beside closed forms of shifts."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance
from torch import Generator

import margin.math.two_samples.sliced_wasserstein as module
from margin.math.two_samples.sliced_wasserstein import sliced_wasserstein, wasserstein


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed)).double()


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (6, 4), (7, 7), (16, 9), (100, 33)])
def test_the_distance_of_order_1_is_that_of_scipy(n: int, m: int) -> None:
    x, y = normal(n, 3), 2 * normal(m, 3, seed=1) + 1
    expected = [wasserstein_distance(x[:, k], y[:, k]) for k in range(3)]
    np.testing.assert_allclose(wasserstein(x, y), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.5])
@pytest.mark.parametrize(("n", "m"), [(6, 6), (6, 4), (2, 3)])
def test_any_order_is_the_best_assignment_of_repeated_points(order: float, n: int, m: int) -> None:
    # both samples repeated to n m points: brute-force transport between equal masses
    x, y = normal(n, 1), normal(m, 1, seed=1)
    cost = (x.repeat_interleave(m, 0) - y.repeat_interleave(n, 0).T).abs().numpy() ** order
    row, column = linear_sum_assignment(cost)
    expected = cost[row, column].mean() ** (1 / order)
    assert float(wasserstein(x, y, order=order)) == pytest.approx(expected, rel=1e-12)


def test_ties_cost_nothing() -> None:
    x = torch.tensor([[0.0], [0.0], [1.0]]).double()
    assert float(wasserstein(x, x.repeat(2, 1))) == 0
    assert float(wasserstein(x, torch.zeros(1, 1).double())) == pytest.approx(1 / 3)


def test_two_points_of_the_plane() -> None:
    # W(theta x, theta y) = |a| |cos|: SW_1 = 2 |a| / pi, SW_2 = |a| / sqrt 2; 4,000 directions, 5 errors
    x, y = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    for order, expected in ((1.0, 10 / math.pi), (2.0, 5 / math.sqrt(2))):
        found = sliced_wasserstein(x, y, generator=Generator().manual_seed(0), directions=4000, order=order)
        assert abs(found.value - expected) < 5 * found.stderr
        assert found.stderr < 0.02 * expected


@pytest.mark.parametrize("dim", [3, 10])
def test_a_shift_is_its_length_over_the_root_of_the_dimension(dim: int) -> None:
    x = normal(50, dim)
    found = sliced_wasserstein(x, x + 2, generator=Generator().manual_seed(1), directions=2000)
    assert abs(found.value - 2) < 5 * found.stderr
    assert 0 < found.stderr < 0.1


def test_the_stated_error_is_that_of_the_directions() -> None:
    x, y = normal(30, 3), normal(20, 3, seed=1) + 0.5
    found = [
        sliced_wasserstein(x, y, generator=Generator().manual_seed(s), directions=50) for s in range(200)
    ]
    spread = float(np.std([f.value for f in found]))
    stated = float(np.mean([f.stderr for f in found]))
    # the deviation of 200 draws has a relative error of 1/20: 5 of them
    assert spread == pytest.approx(stated, rel=0.25)


def test_chunks_of_directions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = normal(20, 4), normal(31, 4, seed=1)
    whole = sliced_wasserstein(x, y, generator=Generator().manual_seed(0))
    monkeypatch.setattr(module, "CHUNK", 7 * 51)
    parts = sliced_wasserstein(x, y, generator=Generator().manual_seed(0))
    assert parts.value == pytest.approx(whole.value, rel=1e-12)
    assert parts.stderr == pytest.approx(whole.stderr, rel=1e-12)


def test_one_column_needs_no_directions() -> None:
    x, y = normal(20, 1), normal(20, 1, seed=1)
    generator = Generator().manual_seed(3)
    before = generator.get_state()
    found = sliced_wasserstein(x, y, generator=generator, order=1)
    assert torch.equal(generator.get_state(), before)
    assert found == (pytest.approx(wasserstein_distance(x[:, 0], y[:, 0])), 0.0)


def test_a_sample_is_at_distance_0_from_itself_whatever_its_order() -> None:
    x = normal(40, 2, 3)
    found = sliced_wasserstein(x, x.flip(0), generator=Generator().manual_seed(0))
    assert found.value == pytest.approx(0, abs=1e-12)
    assert math.isfinite(found.stderr)


def test_wrong_options_are_refused() -> None:
    x = normal(3, 2)
    with pytest.raises(ValueError, match=r"order must be at least 1: got 0\.5"):
        sliced_wasserstein(x, x, generator=Generator(), order=0.5)
    with pytest.raises(ValueError, match="directions must be at least 2, for an error: got 1"):
        sliced_wasserstein(x, x, generator=Generator(), directions=1)
    with pytest.raises(ValueError, match="must be finite: got 3 of 3 rows"):
        sliced_wasserstein(x * torch.nan, x, generator=Generator())
    with pytest.raises(ValueError, match="two samples: got 0 and 3 rows"):
        wasserstein(x[:0], x)
