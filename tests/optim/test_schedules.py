"""Schedules at their ends and in the middle, against torch's, resumable, refused where out of range."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from margin.optim.schedules import SCHEDULES, plateau, schedule_of

OPTIONS = {
    "step": {"every": 7, "factor": 0.5},
    "exponential": {"factor": 0.97},
    "power": {"p": 0.75, "t0": 5},
}


@pytest.mark.parametrize(
    ("name", "middle", "last"), [("constant", 1, 1), ("linear", 0.5, 0), ("cosine", 0.5, 0)]
)
def test_the_factor_runs_from_one_to_its_end(name: str, middle: float, last: float) -> None:
    factor = schedule_of(name, total=100, warmup=0)
    assert factor(0) == 1
    assert abs(factor(50) - middle) <= 1e-12
    assert abs(factor(100) - last) <= 1e-12
    assert abs(factor(1000) - last) <= 1e-12


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rise_is_linear_and_ends_at_one(name) -> None:
    factor = schedule_of(name, total=20, warmup=5, options=OPTIONS.get(name))
    assert [factor(k) for k in range(5)] == [0.2, 0.4, 0.6, 0.8, 1.0]
    if name == "inverse_sqrt":
        assert abs(factor(5) - math.sqrt(5 / 6)) <= 1e-15
    else:
        assert factor(5) == 1.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_rises_after_the_warmup(name) -> None:
    factor = schedule_of(name, total=50, warmup=3, options=OPTIONS.get(name))
    values = [factor(k) for k in range(2, 60)]
    assert all(0 <= b <= a for a, b in pairwise(values))


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("constant", lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0)),
        ("cosine", lambda o: lr_scheduler.CosineAnnealingLR(o, 40)),
        ("linear", lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, 40)),
        ("step", lambda o: lr_scheduler.StepLR(o, 7, 0.5)),
        ("exponential", lambda o: lr_scheduler.ExponentialLR(o, 0.97)),
    ],
)
def test_rates_are_those_of_torchs_schedulers(name, theirs) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = theirs(optimizer)
    factor = schedule_of(name, total=40, warmup=0, options=OPTIONS.get(name))
    for k in range(40):
        assert abs(0.3 * factor(k) - optimizer.param_groups[0]["lr"]) <= 1e-14
        optimizer.step()
        scheduler.step()


def test_a_power_and_an_inverse_root_by_hand() -> None:
    factor = schedule_of("power", total=9, warmup=2, options={"p": 0.75, "t0": 5})
    assert abs(factor(2 + 10) - 3**-0.75) <= 1e-15
    assert schedule_of("power", total=9, warmup=0, options={"p": 1})(3) == 0.25
    # Vaswani et al.: d^-1/2 min(n^-1/2, n w^-3/2) over its largest value, at the n-th step
    factor = schedule_of("inverse_sqrt", total=9, warmup=4)
    for n in range(1, 30):
        assert abs(factor(n - 1) - min(n**-0.5, n * 4**-1.5) * 4**0.5) <= 1e-15
    assert abs(schedule_of("inverse_sqrt", total=9, warmup=0)(8) - 1 / 3) <= 1e-15


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cosin", {}, "unknown schedule 'cosin'; nearest: cosine"),
        ("step", {}, "the schedule step needs every: got no options"),
        ("exponential", {}, "the schedule exponential needs factor: got no options"),
        ("power", {"t0": 3}, r"the schedule power needs p: got \{'t0': 3\}"),
        ("cosine", {"every": 3}, "the schedule cosine has no option 'every'; it has: none"),
        ("step", {"every": 3, "gamma": 0.1}, "the schedule step has no option 'gamma'; it has: .*factor"),
        ("step", {"every": 0}, "every must be a whole number of steps, at least 1: got 0"),
        ("step", {"every": 2.5}, r"every must be a whole number of steps, at least 1: got 2\.5"),
        ("step", {"every": 2, "factor": 1.5}, r"factor must be in \(0, 1\]: got 1\.5"),
        ("exponential", {"factor": 0}, r"factor must be in \(0, 1\]: got 0"),
        ("exponential", {"factor": math.nan}, r"factor must be in \(0, 1\]: got nan"),
        ("exponential", {"factor": "half"}, "factor must be a number: got 'half'"),
        ("power", {"p": -1}, "p must be at least 0 and finite: got -1"),
        ("power", {"p": 1, "t0": 0}, "t0 must be positive and finite: got 0"),
    ],
)
def test_what_does_not_fit_is_refused(name, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        schedule_of(name, total=10, warmup=0, options=options)


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_a_plateau_drops_where_torchs_does(patience) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=patience, threshold=0.0, eps=0.0)
    generator = torch.Generator().manual_seed(patience)
    values = [1 / (1 + k) + float(torch.randn((), generator=generator)) for k in range(40)]
    values[5] = values[20] = math.nan
    values[9] = values[8]  # an equal value is no better one
    for k, value in enumerate(values):
        theirs.step(value)
        assert plateau(values[: k + 1], patience=patience, factor=0.5) == optimizer.param_groups[0]["lr"]
    assert optimizer.param_groups[0]["lr"] < 1


def test_a_plateau_by_hand() -> None:
    values = [3.0, 2.0, 2.0, 2.5, math.nan, 1.0, 1.5, 1.5, 1.5]
    drops = [plateau(values[:k], patience=2, factor=0.1) for k in range(10)]
    assert drops == [1, 1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1, pytest.approx(0.01)]
    assert plateau([math.nan] * 3, patience=0, factor=0.5) == 0.125


def test_a_plateau_out_of_range_is_refused() -> None:
    with pytest.raises(
        ValueError, match="patience must be a whole number of evaluations, at least 0: got -1"
    ):
        plateau([], patience=-1, factor=0.5)
    with pytest.raises(ValueError, match=r"factor must be in \(0, 1\]: got 0"):
        plateau([], patience=1, factor=0)
