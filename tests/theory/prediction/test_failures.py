"""Where a model fails: labels that were swapped on purpose, and segments that were made bad."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from margin.auditing.subject.outputs import PLACE_CLASSES
from margin.auditing.subject.subjects import subject_of
from margin.core.catalog import claims
from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import VALUES
from margin.theory.prediction.differences import independent_difference, share_limits
from margin.theory.prediction.failures import (
    Segment,
    by_chance,
    confident_errors,
    halves,
    mislabeled,
    mislabeled_demo,
    place_words,
    segments,
    segments_of,
    shown_count,
    worst_segment,
)
from margin.theory.prediction.held_out import stated


def by_loops(p, y):
    """Northcutt et al. 2021, Equations 1 and 2, as they stand, where the label is not the likeliest."""
    classes = range(p.shape[1])
    t = {j: np.mean([p[i, j] for i in range(len(y)) if y[i] == j]) for j in classes if j in y}
    found = {}
    for i in range(len(y)):
        reached = [j for j in t if p[i, j] >= t[j] - 1e-12]
        if reached:
            j = max(reached, key=lambda j: p[i, j])
            if j != y[i] and p[i, j] > p[i, y[i]]:
                found[i] = j
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_suspects_are_an_independent_implementations(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([0.4] * 4, size=80)
    y = np.array([rng.choice(4, p=row) if rng.random() < 0.7 else rng.integers(3) for row in p])
    if seed == 3:
        y[y == 3] = 0  # a class without an example
    found = confident_errors(torch.tensor(p), torch.tensor(y))
    rows = found.found.nonzero().flatten().tolist()
    expected = by_loops(p, y)
    assert rows == list(expected) and len(rows) > 3
    assert found.likely[rows].tolist() == list(expected.values())


def swapped(seed=0):
    """Digits that a linear model has not seen, 40 of 797 with another label; which those are."""
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    X, y = X[order] / 16, y[order]
    fitted = LogisticRegression(C=10.0, max_iter=500).fit(X[:1000], y[:1000])
    model = nn.Linear(64, 10).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor(fitted.coef_))
        model.bias.copy_(torch.tensor(fitted.intercept_))
    given, rows = y[1000:].copy(), rng.choice(797, 40, replace=False)
    given[rows] = (given[rows] + rng.integers(1, 10, 40)) % 10
    subject = stated(torch.tensor(X[1000:]), torch.tensor(given))
    return dataclasses.replace(subject, model=model), torch.tensor(y[1000:]), set(rows.tolist())


def test_swapped_labels_are_found_and_right_ones_are_not():
    subject, truth, wrong = swapped()
    found = mislabeled(subject)
    rows = found.curves["row"].tolist()
    assert len(rows) == found.value.item()
    assert len(wrong & set(rows)) / len(rows) > 0.85  # precision
    assert len(wrong & set(rows)) / len(wrong) > 0.7  # recall
    assert set(rows[:10]) <= wrong  # the gravest first
    assert found.value.item() > 2 * found.curves["by chance"][1].item()
    right = sum(
        int(truth[row]) == likely for row, likely in zip(rows, found.curves["likely"].tolist(), strict=True)
    )
    assert right / len(rows) > 0.85
    assert found.remarks[0].startswith(f"Held-out example {rows[0]}: labeled 'class ")
    (batch,) = subject.test
    clean = mislabeled(dataclasses.replace(subject, test=[batch._replace(targets=truth)]))
    assert clean.value.item() <= 5


def test_labels_drawn_from_the_stated_probabilities_are_suspected_as_chance_says():
    # Of 60 samples 3 exceed the 95 % quantile on average, more than 11 with probability 4e-5.
    g = torch.Generator().manual_seed(5)
    p = (1.5 * torch.randn(300, 3, generator=g).double()).softmax(-1)
    chance = by_chance(p, torch.ones(300))
    counts = torch.stack(
        [confident_errors(p, torch.multinomial(p, 1, generator=g).squeeze(1)).found.sum() for _ in range(60)]
    ).double()
    assert int((counts > chance.quantile(0.95)).sum()) <= 11
    assert counts.mean().item() == pytest.approx(chance.mean().item(), rel=0.06)


def test_rows_are_counted_among_all_held_out_examples():
    subject = mislabeled_demo()
    (batch,) = subject.test
    weight = torch.ones(40)
    weight[:4] = 0  # not counted, but they keep their place
    found = mislabeled(dataclasses.replace(subject, test=[batch._replace(weight=weight)]))
    assert sorted(found.curves["row"].tolist()) == [4, 10]
    cut = [type(batch)((batch.inputs[0][i : i + 7],), batch.targets[i : i + 7]) for i in range(0, 40, 7)]
    named = dataclasses.replace(subject, test=cut, class_names=("good", "bad"))
    again = mislabeled(named)
    assert again.value.item() == 2 and "labeled 'bad', of probability 0.1; 'good' has 0.9" in again.remarks[0]


def test_a_constant_model_suspects_no_more_than_chance_and_a_broken_one_fails():
    labels = torch.tensor([0] * 60 + [1] * 40)
    constant = stated(torch.tensor([0.6, 0.4]).double().log().expand(100, 2), labels)
    found = mislabeled(constant)
    assert found.value.item() == 40 and found.curves["by chance"].tolist() == pytest.approx([40, 48], abs=2)
    broken = torch.zeros(100, 2).double()
    broken[7] = math.nan
    failed = mislabeled(stated(broken, labels))
    assert failed.verdict is Verdict.FAILED and "index 7" in failed.failure and not failed.remarks


def test_a_suspect_among_pixels_is_named_by_its_place():
    """Two images of 3 x 4 pixels, sure of the truth: four labels are swapped."""
    truth = torch.arange(12).reshape(3, 4) % 2
    labels, p = truth.repeat(2, 1, 1), 0.05 + 0.9 * nn.functional.one_hot(truth.repeat(2, 1, 1), 2).double()
    for place in ((0, 1, 3), (1, 0, 2), (1, 2, 1), (1, 2, 2)):
        labels[place] = 1 - labels[place]
    p[1, 2, 1] = torch.tensor([0.01, 0.99]) if truth[2, 1] == 1 else torch.tensor([0.99, 0.01])
    found = mislabeled(stated(p.log(), labels, task=PLACE_CLASSES))
    assert found.value.item() == 4
    places = zip(*(found.curves[name].tolist() for name in ("row", "place 0", "place 1")), strict=True)
    assert list(places) == [(1, 2, 1), (0, 1, 3), (1, 0, 2), (1, 2, 2)]
    first, second = found.remarks
    assert first.startswith("Held-out example 1, row 2, column 1: labeled") and "(2 more of its" in first
    assert second.startswith("Held-out example 0, row 1, column 3: labeled") and second.endswith("has 0.95.")
    weight = torch.ones(2, 3, 4)
    weight[1, 2] = 0  # the last row of the second image does not count
    fewer = mislabeled(stated(p.log(), labels, weight, task=PLACE_CLASSES))
    assert [fewer.curves[name].tolist() for name in ("row", "place 0", "place 1")] == [[0, 1], [1, 0], [3, 2]]


@pytest.mark.parametrize(
    ("place", "words"),
    [((), "1,234"), ((5,), "1,234, position 5"), ((5, 1000), "1,234, row 5, column 1,000"),
     ((0, 1, 2), "1,234, plane 0, row 1, column 2"),
     ((0, 1, 2, 3), "1,234, axis 1 0, axis 2 1, axis 3 2, axis 4 3")],
)  # fmt: skip
def test_places_in_words(place, words):
    assert place_words(1234, place) == words
    assert [shown_count(x) for x in (2.345, 99.9, 1234.5)] == ["2.35", "99.9", "1,234"]


class Flags(nn.Module):
    """Two scores by which the last column, 1 or 0, says whether class 1 is predicted."""

    def forward(self, x):
        return torch.stack((1 - x[:, -1], x[:, -1]), 1)


def flawed(n, chance_of_error, seed=0, features=5):
    """Uniform features and a model that is wrong on label 0 or 1 with a given chance, a function of them."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, features, generator=g).double()
    labels = torch.randint(2, (n,), generator=g)
    wrong = torch.rand(n, generator=g) < chance_of_error(X)
    said = torch.where(wrong, 1 - labels, labels)
    x = torch.cat((X, said.double()[:, None]), 1)
    names = (*(f"x{k}" for k in range(features)), "said")
    return dataclasses.replace(stated(x, labels), model=Flags(), feature_names=names)


def test_the_bad_quarter_of_a_feature_is_found_and_measured_on_other_examples():
    subject = flawed(2000, lambda X: torch.where(X[:, 3] > 0.75, 0.6, 0.1))
    found = segments(subject)
    assert found.labels[0].startswith("x3 > 0.7") and found.labels[1:] == ("all others", "difference")
    value, (low, high) = found.value, found.printed
    for k, truth in enumerate((0.6, 0.1, 0.5)):
        assert low[k].item() - 0.03 <= truth <= high[k].item() + 0.03  # the quartile is not exactly .75
    assert value[2].item() == pytest.approx(value[0].item() - value[1].item())
    chooses, judges = halves(torch.arange(2000))
    assert not set(chooses.tolist()) & set(judges.tolist()) and len(chooses) == len(judges) == 1000
    # by hand, of the half that judges
    (batch,) = subject.test
    x, y = batch.inputs[0][judges], batch.targets[judges]
    cut = float(batch.inputs[0][chooses][:, 3].quantile(0.75))
    wrong, inside = x[:, -1].long() != y, x[:, 3] > cut
    parts = [share_limits(float(wrong[side].double().mean()), int(side.sum())) for side in (inside, ~inside)]
    assert low.tolist() == pytest.approx([parts[0].low, parts[1].low, independent_difference(*parts).low])
    assert found.sample == "half of the held-out examples, 1,000"
    assert found.verdict is Verdict.MEASURED


def test_the_worst_of_many_segments_without_a_difference_is_no_worse_on_other_examples():
    # 40 features that tell nothing: on the half that chose it its excess of errors is above .15.
    # On the other its difference is 0 within 4 standard errors, and 95 % of the intervals hold 0: of 60 more
    # than 11 misses have probability 4e-5.
    differences, missed, naive = [], 0, []
    for seed in range(60):
        subject = flawed(240, lambda X: torch.full((len(X),), 0.3), seed=seed, features=40)
        found = segments(subject)
        low, high = (float(end[2]) for end in found.printed)
        differences.append(float(found.value[2]))
        missed += not low <= 0 <= high
        assert -1 <= low <= high <= 1
        (batch,) = subject.test
        half, _ = halves(torch.arange(240))
        x, wrong = batch.inputs[0][half], (batch.inputs[0][half, -1].long() != batch.targets[half]).double()
        inside = worst_segment(x, wrong).holds(x)
        naive.append(float(wrong[inside].mean() - wrong[~inside].mean()))
    assert missed <= 11
    assert abs(np.mean(differences)) < 4 * np.std(differences) / math.sqrt(60)
    assert np.mean(naive) > 0.15


def test_segments_are_quarters_values_and_categories_in_the_users_words():
    X = torch.stack((torch.arange(100.0), torch.arange(100) % 2, torch.ones(100), torch.arange(100) % 3), 1)
    found = segments_of(X.double())
    names = ["age", "sex=female", "same", "rooms"]
    assert [s.words(names) for s in found] == [
        "age <= 24.75",
        "age > 24.75, <= 49.5",
        "age > 49.5, <= 74.25",
        "age > 74.25",
        "sex=female = 0",
        "sex=female",
        "rooms = 0",
        "rooms = 1",
        "rooms = 2",
    ]
    assert sum(int(s.holds(X).sum()) for s in found[:4]) == 100
    assert found[5].holds(X).tolist() == (X[:, 1] == 1).tolist()
    assert Segment(7, -math.inf, 2.5).words(names) == "feature 7 <= 2.5"


def test_the_segment_stands_out_by_its_standard_errors_and_not_by_its_mean():
    # Ten of 400 rows with errors .8 in the mean against 100 with .6: z = 4.2 and 8.9 over .1 elsewhere.
    X = torch.zeros(400, 2).double()
    X[:100, 0], X[390:, 1] = 1, 1
    errors = (torch.arange(400) % 10 == 0).double()
    errors[:60], errors[60:100], errors[390:398], errors[398:] = 1, 0, 1, 0
    assert worst_segment(X, errors) == Segment(0, 1.0, 1.0)
    with pytest.raises(NotAsked, match="all equal"):
        worst_segment(X, torch.ones(400).double())
    with pytest.raises(NotAsked, match="no feature divides"):
        worst_segment(X[:, 1:] * 0, errors)


def test_values_have_a_segment_of_larger_errors_in_their_unit():
    g = torch.Generator().manual_seed(2)
    X = torch.randn(1200, 3, generator=g).double()
    y = X[:, 0] + torch.where(X[:, 1] < -0.7, 4.0, 1.0) * torch.randn(1200, generator=g).double()
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0, 0]]))
    subject = dataclasses.replace(
        stated(X, y[:, None], task=VALUES), model=model, feature_names=("a", "b", "c")
    )
    found = segments(subject)
    assert found.labels[0].startswith("b <= -0.") and found.unit == "target"
    mean = math.sqrt(2 / math.pi)  # of |N(0, 1)|
    assert found.printed[0][0].item() < 4 * mean < found.printed[1][0].item() + 0.3
    assert found.printed[0][1].item() < mean < found.printed[1][1].item() + 0.1
    assert found.printed[0][2].item() > 1.5


def test_the_least_sure_quarter_is_a_remark():
    subject, _, _ = swapped()
    (remark,) = segments(subject).remarks
    chooses, judges = halves(torch.arange(797))
    (batch,) = subject.test
    p, predicted = subject.model(batch.inputs[0]).detach().softmax(1).max(1)
    unsure, wrong = p[judges] <= p[chooses].quantile(0.25), (predicted != batch.targets)[judges]
    shares = [wrong[side].double().mean() for side in (unsure, ~unsure)]
    assert remark.endswith(f"or below {shares[0]:.1%} are wrong, above it {shares[1]:.1%}.")


def test_names_come_with_a_table_and_bad_input_is_refused():
    import polars as pl

    subject = flawed(60, lambda X: X[:, 0])
    (batch,) = subject.test
    frame = pl.DataFrame(batch.inputs[0].numpy(), schema=["age", "b", "c", "d", "e", "said"])
    asked = subject_of(Flags(), (frame, batch.targets))
    assert asked.feature_names[:2] == ("age", "b")
    with pytest.raises(NotAsked, match="need 40 examples: got 30"):
        segments(flawed(30, lambda X: X[:, 0]))
    claim = claims()["theory/failures.segments"]
    assert claim.refusal(subject) == ""
    image = dataclasses.replace(subject, test=[batch._replace(inputs=(batch.inputs[0][:, None],))])
    assert "one row of at most 200 real features" in claim.refusal(image)
    broken = batch.inputs[0].clone()
    broken[3, -1] = math.nan
    failed = segments(dataclasses.replace(subject, test=[batch._replace(inputs=(broken,))]))
    assert failed.verdict is Verdict.FAILED and "index 3" in failed.failure
