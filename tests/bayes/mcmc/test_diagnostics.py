"""R-hat and effective sample sizes: another library's, closed forms of AR(1), the chains they must catch."""

import math

import pytest
import torch

from margin.bayes.mcmc.diagnostics import (
    autocovariance,
    effective_sample_size,
    r_hat,
    rank_normalized,
    split,
    tail_sample_size,
)

DOUBLE = torch.float64
ARVIZ = {
    "ar": (1.0039233072623959, 308.2255830608647, 631.4818706142383),
    "anti": (0.9984210598072287, 2640.1000348330613, 1651.0893000406109),
    "shift": (1.1231439486744001, 372.73035548783287, 638.7526912501097),
    "heavy": (1.2142987171947983, 473.448567863836, 169.0137865729993),
}
ODD = {
    "ar": (1.0548505102015338, 84.43649253592983, 144.42815953565068),
    "anti": (0.9961677414897881, 799.42687594813, 499.37532390838294),
    "shift": (1.0433211263411366, 145.90624340099032, 203.8246341567725),
    "heavy": (1.2508053789196039, 124.43319512822217, 156.62697685298158),
}
"""Rank-normalized split R-hat, bulk and tail effective sample size of ArviZ 0.23.4; of the first three
chains' first 151 draws."""


def chains(kind: str) -> torch.Tensor:
    """(400 draws, 4 chains) that any other library can be given."""
    i = torch.arange(400, dtype=DOUBLE)
    rho = {"ar": 0.8, "anti": -0.5, "shift": 0.3, "heavy": 0.5}[kind]
    found = []
    for c in range(4):
        e = (i * i * 0.37 + c * 1.7).sin() + 0.5 * (i * 12.9898 + c * 4.1).sin()
        x = torch.zeros(400, dtype=DOUBLE)
        for t in range(1, 400):
            x[t] = rho * x[t - 1] + e[t]
        if kind == "shift":
            x = x + 0.4 * c
        if kind == "heavy":
            x = (x.atan() * 0.98).tan() * (1 + 3 * (c == 0))
        found.append(x)
    return torch.stack(found, 1)


@pytest.mark.parametrize("kind", ARVIZ)
def test_they_are_those_of_arviz(kind) -> None:
    for draws, expected in ((chains(kind), ARVIZ[kind]), (chains(kind)[:151, :3], ODD[kind])):
        found = [float(measure(draws)) for measure in (r_hat, effective_sample_size, tail_sample_size)]
        assert found == pytest.approx(expected, rel=1e-9)


def test_several_numbers_are_measured_as_each_by_itself() -> None:
    both = torch.stack((chains("ar"), chains("heavy")), 2)
    for measure in (r_hat, effective_sample_size, tail_sample_size):
        alone = torch.stack([measure(both[:, :, k]) for k in range(2)])
        assert torch.allclose(measure(both), alone)


def test_the_effective_share_of_an_autoregression_is_the_closed_form() -> None:
    """(1 - r) / (1 + r) of 400,000 draws; the estimate's deviation is below 2 %, ten of them below 20 %."""
    generator = torch.Generator().manual_seed(0)
    for r in (0.0, 0.9, -0.6):
        noise = torch.randn(50_000, 8, generator=generator, dtype=DOUBLE)
        x = noise.clone()
        for t in range(1, 50_000):
            x[t] = r * x[t - 1] + (1 - r * r) ** 0.5 * noise[t]
        share = float(effective_sample_size(x)) / x.numel()
        assert share == pytest.approx((1 - r) / (1 + r), rel=0.2)
        assert float(r_hat(x)) < 1.01


def test_a_drift_a_scale_and_a_place_of_its_own_are_seen() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(500, 4, generator=generator, dtype=DOUBLE)
    drift = x + torch.linspace(0, 3, 500, dtype=DOUBLE)[:, None]
    wide, apart = x.clone(), x.clone()
    wide[:, 0] *= 5
    apart[:, 0] += 2
    assert float(r_hat(x)) < 1.01
    for bad in (drift, wide, apart):
        assert float(r_hat(bad)) > 1.1
    assert float(r_hat(x.exp().exp())) == pytest.approx(float(r_hat(x)), abs=0.01)  # no moment is needed


def test_ranks_share_ties_and_halves_leave_out_the_middle() -> None:
    draws = torch.tensor([[1.0], [3.0], [3.0], [9.0], [2.0]], dtype=DOUBLE)
    expected = torch.special.ndtri((torch.tensor([1, 3.5, 3.5, 5, 2], dtype=DOUBLE) - 0.375) / 5.25)
    assert torch.allclose(rank_normalized(draws)[:, 0], expected)
    assert split(draws).T.tolist() == [[1, 3], [9, 2]]
    with pytest.raises(ValueError, match="draws of a chain must be at least 4: got 3"):
        split(draws[:3])


def test_autocovariance_is_the_sum_of_products() -> None:
    x = chains("ar")[:9]
    off = x - x.mean(0)
    expected = torch.stack([(off[: 9 - k] * off[k:]).sum(0) / 9 for k in range(9)])
    assert torch.allclose(autocovariance(x), expected)


def test_draws_that_never_move_have_no_measure() -> None:
    assert math.isnan(float(r_hat(torch.ones(8, 2, dtype=DOUBLE))))
