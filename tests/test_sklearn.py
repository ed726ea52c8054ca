"""The entries as scikit-learn's estimators: their predictions, their weights, their place in its tools."""

import dataclasses
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils import get_tags

import margin
from margin import MarginClassifier, MarginRegressor

IRIS = load_iris(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True, scaled=False)
DIGITS = load_digits(return_X_y=True)

# Newton's method in all but name: full batches, exact curvature of the last gradients, no weight decay.
TO_THE_END = {
    "epochs": 300,
    "batch_size": "all",
    "lr": 1.0,
    "training": {
        "optimizer": "LBFGS",
        "optimizer_options": {},
        "schedule": "constant",
        "precision": "float64",
    },
}


# what is predicted


def test_logistic_regression_ends_at_scikit_learns_optimum_weights_included() -> None:
    X, y = make_blobs(120, centers=[[0, 0], [1.5, 0], [0, 1.5]], random_state=0)
    names = np.array(["red", "green", "blue"])[y]
    weight = np.random.default_rng(0).uniform(0.2, 3.0, 120)
    factors = {"red": 1.0, "green": 4.0, "blue": 0.5}
    own = MarginClassifier("logistic_regression", class_weight=factors, **TO_THE_END)
    own.fit(X, names, sample_weight=weight)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=2000, class_weight=factors)
    peer.fit(X, names, sample_weight=weight)
    np.testing.assert_allclose(own.predict_proba(X), peer.predict_proba(X), atol=1e-4)
    assert own.classes_.tolist() == ["blue", "green", "red"]
    assert (own.predict(X) == peer.predict(X)).mean() > 0.99
    unweighted = LogisticRegression(C=np.inf, max_iter=2000).fit(X, names)
    assert np.abs(own.predict_proba(X) - unweighted.predict_proba(X)).max() > 0.1


def test_linear_regression_is_scikit_learns_in_the_units_of_the_user() -> None:
    X, y = DIABETES
    own, peer = MarginRegressor("linear_regression").fit(X, y), LinearRegression().fit(X, y)
    np.testing.assert_allclose(own.predict(X), peer.predict(X), rtol=1e-9)
    np.testing.assert_allclose(own.module_(torch.tensor(X)).detach(), peer.predict(X), rtol=1e-9)
    assert own.score(X, y) == pytest.approx(peer.score(X, y), abs=1e-12)


def test_the_module_takes_and_gives_the_users_units() -> None:
    X, y = IRIS
    own = MarginClassifier(epochs=3, random_state=0).fit(X, y)
    logits = own.module_(torch.tensor(X)).detach()
    np.testing.assert_array_equal(logits.numpy(), own.decision_function(X))
    np.testing.assert_array_equal(logits.softmax(-1).numpy(), own.predict_proba(X))
    np.testing.assert_array_equal(logits.argmax(-1).numpy(), own.predict(X))
    X, y = DIABETES
    values = MarginRegressor(epochs=20, random_state=0).fit(X, y)
    np.testing.assert_array_equal(values.module_(torch.tensor(X)).detach().numpy(), values.predict(X))
    assert not any(module.training for own in (own, values) for module in own.module_.modules())
    # a target that was left standardized would have mean 0 and variance 1
    assert abs(values.predict(X).mean() - y.mean()) < 20
    assert values.predict(X).std() > 20


def test_a_shift_of_the_target_and_its_unit_change_nothing_else() -> None:
    X, y = DIABETES
    one = MarginRegressor(epochs=2, random_state=0).fit(X, y).predict(X)
    other = MarginRegressor(epochs=2, random_state=0).fit(X, 1000 * y - 7).predict(X)
    np.testing.assert_allclose(other, 1000 * one - 7, rtol=1e-4)


def test_a_feature_far_from_zero_is_not_rounded_away() -> None:
    # in float32 the sixteen values next to 2^30 are one and the same
    x = np.random.default_rng(0).integers(0, 16, (200, 1)).astype(float)
    y = x[:, 0] > 7
    own = MarginClassifier("logistic_regression", epochs=30, lr=0.1, random_state=0).fit(x + 2.0**30, y)
    assert own.score(x + 2.0**30, y) == 1.0


def test_of_two_classes_the_decision_is_one_number() -> None:
    X, y = CANCER
    own = MarginClassifier(epochs=2, random_state=0).fit(X, y == 0)
    decision = own.decision_function(X)
    assert decision.shape == (569,)
    np.testing.assert_array_equal(own.predict(X), decision > 0)
    np.testing.assert_allclose(own.predict_proba(X)[:, 1], 1 / (1 + np.exp(-decision)), rtol=1e-9)
    assert own.classes_.dtype == bool


def test_a_model_of_images_takes_rows_of_a_shape() -> None:
    X, y = DIGITS
    own = MarginClassifier("lenet5", shape=(1, 8, 8), epochs=6, random_state=0).fit(X[:1200], y[:1200])
    assert own.score(X[1200:], y[1200:]) > 0.88
    images = torch.tensor(X[:5]).reshape(5, 1, 8, 8)
    np.testing.assert_allclose(own.module_(images).detach(), own.decision_function(X[:5]), rtol=1e-9)
    with pytest.raises(ValueError, match=r"shape must be .*: got shape=\(1, 8, 9\) for 64 features"):
        clone(own).set_params(shape=(1, 8, 9)).fit(X, y)
    with pytest.raises(ValueError, match="lenet5 takes images: pass shape"):
        clone(own).set_params(shape=None).fit(X, y)


@pytest.mark.parametrize(
    ("own", "peer", "data", "tolerance"),
    [
        (
            MarginClassifier(epochs=10, lr=3e-3, random_state=0),
            make_pipeline(
                StandardScaler(),
                MLPClassifier((128,), batch_size=32, max_iter=10, learning_rate_init=3e-3, random_state=0),
            ),
            DIGITS,
            0.01,
        ),
        (
            MarginClassifier("logistic_regression", epochs=20, random_state=0),
            make_pipeline(StandardScaler(), LogisticRegression()),
            CANCER,
            0.01,
        ),
        (MarginRegressor(epochs=20, random_state=0), Ridge(1e-3), DIABETES, 0.05),
    ],
    ids=["digits", "breast-cancer", "diabetes"],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_quality_is_scikit_learns_within_a_tolerance(
    own: Any, peer: Any, data: Any, tolerance: float
) -> None:
    """The mean of five paired scores lacks at most three of its standard errors."""
    kind = StratifiedKFold if isinstance(own, MarginClassifier) else KFold
    folds = kind(5, shuffle=True, random_state=0)
    gaps = cross_val_score(own, *data, cv=folds) - cross_val_score(peer, *data, cv=folds)
    assert gaps.mean() > -tolerance, gaps


# weights


@pytest.mark.parametrize("make", [MarginClassifier, MarginRegressor])
def test_a_row_of_weight_zero_is_left_out(make: Any) -> None:
    X, y = IRIS if make is MarginClassifier else DIABETES
    weight = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.7)
    one = make(epochs=3, random_state=0).fit(X, y, sample_weight=weight)
    other = make(epochs=3, random_state=0).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize("make", [MarginClassifier, MarginRegressor])
def test_a_row_of_weight_two_is_two_rows(make: Any) -> None:
    X, y = IRIS if make is MarginClassifier else DIABETES
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    own = make(epochs=20, lr=0.01, batch_size="all", training={"precision": "float64"}, random_state=0)
    one, other = clone(own).fit(X, y, sample_weight=weight), clone(own)
    other.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    ask = "decision_function" if make is MarginClassifier else "predict"
    np.testing.assert_allclose(getattr(one, ask)(X), getattr(other, ask)(X), rtol=1e-8)
    even = clone(own).fit(X, y)
    assert np.abs(getattr(one, ask)(X) - getattr(even, ask)(X)).max() > 1e-2


def test_balanced_classes_are_sample_weights() -> None:
    X, y = CANCER
    count = np.bincount(y)
    one = MarginClassifier(epochs=2, class_weight="balanced", random_state=0).fit(X, y)
    other = MarginClassifier(epochs=2, random_state=0).fit(X, y, sample_weight=(569 / (2 * count))[y])
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), rtol=1e-6)


def test_an_exact_solve_weights_the_squares() -> None:
    X, y = DIABETES
    weight = np.random.default_rng(0).uniform(0.0, 3.0, len(y)) * (np.arange(len(y)) >= 100)
    own = MarginRegressor("linear_regression").fit(X, y, sample_weight=weight)
    peer = LinearRegression().fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(own.predict(X), peer.predict(X), rtol=1e-8)
    assert np.abs(own.predict(X) - LinearRegression().fit(X[100:], y[100:]).predict(X)).max() > 1


def test_a_step_that_knows_no_weights_takes_none_but_equal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = DIABETES
    weight = np.where(np.arange(len(y)) < 100, 0.0, 2.0)
    name = "classic/linear_regression"
    entry = dataclasses.replace(margin.models()[name], weighted=False)
    monkeypatch.setitem(margin.core.catalog._table("MODELS"), name, entry)
    own = MarginRegressor(name).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(own.predict(X), LinearRegression().fit(X[100:], y[100:]).predict(X), rtol=1e-8)
    with pytest.raises(ValueError, match="weights must be equal or 0 for classic/linear_regression"):
        own.fit(X, y, sample_weight=weight + np.arange(len(y)))


# missing numbers


def with_holes(X: Any) -> Any:
    holes = np.random.default_rng(0).random(X.shape) < np.array([0.2, 0, 0.1, 0] + [0] * (X.shape[1] - 4))
    return np.where(holes, np.nan, X)


@pytest.mark.parametrize("missing", ["mean", "indicate"])
def test_missing_numbers_are_what_scikit_learns_imputer_makes_of_them(missing: Any) -> None:
    X, y = with_holes(IRIS[0]), IRIS[1]
    plain = MarginClassifier(epochs=5, training={"precision": "float64"}, random_state=0)
    own = clone(plain).set_params(missing=missing).fit(X, y)
    steps = make_pipeline(SimpleImputer(add_indicator=missing == "indicate"), plain).fit(X, y)
    np.testing.assert_allclose(own.predict_proba(X), steps.predict_proba(X), rtol=1e-9)
    np.testing.assert_array_equal(own.module_(torch.tensor(X)).detach(), own.decision_function(X))
    other = clone(plain).set_params(missing="mean" if missing == "indicate" else "indicate").fit(X, y)
    assert np.abs(own.predict_proba(X) - other.predict_proba(X)).max() > 1e-3
    audit = margin.audit(own, (X, y), claims=["theory/risk.accuracy"])
    assert float(audit["risk.accuracy"].value) == pytest.approx(own.score(X, y))


def test_the_mean_that_fills_in_is_of_the_weighted_rows() -> None:
    X, y = with_holes(DIABETES[0]), DIABETES[1]
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    own = MarginRegressor("linear_regression", missing="mean")
    twice = clone(own).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(clone(own).fit(X, y, weight).predict(X), twice.predict(X), rtol=1e-8)
    assert np.abs(clone(own).fit(X, y).predict(X) - twice.predict(X)).max() > 1e-2


def test_missing_numbers_are_an_error_unless_the_estimator_says_what_they_are() -> None:
    X, y = with_holes(IRIS[0]), IRIS[1]
    for make in (MarginClassifier, MarginRegressor):
        assert not get_tags(make()).input_tags.allow_nan
        assert get_tags(make(missing="mean")).input_tags.allow_nan
        with pytest.raises(ValueError, match="contains NaN"):
            make().fit(X, y)
        with pytest.raises(ValueError, match="missing must be one of error, mean, indicate: got 'median'"):
            make().set_params(missing="median").fit(X, y)
    with pytest.raises(ValueError, match="filled in rows, not in images"):
        MarginClassifier("lenet5", shape=(1, 2, 2), missing="mean").fit(X, y)
    with pytest.raises(ValueError, match="contains infinity"):
        MarginClassifier(missing="mean").fit(np.where(np.isnan(X), np.inf, X), y)


def test_several_targets_are_a_regressor_each() -> None:
    X, y = DIABETES
    both = np.stack((y, X[:, 2] ** 2), 1)
    own = MultiOutputRegressor(MarginRegressor("linear_regression")).fit(X, both)
    np.testing.assert_allclose(own.predict(X), LinearRegression().fit(X, both).predict(X), rtol=1e-8)
    audit = margin.audit(own, (X, both), claims=["theory/risk.loss"])
    squares = np.square(own.predict(X) - both).mean()
    assert float(audit["risk.loss"].value) == pytest.approx(squares, rel=1e-9)


# entries of other tasks


def test_a_perceptron_is_a_classifier_of_two_classes_without_probabilities() -> None:
    X, y = IRIS
    own = MarginClassifier("perceptron").fit(X, y == 0)
    assert own.score(X, y == 0) == 1.0
    assert own.loss_curve_ == []
    assert not hasattr(own, "predict_proba")
    assert not get_tags(own).classifier_tags.multi_class
    assert get_tags(MarginClassifier()).classifier_tags.multi_class
    np.testing.assert_allclose(own.decision_function(X), own.module_(torch.tensor(X)).detach(), rtol=1e-12)
    with pytest.raises(ValueError, match=r"classic/perceptron: got 3 classes; for more: .*feedforward/mlp"):
        own.fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (MarginClassifier("mlp_regressor"), "predict classes .*: got feedforward/mlp:values; such: .*mlp"),
        (
            MarginRegressor("logistic_regression"),
            "predict values .*: got classic/logistic_regression; such: .*mlp:values",
        ),
        (MarginClassifier("mpl"), "unknown model 'mpl'; nearest: .*mlp"),
        (MarginClassifier(options={"hiden": (3,)}), "has no option 'hiden'; it has: hidden"),
        (MarginClassifier(training={"clipp": 1.0}), "training has no option 'clipp'; it has: clip"),
        (MarginClassifier(training={"seed": 1}), "training takes no 'seed': use random_state"),
        (MarginClassifier(training={"processes": 2}), "training takes no 'processes': use n_jobs"),
        (MarginClassifier(training={"patience": 3}), "patience needs a validation part"),
        (MarginClassifier(validation_fraction=1.5), r"validation_fraction must be in \[0, 1\): got 1.5"),
        (MarginClassifier(epochs=-1), "epochs must be at least 0: got -1"),
        (MarginClassifier(lr=0.0), "lr must be positive: got 0.0"),
        (MarginClassifier(class_weight={5: 1.0}), r"class_weight must name classes, .*: got \[5\]"),
    ],
)
def test_a_wrong_parameter_is_told_in_one_line(estimator: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as told:
        estimator.fit(*(IRIS if isinstance(estimator, MarginClassifier) else DIABETES))
    assert "\n" not in str(told.value)


def test_one_class_is_refused_and_so_is_a_target_of_two_columns() -> None:
    X, y = IRIS
    with pytest.raises(ValueError, match=r"two classes must have a weight above 0: got 1 class, \[1\]"):
        MarginClassifier().fit(X, y, sample_weight=(y == 1))
    with pytest.raises(ValueError, match="1d array"):
        MarginRegressor().fit(X, X[:, :2])
    assert not get_tags(MarginRegressor()).target_tags.multi_output


# parameters


def test_options_are_parameters_of_their_own() -> None:
    own = MarginClassifier(options={"hidden": (7,)}, training={"clip": 1.0})
    params = own.get_params()
    assert params["options__hidden"] == (7,)
    assert params["options__activation"] == "relu"
    assert params["training__clip"] == 1.0
    assert params["training__schedule"] is None
    given = own.options
    own.set_params(options__activation="tanh", training__schedule="cosine", epochs=3)
    assert own.options == {"hidden": (7,), "activation": "tanh"}
    assert own.training == {"clip": 1.0, "schedule": "cosine"}
    assert own.epochs == 3
    assert given == {"hidden": (7,)}, "the user's own dict has changed"
    for name, message in (
        ("options__hiden", "feedforward/mlp has no option 'hiden'; it has: hidden"),
        ("training__clop", "training has no option 'clop'; it has: clip"),
        ("hidden", "Invalid parameter 'hidden'"),
    ):
        with pytest.raises(ValueError, match=message):
            own.set_params(**{name: 1})


def test_a_model_and_its_options_are_set_together() -> None:
    own = MarginClassifier("logistic_regression").set_params(options__hidden=(3,), model="mlp")
    assert own.options == {"hidden": (3,)}


def test_a_clone_is_exact() -> None:
    own = MarginClassifier(options={"hidden": (7,)}, training={"until": {"loss": 0.1}}, shape=None, lr=0.1)
    copy = clone(own)
    assert copy.get_params() == own.get_params()
    assert copy.options is not own.options


def test_a_search_in_a_pipeline_finds_the_better_option() -> None:
    X, y = make_blobs(200, centers=[[0, 0], [3, 3], [0, 3], [3, 0]], cluster_std=0.4, random_state=0)
    y = y // 2  # exclusive or: an affine map is right half the time
    pipeline = Pipeline([("scale", MinMaxScaler()), ("net", MarginClassifier(epochs=25, lr=0.02))])
    grid = {"net__options__hidden": [(), (16,)], "net__training__schedule": ["constant", "cosine"]}
    search = GridSearchCV(pipeline.set_params(net__random_state=0), grid, cv=2).fit(X, y)
    assert search.best_params_["net__options__hidden"] == (16,)
    assert search.best_score_ > 0.95
    affine = [p["net__options__hidden"] == () for p in search.cv_results_["params"]]
    assert search.cv_results_["mean_test_score"][affine].max() < 0.9


def test_numbers_of_numpy_serve_as_options() -> None:
    X, y = IRIS
    options = {"hidden": (np.int64(5),), "dropout": np.float64(0.1)}
    own = MarginClassifier().set_params(options=options, epochs=np.int64(2), lr=np.float64(0.01)).fit(X, y)
    assert own.n_iter_ == 2
    assert own.module_.model.layers[1].out_features == 5


def test_processes_of_joblib_give_the_scores_of_one() -> None:
    X, y = IRIS
    own = MarginClassifier(epochs=3, random_state=0)
    alone = cross_val_score(own, X, y, cv=4)
    np.testing.assert_array_equal(cross_val_score(own, X, y, cv=4, n_jobs=2), alone)


def test_threads_give_the_weights_of_one() -> None:
    X, y = IRIS

    def decide(seed: int) -> Any:
        own = MarginClassifier(epochs=4, options={"dropout": 0.3}, random_state=seed)
        return own.fit(X, y).decision_function(X)

    alone = [decide(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        np.testing.assert_array_equal(list(pool.map(decide, range(4))), alone)


# what a fit leaves


def test_a_fit_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    X, y = IRIS
    copies = X.copy(), y.copy()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    number = torch.get_num_threads()
    MarginClassifier(epochs=2, options={"dropout": 0.1}, random_state=0).fit(X, y)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.get_num_threads() == number
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    np.testing.assert_array_equal(X, copies[0])
    np.testing.assert_array_equal(y, copies[1])


def test_an_interrupted_fit_speaks_of_no_run_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted(job: Any) -> None:
        raise KeyboardInterrupt("go on with margin train --resume ...")

    monkeypatch.setattr(margin.sklearn, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        MarginClassifier().fit(*IRIS)
    assert str(stopped.value) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_seed_repeats_a_fit_and_none_varies_it() -> None:
    X, y = IRIS
    one, two, other = (
        MarginClassifier(epochs=1, random_state=seed).fit(X, y).decision_function(X) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-3
    np.random.seed(0)
    free = [MarginClassifier(epochs=1).fit(X, y).decision_function(X) for _ in range(2)]
    assert np.abs(free[0] - free[1]).max() > 1e-3


def test_the_curve_has_a_mean_loss_for_each_epoch() -> None:
    X, y = IRIS
    own = MarginClassifier(
        "logistic_regression", epochs=5, batch_size="all", training={"precision": "float64"}
    )
    own.fit(X, y)
    assert own.n_iter_ == len(own.loss_curve_) == 5
    assert own.loss_curve_[0] == pytest.approx(np.log(3), rel=1e-12)  # its weights begin at 0
    assert own.loss_curve_ == sorted(own.loss_curve_, reverse=True)
    still = MarginClassifier("logistic_regression", epochs=2, batch_size=50, lr=1e-12).fit(X, y)
    assert still.loss_curve_ == pytest.approx([np.log(3)] * 2, rel=1e-6)  # the mean of three batches
    assert still.n_iter_ == 2
    stopped = MarginClassifier(epochs=50, training={"until": {"loss": 0.5}}).fit(X, y)
    assert stopped.n_iter_ == len(stopped.loss_curve_) < 50


def test_held_out_rows_choose_the_weights_and_stop() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 20)), rng.integers(0, 2, 60)  # nothing to learn: the loss only rises
    own = MarginClassifier(
        epochs=200, lr=0.01, validation_fraction=0.3, training={"patience": 4}, random_state=0
    ).fit(X, y)
    free = MarginClassifier(epochs=200, lr=0.01, random_state=0).fit(X, y)
    assert 5 <= own.n_iter_ < 60
    assert free.n_iter_ == 200
    assert clone(free).set_params(epochs=20, training__evaluate_every=1).fit(X, y).n_iter_ == 20
    assert np.abs(own.decision_function(X)).mean() < np.abs(free.decision_function(X)).mean() / 3


def test_names_of_features_are_kept_and_a_pickle_predicts_the_same() -> None:
    X, y = IRIS
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    own = MarginClassifier(epochs=2, random_state=0).fit(table, np.array(["x", "y", "z"])[y])
    assert own.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert own.n_features_in_ == 4
    copy = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(copy.predict_proba(table), own.predict_proba(table))
    assert set(copy.predict(table)) <= {"x", "y", "z"}
    with pytest.raises(ValueError, match="feature names"):
        own.predict(table.rename(columns={"a": "e"}))
    assert "MarginClassifier" in own._repr_html_()


def test_the_curve_weighs_a_short_last_batch_by_its_rows() -> None:
    """97 rows, 90 and 7: at a rate of 0 the curve is the loss of all rows, as it is of one batch."""
    X, y = np.random.default_rng(0).normal(size=(97, 2)), np.arange(97.0) ** 2

    def curve(size: int, weight: Any = None) -> list[float]:
        one = MarginRegressor(
            epochs=2, batch_size=size, lr=1e-300, random_state=0, training={"precision": "float64"}
        )
        return one.fit(X, y, weight).loss_curve_

    assert curve(90) == pytest.approx(curve(97), rel=1e-9)
    weight = np.where(np.arange(97) % 3 == 0, 5.0, 1.0)
    assert curve(90, weight) == pytest.approx(curve(97, weight), rel=1e-9)


@pytest.mark.parametrize("alpha", [0.5, 20.0])
def test_ridge_without_a_scale_is_scikit_learns(alpha: float) -> None:
    X, y = DIABETES
    options = {"penalty": alpha, "scaling": "sum"}
    own = MarginRegressor("ridge", options=options, training={"scale": "none"}).fit(X, y)
    np.testing.assert_allclose(own.predict(X), Ridge(alpha).fit(X, y).predict(X), rtol=1e-9)
    scaled = MarginRegressor("ridge", options=options).fit(X, y)
    steps = make_pipeline(StandardScaler(), Ridge(alpha)).fit(X, y)
    np.testing.assert_allclose(scaled.predict(X), steps.predict(X), rtol=1e-9)
    assert np.abs(own.predict(X) - scaled.predict(X)).max() > 0.05


def test_a_scale_that_needs_a_domain_is_refused() -> None:
    with pytest.raises(ValueError, match="scale unit needs the least and the largest value"):
        MarginRegressor("ridge", training={"scale": "unit"}).fit(*DIABETES)


@pytest.mark.parametrize("model", ["mlp", "logistic_regression", "perceptron"])
def test_a_classifier_is_audited_in_its_own_units_and_classes(model: str) -> None:
    X, y = CANCER
    names = np.array(["benign", "malign"])[y]
    own = MarginClassifier(model, epochs=5, random_state=0).fit(X[::2], names[::2])
    claims = ["theory/risk.accuracy"]
    audit = margin.audit(own, (X[1::2], names[1::2]), claims=claims, train=(X[::2], names[::2]))
    assert float(audit.findings[claims[0]].value) == pytest.approx(own.score(X[1::2], names[1::2]), abs=1e-12)
    with pytest.raises(ValueError, match=r"y must hold classes of the fit, \['benign', 'malign'\]: got"):
        margin.audit(own, (X, y), claims=claims)


def test_a_regressor_is_audited_in_its_own_units() -> None:
    X, y = DIABETES
    own = MarginRegressor(epochs=20, random_state=0).fit(X, y)
    audit = margin.audit(own, (X, y), claims=["theory/risk.loss"])
    squares = np.square(own.predict(X) - y).mean()
    assert float(audit.findings["theory/risk.loss"].value) == pytest.approx(squares, rel=1e-9)
    with pytest.raises(NotFittedError):
        margin.audit(MarginRegressor(), (X, y))
    with pytest.raises(ValueError, match="an estimator is audited on held-out rows"):
        margin.audit(own)


def test_a_models_own_step_takes_its_options() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    options = {"base": "feedforward/mlp", "base_options": {"hidden": [3]}, "learn": "none"}
    few, many = (
        MarginRegressor("bayes/laplace", options=options, step={"epochs": n, "rounds": 1}, random_state=0)
        for n in (1, 60)
    )
    assert few.fit(X, y).score(X, y) < 0.7 < 0.9 < many.fit(X, y).score(X, y)
    assert many.predict(X, return_std=True)[1].shape == (40,)
    assert clone(many).step == {"epochs": 60, "rounds": 1}
    for step, message in (
        ({"depth": 3}, "depth"),
        ({"epochs": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            MarginRegressor("bayes/laplace", options=options, step=step).fit(X, y)
