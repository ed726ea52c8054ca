"""Calibration against hand cases, an independent numpy implementation and scikit-learn's scores."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t as student
from torch import Generator

from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import HALFSPACE
from margin.theory.prediction.calibration import (
    bin_of,
    binary_demo,
    binary_ece,
    brier,
    brier_score,
    calibrated_errors,
    calibration_interval,
    demo,
    ece,
    expected_calibration_error,
    has_two_classes,
    negative_log_likelihood,
    nll,
    reading_of,
    reliability,
    signed_errors,
)
from margin.theory.prediction.held_out import Terms, stated

CLAIMS = [ece, binary_ece, brier, nll]


def ece_by_masks(p, y, bins, w):
    """Bins ((m - 1) / M, m / M] by comparison, the first closed."""
    total = 0.0
    for m in range(1, bins + 1):
        inside = (p > (m - 1) / bins) & (p <= m / bins)
        if m == 1:
            inside |= p == 0
        if w[inside].sum() > 0:
            frequency = np.average(y[inside], weights=w[inside])
            confidence = np.average(p[inside], weights=w[inside])
            total += w[inside].sum() / w.sum() * abs(frequency - confidence)
    return total


@pytest.mark.parametrize("bins", [1, 2, 10, 15])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_is_an_independent_implementations(bins, seed):
    rng = np.random.default_rng(seed)
    p = np.concatenate([rng.random(200), [0.0, 1.0, 0.5, 0.25, 0.0, 1.0]])
    y = rng.integers(0, 2, len(p)).astype(float)
    for w in (np.ones(len(p)), rng.random(len(p))):
        found = expected_calibration_error(
            torch.tensor(p), torch.tensor(y), bins=bins, weight=torch.tensor(w)
        )
        assert found.item() == pytest.approx(ece_by_masks(p, y, bins, w), abs=1e-12)


def test_bins_are_closed_at_0_and_at_1_and_on_the_right():
    p = torch.tensor([0.0, 1e-9, 0.25, 0.25 + 1e-9, 0.5, 0.75, 1.0], dtype=torch.float64)
    assert bin_of(p, 4).tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert bin_of(torch.tensor([0.0, 1.0]), 15).tolist() == [0, 14]


def test_rounding_beyond_0_and_1_stays_in_the_end_bins():
    assert bin_of(torch.tensor([-1e-7, 1 + 1e-7]), 15).tolist() == [0, 14]


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("n", "repeats"), [(1, 400), (10, 400), (20, 400), (500, 300)])
def test_the_interval_holds_the_populations_error(shift, n, repeats):
    # Probabilities uniform on [0.5, 1], events of probability p - shift: the error is the shift.
    # Of 300 samples 5 % would miss at the most, 15; more than 30 with probability 1e-4.
    generator, missed, wide = Generator().manual_seed(11), 0, 0.0
    for _ in range(repeats):
        p = 0.5 + 0.5 * torch.rand(n, generator=generator, dtype=torch.float64)
        y = torch.rand(n, generator=generator, dtype=torch.float64) < p - shift
        low, high = calibration_interval(p, y, calibrated_errors(p, generator, resamples=100), generator)
        missed, wide = missed + (not low <= shift <= high), wide + high - low
    assert missed <= 0.1 * repeats
    if n == 500:  # no wider than a mean's of signs that are known, -+ 1.96 sqrt(.19 / 500), by more than half
        assert wide / repeats < 1.5 * 2 * 1.96 * math.sqrt(0.19 / n)


def test_one_event_tells_nothing_and_many_sure_ones_what_a_binomial_does():
    one = torch.tensor([0.93], dtype=torch.float64)
    assert calibration_interval(one, torch.ones(1), torch.zeros(9), Generator()) == (0, 1)
    # 100 forecasts of .999 that came true: the rate may be .025^(1/100), whatever the deviation says.
    p = torch.full((100,), 0.999, dtype=torch.float64)
    low, high = calibration_interval(p, torch.ones(100), torch.full((9,), 0.01).double(), Generator())
    assert low == 0 and high == pytest.approx(1 - 0.025**0.01, abs=3e-3)
    with pytest.raises(ValueError, match="level"):
        calibration_interval(p, torch.ones(100), torch.zeros(9), Generator(), level=1.0)


def test_confident_float32_logits_do_not_underflow():
    # exp(-150) is below the least float32.
    subject = stated(torch.tensor([[0.0, 150.0], [150.0, 0.0]]), torch.tensor([0, 0]))
    assert nll(subject).value.item() == pytest.approx(75, rel=1e-12)


def test_probability_0_and_1_are_counted():
    # Right with certainty twice, wrong with certainty once: error 1/3; in 15 bins as in 1.
    p, y = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])
    assert expected_calibration_error(p, y).item() == pytest.approx(1 / 3)
    assert expected_calibration_error(1 - p, 1 - y).item() == pytest.approx(1 / 3)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        bin_of(torch.tensor([0.5, p]), 15)
    with pytest.raises(ValueError, match="at least 1: got 0"):
        bin_of(torch.tensor([0.5]), 0)


def test_the_diagram_recombines_to_the_error():
    rng = np.random.default_rng(0)
    p, y, w = (torch.tensor(x) for x in (rng.random(80), rng.integers(0, 2, 80), rng.random(80)))
    diagram = reliability(p, y.double(), bins=40, weight=w)
    full = diagram.weight > 0
    assert bool((~full).any())
    assert bool(diagram.frequency[~full].isnan().all())
    gaps = (diagram.frequency - diagram.probability).abs()[full]
    error = (diagram.weight[full] * gaps).sum() / w.sum()
    assert error.item() == pytest.approx(
        expected_calibration_error(p, y.double(), bins=40, weight=w).item(), abs=1e-12
    )
    assert diagram.weight.sum().item() == pytest.approx(w.sum().item())


def test_a_calibrated_predictor_measures_no_more_than_chance():
    # Frequencies equal to the probabilities in every bin: the error is 0.
    p = torch.tensor([0.2] * 5 + [0.8] * 5, dtype=torch.float64)
    y = torch.tensor([1.0, 0, 0, 0, 0, 1, 1, 1, 1, 0])
    assert expected_calibration_error(p, y).item() == pytest.approx(0, abs=1e-15)
    # Drawn events: an interval that holds 0, in all but 1 of 20 samples; none of 30 missing more than 7
    # has probability above 0.9999.
    generator = Generator().manual_seed(5)
    missed = 0
    for _ in range(30):
        p = torch.rand(300, generator=generator).double()
        y = (torch.rand(300, generator=generator) < p).double()
        chance = calibrated_errors(p, generator, resamples=200)
        missed += calibration_interval(p, y, chance, generator)[0] > 0
    assert missed <= 7


def test_an_uncalibrated_predictors_interval_excludes_0_and_covers_the_truth():
    # Always 0.9, right with probability 0.7: the error is 0.2 in one bin, and the interval that of a
    # mean: |error - 0.2| <= 4 sqrt(0.21 / 2000).
    generator = Generator().manual_seed(6)
    p = torch.full((2000,), 0.9).double()
    y = (torch.rand(2000, generator=generator) < 0.7).double()
    error = expected_calibration_error(p, y).item()
    low, high = calibration_interval(p, y, calibrated_errors(p, generator), generator)
    width = 2 * 1.96 * math.sqrt(0.21 / 2000)
    assert abs(error - 0.2) < 0.041
    assert 0 < low < error < high
    assert high - low == pytest.approx(width, rel=0.15)


def test_the_chance_level_is_the_mean_of_its_closed_form():
    # One bin: E|mean of n signs| for p = 1/2 is about sqrt(2 / pi) * 0.5 / sqrt(n).
    errors = calibrated_errors(
        torch.full((400,), 0.5).double(), Generator().manual_seed(7), bins=1, resamples=4000
    )
    expected = math.sqrt(2 / math.pi) * 0.5 / 20
    assert errors.mean().item() == pytest.approx(expected, rel=0.05)


def test_resampling_in_chunks_is_resampling(monkeypatch):
    p = torch.rand(50, generator=Generator().manual_seed(8)).double()
    at_once = calibrated_errors(p, Generator().manual_seed(1), resamples=40)
    monkeypatch.setattr("margin.theory.prediction.calibration.DRAWS_AT_ONCE", 150)
    assert len(at_once) == 40
    in_chunks = calibrated_errors(p, Generator().manual_seed(1), resamples=40)
    torch.testing.assert_close(in_chunks, at_once, rtol=0, atol=1e-12)


def test_the_two_readings_of_a_binary_error_differ():
    finding = binary_ece(binary_demo())
    assert finding.labels == ("top-label confidence", "frequency of positives")
    assert finding.value.tolist() == pytest.approx([0, 0.1], abs=1e-12)
    assert ece(binary_demo()).value.tolist() == pytest.approx([0], abs=1e-12)
    assert ece(demo()).value.tolist() == pytest.approx([0.1], abs=1e-12)


def test_the_scores_are_scikit_learns():
    from sklearn.metrics import brier_score_loss, log_loss

    generator = Generator().manual_seed(9)
    logits = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (200,), generator=generator)
    p = logits.softmax(-1).numpy()
    subject = stated(logits, labels)
    assert nll(subject).value.item() == pytest.approx(log_loss(labels.numpy(), p), rel=1e-12)
    one_hot = np.eye(4)[labels.numpy()]
    assert brier(subject).value.item() == pytest.approx(((p - one_hot) ** 2).sum(1).mean(), rel=1e-12)
    two = stated(logits[:, :2], labels % 2)
    q = logits[:, :2].softmax(-1)[:, 1].numpy()
    assert brier(two).value.item() == pytest.approx(2 * brier_score_loss(labels.numpy() % 2, q), rel=1e-12)


def test_hand_scores():
    p = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.5, 0.25, 0.25]]).double()
    labels = torch.tensor([0, 0, 0])
    assert brier_score(p, labels).tolist() == [0, 2, 0.375]
    assert negative_log_likelihood(p, labels).tolist() == pytest.approx([0, math.inf, math.log(2)])


def test_weights_are_repetitions():
    generator = Generator().manual_seed(10)
    logits = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (30,), generator=generator)
    times = torch.randint(0, 4, (30,), generator=generator)
    weighted = stated(logits, labels, times.double())
    repeated = stated(logits.repeat_interleave(times, 0), labels.repeat_interleave(times, 0))
    for claim in (ece, brier, nll):
        torch.testing.assert_close(claim(weighted).value, claim(repeated).value, rtol=1e-12, atol=0)


def test_a_class_of_probability_0_that_happened_leaves_the_likelihood_alone_unasked():
    logits = torch.tensor([[0.0, 2000.0], [0.0, 0.0]])
    subject = stated(logits, torch.tensor([0, 1]))
    with pytest.raises(NotAsked, match=r"the mean is infinite: .* in 1 of 2 held-out forecasts"):
        nll(subject)
    assert brier(subject).verdict == Verdict.MEASURED
    assert ece(subject).verdict == Verdict.MEASURED


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("everywhere", [False, True])
def test_nan_outputs_fail_every_finding(claim, everywhere):
    logits = torch.zeros(5, 2)
    logits[slice(None) if everywhere else 2] = math.nan
    finding = claim(stated(logits, torch.zeros(5).long()))
    assert finding.verdict == Verdict.FAILED
    assert ("5 of 5" if everywhere else "1 of 5") in finding.failure
    finding.as_json()


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_is_no_distribution_is_unfounded(claim):
    import dataclasses

    subject = stated(torch.full((4, 2), 0.7), torch.zeros(4).long())
    task = dataclasses.replace(subject.task, probabilities=lambda outputs: outputs)
    finding = claim(dataclasses.replace(subject, task=task))
    assert finding.verdict == Verdict.UNFOUNDED
    assert any("sums differ from 1 by 4.0e-01" in premise.evidence for premise in finding.premises)


@pytest.mark.parametrize("claim", CLAIMS)
def test_asking_twice_gives_the_same_and_moves_no_generator(claim):
    before = torch.get_rng_state()
    first, second = claim(demo()), claim(demo())
    assert first.as_json() == second.as_json()
    assert torch.equal(torch.get_rng_state(), before)


def test_two_classes_are_recognized():
    assert has_two_classes(demo())
    assert not has_two_classes(stated(torch.zeros(3, 3), torch.zeros(3).long()))
    assert not has_two_classes(stated(torch.zeros(3), torch.zeros(3).long(), task=HALFSPACE))
    with pytest.raises(ValueError, match="two classes: got 3"):
        binary_ece(stated(torch.zeros(3, 3), torch.zeros(3).long()))


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"0\.\.1: got 0\.\.2"):
        ece(stated(torch.zeros(3, 2), torch.tensor([0, 1, 2])))


def test_probabilities_of_classes_are_read_by_their_top_label_arrays_too() -> None:
    p = torch.tensor(
        [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1]], dtype=torch.float64
    )
    y = torch.tensor([0, 2, 2, 0])
    # confidences .7 right, .8 wrong, .4 right, .6 right, each in a bin of its own of ten: .6 and .7 end one
    by_hand = (abs(1 - 0.7) + abs(0 - 0.8) + abs(1 - 0.4) + abs(1 - 0.6)) / 4
    assert expected_calibration_error(p, y, bins=10).item() == pytest.approx(by_hand, abs=1e-12)
    assert expected_calibration_error(p.numpy(), y.numpy(), bins=10).item() == pytest.approx(
        by_hand, abs=1e-12
    )
    of_events = expected_calibration_error(np.array([0.2, 0.9]), np.array([0, 1]))
    assert of_events.item() == pytest.approx((0.2 + 0.1) / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("p", "y", "rule"),
    [
        (torch.rand(4), torch.tensor([0, 1, 2, 1]), "outcomes must be 0 or 1: got 2"),
        (torch.rand(4, 3), torch.tensor([0, 1, 3, 1]), "labels must be integers from 0 to 2"),
        (torch.rand(4, 3), torch.rand(4), "labels must be integers"),
        (torch.rand(4, 3), torch.zeros(3, dtype=torch.long), r"got \(4, 3\) and \(3,\)"),
        (torch.rand(4), torch.zeros(4, 1), r"probabilities must be \(n,\) or \(n, classes\)"),
    ],
)
def test_outcomes_that_fit_no_probability_are_refused(p: torch.Tensor, y: torch.Tensor, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        expected_calibration_error(p, y)


@pytest.mark.parametrize("n", [12, 400])
def test_the_interval_is_its_formula_on_halves_whose_signs_differ(n):
    """The formula of the docstring in numpy, with scipy's quantile of Student's t.

    Mutants: signs of a half applied to itself, deviations over n and not n - 1, one side's level for two.
    """
    draws = np.random.default_rng(5)
    p = draws.uniform(0.5, 1, n)
    y = (draws.uniform(size=n) < np.where(p < 0.8, p - 0.45, p)).astype(float)
    generator = torch.Generator().manual_seed(8)
    half = (torch.randperm(n, generator=torch.Generator().manual_seed(8)) % 2).numpy()
    place = np.minimum(np.ceil(p * 15).astype(int) - 1, 14)
    excess = y - p
    totals = np.array([[excess[(half == h) & (place == m)].sum() for m in range(15)] for h in (0, 1)])
    assert (totals[0] * totals[1] < 0).any()
    crossed = np.sign(totals[1 - half, place]) * excess
    own = np.sign(totals.sum(0)[place]) * excess
    spread = max(crossed.std(ddof=1), own.std(ddof=1)) / math.sqrt(n)
    h = math.hypot(student.ppf(0.975, n - 1) * spread, math.log(2 / 0.05) / n)
    error = abs(totals.sum(0)).sum() / n
    low, high = calibration_interval(
        torch.from_numpy(p), torch.from_numpy(y), torch.zeros(3, dtype=torch.float64), generator
    )
    assert high == pytest.approx(min(error + h, 1.0), rel=1e-9)
    assert low == pytest.approx(max(crossed.mean() - h, 0.0), rel=1e-9)
    assert n < 100 or low > 0.1


@pytest.mark.parametrize("shift", [0.0, 0.15])
def test_forecasts_of_one_example_err_together(shift):
    """Events of an example happen with p plus an amount of its own, of mean -shift: the error is the shift.

    Of 200 samples 5 % would miss at the most, 10; more than 26 with probability 1e-5. Taken for independent
    events they miss 60 or more at shift 0, where they seem not to be calibrated.
    """
    generator, missed, wide = Generator().manual_seed(4), 0, 0.0
    n, size = 30, 60
    weight = torch.ones(n * size, dtype=torch.float64)
    terms = Terms(weight, weight, torch.arange(n).repeat_interleave(size))
    for _ in range(200):
        p = 0.6 + 0.25 * torch.rand(n * size, generator=generator, dtype=torch.float64)
        own = 0.3 * (torch.rand(n, generator=generator, dtype=torch.float64) - 0.5) - shift
        happened = torch.rand(n * size, generator=generator, dtype=torch.float64) < p + own[terms.example]
        found = reading_of(p, happened.double(), terms, bins=15, level=0.95, resamples=100)
        missed, wide = missed + (not found.low <= shift <= found.high), wide + found.high - found.low
    assert missed <= 26
    assert wide / 200 < 0.2  # Kish's 30 examples would allow 0.4


def test_signs_of_examples_measure_what_chance_does():
    """Against draws of the outcomes themselves, with an amount of each example's own, 0 in the mean."""
    n, size, generator = 60, 200, Generator().manual_seed(6)
    p = 0.6 + 0.25 * torch.rand(n * size, generator=generator, dtype=torch.float64)
    weight = torch.ones(n * size, dtype=torch.float64)
    terms = Terms(weight, weight, torch.arange(n).repeat_interleave(size))

    def outcomes() -> torch.Tensor:
        own = 0.3 * (torch.rand(n, generator=generator, dtype=torch.float64) - 0.5)
        return torch.rand(n * size, generator=generator, dtype=torch.float64) < p + own[terms.example]

    drawn = torch.stack([expected_calibration_error(p, outcomes()) for _ in range(300)])
    signed = signed_errors(p, outcomes(), terms, generator, resamples=2000)
    assert float(signed.mean()) == pytest.approx(float(drawn.mean()), rel=0.1)
    assert float(signed.std()) == pytest.approx(float(drawn.std()), rel=0.25)
    assert float(calibrated_errors(p, generator, resamples=100).mean()) < 0.75 * float(drawn.mean())
