"""Rows with weights: a weight of 2 is two rows, a weight of 0 is none."""

import re

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from margin.data.formats.tables.weighted_rows import (
    class_factors,
    data_of_rows,
    even,
    rows_of,
    shape_of,
    standardization,
    weights_of,
)

RNG = np.random.default_rng(0)
X = RNG.normal(5.0, 3.0, (40, 4))
CODES = np.repeat([0, 1, 2, 3], [4, 8, 12, 16])


def test_a_shape_has_one_value_a_feature() -> None:
    assert shape_of(None, 64) == (64,)
    assert shape_of((1, 8, 8), 64) == (1, 8, 8)
    assert shape_of([np.int64(3), 2, 2], 12) == (3, 2, 2)
    for shape, features in (((1, 8, 8), 30), ((8, 8), 64), ((-1, -8, 8), 64), (64, 64), ((1.0, 8, 8), 64)):
        with pytest.raises(ValueError, match=re.escape(f"got shape={shape} for {features} features")):
            shape_of(shape, features)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0], r"one number a row, \(3,\): got \(2,\)"),
        ([[1.0], [1.0], [1.0]], r"one number a row, \(3,\): got \(3, 1\)"),
        (2.0, r"one number a row, \(3,\): got \(\)"),
        ([1.0, -2.0, 1.0], "at least 0: got -2 in row 1"),
        ([0.0, 0.0, 0.0], "not be zero in every row: got 3 zeros"),
        ([1.0, np.nan, 1.0], "NaN"),
    ],
)
def test_weights_are_one_number_a_row(weight: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weights_of(weight, 3)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    classes, weight = np.array(["a", "b", "c", "d"]), RNG.integers(1, 4, 40).astype(float)
    factors = class_factors("balanced", classes, CODES, weight)
    repeated = classes[np.repeat(CODES, weight.astype(int))]
    expected = compute_class_weight("balanced", classes=classes, y=repeated)
    np.testing.assert_allclose(factors, expected, rtol=1e-12)
    np.testing.assert_allclose(np.bincount(CODES, weight * factors[CODES]), weight.sum() / 4)


def test_a_class_without_weight_takes_no_share() -> None:
    weight = np.where(CODES == 3, 0.0, 1.0)
    factors = class_factors("balanced", np.arange(4), CODES, weight)
    np.testing.assert_allclose(factors[:3], [24 / (3 * 4), 24 / (3 * 8), 24 / (3 * 12)])


def test_a_dict_names_classes() -> None:
    classes, ones = np.array(["a", "b", "c", "d"]), np.ones(40)
    assert class_factors({"b": 3}, classes, CODES, ones).tolist() == [1, 3, 1, 1]
    assert class_factors(None, classes, CODES, ones).tolist() == [1, 1, 1, 1]
    for given, message in (
        ({"e": 1}, r"must name classes, .*: got \['e'\]"),
        ({"a": -1}, "finite and at least 0: got {'a': -1}"),
        ({"a": "1"}, "finite and at least 0: got {'a': '1'}"),
        ("blanced", "None, 'balanced' or a dict: got 'blanced'"),
    ):
        with pytest.raises(ValueError, match=message):
            class_factors(given, classes, CODES, ones)


def test_statistics_count_a_row_by_its_weight() -> None:
    weight = RNG.integers(0, 4, 40)
    repeated = np.repeat(X, weight, axis=0)
    found = standardization(X, weight.astype(float))
    np.testing.assert_allclose(found.mean, repeated.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.std, repeated.std(0), rtol=1e-12)


def test_images_are_standardized_channel_by_channel() -> None:
    images, weight = RNG.normal(size=(10, 3, 2, 5)) * [[[1]], [[2]], [[3]]] + 4, RNG.integers(1, 4, 10)
    repeated = np.repeat(images, weight, axis=0)
    found = standardization(images, weight.astype(float))
    assert found.mean.shape == (3, 1, 1)
    np.testing.assert_allclose(found.mean[:, 0, 0], repeated.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.std[:, 0, 0], repeated.std((0, 2, 3)), rtol=1e-12)


def test_what_does_not_vary_becomes_zero() -> None:
    constant = np.full((7, 1), 0.1)
    assert standardization(constant, np.ones(7))(torch.tensor(constant)).abs().max() < 1e-12


def test_rows_without_weight_are_left_out() -> None:
    weight = np.where(np.arange(40) % 3 == 0, 0.0, 2.0)
    rows = rows_of(X, CODES, weight, (1, 2, 2))
    assert even(weight)
    assert not even(weight + np.arange(40))
    np.testing.assert_array_equal(rows.inputs[0].reshape(-1, 4), X[weight > 0])
    np.testing.assert_array_equal(rows.targets, CODES[weight > 0])


def test_the_validation_part_does_not_move_the_statistics() -> None:
    data, standardize = data_of_rows(rows_of(X, CODES, np.ones(40), (4,)), 4, 0.25, 0)
    train, val = data.splits["train"], data.splits["val"]
    assert (len(train), len(val)) == (30, 10)
    assert data.spec == {"in_features": 4, "num_examples": 30, "num_classes": 4}
    assert torch.bincount(val.targets).tolist() == [1, 2, 3, 4]
    raw = train.inputs[0] * standardize.std + standardize.mean
    np.testing.assert_allclose(standardize.mean, raw.mean(0), rtol=1e-12)
    np.testing.assert_allclose(train.inputs[0].mean(0), np.zeros(4), atol=1e-12)
    with pytest.raises(ValueError, match=r"validation_fraction must be in \[0, 1\): got 1.0"):
        data_of_rows(rows_of(X, CODES, np.ones(40), (4,)), 4, 1.0, 0)
