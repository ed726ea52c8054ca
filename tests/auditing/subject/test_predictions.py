import time

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn import metrics
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

import margin
from margin.sklearn import MarginClassifier

NUMBERS = ("risk.accuracy", "calibration.nll", "calibration.brier", "confusion.macro_f1", "residuals.*")
WORDS = np.array(["no", "yes", "maybe"])


def _wine(labels=None):
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order] if labels is None else labels[y[order]]
    return X[:100], y[:100], X[100:], y[100:]


def _values(audit):
    return {n.partition("/")[2]: f.value.item() for n, f in audit.findings.items() if f.value.numel() == 1}


FITTED = {
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=3, random_state=0),
    "forest": lambda: RandomForestClassifier(30, random_state=0),
    "scores": lambda: make_pipeline(StandardScaler(), LinearSVC()),
    "pairwise votes": lambda: make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
    "predict alone": lambda: VotingClassifier(
        [("a", GaussianNB()), ("b", RandomForestClassifier(5, random_state=0))]
    ),
    "ours in a pipeline": lambda: make_pipeline(
        StandardScaler(), MarginClassifier("mlp", epochs=3, random_state=0)
    ),
}


@pytest.mark.parametrize("labels", [None, WORDS], ids=["numbers", "text"])
@pytest.mark.parametrize("kind", FITTED)
def test_a_classifier_of_scikit_learn_has_the_numbers_of_scikit_learn(kind, labels):
    X, y, X_test, y_test = _wine(labels)
    fitted = FITTED[kind]().fit(X, y)
    audit = margin.audit(fitted, (X_test, y_test), train=(X, y), claims=NUMBERS)
    found = _values(audit)
    assert found["risk.accuracy"] == pytest.approx(fitted.score(X_test, y_test))
    expected = metrics.f1_score(y_test, fitted.predict(X_test), average="macro")
    assert found["confusion.macro_f1"] == pytest.approx(expected)
    order = ", ".join(map(str, fitted.classes_))
    methods = {"scores": "decision_function", "pairwise votes": "predict", "predict alone": "predict"}
    method = methods.get(kind, "predict_proba")
    name = type(fitted).__name__
    assert f"outputs: {method} of {name}, its classes in the order {order}" in audit.assumed
    if method == "predict_proba":
        p = fitted.predict_proba(X_test)
        hot = y_test[:, None] == fitted.classes_
        assert found["calibration.brier"] == pytest.approx(((p - hot) ** 2).sum(1).mean(), rel=1e-6)
    else:
        assert "calibration.brier" not in found
    assert not audit.failed


def test_a_binary_score_is_a_signed_one():
    X, y = load_breast_cancer(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), LinearSVC()).fit(X[:300], y[:300])
    audit = margin.audit(fitted, (X[300:], y[300:]), claims=("risk.accuracy", "ranking.auroc"))
    score = fitted.decision_function(X[300:])
    found = _values(audit)
    assert found["risk.accuracy"] == pytest.approx(fitted.score(X[300:], y[300:]))
    assert found["ranking.auroc"] == pytest.approx(metrics.roc_auc_score(y[300:], score))


def test_a_regressor_has_the_residuals_of_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    fitted = LinearRegression().fit(X[:300], y[:300])
    found = _values(margin.audit(fitted, (X[300:], y[300:].astype(int)), claims=NUMBERS))
    assert found["residuals.r2"] == pytest.approx(fitted.score(X[300:], y[300:]))
    expected = metrics.mean_absolute_error(y[300:], fitted.predict(X[300:]))
    assert found["residuals.mae"] == pytest.approx(expected)


def test_several_labels_of_an_estimator_are_judged_label_by_label():
    X, y, X_test, y_test = _wine()
    both = np.stack((y == 0, y > 1), 1).astype(int)
    both_test = np.stack((y_test == 0, y_test > 1), 1).astype(int)
    fitted = MultiOutputClassifier(GaussianNB()).fit(X, both)
    audit = margin.audit(fitted, (X_test, both_test), claims="multilabel*")
    assert _values(audit)["multilabel.subset"] == pytest.approx(fitted.score(X_test, both_test))


def test_features_that_are_no_numbers_are_answered_once():
    frame = pd.DataFrame({"kind": list("abc") * 30, "size": np.arange(90) % 7})
    y = np.where(frame["kind"] == "a", "left", "right")
    fitted = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough"), LogisticRegression()
    ).fit(frame, y)
    audit = margin.audit(fitted, (frame, pd.Series(y)), claims=NUMBERS)
    assert _values(audit)["risk.accuracy"] == fitted.score(frame, y) == 1
    assert any("not rows of numbers" in line for line in audit.assumed)
    texts = ["good film", "bad film", "good book", "bad book"] * 5
    told = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0] * 10)
    assert _values(margin.audit(told, (texts, [1, 0] * 10), claims=NUMBERS))["risk.accuracy"] == 1
    sparse = csr_matrix(np.eye(4)[np.arange(20) % 4])
    known = LogisticRegression().fit(sparse, np.arange(20) % 4 > 1)
    audit = margin.audit(known, (sparse, np.arange(20) % 4 > 1), claims=NUMBERS)
    assert _values(audit)["risk.accuracy"] == 1


@pytest.mark.parametrize("kind", ["imputer", "trees"])
def test_an_estimator_that_takes_missing_numbers_is_audited_with_them(kind):
    X, y, X_test, y_test = _wine()
    for rows in (X, X_test):
        rows[::5, 3] = np.nan
    takes = {
        "imputer": lambda: make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
        "trees": lambda: HistGradientBoostingClassifier(max_iter=5, random_state=0),
    }
    fitted = takes[kind]().fit(X, y)
    audit = margin.audit(fitted, (X_test, y_test), train=(X, y), claims=NUMBERS)
    assert _values(audit)["risk.accuracy"] == pytest.approx(fitted.score(X_test, y_test))
    assert any("features are missing (NaN)" in line for line in audit.assumed)


def test_a_frame_of_numbers_is_given_as_a_frame(recwarn):
    X, y, X_test, y_test = _wine()
    names = [f"f{i}" for i in range(13)]
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(pd.DataFrame(X, columns=names), y)
    held = (pd.DataFrame(X_test, columns=names), y_test)
    audit = margin.audit(fitted, held, claims="risk.accuracy")
    assert _values(audit)["risk.accuracy"] == pytest.approx(fitted.score(*held))
    assert not any("numbers" in line for line in audit.assumed)
    assert not [w for w in recwarn if "feature names" in str(w.message)]


def test_what_needs_a_gradient_says_so_in_one_line():
    X, y, X_test, y_test = _wine()
    fitted = RandomForestClassifier(5, random_state=0).fit(X, y)
    audit = margin.audit(fitted, (X_test, y_test), claims=("curvature.*", "robust/l*", "gradient_noise.*"))
    lines = {a.absence for a in audit.answers}
    assert lines == {"does not apply: has no gradient"}


def test_where_predict_is_not_the_likeliest_class_it_is_said():
    from sklearn.model_selection import FixedThresholdClassifier

    X, y = load_breast_cancer(return_X_y=True)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    fitted = FixedThresholdClassifier(inner, threshold=0.95, response_method="predict_proba").fit(X, y)
    odd = int((fitted.predict_proba(X).argmax(1) != fitted.predict(X)).sum())
    audit = margin.audit(fitted, (X, y), claims="risk.accuracy")
    assert odd > 0 and any(f"for {odd} of 569 held-out rows" in line for line in audit.assumed)


def test_an_estimator_that_cannot_be_asked_is_told_why():
    X, y, X_test, y_test = _wine(WORDS)
    with pytest.raises(NotFittedError, match="not fitted"):
        margin.audit(LogisticRegression(), (X, y))
    fitted = FITTED["pipeline"]().fit(X, y)
    with pytest.raises(ValueError, match=r"y must hold classes of the fit.*got \['perhaps'\]"):
        margin.audit(fitted, (X_test[:2], ["yes", "perhaps"]))
    with pytest.raises(ValueError, match="give them as"):
        margin.audit(fitted)
    with pytest.raises(ValueError, match="has no gradient"):
        margin.audit(fitted, (X_test, y_test), domain=(0.0, 1.0))


def test_predictions_alone_have_the_numbers_of_their_model():
    generator = torch.Generator().manual_seed(0)
    z, y = torch.randn(60, 3, generator=generator), torch.arange(60) % 3
    p = z.double().softmax(1)
    claims = ("risk.accuracy", "calibration.nll", "ranking.auroc", "confusion.macro_f1")
    found = _values(margin.audit(predictions=p.numpy(), targets=y.tolist(), claims=claims))
    assert found["risk.accuracy"] == pytest.approx((p.argmax(1) == y).double().mean().item())
    assert found["calibration.nll"] == pytest.approx(metrics.log_loss(y, p))
    assert found["ranking.auroc"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"))
    logits = _values(margin.audit(predictions=z, targets=y, claims=claims))
    assert logits == pytest.approx(found, rel=1e-5)
    hard = margin.audit(predictions=p.argmax(1), targets=y, claims=claims)
    assert _values(hard) == pytest.approx({k: v for k, v in found.items() if k[:4] in ("risk", "conf")} | {
        "ranking.auroc": _values(hard)["ranking.auroc"]})  # fmt: skip
    text = margin.audit(predictions=WORDS[p.argmax(1)], targets=WORDS[y], claims=claims)
    assert _values(text)["risk.accuracy"] == found["risk.accuracy"]
    assert (
        "outputs: predicted classes without scores, its classes in the order maybe, no, yes" in text.assumed
    )
    values = margin.audit(predictions=z[:, 0], targets=z[:, 1], claims="residuals.mae")
    assert _values(values)["residuals.mae"] == pytest.approx((z[:, 0] - z[:, 1]).abs().mean().item())


def test_predictions_alone_say_what_needs_a_model():
    audit = margin.audit(predictions=torch.rand(9, 2).softmax(1), targets=torch.arange(9) % 2)
    lines = {a.claim.name: a.absence for a in audit.answers}
    for name in ("theory/curvature.sharpness", "robust/linf.fgsm", "theory/regions.in_plane"):
        assert lines[name] == "does not apply: needs a model: predictions alone are given"
    assert "theory/calibration.ece" in audit.findings and not audit.failed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"predictions": [0.1]}, "give both"),
        ({"model": torch.nn.Linear(1, 1), "predictions": [0.1], "targets": [1]}, "leave out both"),
        ({"predictions": [[0.2, 0.8]], "targets": [2]}, "labels must lie in 0 .. 1"),
        ({"predictions": [0.2, 0.7], "targets": [0, 1]}, "state the task"),
        ({"predictions": [0.2, 0.7], "targets": [0, 1, 1]}, "must have one length"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        margin.audit(**given)


def test_the_classes_of_an_estimator_may_be_given_names() -> None:
    X, y, X_test, y_test = _wine()
    fitted = RandomForestClassifier(3, random_state=0).fit(X, y)
    audit = margin.audit(fitted, (X_test, y_test), claims="confusion.recall", class_names=["a", "b", "c"])
    found = audit.findings["theory/confusion.recall"]
    expected = metrics.recall_score(y_test, fitted.predict(X_test), average=None)
    assert found.labels == ("a", "b", "c")
    assert found.value.tolist() == pytest.approx(expected.tolist())
    with pytest.raises(ValueError, match="each of the 3 classes: got 2"):
        margin.audit(fitted, (X_test, y_test), class_names=["a", "b"])


def test_predicted_classes_have_names_in_any_order_and_are_of_the_classes() -> None:
    """Mutants: positions by bisection, which needs sorted names; a class of no name read as the first."""
    said, true = ["dog", "cat", "emu", "cat"] * 5, ["dog", "cat", "dog", "emu"] * 5
    audit = margin.audit(
        predictions=said, targets=true, class_names=["emu", "dog", "cat"], claims=["confusion.recall"]
    )
    found = audit.findings["theory/confusion.recall"]
    assert dict(zip(found.labels, found.value.tolist(), strict=True)) == {"emu": 0, "dog": 0.5, "cat": 1}
    for given, rule in (
        (([0, 1, 5], [0, 1, 0]), "predictions must be of the classes 0, 1: got 5"),
        (([0, 1, 1], [0, 1, 2]), "targets must be of the classes 0, 1: got 2"),
    ):
        with pytest.raises(ValueError, match=rule):
            margin.audit(predictions=given[0], targets=given[1], class_names=["a", "b"])


class Timed(ClassifierMixin, BaseEstimator):
    """A classifier that takes so much of a clock's time for a call, and for each row."""

    classes_ = np.arange(2)

    def __init__(self, clock, call, row):
        self.clock, self.call, self.row, self.rows = clock, call, row, []

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        self.clock["passed"] += self.call + self.row * len(X)
        self.rows.append(len(X))
        p = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.stack([1 - p, p], 1)

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


@pytest.mark.parametrize("call", [1e-4, 5e-3])
def test_the_clock_changes_no_answer_about_an_estimator(call, monkeypatch):
    """Its calls and rows count, whatever they take: at 1 ms a row one of 4 s is for 512 of 800 rows."""
    X = np.random.default_rng(0).normal(size=(800, 3))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    monkeypatch.setattr("margin.auditing.asking.passes.PREDICTED", (1e-3, 1e-3))

    def seen_by(rate):
        clock, real, start = {"passed": 0.0}, time.perf_counter, time.perf_counter()
        with monkeypatch.context() as patch:
            patch.setattr(time, "perf_counter", lambda: start + 0.01 * (real() - start) + clock["passed"])
            estimator = Timed(clock, rate * call, rate * 2.5e-4)
            audit = margin.audit(estimator, (X, y), claims=["risk.accuracy", "calibration.*"], minutes=4 / 60)
        answers = {a.claim.name: a.as_json() | {"seconds": 0} for a in audit.answers}
        return answers, audit.assumed

    normal = seen_by(1.0)
    assert normal[0]["theory/risk.accuracy"]["finding"]["sample"] == "512 of 800 drawn"
    assert not any("far longer" in line for line in normal[1])
    assert seen_by(2.0) == normal == seen_by(0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_any_type_are_numbers_and_a_linear_estimator_is_as_simple_as_its_rival(dtype):
    """Probabilities of float32 rows differ in the last digits from those of the same rows in float64."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype(dtype)
    audit = margin.audit(
        LogisticRegression().fit(X[:400], y[:400]),
        (X[400:], y[400:]),
        train=(X[:400], y[:400]),
        claims=["risk.accuracy", "baseline", "shift", "shrinkage", "early_stopping"],
    )
    assert not any(answer.broken for answer in audit.answers)
    assert {"theory/baseline.linear", "theory/evidence.shift"} <= audit.findings.keys()
    assert "linear one is simpler" not in str(audit)
    assert ", 0 parameters" not in str(audit)


def test_a_table_of_answers_has_no_last_layer():
    """Text is answered once: the input of such an audit is the number of a row, which has no columns."""
    texts = np.array(["a b", "b c", "c d", "d a"] * 20)
    y = np.array([0, 0, 1, 1] * 20)
    model = make_pipeline(TfidfVectorizer(token_pattern=r"\w"), LogisticRegression()).fit(texts, y)
    audit = margin.audit(model, (texts, y), train=(texts, y), claims=["shrinkage", "early_stopping"])
    assert [answer.broken for answer in audit.answers if answer.broken] == []
    assert audit.findings == {}
