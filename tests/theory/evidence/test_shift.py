"""Two-sample tests by feature and together: against scipy, at their level, and on shifted data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, ks_2samp, kstwobign
from torch import Tensor, nn

from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES
from margin.data.examples import InOrder
from margin.data.formats.series.windows import Windows
from margin.engine.loop import risk
from margin.theory.evidence.duplicates import leak
from margin.theory.evidence.shift import (
    LEVEL,
    chi_square,
    holm,
    kolmogorov_smirnov,
    same_distribution,
    shift,
    shifted,
)
from margin.theory.prediction.risk import gap


def with_test(subject: Subject, x: Tensor, labels: Tensor | None = None) -> Subject:
    (batch,) = subject.test
    targets = batch.targets[: len(x)] if labels is None else labels
    return replace(subject, test=[batch._replace(inputs=(x,), targets=targets)])


def test_kolmogorov_smirnov_is_scipys_with_ties_and_without() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(70, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(110, 3, generator=generator, dtype=torch.float64) + torch.tensor([0.0, 0.5, 0.1]).double()
    x[:, 2], y[:, 2] = x[:, 2].round(), y[:, 2].round()
    distance, p = kolmogorov_smirnov(x, y)
    for j in range(3):
        expected = ks_2samp(x[:, j].numpy(), y[:, j].numpy()).statistic
        assert float(distance[j]) == pytest.approx(expected, abs=1e-12)
        assert float(p[j]) == pytest.approx(kstwobign.sf(np.sqrt(70 * 110 / 180) * expected), rel=1e-6)


def test_chi_square_is_scipys_and_rare_values_are_pooled() -> None:
    x, y = torch.tensor([0] * 30 + [1] * 50 + [2] * 20), torch.tensor([0] * 90 + [1] * 80 + [2] * 30)
    table = np.array([[30, 50, 20], [90, 80, 30]])
    assert chi_square(x, y) == pytest.approx(chi2_contingency(table, correction=False).pvalue, rel=1e-9)
    # Values 3 and 4, expected .33 and 2 times of the smaller sample, join value 2.
    x = torch.cat((x, torch.tensor([3])))
    y = torch.cat((y, torch.tensor([4] * 6)))
    table = np.array([[30, 50, 21], [90, 80, 36]])
    assert chi_square(x, y) == pytest.approx(chi2_contingency(table, correction=False).pvalue, rel=1e-9)
    assert chi_square(torch.zeros(9).long(), torch.zeros(9).long()) == 1.0


def test_holm_by_hand() -> None:
    """.01 x 4, then .02 x 3, then at least that: .03 x 2, and .5."""
    adjusted = holm(torch.tensor([0.03, 0.01, 0.5, 0.02], dtype=torch.float64))
    assert adjusted.tolist() == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_one_shifted_feature_is_named_and_refutes_the_gap_alone() -> None:
    subject = leak(0)
    x = subject.test[0].inputs[0].clone()
    x[:, 2] += 0.5
    moved = with_test(subject, x)
    found = shift(moved)
    said = "Training and held-out part differ in feature 2"
    assert found.remarks == (f"{said}, by tests at a family-wise level of 1%.",)
    assert dict(zip(found.labels, found.value.tolist(), strict=True))["feature 2"] < LEVEL
    assert same_distribution(moved).status == "refuted"
    assert gap(moved).verdict is Verdict.UNFOUNDED
    assert same_distribution(subject).status == "sampled"
    assert gap(subject).verdict is Verdict.MEASURED


@pytest.mark.parametrize(("outside", "named"), [(0.4, False), (0.6, True)])
def test_the_ranges_of_a_feature_in_other_units_are_named(outside: float, named: bool) -> None:
    """Where most held-out rows lie outside the training part's range, and not where they lie at its end."""
    subject = leak(0)
    x, low, high = subject.test[0].inputs[0].clone(), *subject.train[0].inputs[0].aminmax(dim=0)
    x[:, 2] = high[2]
    x[: round(outside * len(x)), 2] = 255.0
    said = (
        f" (held out in [{high[2]:.4g}, 255], in training in [{low[2]:.4g}, {high[2]:.4g}])" if named else ""
    )
    words = f"Training and held-out part differ in feature 2{said}, by tests"
    assert shift(with_test(subject, x)).remarks[0].startswith(words)


def test_features_that_differ_only_together() -> None:
    """The same marginals, another correlation: no feature alone tells."""
    generator = torch.Generator().manual_seed(3)
    subject = leak(0)
    x = torch.randn(400, 5, generator=generator, dtype=torch.float64)
    x[:, 1:] = x[:, :1]
    found = shifted(
        with_test(replace(subject, test=[subject.test[0]._replace(targets=torch.arange(400) % 2)]), x)
    )
    assert found is not None
    assert found.together < LEVEL
    assert float(found.features.min()) > LEVEL


def test_labels_in_other_shares() -> None:
    subject = leak(0)
    (batch,) = subject.test
    labels = torch.zeros(200, dtype=torch.int64)
    labels[:60] = 1
    moved = with_test(subject, batch.inputs[0], labels)
    assert "the targets" in shift(moved).remarks[0]


# eight seconds: a level is a share, of 200 tests here
def test_parts_of_one_law_are_called_shifted_at_most_at_the_level() -> None:
    """Of 200 pairs of parts, half of them coarse, at most 9 are called so with probability .9999."""
    called = 0
    for seed in range(200):
        subject = leak(0, held_out=40, train=90, seed=seed)
        if seed % 2:
            parts = [
                [b._replace(inputs=(b.inputs[0].round(),)) for b in p] for p in (subject.test, subject.train)
            ]
            subject = replace(subject, test=parts[0], train=parts[1])
        found = shifted(subject)
        assert found is not None
        called += found.refutes
    assert called <= 9


def test_features_that_never_change_and_inputs_that_are_not_finite() -> None:
    subject = leak(0)
    constant = [
        [b._replace(inputs=(torch.ones_like(b.inputs[0]),)) for b in p] for p in (subject.test, subject.train)
    ]
    found = shifted(replace(subject, test=constant[0], train=constant[1]))
    assert found is not None
    assert not found.refutes
    x = subject.test[0].inputs[0].clone()
    x[3, 1] = torch.nan
    broken = with_test(subject, x)
    assert shift(broken).verdict is Verdict.FAILED
    for rows in (1, 2):
        few = replace(subject, test=[b._replace(inputs=(b.inputs[0][:rows],), targets=b.targets[:rows])
                                     for b in subject.test])  # fmt: skip
        with pytest.raises(NotAsked, match="a comparison of both parts needs 3 rows of each"):
            shift(few)
    assert same_distribution(broken).status == "assumed"


@pytest.mark.parametrize("moved", [9.0, -9.0])
def test_windows_of_a_series_are_no_draws_that_a_test_may_take(moved: float) -> None:
    """A slow series differs in time; said is where a column mostly left what training saw, no more.

    Mutant: it can leave it upwards alone.
    """
    slow = np.cumsum(np.random.default_rng(0).normal(size=400))
    left = np.r_[np.zeros(300), np.full(100, moved)] + np.sin(np.arange(400))
    rows = torch.tensor(np.stack((slow - slow, left), 1))
    parts = [
        InOrder(Windows(rows, torch.arange(*part), 10, 3, (1,), names=("left",)), 64, dtype=torch.float64)
        for part in ((320, 397), (10, 290))
    ]
    model = nn.Linear(2, 2)
    subject = Subject(model=model, test=parts[0], train=parts[1], task=CLASSES, objective=risk(CLASSES))
    found = shift(subject)
    held, train = (np.stack([left[o - 10 : o] for o in range(*part)]) for part in ((320, 397), (10, 290)))
    share = ((held < train.min()) | (held > train.max())).mean()
    assert dict(zip(found.labels, found.value.tolist(), strict=True)) == {"column 1": 0.0, "left": share}
    assert found.remarks[0].startswith("Training and held-out part differ in left (held out in [")
    assert same_distribution(subject).status == "refuted"
    still = replace(subject, test=subject.train)
    assert shift(still).remarks[0].startswith("No shift was found")
    assert same_distribution(still).status == "assumed"
