"""Mixtures of Gaussians: moments, density, distribution function, quantiles: torch.distributions's."""

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from margin.math.probability.mixtures import Mixture

MEANS = torch.tensor([[0.0, 1.0, 5.0], [3.0, 1.0, -5.0], [0.5, 1.0, 0.0]], dtype=torch.float64)
VARIANCES = torch.tensor([[1.0, 0.5, 0.01], [0.2, 2.0, 0.3], [4.0, 1.0, 1.0]], dtype=torch.float64)
LAW = Mixture(MEANS, VARIANCES)
PEER = MixtureSameFamily(Categorical(torch.ones(3, 3).double()), Normal(MEANS.T, VARIANCES.T.sqrt()))


def test_moments_density_and_distribution_are_torchs() -> None:
    y = torch.tensor([0.7, -2.0, 4.9], dtype=torch.float64)
    assert torch.allclose(LAW.mean, PEER.mean)
    assert torch.allclose(LAW.variance, PEER.variance)
    assert torch.allclose(LAW.log_density(y), PEER.log_prob(y))
    assert torch.allclose(LAW.cdf(y), PEER.cdf(y))


@pytest.mark.parametrize("level", [0.025, 0.3, 0.5, 0.975])
def test_a_quantile_is_the_inverse_of_the_distribution(level: float) -> None:
    assert torch.allclose(PEER.cdf(LAW.quantile(level)), torch.full((3,), level).double(), atol=1e-9)
    single = Mixture(MEANS[:1], VARIANCES[:1])
    assert torch.allclose(
        single.quantile(level), Normal(MEANS[0], VARIANCES[0].sqrt()).icdf(torch.tensor(level).double())
    )


def test_a_law_of_no_width_is_a_step() -> None:
    law = Mixture(torch.tensor([[2.0]]).double(), torch.zeros(1, 1).double())
    assert [float(law.cdf(torch.tensor([y]).double())) for y in (1.9, 2.0, 2.1)] == [0, 1, 1]
    assert float(law.quantile(0.3)) == 2


def test_another_unit_moves_mean_and_deviation() -> None:
    moved = LAW.moved(torch.tensor(3.0).double(), torch.tensor(-2.0).double())
    assert torch.allclose(moved.mean, 3 - 2 * LAW.mean)
    assert torch.allclose(moved.variance, 4 * LAW.variance)


def test_a_level_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\): got 1"):
        LAW.quantile(1.0)
