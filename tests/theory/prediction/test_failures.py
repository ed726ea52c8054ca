"""Where a model fails: labels that were swapped on purpose, and segments that were made bad."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from margin.auditing.subject.outputs import PLACE_CLASSES
from margin.auditing.subject.subjects import subject_of
from margin.core.catalog import claims
from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import VALUES
from margin.theory.evidence.label_noise import fitted_noise, random_labels, still_right
from margin.theory.prediction.differences import independent_difference, share_limits
from margin.theory.prediction.failures import (
    Segment,
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


def by_confident_learning(p, y):
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
    return set(found)


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 0.2), (2.0, 0.1), (0.5, 0.03)])
def test_temperature_and_share_are_those_of_another_optimizer(temperature, share):
    """scipy's, on the likelihood as it stands; a grid of temperatures by 9 % is within 5 % of it."""
    g = torch.Generator().manual_seed(1)
    p = (8 * torch.randn(2000, 4, generator=g).double()).softmax(-1)
    labels = torch.multinomial((p.log() / temperature).softmax(-1), 1, generator=g).squeeze(1)
    random = torch.rand(2000, generator=g) < share
    labels[random] = torch.randint(4, (int(random.sum()),), generator=g)
    scores, y = p.log().numpy(), labels.numpy()

    def loss(at):
        own = log_softmax(scores / np.exp(at[0]), 1)[np.arange(2000), y]
        epsilon = 1 / (1 + np.exp(-at[1]))
        return -np.log((1 - epsilon) * np.exp(own) + epsilon / 4).sum()

    best = minimize(loss, (0.0, -2.0), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-6})
    found = fitted_noise(p, labels)
    assert found.temperature == pytest.approx(math.exp(best.x[0]), rel=0.05)
    assert found.share == pytest.approx(1 / (1 + math.exp(-best.x[1])), rel=0.1)
    suspects = random_labels(p, labels, found)
    own = softmax(scores / found.temperature, 1)[np.arange(2000), y]
    posterior = found.share / 4 / ((1 - found.share) * own + found.share / 4)
    assert suspects.random.numpy() == pytest.approx(posterior)
    assert np.array_equal(suspects.found, (posterior > 0.5) & (scores.argmax(1) != y))
    right, most = still_right(suspects)
    named = suspects.found
    assert right == pytest.approx((1 - posterior)[named.numpy()].sum())
    # as many as are expected are right, to four standard deviations
    assert abs(int((named & ~random).sum()) - right) <= 4 * (most - right) / 1.645


def overfitted(rates, seed):
    """Networks of 256 units that know 1,000 digits by heart, those with wrong labels too: one for each rate.

    Of each the probabilities on 797 others, their labels, as wrong as those, and which are wrong.
    """
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, truth = torch.tensor(X[order] / 16).float(), y[order]
    wrong = rng.random((len(rates), len(y))) < np.array(rates)[:, None]
    labels = torch.tensor(np.where(wrong, (truth + rng.integers(1, 10, wrong.shape)) % 10, truth))
    torch.manual_seed(seed)
    weights = [torch.randn(len(rates), a, b) * (2 / a) ** 0.5 for a, b in ((64, 256), (256, 10))]
    weights = [w.requires_grad_() for w in weights]
    optimizer = torch.optim.Adam(weights, 5e-3)

    def scores(rows):
        return (x[rows].expand(len(rates), -1, -1) @ weights[0]).relu() @ weights[1]

    for _ in range(700):
        rows = torch.randint(1000, (100,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores(rows).flatten(0, 1), labels[:, rows].flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        right = (scores(torch.arange(1000)).argmax(-1) == labels[:, :1000]).double().mean(1)
        assert float(right.min()) > 0.97  # by heart
        p = scores(torch.arange(1000, 1797)).double().softmax(-1)
    return [(p[i], labels[i, 1000:], torch.tensor(wrong[i, 1000:])) for i in range(len(rates))]


# ten seconds: fifteen networks are trained until they know their labels by heart
def test_of_an_overfitted_network_the_labels_named_are_wrong_ones():
    """Digits with 0, 3 and 10 % wrong labels, five seeds: what is named, what of it is wrong, what is found.

    Confident learning, which takes the network to be as sure as it is right, names more that are right, and
    finds fewer.
    """
    named, hits, planted = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(3)
    for seed in range(5):
        for k, (p, labels, wrong) in enumerate(overfitted((0.0, 0.03, 0.1), seed)):
            subject = stated(p.clamp_min(1e-300).log(), labels)
            ours = {int(row) for row in mislabeled(subject).curves["row"]}
            truly = set(wrong.nonzero().flatten().tolist())
            planted[k] += len(truly)
            for i, rows in enumerate((ours, by_confident_learning(p.numpy(), labels.numpy()))):
                named[i, k] += len(rows)
                hits[i, k] += len(rows & truly)
    precision, recall = hits[:, 1:] / named[:, 1:], hits[:, 1:] / planted[1:]
    assert named[0, 0] <= 2 and named[1, 0] > 8  # of 3,985 right labels
    assert precision[0].min() > 0.85 and recall[0].min() > 0.85  # .91 and .88; .91 and .91
    assert (precision[0] > precision[1] + 0.03).all() and (recall[0] > recall[1]).all()


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
    assert found.curves["right"][1].item() < 0.25 * found.value.item()
    right = sum(
        int(truth[row]) == likely for row, likely in zip(rows, found.curves["likely"].tolist(), strict=True)
    )
    assert right / len(rows) > 0.85
    assert found.remarks[0].startswith(f"Held-out example {rows[0]}: labeled 'class ")
    (batch,) = subject.test
    clean = mislabeled(dataclasses.replace(subject, test=[batch._replace(targets=truth)]))
    assert clean.value.item() <= 5


def test_labels_drawn_from_the_stated_probabilities_are_not_suspected():
    """At a level of 1 % a share of random labels is found in 5 of 60 samples or more with probability 4e-4.

    At any temperature: these probabilities are of a model that is sure of twice too much.
    """
    g = torch.Generator().manual_seed(5)
    p = (1.5 * torch.randn(300, 3, generator=g).double()).softmax(-1)
    noisy = 0
    for _ in range(60):
        labels = torch.multinomial(p, 1, generator=g).squeeze(1)
        noisy += fitted_noise(p.square() / p.square().sum(1, keepdim=True), labels).share > 0
    assert noisy <= 4


def test_rows_are_counted_among_all_held_out_examples():
    subject = mislabeled_demo()
    (batch,) = subject.test
    weight = torch.ones(200)
    weight[:4] = 0  # not counted, but they keep their place
    found = mislabeled(dataclasses.replace(subject, test=[batch._replace(weight=weight)]))
    assert sorted(found.curves["row"].tolist()) == [185, 190]
    cut = [type(batch)((batch.inputs[0][i : i + 7],), batch.targets[i : i + 7]) for i in range(0, 200, 7)]
    named = dataclasses.replace(subject, test=cut, class_names=("good", "bad"))
    again = mislabeled(named)
    assert again.value.item() == 2
    assert {line.partition(":")[0] for line in again.remarks} == {
        "Held-out example 185", "Held-out example 190"}  # fmt: skip
    assert any("labeled 'good', of probability 4.5e-05; 'bad' has 1" in line for line in again.remarks)


def test_a_constant_model_suspects_nothing_and_a_broken_one_fails():
    """Of two classes whose probabilities are all alike a random share is as good as a temperature."""
    labels = torch.tensor([0] * 60 + [1] * 40)
    constant = stated(torch.tensor([0.6, 0.4]).double().log().expand(100, 2), labels)
    found = mislabeled(constant)
    assert found.value.item() == 0 and found.curves["right"].tolist() == [0, 0]
    assert "no better than chance" in found.statement
    broken = torch.zeros(100, 2).double()
    broken[7] = math.nan
    failed = mislabeled(stated(broken, labels))
    assert failed.verdict is Verdict.FAILED and "index 7" in failed.failure and not failed.remarks


def test_a_suspect_among_pixels_is_named_by_its_place():
    """Two images of 20 x 20 pixels, of odds from e^.5 to e^10, as sure as right; four labels are swapped."""
    odds = (torch.arange(20.0).double().add(1) / 2).expand(2, 20, 20)
    truth = torch.arange(400).reshape(20, 20).expand(2, 20, 20) % 2
    made_wrong = torch.arange(20)[:, None] < ((-odds[0, 0]).sigmoid() * 20).round()
    labels = truth ^ made_wrong.long()
    scores = nn.functional.one_hot(truth, 2).double() * odds[..., None]
    for place in ((0, 1, 17), (1, 0, 18), (1, 2, 19), (1, 3, 18)):
        labels[place] = 1 - labels[place]
    found = mislabeled(stated(scores, labels, task=PLACE_CLASSES))
    places = zip(*(found.curves[name].tolist() for name in ("row", "place 0", "place 1")), strict=True)
    assert list(places) == [(1, 2, 19), (1, 0, 18), (1, 3, 18), (0, 1, 17)]
    first, second = found.remarks
    assert first.startswith("Held-out example 1, row 2, column 19: labeled") and "(2 more of its" in first
    assert second.startswith("Held-out example 0, row 1, column 17: labeled") and second.endswith("has 1.")
    weight = torch.ones(2, 20, 20)
    weight[1, 2] = 0  # the third row of the second image does not count
    fewer = mislabeled(stated(scores, labels, weight, task=PLACE_CLASSES))
    columns = [fewer.curves[name].tolist() for name in ("row", "place 0", "place 1")]
    assert columns == [[1, 1, 0], [0, 3, 1], [18, 18, 17]]


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


# six seconds: 60 searches for the worst of many segments
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
