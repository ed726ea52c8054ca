"""Margins against hand cases, numpy's weighted quantile and the exact coverage of order statistics."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import binom
from torch import Generator

from margin.auditing.subject.outputs import PLACE_CLASSES
from margin.core.findings import Verdict
from margin.core.tasks import CLASSES, HALFSPACE
from margin.theory.prediction.figures import margins as draw_margins
from margin.theory.prediction.held_out import stated
from margin.theory.prediction.margins import demo, distribution, output_margins, quantile_interval
from margin.theory.prediction.risk import accuracy


def test_the_margin_is_the_right_score_less_the_best_other():
    scores = torch.tensor([[3.0, 1, 2], [3, 1, 2], [2, 2, 0], [-math.inf, 0, -1]])
    assert output_margins(scores, torch.tensor([0, 2, 1, 1])).tolist() == [1, -1, 0, 1]


def test_a_margin_needs_two_classes_and_labels_among_them():
    with pytest.raises(ValueError, match="two classes: got 1"):
        output_margins(torch.zeros(2, 1), torch.zeros(2).long())
    for label in (-1, 3):
        with pytest.raises(ValueError, match=r"0\.\.2"):
            output_margins(torch.zeros(1, 3), torch.tensor([label]))


def test_for_a_halfspace_the_margin_is_y_times_z():
    z = torch.tensor([0.5, -2.0, 0.0])
    y = torch.tensor([1, 1, 0])
    assert output_margins(HALFSPACE.classes(z), y).tolist() == [0.5, -2.0, 0.0]


def test_shifting_all_scores_of_an_example_changes_nothing():
    generator = Generator().manual_seed(0)
    scores = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (20,), generator=generator)
    shift = torch.randn(20, 1, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(output_margins(scores + shift, labels), output_margins(scores, labels))


def test_without_ties_the_share_of_positive_margins_is_the_accuracy():
    generator = Generator().manual_seed(1)
    scores = torch.randn(500, 4, generator=generator)
    labels = torch.randint(4, (500,), generator=generator)
    subject = stated(scores, labels)
    share = (distribution(subject).curves["margins"] > 0).double().mean()
    assert share.item() == pytest.approx(accuracy(subject).value.item(), abs=1e-12)


def test_a_tie_is_no_positive_margin():
    finding = distribution(stated(torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1])))
    assert "a share of 0 is above 0 (ties at 0: 6)" in finding.statement
    assert finding.value.tolist() == [0, 0, 0]


@pytest.mark.parametrize("weighted", [False, True])
def test_quantiles_are_numpys(weighted):
    rng = np.random.default_rng(2)
    values, weights = rng.normal(size=137), rng.integers(1, 5, size=137) if weighted else np.ones(137)
    for p in (0.05, 0.5, 0.731, 0.95):
        expected = np.quantile(values, p, method="inverted_cdf", weights=weights)
        found = quantile_interval(
            torch.tensor(values), torch.tensor(weights).double(), p, examples=137, level=0.95
        )
        assert found[0] == expected


@pytest.mark.parametrize("n", [1, 5, 20, 73, 100])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_the_interval_covers_exactly_what_the_binomial_says_and_no_narrower_one_does(n, p):
    # Values 1 .. n are their own ranks: the interval names the order statistics.
    _, low, high = quantile_interval(
        torch.arange(1, n + 1).double(), torch.ones(n).double(), p, examples=n, level=0.95
    )
    below = 0.0 if math.isinf(low) else binom.cdf(low - 1, n, p)
    above = 0.0 if math.isinf(high) else binom.sf(high - 1, n, p)
    assert below <= 0.025 and above <= 0.025
    next_low, next_high = (1 if math.isinf(low) else low + 1), (n if math.isinf(high) else high - 1)
    assert binom.cdf(next_low - 1, n, p) > 0.025 or next_low > n
    assert binom.sf(next_high - 1, n, p) > 0.025 or next_high < 1


def test_the_demonstrations_quantiles():
    finding = distribution(demo())
    assert finding.value.tolist() == [3, 48, 93]
    assert finding.labels == ("5% quantile", "median", "95% quantile")
    assert finding.verdict == Verdict.MEASURED
    assert torch.equal(finding.curves["margins"], torch.arange(-1, 99).double())


def test_nan_outputs_fail_the_finding():
    scores = torch.zeros(4, 3)
    scores[2, 1] = math.nan
    for outputs in (scores, torch.full((4, 3), math.nan)):
        finding = distribution(stated(outputs, torch.zeros(4).long()))
        assert finding.verdict == Verdict.FAILED
        finding.as_json()


def test_no_example_of_weight_above_0_fails():
    assert distribution(stated(torch.zeros(4, 3), torch.zeros(4).long(), torch.zeros(4))).verdict == "failed"


def test_terms_of_an_example_widen_the_interval_of_a_quantile():
    """Twenty terms an example that are all alike are one draw; independent ones twenty."""
    rng = np.random.default_rng(0)
    own, apart = np.repeat(rng.normal(size=(200, 1)), 20, axis=1), rng.normal(size=(200, 20))

    def width(margins: np.ndarray, examples: int) -> float:
        scores = torch.tensor(np.stack((margins, np.zeros_like(margins)), -1)).reshape(examples, -1, 2)
        labels = torch.zeros(scores.shape[:2], dtype=torch.int64)
        if scores.shape[1] == 1:
            scores, labels = scores[:, 0], labels[:, 0]
        found = distribution(stated(scores, labels, task=CLASSES if labels.ndim == 1 else PLACE_CLASSES))
        return float(found.interval[1][1] - found.interval[0][1])

    assert width(own, 200) == pytest.approx(width(own[:, :1], 200))
    assert width(apart, 200) == pytest.approx(width(apart, 4000), rel=0.15)


def test_of_many_margins_those_of_20000_ranks_are_drawn_and_stand_for_all() -> None:
    """Margins 1, 2, ..., 50,000 and 30,000 of -1: each kept one stands for four."""
    margins = torch.cat((torch.arange(1, 50_001), -torch.ones(30_000))).double()
    found = distribution(stated(torch.stack((margins, 0 * margins), -1), torch.zeros(80_000).long()))
    kept, each = found.curves["margins"], float(found.curves["each"])
    assert (len(kept), each) == (20_000, 4.0)
    assert torch.equal(kept[:7500], -torch.ones(7500).double())
    assert torch.equal(kept[7500:], torch.arange(3, 50_001, 4).double())
    whole = distribution(stated(torch.stack((margins[:99], 0 * margins[:99]), -1), torch.zeros(99).long()))
    assert torch.equal(whole.curves["margins"], margins[:99].sort().values)
    axes = Figure().subplots()
    assert draw_margins(axes, found) == "histogram of the margins: 50000 above 0, 30000 at or below"
    heights = sum(patch.get_height() for patch in axes.patches)
    assert heights == pytest.approx(80_000)
