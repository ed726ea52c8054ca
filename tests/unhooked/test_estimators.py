"""What the shape hook would disturb: scikit-learn's check of odd parameters, Python's generator."""

import random

import pytest
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import check_estimator

from margin import MarginClassifier, MarginRegressor

# One batch and float64: a row of weight 2 is two rows then, which scikit-learn asks to a relative 1e-7.
EXACT = {"batch_size": "all", "lr": 0.05, "training": {"precision": "float64"}}


@pytest.mark.parametrize(
    "estimator",
    [
        MarginClassifier(epochs=5, **EXACT),
        MarginRegressor(epochs=5, **EXACT),
        MarginClassifier("classic/logistic_regression", epochs=20, **EXACT),
        MarginRegressor("classic/linear_regression"),
        MarginRegressor("classic/ridge"),
        MarginRegressor("classic/kernel_ridge"),
        MarginRegressor("classic/lasso"),
        MarginClassifier("classic/softmax_regression", options={"penalty": 0.01, "tolerance": 1e-9}),
    ],
    ids=lambda estimator: estimator.model,
)
@pytest.mark.filterwarnings("ignore")
def test_every_check_of_scikit_learn_passes(estimator: MarginClassifier | MarginRegressor) -> None:
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    assert [f["check_name"] for f in found if f["status"] not in ("passed", "skipped")] == []
    assert {f["check_name"] for f in found if f["status"] == "skipped"} <= {"check_array_api_input"}
    assert len(found) > 55


def test_a_fit_does_not_move_pythons_generator() -> None:
    before = random.getstate()
    MarginClassifier(epochs=1, random_state=0).fit(*load_iris(return_X_y=True))
    assert random.getstate() == before
