"""What a chain promises: kept, at the edge, broken on purpose, unfounded for data wider than noise."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict
from margin.core.types import Batch
from margin.generative.diffusion import chain_claims as diffusion_claims
from margin.generative.diffusion.chain_claims import (
    conservation,
    demo,
    divergences,
    end,
    entropy,
    has_middle,
    posteriors,
)
from margin.generative.diffusion.model import Diffusion
from margin.generative.diffusion.networks import diffusion as points
from margin.generative.diffusion.process import Schedule, cosine_schedule, linear_schedule, zero_terminal


def of(model: nn.Module, x: Tensor) -> Subject:
    return dataclasses.replace(demo(), model=model, test=[Batch((x,))], train=[Batch((x,))])


def chain(schedule: Schedule, dim: int = 2, **options: str) -> Diffusion:
    """A network that answers something, as an untrained one."""
    torch.manual_seed(0)

    class Any(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(dim + 1, dim)

        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            out: Tensor = self.map(torch.cat((x, t[:, None] / 100), 1))
            return out

    return Diffusion(Any(), schedule, (dim,), **options)  # type: ignore[arg-type]


def rows(count: int, dim: int, seed: int) -> Tensor:
    g = Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=g) @ torch.randn(dim, dim, generator=g)


@pytest.mark.parametrize("seed", range(4))
def test_any_chain_conserves_posteriors_and_divergences(seed: int) -> None:
    """36 energies within 4 standard errors of a tenth of d at most: seeds fixed, 6e-5 each."""
    schedule = (linear_schedule(1000), cosine_schedule(30), linear_schedule(2), linear_schedule(7))[seed]
    variance, kind = ("small", "large")[seed % 2], ("eps", "v", "x0", "eps")[seed]
    subject = of(chain(schedule, 3, variance=variance, parametrization=kind), rows(40, 3, seed))
    for ask in (conservation, posteriors, divergences):
        assert ask(subject).verdict == Verdict.HOLDS


def test_energy_is_that_of_the_examples_at_first_and_d_at_last() -> None:
    x = 5 * rows(60, 2, 0)
    found = conservation(of(chain(linear_schedule(100)), x))
    assert found.low is not None
    assert float(found.low[0]) == pytest.approx(float(x.square().sum(1).double().mean()), rel=2e-3)
    assert float(found.low[-1]) == pytest.approx(2, abs=0.02)


def test_noise_that_adds_energy_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """x_0 + noise, not scaled down: the variance explodes."""
    monkeypatch.setattr(diffusion_claims, "jump", lambda x0, eps, level: x0 + (1 - level).sqrt().to(x0) * eps)
    assert conservation(of(chain(linear_schedule(100)), rows(60, 2, 0))).verdict == Verdict.VIOLATED


def test_the_notes_posterior_is_told_from_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """1/sqrt(abar_t) in place of 1/sqrt(a_t)."""

    def printed(eps: Tensor, x_t: Tensor, level: Tensor, before: Tensor) -> Tensor:
        return (x_t - (1 - level / before) / (1 - level).sqrt() * eps) / level.sqrt()

    monkeypatch.setattr(diffusion_claims, "posterior_mean", printed)
    subject = of(chain(linear_schedule(20)), rows(30, 2, 0))
    assert posteriors(subject).verdict == Verdict.VIOLATED
    assert divergences(subject).verdict == Verdict.VIOLATED


def test_what_the_end_tells_is_a_divergence_in_closed_form() -> None:
    x = rows(50, 2, 1)
    found = end(of(chain(linear_schedule(5)), x))
    level = float(linear_schedule(5).alpha_bar[-1])
    expected = 0.5 * (level * x.double().square().sum(1) - 2 * level - 2 * math.log1p(-level))
    assert float(found.value) == pytest.approx(float(expected.mean()), rel=1e-5)
    nothing = end(of(chain(zero_terminal(linear_schedule(5)), parametrization="v"), x))
    assert float(nothing.value) == 0.0


def gaussian(s2: float, dim: int = 2) -> Tensor:
    """Rows of exactly this covariance."""
    corners = torch.cat((torch.eye(dim), -torch.eye(dim))).double()
    return corners * math.sqrt(s2 * (2 * dim - 1) / 2)


def test_a_step_back_is_less_certain_exactly_where_noise_adds_no_entropy() -> None:
    """Data N(0, s^2 I) in the plane: the difference is ln(V_{t-1} / V_t), of the sign of s - 1."""
    schedule = linear_schedule(20)
    for s2, verdict in ((0.25, Verdict.HOLDS), (1.0, Verdict.HOLDS), (4.0, Verdict.UNFOUNDED)):
        found = entropy(of(chain(schedule).double(), gaussian(s2)))
        assert found.verdict == verdict
        v = schedule.alpha_bar * s2 + 1 - schedule.alpha_bar
        expected = (v[1:-1] / v[2:]).log().max()
        assert float(found.value) == pytest.approx(float(expected), abs=1e-12)
        assert (float(found.value) > 1e-6) == (s2 > 1)
    assert found.premises[1].evidence == "it falls at 19 steps, the first t = 2"
    assert "assumed" in {premise.status for premise in found.premises}


def test_a_chain_of_one_step_has_no_middle_nor_one_whose_second_leaves_nothing() -> None:
    x = rows(10, 2, 0)
    for schedule, middle in (
        (linear_schedule(1), False),
        (zero_terminal(linear_schedule(2)), False),
        (linear_schedule(2), True),
        (zero_terminal(linear_schedule(3)), True),
    ):
        subject = of(chain(schedule, parametrization="v"), x)
        assert has_middle(subject) == middle
        if middle:
            for ask in (posteriors, divergences):
                assert ask(subject).verdict == Verdict.HOLDS
    assert not has_middle(dataclasses.replace(demo(), model=nn.Linear(2, 2)))


def test_a_network_that_answers_nothing_fails() -> None:
    model = chain(linear_schedule(5))
    with torch.no_grad():
        model.network.map.weight.fill_(math.nan)  # type: ignore[union-attr, operator]
    assert divergences(of(model, rows(10, 2, 0))).verdict == Verdict.FAILED


def test_they_are_asked_of_diffusions() -> None:
    refusal = claims()["generative/diffusion.end"].refusal
    other = dataclasses.replace(demo(), model=nn.Linear(2, 2))
    assert not refusal(demo())
    assert "a diffusion" in refusal(other)
    with pytest.raises(ValueError, match="asked of a diffusion: got Linear"):
        end(other)
    assert not refusal(of(points(2, hidden=8, steps=3), rows(4, 2, 0)))
