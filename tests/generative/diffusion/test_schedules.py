"""Noise schedules: Ho's numbers, Nichol's formula, Lin's end, any number of steps."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from margin.generative.diffusion.process import (
    Schedule,
    cosine_schedule,
    linear_schedule,
    schedule_of,
    strided,
    strided_by_ratio,
    zero_terminal,
)


def ho(steps: int = 1000) -> np.ndarray:
    """alpha_bar of the paper, at every (1000 / steps)-th step of its 1000."""
    alpha_bar = np.concatenate(([1.0], np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))))
    return alpha_bar[:: 1000 // steps]


@pytest.mark.parametrize("steps", [1, 2, 8, 50, 1000])
def test_the_linear_schedule_is_hos_at_even_steps(steps: int) -> None:
    schedule = linear_schedule(steps)
    np.testing.assert_allclose(schedule.alpha_bar, ho(steps), rtol=1e-12)
    assert float(schedule.alpha_bar[-1]) == pytest.approx(4.04e-5, rel=2e-3)
    assert schedule.steps == steps
    assert schedule.alpha_bar.dtype == torch.float64


@pytest.mark.parametrize("steps", [3, 7, 999, 1001, 2500])
def test_where_the_steps_do_not_divide_1000_it_lies_between(steps: int) -> None:
    """Between the neighbors, and in the logarithm as far as the time is."""
    found, known = linear_schedule(steps).alpha_bar.numpy(), ho()
    for t in range(steps + 1):
        i, rest = divmod(1000 * t, steps)
        share = rest / steps
        expected = known[i] if not rest else known[i] ** (1 - share) * known[i + 1] ** share
        assert found[t] == pytest.approx(expected, rel=1e-10)


def test_other_ends_of_the_linear_schedule() -> None:
    beta = linear_schedule(1000, first=0.001, last=0.01).beta
    np.testing.assert_allclose(beta[1:], np.linspace(0.001, 0.01, 1000), rtol=1e-10)
    for first, last in ((0.0, 0.1), (0.2, 0.1), (0.1, 1.0), (math.nan, 0.1)):
        with pytest.raises(ValueError, match="0 < first <= last < 1"):
            linear_schedule(10, first=first, last=last)


@pytest.mark.parametrize("steps", [1, 10, 1000])
def test_the_cosine_schedule_is_nichols(steps: int) -> None:
    """betas_for_alpha_bar of their code, and the closed form before the cut."""

    def f(u: float) -> float:
        return math.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2

    beta = [min(1 - f((i + 1) / steps) / f(i / steps), 0.999) for i in range(steps)]
    schedule = cosine_schedule(steps)
    np.testing.assert_allclose(schedule.beta[1:], beta, rtol=1e-9)
    assert float(schedule.beta.max()) <= 0.999 + 1e-12
    t = steps // 2
    assert float(schedule.alpha_bar[t]) == pytest.approx(f(t / steps) / f(0), rel=1e-9)


def test_alpha_and_beta_of_a_schedule_by_hand() -> None:
    schedule = Schedule(torch.tensor([1.0, 0.5, 0.125], dtype=torch.float64))
    assert schedule.alpha.tolist() == [1.0, 0.5, 0.25]
    assert schedule.beta.tolist() == [0.0, 0.5, 0.75]


@pytest.mark.parametrize(
    "levels", [[1.0], [0.9, 0.5], [1.0, 1.0], [1.0, 0.5, 0.5], [1.0, 0.5, -1e-9], [1.0, math.nan]]
)
def test_what_is_no_schedule_is_refused(levels: list[float]) -> None:
    with pytest.raises(ValueError, match="alpha_bar must fall from 1"):
        Schedule(torch.tensor(levels, dtype=torch.float64))


@pytest.mark.parametrize("made", [linear_schedule, cosine_schedule])
@pytest.mark.parametrize("steps", [0, -3])
def test_a_chain_has_a_step(made: object, steps: int) -> None:
    with pytest.raises(ValueError, match=f"steps must be at least 1: got {steps}"):
        made(steps)  # type: ignore[operator]


@pytest.mark.parametrize("beta", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [2, 3, 1000])
def test_the_zero_end_is_lins(beta: str, steps: int) -> None:
    """Algorithm 1 of the paper, written from it: its first index is t = 1."""
    before = schedule_of(steps, beta, "kept")  # type: ignore[arg-type]
    root = np.sqrt(before.alpha_bar[1:].numpy())
    expected = (root - root[-1]) * root[0] / (root[0] - root[-1])
    after = schedule_of(steps, beta, "zero")  # type: ignore[arg-type]
    np.testing.assert_allclose(after.alpha_bar[1:], expected**2, rtol=1e-9, atol=1e-18)
    assert float(after.alpha_bar[-1]) == 0.0
    assert float(after.alpha_bar[1]) == float(before.alpha_bar[1])
    assert after.steps == steps
    assert bool(after.alpha.isfinite().all())


def test_one_step_cannot_be_both_kept_and_zero() -> None:
    with pytest.raises(ValueError, match="needs two steps or more: got 1"):
        zero_terminal(linear_schedule(1))


@pytest.mark.parametrize(("T", "steps"), [(1, 1), (10, 1), (10, 10), (1000, 50), (1000, 999), (7, 3)])
def test_strided_times_fall_from_the_last_to_no_less_than_1(T: int, steps: int) -> None:
    times = strided(linear_schedule(T), steps)
    assert len(times) == steps
    assert int(times[0]) == T
    assert int(times[-1]) >= 1
    assert bool((times.diff() < 0).all())
    gaps = -times.diff()
    assert steps == 1 or (int(times[-1]) == 1 and int(gaps.max() - gaps.min()) <= 1)  # even


def test_strided_times_are_all_there_are_or_refused() -> None:
    assert strided(linear_schedule(4), 4).tolist() == [4, 3, 2, 1]
    assert strided(linear_schedule(1000), 4).tolist() == [1000, 667, 334, 1]
    for steps in (0, 5):
        with pytest.raises(ValueError, match=f"from 1 to the 4 of the schedule: got {steps}"):
            strided(linear_schedule(4), steps)


@pytest.mark.parametrize("made", [linear_schedule, cosine_schedule])
def test_stops_even_by_the_ratio_fall_from_T_to_1(made: Callable[[int], Schedule]) -> None:
    """Any number of them, each once; an end without data is a stop of its own."""
    for T in (1, 2, 3, 10, 57):
        schedules = [made(T)] if T == 1 else [made(T), zero_terminal(made(T))]
        for schedule in schedules:
            for steps in range(1, T + 1):
                stops = strided_by_ratio(schedule, steps)
                assert (len(stops), int(stops[0])) == (steps, T)
                assert bool((stops.diff() < 0).all())
                assert steps <= 2 or int(stops[-1]) == 1
            assert stops.tolist() == list(range(T, 0, -1))
            for wrong in (0, T + 1):
                with pytest.raises(ValueError, match=f"from 1 to the {T} of the schedule: got {wrong}"):
                    strided_by_ratio(schedule, wrong)
