"""Whether a training was finished: slopes against numpy, Student's quantile, noise that lasts."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import linregress
from scipy.stats import t as student

from margin.core.catalog import claims
from margin.core.findings import Verdict
from margin.theory.dynamics.finished import correlation_of, critical_value, demo, falling, slope_of


def history(losses, key="val_loss", every=100):
    return [{"step": every * (k + 1), key: float(x)} for k, x in enumerate(losses)]


def of(losses, **options):
    return dataclasses.replace(demo(), history=history(losses, **options))


def noise(draws, n, rho, seed):
    rng = np.random.default_rng(seed)
    shocks = rng.normal(size=(draws, n))
    made = shocks.copy()
    for t in range(1, n):
        made[:, t] = rho * made[:, t - 1] + math.sqrt(1 - rho**2) * shocks[:, t]
    return torch.tensor(made)


def test_the_slope_is_that_of_the_last_quarter():
    rng = np.random.default_rng(0)
    losses = np.concatenate((np.linspace(5, 1, 90), 1 - 0.01 * np.arange(30) + 0.02 * rng.normal(size=30)))
    found = falling(of(losses))
    steps = 100 * np.arange(91, 121) / 1000
    assert found.value.item() == pytest.approx(linregress(steps, losses[90:]).slope)
    assert found.shown[1].item() < 0 and found.verdict is Verdict.MEASURED
    assert "last 30 of 120 evaluations, from step 9,100 to 12,000" in found.statement


def test_without_memory_the_quantile_is_students():
    # 4,000 draws: the error of the quantile is 2 %.
    for n in (8, 30):
        assert critical_value(torch.arange(n).double(), 0.0) == pytest.approx(
            student.ppf(0.975, n - 2), rel=0.06
        )
    assert critical_value(torch.arange(30).double(), 0.8) > 2 * student.ppf(0.975, 28)


def test_the_correlation_of_noise_is_found_on_average():
    # One standard error is added, 1 / sqrt(n) or less.
    x = np.arange(200)
    for rho in (0.2, 0.6):
        series = noise(60, 200, rho, 1).numpy()
        left = [torch.tensor(u - np.polyval(np.polyfit(x, u, 1), x)) for u in series]
        found = np.mean([correlation_of(u) for u in left])
        assert found == pytest.approx(rho + math.sqrt((1 - rho**2) / 200), abs=0.03)
    assert correlation_of(torch.zeros(9).double()) == 0


@pytest.mark.parametrize(("n", "draws", "most"), [(10, 100, 15), (30, 100, 15), (300, 12, 5)])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_interval_covers_the_slope_of_noise_that_lasts(n, draws, most, rho):
    # Misses of an interval of 95 %: more than these have probability 1e-4. One of least squares misses
    # 25 % at a correlation of .5.
    x = torch.arange(n).double()
    ends = [slope_of(x, 0.3 * x + u) for u in noise(draws, n, rho, n)]
    assert sum(not end.low <= 0.3 <= end.high for end in ends) <= most


def test_a_training_that_ended_early_and_one_that_was_finished():
    rng = np.random.default_rng(7)
    k = np.arange(200)
    early = falling(of(2 - 0.005 * k + 0.02 * rng.normal(size=200)))
    assert early.value.item() == pytest.approx(-0.05, rel=0.1) and early.shown[1].item() < 0
    over = falling(of(0.5 + np.exp(-k / 10) + 0.02 * rng.normal(size=200)))
    assert over.shown[0].item() < 0 < over.shown[1].item()
    rising = falling(of(1 + 0.005 * k + 0.02 * rng.normal(size=200)))
    assert rising.shown[0].item() > 0
    flat = falling(of(np.ones(40)))
    assert flat.value.item() == 0 and flat.shown[1].item() == 0


def test_the_training_loss_stands_in_and_broken_histories_are_said():
    assert "training loss" in falling(of(np.linspace(2, 1, 20), key="train_loss")).statement
    claim = claims()["theory/finished.falling"]
    assert claim.refusal(of(np.ones(7))) == "needs a history of at least 8 losses"
    twice = dataclasses.replace(demo(), history=[*history(np.ones(8)), {"step": 800, "val_loss": 1.0}])
    assert "at least 8 losses" in claim.refusal(twice)
    diverged = falling(of([*np.ones(20), math.inf]))
    assert (
        diverged.verdict is Verdict.FAILED
        and diverged.failure == "the validation loss is not finite at step 2100"
    )
    thin = falling(of(np.linspace(1, 0, 12)))
    assert "last 8 of 12" in thin.statement and claim.question == "trained"
