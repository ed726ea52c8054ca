"""Collisions of codes that are too narrow, power sums of what is held out, and elements listed twice."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.types import Batch
from margin.geometric.sets.claims import (
    collides,
    collides_demo,
    collision,
    continuity,
    demo,
    demonstration,
    inversion,
    matched,
    twice,
    whole_numbers,
)
from margin.geometric.sets.deep_sets import DeepSets, regressor
from margin.math.groups.power_sums import power_sums


class Powers(nn.Module):
    """x -> (x, ..., x^d)."""

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.degree = degree

    def forward(self, x: Tensor) -> Tensor:
        return x ** torch.arange(1, self.degree + 1)


def numbers() -> Tensor:
    return torch.randn(50, 1, generator=Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_one_power_sum_too_few_lets_two_sets_collide(degree: int) -> None:
    model = DeepSets(Powers(degree), nn.Identity())
    pair = collision(model, numbers(), degree)
    assert pair.first.shape == (degree + 1, 1)
    assert pair.distance > 0.1 and pair.gap < 1e-11
    p, q = (power_sums(one[:, 0], degree + 1) for one in (pair.first, pair.second))
    torch.testing.assert_close(p[:degree], q[:degree], rtol=1e-10, atol=1e-10)
    # one more tells them apart, as Newton and Girard say
    assert float((p - q)[degree].abs()) > 1e-3


@pytest.mark.parametrize("options", [{}, {"pool": "max"}, {"pool": "mean"}, {"features": 1}])
def test_any_continuous_code_that_is_too_narrow_collides(options: dict[str, object]) -> None:
    subject = demonstration(**{"features": 4, **options})
    finding = collides(subject)
    assert finding.verdict == Verdict.HOLDS
    pair = collision(subject.model.double(), torch.randn(20, 2, dtype=torch.float64), 4)
    outputs = [subject.model(one[None]) for one in (pair.first, pair.second)]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-9)


def test_a_code_that_jumps_is_refused_by_its_layer() -> None:
    phi = nn.Sequential(nn.Linear(2, 3), nn.Hardshrink())
    finding = collides(replace(collides_demo(), model=DeepSets(phi, nn.Linear(3, 1))))
    assert finding.verdict == Verdict.UNFOUNDED
    assert "phi.1 (Hardshrink(0.5)) jumps" in finding.premises[0].evidence
    assert continuity(nn.Threshold(0.1, 0.1)).status == "assumed"
    assert continuity(nn.Threshold(0.1, 0.2)).status == "refuted"
    assert continuity(Powers(2)).status == "assumed"
    assert continuity(nn.Sequential(nn.Linear(2, 2), nn.Tanh())).status == "proved"


def test_a_set_is_not_passed_off_as_a_collision_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the way cannot be gone the same set comes back: its gap is 0, and this must fail.
    monkeypatch.setattr(
        "margin.geometric.sets.claims.moved_along", lambda code, start, apart, generator: start
    )
    finding = collides(collides_demo())
    assert finding.verdict == Verdict.FAILED and "no two different sets" in finding.failure


def test_nan_fails() -> None:
    nan = regressor(2, features=3)
    nn.init.constant_(nan.phi[0].weight, torch.nan)
    assert collides(replace(collides_demo(), model=nan)).verdict == Verdict.FAILED


def test_sets_are_matched_at_best() -> None:
    a = torch.tensor([[0.0], [1.0], [5.0]])
    assert matched(a, a[[2, 0, 1]]) == 0
    assert matched(a, torch.tensor([[6.0], [0.0], [1.0]])) == pytest.approx(1 / 3)


def test_floating_point_numbers_are_whole_numbers_of_a_unit() -> None:
    found, unit = whole_numbers(torch.tensor([0.1, -3.0, 2.5]))
    assert [float(one * unit) for one in found] == torch.tensor([0.1, -3.0, 2.5]).tolist()


def test_what_is_held_out_is_read_back() -> None:
    finding = inversion(demo())
    assert finding.verdict == Verdict.HOLDS and float(finding.value) == 0
    tied = Batch((torch.ones(2, 8, 2),), torch.zeros(2))
    assert inversion(replace(demo(), test=[tied])).verdict == Verdict.HOLDS


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_listing_twice_changes_no_mean_and_no_maximum(pool: str) -> None:
    assert twice(demonstration(pool=pool)).verdict == Verdict.HOLDS


def test_listing_twice_changes_sums_and_what_only_looks_like_a_mean() -> None:
    finding = twice(demonstration(pool="sum"))
    assert finding.verdict == Verdict.MEASURED and float(finding.value) > 1e-3

    class Counting(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + 1e-6 * x.shape[1]

    subject: Subject = demonstration(pool="mean")
    assert twice(replace(subject, model=Counting(subject.model))).verdict == Verdict.VIOLATED
