"""Mode coverage: cases by hand, the share of good samples of the mixture itself, collapsed generators."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, entropy
from torch import Generator

from margin.data.sets.mixture_plane import ring
from margin.generative.quality.measures import good_share, mode_coverage

TRUTH = ring().encoding["truth"]
MEANS = torch.tensor(TRUTH["means"]).double()


def drawn(count: int, modes: int = 8, seed: int = 0) -> torch.Tensor:
    generator = Generator().manual_seed(seed)
    labels = torch.randint(modes, (count,), generator=generator)
    return MEANS[labels] + 0.02 * torch.randn(count, 2, generator=generator).double()


def test_a_collapsed_generator_covers_an_eighth() -> None:
    found = mode_coverage(drawn(500, modes=1), MEANS, 0.02)
    assert found.covered == 1
    assert found.covered / len(MEANS) == 1 / 8
    assert found.divergence == pytest.approx(math.log(8))
    assert found.counts.tolist() == [int(found.counts[0]), *[0] * 7]


def test_the_mixture_itself_covers_all_and_has_its_share_of_good_samples() -> None:
    found = mode_coverage(drawn(20_000), MEANS, 0.02)
    assert found.covered == 8
    share = 1 - math.exp(-4.5)
    assert good_share(2) == pytest.approx(share, rel=1e-12)
    # 4.5 deviations of a binomial: fails once in 1e5
    assert abs(found.good - share) < 4.5 * math.sqrt(share * (1 - share) / 20_000)
    # 2 n KL is about chi-squared with 7 degrees
    assert chi2(7).sf(2 * int(found.counts.sum()) * found.divergence) > 1e-5


@pytest.mark.parametrize("dim", [1, 3, 64])
@pytest.mark.parametrize("within", [1.0, 3.0])
def test_the_good_share_is_chi_squared(dim: int, within: float) -> None:
    assert good_share(dim, within=within) == pytest.approx(chi2(dim).cdf(within**2), rel=1e-9)


def test_good_ends_at_three_deviations() -> None:
    means = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    points = torch.tensor([[0.0, 2.999], [3.001, 0.0], [5.0, 0.0], [10.0, -3.0]])
    found = mode_coverage(points, means, 1.0)
    assert found.counts.tolist() == [1, 1]
    assert found.good == 0.5
    assert found.covered == 2
    assert found.divergence == 0
    assert mode_coverage(points, means, 1.0, within=3.1).counts.tolist() == [2, 1]


def test_a_mode_is_covered_by_so_many_good_samples() -> None:
    means = torch.tensor([[0.0], [10.0]])
    points = torch.tensor([[0.0], [0.1], [10.0]])
    assert [mode_coverage(points, means, 1.0, least=k).covered for k in (1, 2, 3)] == [2, 1, 0]


def test_the_divergence_is_that_of_scipy() -> None:
    means = torch.tensor([[0.0], [10.0], [20.0]])
    points = torch.tensor([[0.0]] * 5 + [[10.0]] * 3 + [[99.0]])
    weights = torch.tensor([0.2, 0.3, 0.5])
    found = mode_coverage(points, means, 1.0, weights=weights)
    assert found.divergence == pytest.approx(entropy([5, 3, 0], [0.2, 0.3, 0.5]), rel=1e-6)


def test_a_point_belongs_to_the_mode_that_is_the_fewest_deviations_away() -> None:
    means, std = torch.tensor([[0.0], [10.0]]), torch.tensor([1.0, 5.0])
    assert mode_coverage(torch.tensor([[3.0]]), means, std).counts.tolist() == [0, 1]


def test_no_good_sample_is_an_infinite_divergence() -> None:
    found = mode_coverage(torch.full((3, 2), 99.0), MEANS, 0.02)
    assert (found.covered, found.good, found.divergence) == (0, 0, math.inf)


def test_wrong_input_is_refused() -> None:
    x = drawn(3)
    with pytest.raises(ValueError, match=r"std and within must be positive, least at least 1: got std=0\.0"):
        mode_coverage(x, MEANS, 0.0)
    with pytest.raises(ValueError, match="least=0"):
        mode_coverage(x, MEANS, 1.0, least=0)
    with pytest.raises(ValueError, match="weights must be positive with sum 1"):
        mode_coverage(x, MEANS, 1.0, weights=torch.ones(8))
    with pytest.raises(ValueError, match="the sample must be finite: got 3 of 3"):
        mode_coverage(x * np.nan, MEANS, 1.0)
