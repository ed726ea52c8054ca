"""``margin.metrics``: values equal scikit-learn's, intervals are those of the audit, mistakes get a line."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

import margin
from margin import metrics

R = np.random.default_rng(0)
Y = R.integers(0, 3, 200)
LOGITS = R.normal(size=(200, 3)) + 1.5 * np.eye(3)[Y]
P = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
W = R.integers(0, 4, 200).astype(float)
TWO = R.integers(0, 2, 150)
P1 = np.clip(0.3 * R.normal(size=150) + 0.25 + 0.5 * TWO, 0.01, 0.99)
V = R.normal(size=80)
U = V + 0.4 * R.normal(size=80)


@pytest.mark.parametrize("weight", [None, W], ids=["equal", "weighted"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (metrics.accuracy, sk.accuracy_score),
        (metrics.balanced_accuracy, sk.balanced_accuracy_score),
        (
            metrics.macro_f1,
            lambda y, p, sample_weight: sk.f1_score(y, p, average="macro", sample_weight=sample_weight),
        ),
    ],
    ids=["accuracy", "balanced", "f1"],
)
def test_decisions(ours, theirs, weight) -> None:  # type: ignore[no-untyped-def]
    expected = theirs(Y, P.argmax(1), sample_weight=weight)
    for given in (P, torch.tensor(P), LOGITS, P.argmax(1), np.array(list("abc"))[P.argmax(1)]):
        targets = np.array(list("abc"))[Y] if np.asarray(given).dtype.kind == "U" else Y
        found = ours(given, targets, weight=weight)
        assert found.value == pytest.approx(expected, abs=1e-12)
        assert found.low < found.value < found.high


def test_by_class() -> None:
    for ours, theirs in ((metrics.recall, sk.recall_score), (metrics.precision, sk.precision_score)):
        found = ours(P, Y)
        assert [m.value for m in found.values()] == pytest.approx(
            theirs(Y, P.argmax(1), average=None).tolist()
        )


def test_ranking_and_forecasts() -> None:
    assert metrics.auroc(P, Y).value == pytest.approx(sk.roc_auc_score(Y, P, multi_class="ovr"), abs=1e-9)
    assert metrics.auroc(P1, TWO).value == pytest.approx(sk.roc_auc_score(TWO, P1), abs=1e-12)
    assert metrics.log_loss(P, Y).value == pytest.approx(sk.log_loss(Y, P), abs=1e-9)
    assert metrics.log_loss(P1, TWO, weight=np.r_[W, W][:150]).value == pytest.approx(
        sk.log_loss(TWO, P1, sample_weight=np.r_[W, W][:150]), abs=1e-9
    )
    assert metrics.brier_score(P1, TWO).value == pytest.approx(2 * sk.brier_score_loss(TWO, P1), abs=1e-9)
    confidence, right = P.max(1), P.argmax(1) == Y
    bins = np.minimum((confidence * 15).astype(int), 14)
    by_hand = sum(abs((right[bins == b] - confidence[bins == b]).sum()) for b in range(15)) / 200
    assert metrics.expected_calibration_error(P, Y).value == pytest.approx(by_hand, abs=1e-12)


def test_values() -> None:
    assert metrics.mean_absolute_error(U, V).value == pytest.approx(sk.mean_absolute_error(V, U), abs=1e-12)
    assert metrics.root_mean_square_error(U, V).value == pytest.approx(
        sk.root_mean_squared_error(V, U), abs=1e-12
    )
    assert metrics.r2(U, V).value == pytest.approx(sk.r2_score(V, U), abs=1e-12)


def test_a_metric_is_the_audits() -> None:
    linear = torch.nn.Linear(3, 3).double()
    x = torch.tensor(R.normal(size=(200, 3)))
    p = linear(x).softmax(1).detach()
    audit = margin.audit(linear, (x, torch.tensor(Y)), claims=["risk.accuracy", "calibration"])
    for name, ours in (
        ("risk.accuracy", metrics.accuracy),
        ("calibration.ece", metrics.expected_calibration_error),
        ("calibration.nll", metrics.log_loss),
    ):
        finding = audit.findings[f"theory/{name}"]
        found = ours(p, Y)
        ends = [float(finding.value), *(float(end) for end in finding.shown)]
        assert list(found) == pytest.approx(ends, abs=1e-9)


@pytest.mark.parametrize(
    ("ask", "rule"),
    [
        (lambda: metrics.accuracy(Y, P), "one class an example"),
        (lambda: metrics.accuracy(P, Y[:-1]), "of the same examples"),
        (lambda: metrics.accuracy(P[:0], Y[:0]), "one at least"),
        (lambda: metrics.accuracy(P, Y + 1), "targets must be whole numbers from 0 to 2: got 3"),
        (lambda: metrics.accuracy(P, Y + 0.5), "whole numbers"),
        (lambda: metrics.accuracy(V, TWO[:80]), "probabilities of class 1"),
        (lambda: metrics.accuracy(np.where(P > 0.9, np.nan, P), Y), "must be finite"),
        (lambda: metrics.log_loss(LOGITS, Y), "of logits give their softmax"),
        (lambda: metrics.log_loss(P.argmax(1), Y), "distribution over the classes"),
        (lambda: metrics.log_loss(np.eye(3)[(Y + 1) % 3], Y), "probability 0 in 200 of 200"),
        (lambda: metrics.auroc(P.argmax(1), Y), "scores or probabilities"),
        (lambda: metrics.auroc(P1, 0 * TWO), "two classes"),
        (lambda: metrics.r2(U[:, None], V), "one shape"),
        (lambda: metrics.r2(U[:1], V[:1]), "two examples"),
        (lambda: metrics.accuracy(P, Y, weight=-W), "none below 0"),
        (lambda: metrics.accuracy(P, np.array(list("ab"))[Y % 2]), "one a column"),
        (lambda: metrics.accuracy(-TWO, TWO), "predictions must be of the classes 0, 1: got -1"),
        (lambda: metrics.accuracy(TWO, TWO - 0.5), "targets must be of the classes 0, 1: got -0.5"),
        (lambda: metrics.accuracy(np.array(list("ab"))[TWO], TWO), "must be numbers"),
    ],
)
def test_mistakes_get_a_line(ask, rule: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=rule) as raised:
        ask()
    assert "\n" not in str(raised.value)
