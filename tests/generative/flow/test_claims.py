"""Questions to flows: they hold, they name a broken inverse and a wrong determinant, and NaN fails."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.engine.objectives import negative_log_density
from margin.generative.flow.claims import demo, inverse, is_flow, is_small, log_det, radius, stretch
from margin.generative.flow.gaussian_made import GaussianMADE
from margin.generative.flow.image_bound import negative_bound
from margin.generative.flow.realnvp import realnvp
from margin.generative.flow.realnvp_images import RealNVPImages


class Scaling(nn.Module):
    """x -> factor x in two numbers, whose inverse and log-determinant may be told wrong."""

    def __init__(self, factor: float, off: float = 0.0, volume: float = 0.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))
        self.off, self.volume = off, volume

    def transform(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.factor * x, 2 * self.factor.abs().log() + self.volume + 0 * x[:, 0]

    def inverse(self, z: Tensor) -> Tensor:
        return z / self.factor + self.off


def of(core: nn.Module, x: Tensor) -> Subject:
    return Subject(model=core, test=[Batch((x,))], task=DENSITY, objective=negative_log_density)


def drawn(count: int, dim: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, dim, generator=Generator().manual_seed(0))


@pytest.mark.parametrize("seed", range(3))
def test_couplings_and_masked_networks_are_inverted_as_promised(seed: int) -> None:
    torch.manual_seed(seed)
    for core, x in ((realnvp(5), drawn(40, 5)), (GaussianMADE(3, hidden=(8,)), drawn(40, 3))):
        for ask in (inverse, log_det):
            assert ask(of(core, x)).verdict == Verdict.HOLDS
            assert ask(of(core.double(), x.double())).verdict == Verdict.HOLDS
            core.float()


def test_a_flow_of_images_is_asked_too() -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 1, 4, 4, generator=Generator().manual_seed(0))
    subject = dataclasses.replace(of(RealNVPImages(1, (4, 4), width=4), x), objective=negative_bound)
    assert [ask(subject).verdict for ask in (inverse, log_det)] == [Verdict.HOLDS, Verdict.HOLDS]


@pytest.mark.parametrize(("off", "verdict"), [(0.9e-5, Verdict.HOLDS), (1.3e-5, Verdict.VIOLATED)])
def test_the_tolerance_is_one_in_100_000(off: float, verdict: Verdict) -> None:
    x = drawn(10, 2, 0.1)
    assert inverse(of(Scaling(2.0, off), x)).verdict == verdict
    # for numbers of size 10 it is 10 times as wide
    assert inverse(of(Scaling(2.0, off), torch.full((3, 2), 10.0))).verdict == Verdict.HOLDS


def test_a_wrong_volume_is_told() -> None:
    x = drawn(10, 2)
    assert log_det(of(Scaling(3.0), x)).verdict == Verdict.HOLDS
    found = log_det(of(Scaling(3.0, volume=1e-8), x))
    assert found.verdict == Verdict.VIOLATED
    assert float(found.value[0]) == pytest.approx(1e-8, abs=1e-12)


def test_a_map_that_flattens_has_no_inverse_in_floating_point() -> None:
    """Scaled by 1e-6 the inverse stretches 1e6 times: what is promised of real numbers is not of float32."""
    assert stretch(Scaling(1e-6), torch.ones(1, 2), Generator().manual_seed(0)) == pytest.approx(
        1e6, rel=1e-3
    )
    torch.manual_seed(0)
    core = realnvp(2, layers=4, hidden=(4,), max_log_scale=8.0)
    with torch.no_grad():
        for network in core.couplings.networks:
            network[-1].bias[0] = -9.0  # type: ignore[index]
    found = inverse(of(core, drawn(10, 2)))
    assert found.verdict == Verdict.UNFOUNDED
    assert "most in couplings.networks." in found.premises[0].evidence


def test_the_radius_of_normal_noise_is_as_promised_and_of_wider_noise_not() -> None:
    from scipy.stats import chi2, kstest

    identity = Scaling(1.0)
    x = drawn(5_000, 2)
    found = radius(of(identity, x))
    expected = kstest(x.double().square().sum(1).numpy(), chi2(2).cdf).statistic
    assert float(found.value) == pytest.approx(expected, abs=1e-9)
    assert found.interval is not None
    assert float(found.interval[0]) == 0.0  # 1e-4 by Massart, a fixed seed
    wide = radius(of(identity, 1.5 * x))
    assert wide.verdict == Verdict.MEASURED
    assert wide.interval is not None
    assert float(wide.interval[0]) > 0.05


def test_the_radius_of_images_is_that_of_their_cells() -> None:
    """One level of two in every pixel: points have one radius, cells a law."""
    torch.manual_seed(0)
    core = RealNVPImages(1, (2, 2), scales=1, width=4, levels=2)
    found = radius(of(core, torch.ones(200, 1, 2, 2)))
    assert len(found.curves["held-out"].unique()) > 100


def test_nan_fails_and_others_are_not_asked() -> None:
    subject = demo()
    with torch.no_grad():
        next(subject.model.parameters()).fill_(math.nan)
    for ask in (inverse, log_det, radius):
        assert ask(subject).verdict == Verdict.FAILED
    assert is_flow(demo())
    assert is_small(demo())
    assert not is_flow(of(nn.Linear(2, 2), drawn(2, 2)))
    assert not is_small(of(nn.Linear(2, 2), drawn(2, 129)))
