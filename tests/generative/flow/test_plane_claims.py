"""Questions to a density: its mass by grid and samples, and what it knows more than a Gaussian."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CODES, DENSITY
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.engine.objectives import negative_log_density
from margin.generative.flow.claims import gain, is_density, is_narrow, is_plane, mass, plane_demo
from margin.nn.preprocessed import Preprocessed


class Normal(nn.Module):
    """N(0, I) whose log-density is off by a number, or whose samples are too wide."""

    def __init__(self, off: float = 0.0, std: float = 1.0) -> None:
        super().__init__()
        self.off, self.std = nn.Parameter(torch.tensor(off)), std

    def log_prob(self, x: Tensor) -> Tensor:
        return torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(1) + self.off

    def sample(self, count: int, *, generator: Generator) -> Tensor:
        return self.std * torch.randn(count, 2, generator=generator)


def drawn(count: int, dim: int = 2, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=Generator().manual_seed(seed))


def of(core: nn.Module, test: Tensor, train: Tensor | None = None) -> Subject:
    return Subject(
        model=core,
        test=[Batch((test,))],
        train=() if train is None else [Batch((train,))],
        task=DENSITY,
        objective=negative_log_density,
    )


@pytest.mark.parametrize(
    ("core", "verdict"),
    [
        (Normal(), Verdict.HOLDS),
        (Normal(0.005), Verdict.HOLDS),
        (Normal(0.03), Verdict.VIOLATED),
        (Normal(-0.03), Verdict.VIOLATED),
    ],
)
def test_a_mass_of_1_is_told_from_one_of_a_few_percent_more(core: nn.Module, verdict: Verdict) -> None:
    """The interval, of a fixed seed, misses the truth with probability 1e-4."""
    assert mass(of(core, drawn(10))).verdict == verdict


class HeavyTails(Normal):
    """Student's t of 2 degrees in each number: about 1 in 1,000 lies outside of the box of its samples."""

    def log_prob(self, x: Tensor) -> Tensor:
        return torch.distributions.StudentT(2.0).log_prob(x).sum(1)

    def sample(self, count: int, *, generator: Generator) -> Tensor:
        u = 2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1
        return (u * (2 / (1 - u.square())).sqrt()).float()


def test_the_mass_outside_of_the_box_is_added() -> None:
    found = mass(of(HeavyTails(), drawn(10)))
    assert found.verdict == Verdict.HOLDS
    assert found.interval is not None
    assert float(found.interval[0]) < float(found.value) < float(found.interval[1])


def test_what_the_samples_leave_outside_is_counted() -> None:
    """A box of the samples of N(0, 1/4 I) holds 89% of N(0, I) at most: density and sampler disagree."""
    found = mass(of(Normal(std=0.5), drawn(10)))
    assert found.verdict == Verdict.VIOLATED
    assert float(found.value) < 0.95


def test_the_picture_is_in_the_users_units() -> None:
    scale = Standardize(torch.tensor([10.0, -5.0]), torch.tensor([2.0, 0.5]))
    x = torch.tensor([10.0, -5.0]) + torch.tensor([2.0, 0.5]) * drawn(20)
    curves = mass(of(Preprocessed(scale, Normal()), x)).curves
    assert torch.equal(curves["density points"], x)
    peak = int(curves["log density"].argmax())
    row, column = divmod(peak, curves["log density"].shape[1])
    assert float(curves["density x"][column]) == pytest.approx(10, abs=0.2)
    assert float(curves["density y"][row]) == pytest.approx(-5, abs=0.05)


def test_the_gain_over_a_gaussian_is_torchs() -> None:
    train, test = 2 * drawn(500) + 1, 2 * drawn(300, seed=1) + 1
    found = gain(of(Normal(), test, train))
    theirs = torch.distributions.MultivariateNormal(
        train.double().mean(0), train.double().T.cov(correction=0)
    ).log_prob(test.double())
    each = Normal().log_prob(test).detach().double() - theirs
    assert float(found.value) == pytest.approx(float(each.mean()), abs=1e-6)
    assert float(found.stderr) == pytest.approx(float(each.std()) / math.sqrt(300), rel=1e-6)
    assert found.verdict == Verdict.MEASURED


def test_that_few_examples_show_no_tails_is_said() -> None:
    few, many = (gain(of(Normal(), drawn(n, seed=1), drawn(500))).remarks for n in (299, 300))
    assert "heavy tails" in few[0] and many == ()


def test_beside_a_covariance_that_is_singular_it_is_not_asked() -> None:
    train = drawn(50)
    train[:, 1] = 0
    with pytest.raises(NotAsked, match="singular"):
        gain(of(Normal(), drawn(5), train))


def test_nan_fails() -> None:
    subject = of(Normal(math.nan), drawn(5), drawn(50))
    assert mass(subject).verdict == Verdict.FAILED
    assert gain(subject).verdict == Verdict.FAILED


def test_what_they_need() -> None:
    assert is_density(plane_demo())
    assert is_plane(plane_demo())
    assert is_narrow(plane_demo())
    assert not is_plane(of(Normal(), drawn(3, 3)))
    assert not is_density(dataclasses.replace(plane_demo(), task=CODES))
    assert not is_narrow(of(Normal(), drawn(3), drawn(2)))
