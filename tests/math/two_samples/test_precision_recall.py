"""Precision, recall, density and coverage beside loops over their definitions and their expectations."""

import math

import numpy as np
import pytest
import torch
from torch import Generator

import margin.math.two_samples.distances as two_samples
from margin.math.two_samples.precision_recall import expected_coverage, overlap, overlap_stderr, radii


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed)).double()


def by_hand(real: np.ndarray, fake: np.ndarray, k: int) -> list[float]:
    def radius(sample: np.ndarray, i: int) -> float:
        return sorted(np.linalg.norm(sample[i] - sample[j]) for j in range(len(sample)) if j != i)[k - 1]

    inside = np.array([[np.linalg.norm(x - y) <= radius(real, i) for y in fake] for i, x in enumerate(real)])
    other = np.array([[np.linalg.norm(x - y) <= radius(fake, j) for x in real] for j, y in enumerate(fake)])
    return [
        inside.any(0).mean(),
        other.any(0).mean(),
        inside.sum() / (k * len(fake)),
        inside.any(1).mean(),
    ]


@pytest.mark.parametrize(("n", "m", "k"), [(4, 4, 3), (16, 9, 1), (12, 16, 5)])
@pytest.mark.parametrize("held", [3, 2**20])
def test_it_is_what_the_definitions_say(n: int, m: int, k: int, held: int, monkeypatch) -> None:
    monkeypatch.setattr(two_samples, "CHUNK", held)
    for seed in range(5):
        real, fake = normal(n, 2, seed=2 * seed), normal(m, 2, seed=2 * seed + 1) * 1.5 + 0.5
        found = overlap(real, fake, neighbors=k)
        np.testing.assert_allclose(found.values, by_hand(real.numpy(), fake.numpy(), k), rtol=1e-12)


def test_an_outlier_does_not_raise_density_as_it_raises_precision() -> None:
    # one real outlier's ball swallows the generated cloud beside it (Naeem et al. 2020, Figure 2)
    real = torch.cat((normal(20, 2) * 0.1, torch.tensor([[10.0, 0.0]]).double()))
    fake = normal(20, 2, seed=1) * 0.1 + torch.tensor([5.0, 3.0]).double()
    found = overlap(real, fake, neighbors=3)
    assert found.precision == 1
    assert found.density == pytest.approx(1 / 3)
    assert found.coverage == pytest.approx(1 / 21)


def test_a_collapsed_generator_is_precise_and_recalls_nothing() -> None:
    real = normal(30, 2)
    fake = real[:1].repeat(20, 1)
    found = overlap(real, fake, neighbors=2)
    assert found.precision == 1
    assert found.recall == pytest.approx(1 / 30)  # the row itself: closed balls of radius 0
    assert found.coverage < 0.3


def test_balls_are_closed() -> None:
    real = torch.tensor([[0.0], [1.0], [3.0]]).double()
    found = overlap(real, torch.tensor([[-1.0], [-1.001], [9.0]]).double(), neighbors=1)
    assert found.precise.tolist() == [True, False, False]
    assert found.covered.tolist() == [True, False, False]


def test_a_row_is_not_its_own_neighbor_even_beside_copies() -> None:
    x = torch.tensor([[0.0], [0.0], [1.0], [5.0]]).double()
    assert radii(x, 1).tolist() == [0, 0, 1, 4]
    assert radii(x, 2).tolist() == [1, 1, 1, 5]


@pytest.mark.parametrize(("n", "m", "k"), [(20, 20, 3), (30, 10, 5)])
def test_of_one_law_coverage_and_density_have_their_expectations(n: int, m: int, k: int) -> None:
    found = [overlap(normal(n, 2, seed=2 * s), normal(m, 2, seed=2 * s + 1), neighbors=k) for s in range(300)]
    for values, expected in (
        ([f.coverage for f in found], expected_coverage(n, m, neighbors=k)),
        ([f.density for f in found], 1.0),
    ):
        error = np.std(values, ddof=1) / math.sqrt(300)
        assert abs(np.mean(values) - expected) < 4.5 * error  # fails once in 1e5
        assert error < 0.03


def test_the_expected_coverage_by_counting() -> None:
    # the nearest k of the others are all real: C(n - 1, k) / C(n + m - 1, k)
    for n, m, k in ((2, 1, 1), (6, 4, 2), (50, 70, 5)):
        missed = math.comb(n - 1, k) / math.comb(n + m - 1, k)
        assert expected_coverage(n, m, neighbors=k) == pytest.approx(1 - missed, rel=1e-12)


def test_wrong_input_is_refused() -> None:
    x = normal(5, 2)
    with pytest.raises(ValueError, match="the real sample must have at least 6 rows: got 5"):
        overlap(x, x, neighbors=5)
    assert overlap(x, x, neighbors=4).precision == 1
    with pytest.raises(ValueError, match="neighbors must be at least 1: got 0"):
        overlap(x, x, neighbors=0)
    with pytest.raises(ValueError, match="the generated sample must be finite"):
        overlap(x, x * torch.nan, neighbors=2)


def test_the_stated_error_is_about_the_spread() -> None:
    found, stated = [], []
    for s in range(60):
        real, fake = normal(64, 2, seed=2 * s), 0.7 * normal(48, 2, seed=2 * s + 1)
        found.append(overlap(real, fake, neighbors=3).values)
        stated.append(overlap_stderr(real, fake, neighbors=3, generator=Generator().manual_seed(s)))
    spread = torch.stack(found).std(0)
    mean = torch.stack(stated).square().mean(0).sqrt()
    # 60 draws know a spread to 9 %; 8 groups, an error that is not linear in the rows
    assert bool((mean > 0.6 * spread).all())
    assert bool((mean < 2 * spread).all())


def test_the_error_is_that_of_leaving_groups_out() -> None:
    # as many groups as rows: each row left out once, whatever the order
    real, fake = normal(9, 2), normal(9, 2, seed=1)
    variance = torch.zeros(4).double()
    for side in (0, 1):
        left = []
        for i in range(9):
            kept = [k for k in range(9) if k != i]
            parts = (real[kept], fake) if side == 0 else (real, fake[kept])
            left.append(torch.tensor(by_hand(*(p.numpy() for p in parts), 2)).double())
        values = torch.stack(left)
        variance += 8 / 9 * (values - values.mean(0)).square().sum(0)
    found = overlap_stderr(real, fake, neighbors=2, generator=Generator().manual_seed(0), groups=9)
    torch.testing.assert_close(found, variance.sqrt())
    with pytest.raises(ValueError, match=r"groups must be in 2 \.\. the size of a sample: got 10 of 9, 9"):
        overlap_stderr(real, fake, neighbors=2, generator=Generator(), groups=10)
