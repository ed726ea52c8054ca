"""Features that tell the target alone, counts of classes, and what lies across both parts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from margin.core import catalog
from margin.core.findings import NotAsked, Subject
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.data.examples import Arrays, InOrder
from margin.engine.loop import risk
from margin.theory.evidence.duplicates import leak
from margin.theory.evidence.groups import across, groups, new_examples
from margin.theory.evidence.groups import demo as windows
from margin.theory.evidence.targets import class_rules, classes, giveaway, rules, value_rules
from margin.theory.prediction.held_out import independent_draws


def subject_of(x, y, task=CLASSES) -> Subject:
    """The first quarter is held out."""
    x = torch.as_tensor(np.asarray(x)).double()
    y = torch.as_tensor(np.asarray(y))
    y = y.long() if task is CLASSES else y.double()
    cut = len(x) // 4
    parts = [[Batch((x[part],), y[part])] for part in (slice(cut), slice(cut, None))]
    return Subject(
        model=nn.Linear(x.shape[1], 3).double(),
        test=parts[0],
        train=parts[1],
        task=task,
        objective=risk(task),
    )


def shuffled(x, y, seed: int = 0):
    order = np.random.default_rng(seed).permutation(len(x))
    return x[order], y[order]


def labeled(found) -> dict[str, float]:
    return dict(zip(found.labels, found.value.tolist(), strict=True))


@pytest.mark.parametrize("data", [load_iris, load_breast_cancer])
def test_no_feature_gives_a_real_target_away(data) -> None:
    subject = subject_of(*shuffled(*data(return_X_y=True)))
    assert giveaway(subject).remarks == ()
    assert rules(subject).telling == []


def test_the_diabetes_target_is_given_away_where_it_stands_among_the_features() -> None:
    x, y = shuffled(*load_diabetes(return_X_y=True))
    assert giveaway(subject_of(x, y, VALUES)).remarks == ()
    planted = np.hstack((x, (2 - 3 * y)[:, None]))
    found = giveaway(subject_of(planted, y, VALUES))
    assert "given away by feature 10:" in found.remarks[0]
    assert found.labels[0] == "feature 10"
    assert labeled(found)["the best constant"] == 0


def test_a_code_of_the_class_is_named_whatever_its_order() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 800)
    x = np.stack((rng.normal(size=800), np.array([3.0, 0.0, 7.0, 1.0])[y]), 1)
    assert rules(subject_of(x, y)).telling == [1]
    numbers = np.stack((np.arange(800.0), rng.normal(size=800)), 1)  # an identifier that tells nothing
    assert rules(subject_of(numbers, y)).telling == []


def test_a_rule_of_one_feature_by_hand_and_below_the_best_intervals() -> None:
    """40 rows, two intervals of 20: 18 and 15 right of 20."""
    x = torch.arange(40.0).double()[:, None]
    y = torch.tensor([0] * 18 + [1] * 2 + [1] * 15 + [0] * 5)
    score, constant = class_rules(x, y)
    assert score.tolist() == [33 / 40]
    assert constant == 23 / 40
    values = torch.tensor([0.0] * 20 + [1.0] * 20).double()
    assert value_rules(x, values).tolist() == pytest.approx([1.0])
    x, y = load_breast_cancer(return_X_y=True)
    ours, _ = class_rules(torch.tensor(x), torch.tensor(y))
    assert ours.tolist() == pytest.approx([_majority(column, y) for column in x.T], abs=1e-12)
    stumps = [DecisionTreeClassifier(max_leaf_nodes=28).fit(c[:, None], y).score(c[:, None], y) for c in x.T]
    assert (ours.numpy() <= np.array(stumps) + 1e-12).all()  # as many intervals, the best ones


def _majority(x, y) -> float:
    """The rule of 28 intervals of 569 rows, in NumPy."""
    cells = np.digitize(x, np.sort(x)[np.arange(1, 28) * 569 // 28])
    return sum(np.unique(y[cells == k], return_counts=True)[1].max() for k in np.unique(cells)) / 569


def test_what_gives_no_rule_is_not_asked() -> None:
    x, y = load_iris(return_X_y=True)
    for few in ((x[:40], y[:40]), (x[:50], y[:50])):  # 30 training rows; one class
        with pytest.raises(NotAsked):
            giveaway(subject_of(*few))


def test_missing_and_rare_classes_are_named() -> None:
    subject = leak(0)
    (batch,) = subject.test
    y = torch.zeros(200, dtype=torch.int64)
    y[:9] = 1
    named = replace(subject, test=[batch._replace(targets=y)], class_names=("no", "yes", "never"))
    found = classes(named)
    assert labeled(found)["yes, held-out"] == 9
    assert labeled(found)["never, training"] == 0
    assert found.remarks == (
        "Classes without a held-out example: never.",
        "Classes with fewer than 10 held-out examples: yes (9).",
        "Classes without a training example: never.",
    )
    assert classes(leak(0)).remarks == ()
    weight = torch.ones(200)
    weight[:5] = 0
    assert (
        labeled(classes(replace(named, test=[named.test[0]._replace(weight=weight)])))["yes, held-out"] == 4
    )
    weight *= 0.5  # an example that weighs less is one all the same
    assert (
        labeled(classes(replace(named, test=[named.test[0]._replace(weight=weight)])))["yes, held-out"] == 4
    )
    assert set(labeled(classes(replace(named, train=())))) == {
        "no, held-out",
        "yes, held-out",
        "never, held-out",
    }


def test_classes_that_the_model_scores_and_no_label_names() -> None:
    """Four scores, labels 0 and 1: the outputs were made for other labels."""
    found = classes(replace(leak(0), model=torch.nn.Linear(5, 4, dtype=torch.float64)))
    assert found.remarks == tuple(
        f"Classes without a {kind} example: class 2, class 3." for kind in ("held-out", "training")
    )


def test_a_thousand_classes_show_the_rarest() -> None:
    y = torch.arange(2000) % 1000
    subject = subject_of(torch.zeros(2000, 2), y)
    found = classes(subject)
    assert len(found.labels) == 8
    assert "and 492 more" in found.remarks[0]


def test_windows_of_a_series_split_at_random_are_not_new() -> None:
    subject = windows()
    count = len(across(subject).windows)
    test, train = (part[0].inputs[0] for part in (subject.test, subject.train))
    alike = (test[:, None, 1:] == train[:, :-1]).all(2) | (test[:, None, :-1] == train[:, 1:]).all(2)
    assert count == int(alike.any(1).sum()) > 40
    premise = independent_draws(subject)
    assert premise.status == "refuted"
    assert "windows of one series" in premise.evidence


def test_windows_held_out_at_the_end_are_new() -> None:
    series = torch.randn(211, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(0)
    rows = series.unfold(0, 10, 1)
    for x in (rows, rows[:, :, None], rows[:, None]):
        parts = [[Batch((part,), part[:, -1:].flatten())] for part in (x[150:], x[:150])]
        subject = replace(windows(), test=parts[0], train=parts[1])
        assert across(subject).windows.tolist() == [0]
        assert new_examples(subject) == ""
    constant = torch.ones(40, 10, dtype=torch.float64)
    flat = [[Batch((part,), part[:, 0])] for part in (constant[:10], constant[10:])]
    assert across(replace(windows(), test=flat[0], train=flat[1])).windows.tolist() == []


def test_rows_of_tables_and_images_are_no_windows() -> None:
    subject = subject_of(*shuffled(*load_iris(return_X_y=True)))
    assert across(subject).windows.tolist() == []
    assert groups(subject).remarks == ()


def test_groups_in_both_parts_are_counted() -> None:
    subject = leak(0)
    codes = torch.arange(800) % 50
    parts = [
        InOrder(Arrays(b.inputs, b.targets, groups=g), 64, dtype=torch.float64)
        for b, g in ((subject.test[0], codes[:200]), (subject.train[0], codes[200:]))
    ]
    known = replace(subject, test=parts[0], train=parts[1])
    assert labeled(groups(known))["held-out examples of groups that stand in the training part"] == 200
    assert "of 50 groups that stand in the training part" in independent_draws(known).evidence
    (batch,) = subject.test
    apart = Arrays(batch.inputs, batch.targets, groups=codes[:200] + 50)
    clean = replace(known, test=InOrder(apart, 64, dtype=torch.float64))
    assert labeled(groups(clean))["held-out examples of groups that stand in the training part"] == 0
    assert independent_draws(clean).status == "assumed"
    # A run's record says that its split cut through none; its parts are numbered apart.
    assert across(replace(known, groups="patient")).groups == 0


def test_a_file_in_the_order_of_time_that_was_split_at_random() -> None:
    rng = np.random.default_rng(0)
    x = np.stack((rng.normal(size=400), np.arange(400) * 0.5), 1)
    subject = subject_of(x, rng.integers(0, 2, 400))
    chosen = np.sort(rng.permutation(400)[:100])
    rest = np.setdiff1d(np.arange(400), chosen)
    parts = [[Batch((torch.tensor(x[i]),), torch.zeros(len(i)).long())] for i in (chosen, rest)]
    found = groups(replace(subject, test=parts[0], train=parts[1]))
    between = ((chosen > rest.min()) & (chosen < rest.max())).sum()
    assert between > 90
    assert labeled(found)["held-out rows between training rows by feature 1"] == between
    assert "in the order of feature 1" in found.remarks[0]
    last = [
        [Batch((torch.tensor(x[i]),), torch.zeros(len(i)).long())]
        for i in (np.arange(300, 400), np.arange(300))
    ]
    found = groups(replace(subject, test=last[0], train=last[1]))
    assert labeled(found)["held-out rows between training rows by feature 1"] == 0
    assert found.remarks == ()


def test_nothing_known_is_not_asked() -> None:
    with pytest.raises(NotAsked):
        groups(subject_of(*shuffled(np.random.default_rng(0).normal(size=(90, 3)), np.arange(90) % 2)))


@pytest.mark.parametrize("name", ["duplicates", "shift", "giveaway", "classes", "groups"])
def test_whether_a_question_applies(name: str) -> None:
    claim = catalog.claims()[f"theory/evidence.{name}"]
    assert claim.refusal(leak(0)) == ""
    alone = claim.refusal(replace(leak(0), train=()))
    assert ("the training examples" in alone) is (name in ("shift", "giveaway", "groups"))
