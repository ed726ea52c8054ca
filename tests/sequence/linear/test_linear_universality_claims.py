"""Reading a layer's state back: exact at the roots of unity, hopeless on the real axis."""

import dataclasses
import math

import pytest
import torch
from torch import Generator

from margin.core.findings import Subject, Verdict
from margin.core.types import Batch
from margin.sequence.linear.lru import LRU
from margin.sequence.linear.lru_claims import (
    EPS,
    LONGEST,
    longest_sequence,
    readback,
    reading,
    reading_demo,
)


def of(layer: LRU, time: int = 12) -> Subject:
    return dataclasses.replace(reading_demo(), model=layer, test=[Batch((torch.zeros(2, time, 1),))])


def with_eigenvalues(modulus: torch.Tensor, phase: torch.Tensor) -> LRU:
    """A layer of one input number that gives every state the same drive, 1 after its gain."""
    layer = LRU(1, states=len(modulus)).double()
    with torch.no_grad():
        layer.nu.copy_((-modulus.log()).log())
        layer.phi.copy_(phase)
        layer.B.zero_()
        layer.B[:, 0] = 1 / (-torch.expm1(-2 * layer.nu.exp())).sqrt()[:, None]
    return layer


def half_circle(states: int) -> LRU:
    """The roots of -1 of order 2 m above the real axis, on a circle of radius 1 to 1e-12."""
    phase = math.pi * (torch.arange(states, dtype=torch.float64) + 0.5) / states
    return with_eigenvalues(torch.full((states,), 1 - 1e-12, dtype=torch.float64), phase)


@pytest.mark.parametrize("seed", range(10))
def test_it_holds_as_layers_begin(seed: int) -> None:
    torch.manual_seed(seed)
    found = reading(of(LRU(1, states=24)))
    assert found.verdict == Verdict.HOLDS
    assert float(found.high) < 1e-8


def test_roots_on_the_circle_hold_two_numbers_a_state_with_condition_1() -> None:
    answer = readback(half_circle(16), 1000, Generator().manual_seed(0))
    assert answer.steps == 32
    assert answer.condition == pytest.approx(1.0, abs=1e-9)
    assert answer.error < 32 * EPS
    assert reading(of(half_circle(16), time=32)).verdict == Verdict.HOLDS


def test_real_eigenvalues_promise_nothing() -> None:
    layer = with_eigenvalues(
        torch.linspace(0.02, 0.98, 40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    )
    found = reading(of(layer, time=40))
    assert found.verdict == Verdict.VACUOUS
    assert math.isinf(float(found.high))
    assert float(found.value) > 1e-3


def test_a_layer_that_forgets_a_step_is_caught_by_its_bound() -> None:
    class Forgetful(LRU):
        def driven(self, x: torch.Tensor) -> torch.Tensor:
            driven = super().driven(x)
            return torch.cat((torch.zeros_like(driven[:, :1]), driven[:, 1:]), 1)

    torch.manual_seed(0)
    assert reading(of(Forgetful(1, states=24))).verdict == Verdict.VIOLATED


class Off(LRU):
    """A unit whose last state is off by a relative share."""

    share = 0.0

    def forward(self, x, lengths=None, state=None):  # type: ignore[no-untyped-def]
        y, (zeta,) = super().forward(x, lengths, state)
        return y, (zeta * (1 + self.share),)


@pytest.mark.parametrize(("times", "verdict"), [(3.0, Verdict.VIOLATED), (0.1, Verdict.HOLDS)])
def test_no_more_is_promised_than_t_cond_eps(times: float, verdict: Verdict) -> None:
    torch.manual_seed(0)
    layer = Off(1, states=24)
    answer = readback(layer, 12, Generator().manual_seed(0))
    layer.share = times * answer.steps * answer.condition * EPS
    assert reading(of(layer)).verdict == verdict


def test_a_layer_that_reads_nothing_is_vacuous_and_nan_fails() -> None:
    torch.manual_seed(0)
    layer = LRU(1, states=8)
    with torch.no_grad():
        layer.B.zero_()
    assert reading(of(layer)).verdict in (Verdict.VACUOUS, Verdict.FAILED)
    with torch.no_grad():
        layer.nu[0] = math.nan
    assert reading(of(layer)).verdict == Verdict.FAILED


def test_the_condition_rises_with_time() -> None:
    torch.manual_seed(0)
    by_time = readback(LRU(1, states=8), 16, Generator().manual_seed(0)).by_time
    assert len(by_time) == 16
    assert bool((by_time.diff() > -1e-9).all())  # a part of the columns is better conditioned
    assert float(by_time[0]) == pytest.approx(1.0)


def test_as_many_steps_are_read_as_the_longest_sequence_has() -> None:
    assert longest_sequence(of(LRU(1), time=9)) == 9
    assert longest_sequence(of(LRU(1), time=1000)) == LONGEST
    assert longest_sequence(of(LRU(1), time=0)) == 1
    several = [Batch((torch.zeros(2, time, 1),)) for time in (0, 40, 7)]
    assert longest_sequence(dataclasses.replace(reading_demo(), test=several)) == 40
