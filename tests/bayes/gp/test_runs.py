"""A Gaussian process end to end: trained on a table, predictions with intervals, audit, scikit-learn."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import margin
from margin.auditing.report.screen import plain
from margin.auditing.report.sentences import sentences
from margin.runs.inference import predictions
from margin.sklearn import MarginRegressor


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (160, 2)) * [1, 100]
    y = 50 + 10 * np.sin(x[:, 0]) + rng.normal(size=160)
    path = tmp_path_factory.mktemp("gp") / "waves.csv"
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True)]
    path.write_text("\n".join(["near,far,height", *lines]))
    return path


def test_train_predict_audit(table, tmp_path) -> None:
    run = margin.train("gp", margin.open_source(str(table), {"target": "height"}), out=tmp_path / "run")
    assert run.record["recipe"]["model"] == "bayes/gp"
    last = run.history[-1]
    assert 0.8 < last["train_noise"] < 1.2
    assert last["train_jitter"] == 0
    columns = predictions(run, table)
    assert list(columns) == ["value", "std", "low 95%", "high 95%"]
    value, std, low, high = (np.array(columns[name]) for name in columns)
    np.testing.assert_allclose(high - value, 1.959964 * std, rtol=1e-5)
    np.testing.assert_allclose(value - low, high - value, rtol=1e-9)
    heights = np.loadtxt(table, delimiter=",", skiprows=1)[:, 2]
    assert np.mean((low <= heights) & (heights <= high)) > 0.9
    found = margin.audit(run, claims=["theory/predictive.*", "bayes/*"]).findings
    coverage = found["theory/predictive.coverage"]
    assert coverage.value[3] > 0.8 and coverage.curves["low"].shape == coverage.curves["observed"].shape
    assert -2.2 < float(found["theory/predictive.log_likelihood"].value) < -1.2  # of N(0, 1): -1.42
    assert found["bayes/gp.posterior"].verdict == "holds"


def test_the_first_screen_says_whether_intervals_cover_and_asks_nothing_of_gradients(table, tmp_path) -> None:
    """The share of 40 held-out values in their intervals; what no gradient trained is asked of none."""
    run = margin.train("gp", margin.open_source(str(table), {"target": "height"}), out=tmp_path / "run")
    asked = ["theory/predictive.coverage", "theory/predictiveness.gradient", "theory/risk.loss"]
    audit = margin.audit(run, claims=asked)
    (said,) = (s for s in sentences(audit) if s.question == "probabilities")
    share = float(audit.findings["theory/predictive.coverage"].value[3])
    stated = f"{share:.2f}".lstrip("0")
    assert said.text.startswith(f"The stated 95 % intervals hold the value of {stated} [")
    assert said.level in ("good", "unknown")
    assert "parameters" not in plain(audit).splitlines()[0]
    refusals = {answer.claim.name: answer.refusal for answer in audit.answers}
    assert "require a gradient" in refusals["theory/predictiveness.gradient"]


def test_the_factor_that_was_learned_is_the_one_that_would_be_computed(table, tmp_path) -> None:
    data = np.loadtxt(table, delimiter=",", skiprows=1)
    fitted = MarginRegressor("bayes/gp", random_state=0).fit(data[:, :2], data[:, 2])
    _, deviation = fitted.predict(data[:20, :2], return_std=True)
    fitted.module_.model.scales.mul_(1)  # another version: the factor is computed again
    np.testing.assert_allclose(fitted.predict(data[:20, :2], return_std=True)[1], deviation, rtol=1e-8)


def test_the_estimator_states_deviations_as_scikit_learns_does(table) -> None:
    data = np.loadtxt(table, delimiter=",", skiprows=1)
    X, y = data[:, :2], data[:, 2]
    options = {"learn": "none", "noise": 0.2, "lengthscale": 1.5}
    ours = MarginRegressor("bayes/gp", options=options, random_state=0).fit(X, y)
    Z, unit = (X - X.mean(0)) / X.std(0), y.std()
    peer = GaussianProcessRegressor(RBF(1.5), alpha=0.2, optimizer=None).fit(Z, (y - y.mean()) / unit)
    mean, std = peer.predict(Z[:20], return_std=True)
    got, deviation = ours.predict(X[:20], return_std=True)
    np.testing.assert_allclose(got, y.mean() + unit * mean, rtol=1e-8)
    np.testing.assert_allclose(deviation, unit * np.sqrt(std**2 + 0.2), rtol=1e-8)
    with pytest.raises(ValueError, match="return_std needs a model that states how sure it is"):
        MarginRegressor("ridge").fit(X, y).predict(X, return_std=True)
    assert math.isfinite(ours.score(X, y))
