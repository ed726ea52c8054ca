"""Telling two samples apart: never better than the total variation allows, and near it where one can."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Generator

import margin.generative.quality.measures as module
from margin.generative.quality.measures import _pooled, classifier_two_sample

LEVEL = 1 - 1e-4


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed))


@pytest.mark.parametrize("classifier", ["neighbors", "kernel", "logistic", "net"])
def test_the_total_variation_of_two_gaussians_bounds_it(classifier: str) -> None:
    # TV(N(0, 1), N(mu, 1)) = 2 Phi(mu / 2) - 1
    shift = 1.5
    move = torch.tensor([shift, 0.0])
    found = classifier_two_sample(
        normal(600, 2),
        normal(600, 2, seed=1) + move,
        generator=Generator().manual_seed(0),
        classifier=classifier,
        level=LEVEL,
    )
    truth = 2 * norm.cdf(shift / 2) - 1
    assert found.total_variation <= truth
    # the accuracy of the best classifier is .773; 1,200 examples know it to .012
    assert abs(found.accuracy - norm.cdf(shift / 2)) < 0.055
    assert found.low < found.accuracy < found.high


def test_one_law_is_not_told_apart() -> None:
    for seed in range(5):
        found = classifier_two_sample(
            normal(300, 3, seed=2 * seed),
            normal(300, 3, seed=2 * seed + 1),
            generator=Generator().manual_seed(seed),
            level=LEVEL,
        )
        assert found.low < 0.5 < found.high
        assert found.total_variation == 0


def test_a_linear_classifier_is_blind_to_a_ring_and_the_others_are_not() -> None:
    x = normal(200, 2)
    y = 4 * x / x.norm(dim=1, keepdim=True) + 0.1 * normal(200, 2, seed=1)
    accuracy = {
        name: classifier_two_sample(x, y, generator=Generator().manual_seed(0), classifier=name).accuracy
        for name in ("neighbors", "kernel", "logistic", "net")
    }
    assert accuracy["neighbors"] > 0.95
    assert min(accuracy["net"], accuracy["kernel"]) > 0.9
    assert accuracy["logistic"] < 0.65


@pytest.mark.parametrize("classifier", ["neighbors", "kernel", "logistic", "net"])
def test_it_is_a_function_of_its_generator_and_leaves_the_global_ones(classifier: str) -> None:
    x, y = normal(40, 2), normal(40, 2, seed=1)
    before, numpys = torch.get_rng_state(), repr(np.random.get_state())
    a, b = (
        classifier_two_sample(x, y, generator=Generator().manual_seed(4), classifier=classifier)
        for _ in range(2)
    )
    assert a == b
    assert torch.equal(before, torch.get_rng_state())
    assert repr(np.random.get_state()) == numpys


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_no_example_is_judged_by_a_classifier_that_saw_it(folds: int, monkeypatch) -> None:
    judged = []

    def watched(
        _: str, rows: torch.Tensor, labels: torch.Tensor, others: torch.Tensor, seed: int
    ) -> torch.Tensor:
        assert int(labels.sum()) * 2 == len(labels)
        new = {tuple(row) for row in others.tolist()}
        assert not new & {tuple(row) for row in rows.tolist()}
        judged.extend(new)
        return (others[:, 0] > 5).long()

    monkeypatch.setattr(module, "_answers", watched)
    x, y = normal(11, 2), normal(11, 2, seed=1) + 10
    found = classifier_two_sample(x, y, generator=Generator().manual_seed(0), folds=folds)
    assert len(judged) == len(set(judged)) == 22
    assert found.accuracy == 1


def test_the_limits_are_clopper_and_pearsons_of_each_fold() -> None:
    found = _pooled([8, 6], [10, 12], 0.95)
    ends = [
        (beta.ppf(0.0125, k, n - k + 1), beta.ppf(1 - 0.0125, k + 1, n - k)) for k, n in ((8, 10), (6, 12))
    ]
    low, high = ((10 * ends[0][i] + 12 * ends[1][i]) / 22 for i in (0, 1))
    assert found.accuracy == pytest.approx(14 / 22)
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-6), pytest.approx(high, rel=1e-6))
    assert found.stderr == pytest.approx(math.sqrt(14 / 22 * 8 / 22 / 22))
    assert _pooled([10, 10], [10, 10], 0.95).high == 1
    assert _pooled([10, 10], [10, 10], 0.95).total_variation == pytest.approx(2 * 0.0125 ** (1 / 10) - 1)


@pytest.mark.parametrize(("count", "features"), [(40, 2), (30, 40)])
def test_the_vote_of_neighbors_is_that_of_scikit_learn(count: int, features: int) -> None:
    rows, judged = 3 * normal(count, features).double() + 5, 3 * normal(25, features, seed=1).double() + 5
    labels = (normal(count, seed=2) > 0).long()
    neighbors = {40: 5, 30: 5}[count]  # the largest odd number up to the root: 6.3 and 5.5
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(neighbors)).fit(rows.numpy(), labels.numpy())
    found = module._answers("neighbors", rows, labels, judged, 0)
    assert (found.numpy() == model.predict(judged.numpy())).all()
    assert 0 < int(found.sum()) < 25


def test_noise_of_another_size_in_many_dimensions_has_no_neighbors_but_a_kernel_sees_it() -> None:
    x, y = normal(200, 64), 1.6 * normal(200, 64, seed=1)
    found = {
        name: classifier_two_sample(x, y, generator=Generator().manual_seed(0), classifier=name)
        for name in ("neighbors", "kernel")
    }
    assert found["neighbors"].accuracy < 0.6
    assert found["kernel"].accuracy > 0.9


def test_an_unknown_classifier_is_refused() -> None:
    answers = getattr(
        module._answers, "__wrapped__", module._answers
    )  # the tests' check of types comes first
    with pytest.raises(ValueError, match="must be one of neighbors, kernel, logistic, net: got 'forest'"):
        answers("forest", normal(4, 2), torch.zeros(4), normal(4, 2), 0)


def test_images_are_told_apart_too() -> None:
    x = normal(20, 1, 3, 5)
    assert classifier_two_sample(x, x + 9, generator=Generator().manual_seed(0)).accuracy == 1


def test_wrong_input_is_refused() -> None:
    x = normal(8, 2)
    with pytest.raises(ValueError, match="in a classifier two-sample test: got 8 and 7 rows"):
        classifier_two_sample(x, x[:7], generator=Generator())
    with pytest.raises(ValueError, match="with 2 rows of either sample in each: got 5 of 8"):
        classifier_two_sample(x, x, generator=Generator(), folds=5)
    assert classifier_two_sample(x, x + 9, generator=Generator(), folds=4).accuracy == 1
    with pytest.raises(ValueError, match="folds must be at least 2"):
        classifier_two_sample(x, x, generator=Generator(), folds=1)
    with pytest.raises(ValueError, match="must be finite"):
        classifier_two_sample(x, x * torch.nan, generator=Generator())
