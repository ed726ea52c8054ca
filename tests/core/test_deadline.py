"""A deadline ends every loop that reads it, of each kind that passes nothing through a model."""

import time

import pytest
import torch

from margin.classic.perceptron.separation import by_linear_program, by_mistakes
from margin.core.deadline import check_deadline, deadline, duration, seconds_left
from margin.core.findings import NotAsked
from margin.theory.evidence.label_noise import fitted_noise
from margin.theory.prediction.baselines import _logistic
from margin.theory.prediction.calibration import calibrated_errors
from margin.theory.prediction.failures import worst_segment
from margin.theory.prediction.temperature import Scored, best_temperature, temperature_limits
from margin.theory.regions.arrangements import cells

G = torch.Generator().manual_seed(0)
X = torch.randn(400, 20, generator=G, dtype=torch.float64)
LABELS = torch.randint(3, (400,), generator=G)
P = torch.rand(400, 3, generator=G, dtype=torch.float64).softmax(1)
ONES = torch.ones(400, dtype=torch.float64)
SCORED = Scored(P.log(), LABELS, ONES, torch.arange(400))

LOOPS = {
    "resampling": lambda: calibrated_errors(P[:, 0], torch.Generator().manual_seed(1), resamples=20_000),
    "temperatures": lambda: fitted_noise(P, LABELS),
    "a root that is searched": lambda: best_temperature(SCORED),
    "an interval that is searched": lambda: temperature_limits(SCORED, 1.5, 0.95),
    "a linear program": lambda: by_linear_program(X * (2.0 * (LABELS > 0) - 1)[:, None]),
    "the mistake rule": lambda: by_mistakes(X),
    "segments": lambda: worst_segment(X, ONES.cumsum(0)),
    "linear programs, one a cell": lambda: cells(X[:6, :2], X[:6, 2]),
    "an optimizer of scikit-learn": lambda: _logistic(X, LABELS[:, None], ONES),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_what_passes_nothing_through_a_model_is_stopped(kind):
    LOOPS[kind]()  # without a deadline it ends
    with pytest.raises(NotAsked, match=r"^stopped after"), deadline(time.perf_counter() + 1e-5):
        LOOPS[kind]()
    assert seconds_left() == torch.inf


def test_a_loop_ends_soon_after_its_time_and_a_linear_program_within():
    z = torch.randn(4000, 300, generator=G, dtype=torch.float64)
    for long in (
        lambda: calibrated_errors(P[:, 0].repeat(2500), G, resamples=10_000),  # 10 billion draws
        lambda: by_linear_program(z),
    ):
        start, until = time.process_time(), time.perf_counter() + 0.2
        with pytest.raises(NotAsked, match=r"stopped after .*: its time is up"), deadline(until):
            long()
        assert time.process_time() - start < 3  # of the processor, which others may have meanwhile


def test_what_comes_next_is_refused_where_it_would_end_late():
    with deadline(time.perf_counter() + 5):
        check_deadline(2.0)
        assert 4 < seconds_left() <= 5
    refused = r"stopped after .* s: a pass needs about 6 s of \d"
    with pytest.raises(NotAsked, match=refused), deadline(time.perf_counter() + 5):
        check_deadline(6.0, "a pass")
    with pytest.raises(NotAsked, match=r"its time is up$"), deadline(time.perf_counter() - 1):
        check_deadline(3e-5, "a pass")


def test_who_goes_on_after_a_refusal_is_stopped_when_done():
    """Whatever was made of it, an error of another kind too; Ctrl-C stays Ctrl-C."""

    def swallow(then):
        with deadline(time.perf_counter() - 1):
            with pytest.raises(NotAsked):
                check_deadline()
            if then is not None:
                raise then

    for then, expected in (
        (None, NotAsked),
        (ValueError(), NotAsked),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):
        with pytest.raises(expected):
            swallow(then)
    with pytest.raises(ValueError, match="its own"), deadline(time.perf_counter() + 5):
        raise ValueError("its own")


def test_times_are_spoken_in_their_unit():
    assert [duration(s) for s in (0.0, 4.04, 57.5, 180, 9000)] == ["0 s", "4 s", "0.96 min", "3 min", "2.5 h"]
