"""What first-order methods do on a model's own convex loss, beside their bounds."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.dynamics import rate_claims
from margin.theory.dynamics.rate_claims import accelerated, demo, descent, heavy_ball, linear, stationary

SQUARED = (linear, accelerated, heavy_ball)
ALL = (descent, stationary, *SQUARED)


def values(seed, rows=40, features=6, spread=5.0, rank=None):
    g = Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=g, dtype=torch.float64)
    x = x * torch.logspace(0, math.log10(spread), features, dtype=torch.float64)
    if rank is not None:
        x[:, rank:] = x[:, :1] @ torch.ones(1, features - rank, dtype=torch.float64)
    batch = Batch((x,), torch.randn(rows, generator=g, dtype=torch.float64))
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 1), nn.Flatten(0)).double()
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


def labels(seed):
    g = Generator().manual_seed(seed)
    x = torch.randn(50, 4, generator=g)
    batch = Batch((x,), torch.randint(3, (50,), generator=g))
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    return Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ask", ALL, ids=lambda ask: ask.__name__)
def test_the_bounds_hold_on_random_regressions(ask, seed):
    assert ask(values(seed)).verdict is Verdict.HOLDS
    assert ask(values(seed, rank=2)).verdict is Verdict.HOLDS  # not strongly convex
    begun = dataclasses.replace(values(seed), initial=values(seed + 7).model)
    finding = ask(begun)
    assert finding.verdict is Verdict.HOLDS and "training began" in finding.statement


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ask", [descent, stationary], ids=lambda ask: ask.__name__)
def test_the_bounds_of_smooth_functions_hold_on_random_classifiers(ask, seed):
    assert ask(labels(seed)).verdict is Verdict.HOLDS


def test_the_demonstrations_have_the_numbers_of_two_curvatures():
    # X'X / 5 = diag(2, 1): curvatures 4 and 2, the minimizer (0.8, 1.4); a step at 1/4 takes away all of the
    # first coordinate's error and half of the second's, three quarters of its gap
    g2 = (4 * 0.8) ** 2 + (2 * 1.4) ** 2
    fell = 4 * 0.8**2 / 2 + 0.75 * 2 * 1.4**2 / 2
    assert descent(demo()).value.item() == pytest.approx(fell / (g2 / 8), rel=1e-6)
    # after T steps the gap is that of the gentle direction, times 1/4 a step
    gaps = linear(demo()).value
    whole = 4 * 0.8**2 / 2 + 2 * 1.4**2 / 2
    for gap, T in zip(gaps.tolist(), rate_claims.STEPS, strict=True):
        assert gap == pytest.approx(2 * 1.4**2 / 2 / 4**T / whole, abs=1e-9)
    assert linear(demo()).high.tolist() == pytest.approx([0.5**T for T in rate_claims.STEPS])
    assert stationary(demo()).value[0].item() == pytest.approx(g2, rel=1e-9)


def test_the_descent_lemma_is_met_with_equality_where_all_curvatures_agree():
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    batch = Batch((x,), torch.tensor([3.0, 1.0], dtype=torch.float64))
    subject = dataclasses.replace(demo(), test=[batch], train=[batch])
    assert descent(subject).value.item() == pytest.approx(1, abs=1e-6)
    assert heavy_ball(subject).value.tolist() == pytest.approx([0, 0, 0], abs=1e-9)


@pytest.mark.parametrize(("wrong", "ask"), [("L", descent), ("L", stationary), ("L", accelerated)])
def test_with_too_small_a_constant_the_promise_breaks(monkeypatch, wrong, ask):
    true = rate_claims.curved
    monkeypatch.setattr(rate_claims, "curved", lambda h, task: true(h, task)._replace(L=true(h, task).L / 4))
    assert ask(values(0)).verdict in (Verdict.VIOLATED, Verdict.FAILED)


def test_with_too_large_a_mu_the_linear_promise_breaks(monkeypatch):
    monkeypatch.setattr(rate_claims, "FLAT", 0.5)  # leaves out the gentle directions: their error is not seen
    assert linear(values(0)).verdict is Verdict.HOLDS
    monkeypatch.setattr(rate_claims, "linear_factor", lambda mu, L: 1 - 3 * mu / L)
    monkeypatch.setattr(rate_claims, "FLAT", 1e-8)
    assert linear(values(0)).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("ask", ALL, ids=lambda ask: ask.__name__)
def test_nothing_is_said_of_inputs_that_are_no_numbers_or_a_start_at_the_minimum(ask):
    broken = values(0)
    broken.train[0].inputs[0][0, 0] = math.nan
    assert ask(broken).verdict is Verdict.FAILED
    if ask is not stationary:
        batch = Batch(demo().train[0].inputs, torch.zeros(5, dtype=torch.float64))
        rest = ask(dataclasses.replace(demo(), train=[batch]))  # from 0, the minimizer
        assert rest.verdict is Verdict.FAILED and "begins" in rest.failure


@pytest.mark.parametrize("ask", ALL, ids=lambda ask: ask.__name__)
def test_a_net_is_not_asked(ask):
    claim = next(c for c in claims().values() if c.ask.endswith(f"rate_claims:{ask.__name__}"))
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    assert claim.refusal(dataclasses.replace(labels(0), model=net)).startswith("is asked only of")
    assert not claim.refusal(values(0))
    if ask in SQUARED:
        assert claim.refusal(labels(0)).startswith("is asked only of")
    with pytest.raises(ValueError, match="squared error or a cross-entropy"):
        ask(dataclasses.replace(values(0), objective=lambda m, b, g: m(*b.inputs)))
