"""Requirements: their grammar, what each of a lower, an upper, an exact value and a bracket can decide."""

import math

import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from margin.auditing.asking.answers import ask
from margin.auditing.asking.audit import audit
from margin.auditing.asking.requirements import (
    Status,
    check_requirement,
    elements_meant,
    requirement_of,
    status_of,
)
from margin.auditing.report.screen import plain
from margin.core.catalog import Need, UnknownName
from margin.core.findings import Premise, Subject
from margin.robust.sandwich import demo as sandwich_demo
from margin.theory.prediction.risk import accuracy_demo

MET, MISSED, UNDECIDED = Status.MET, Status.MISSED, Status.UNDECIDED


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def required(text, found):
    return check_requirement(requirement_of(text), found)


@pytest.mark.parametrize(
    ("text", "claim", "label", "relation", "bound"),
    [
        ("accuracy>=.9", "theory/risk.accuracy", "", ">=", 0.9),
        ("theory/risk.accuracy > 9e-1", "theory/risk.accuracy", "", ">", 0.9),
        ("risk.loss<=-2", "theory/risk.loss", "", "<=", -2),
        ("robust/linf.sandwich@.1>=.5", "robust/linf.sandwich", ".1", ">=", 0.5),
        ("sandwich@10% of the range<1", "robust/linf.sandwich", "10% of the range", "<", 1),
        ("ece<.05", "theory/calibration.ece", "", "<", 0.05),
        ("f1>=.5", "theory/confusion.macro_f1", "", ">=", 0.5),
        ("memorization.accuracy@gap<.1", "theory/memorization.accuracy", "gap", "<", 0.1),
    ],
)
def test_a_requirement_is_read(text, claim, label, relation, bound):
    found = requirement_of(text)
    assert (found.claim.name, found.label, found.relation, found.bound) == (claim, label, relation, bound)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy", "as 'accuracy>=.9': got 'accuracy'"),
        ("accuracy=.9", "got 'accuracy=.9'"),
        (">=.9", "got '>=.9'"),
        ("accuracy>=", "got 'accuracy>='"),
        ("accuracy>=90%", "got the number '90%'"),
        ("accuracy>=nan", "got the number 'nan'"),
        ("accuracy>=inf", "got the number 'inf'"),
        ("acuracy>=.9", "nearest: theory/risk.accuracy"),
        ("calibration>=.9", "could be theory/calibration.ece, theory/calibration.binary_ece"),
    ],
)
def test_a_mistake_is_named_in_one_line(text, message):
    with pytest.raises(ValueError) as caught:
        requirement_of(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_claim_is_an_unknown_name():
    with pytest.raises(UnknownName):
        requirement_of("nothing_of_the_kind>=1")


@pytest.mark.parametrize(
    ("low", "high", "at_least", "above", "at_most", "below"),
    [
        (0.6, 0.8, MET, MET, MISSED, MISSED),
        (0.5, 0.8, MET, UNDECIDED, UNDECIDED, MISSED),
        (0.4, 0.8, UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED),
        (0.4, 0.5, UNDECIDED, MISSED, MET, UNDECIDED),
        (0.3, 0.4, MISSED, MISSED, MET, MET),
        (0.5, 0.5, MET, MISSED, MET, MISSED),
        (math.nan, 0.8, UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED),
        (-math.inf, math.inf, UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED),
    ],
)
def test_all_none_or_some_of_an_interval_satisfies_it(low, high, at_least, above, at_most, below):
    found = [status_of(low, high, relation, 0.5) for relation in (">=", ">", "<=", "<")]
    assert found == [at_least, above, at_most, below]


def test_an_estimate_is_decided_on_its_reach_and_an_exact_value_on_itself(finding):
    estimate = finding(kind="estimate", interval=(f64(0.45)[0], f64(0.62)[0]))
    assert [required(f"accuracy>={b}", estimate).status for b in (0.44, 0.5, 0.63)] == [
        MET, UNDECIDED, MISSED,
    ]  # fmt: skip
    assert "[.45, .62]: more examples would decide" in required("accuracy>=.5", estimate).why
    four = finding(kind="estimate", stderr=f64(0.01)[0])  # 4 standard errors: [0.46, 0.54]
    assert [required(f"accuracy>={b}", four).status for b in (0.459, 0.461)] == [MET, UNDECIDED]
    assert required("accuracy>=.5", finding()).status is MET
    assert required("accuracy>.5", finding()).status is MISSED
    single = finding(value=torch.tensor(0.9))  # 0.9 in float32 is less than 0.9
    assert required("accuracy>=.9", single).status is MET


def test_a_one_sided_value_decides_on_its_own_side_only(finding):
    lower, upper = finding(kind="lower"), finding(kind="upper")
    assert [required(f"accuracy{r}", lower).status for r in (">=.4", ">=.6", "<=.4", "<=.6")] == [
        MET, UNDECIDED, MISSED, UNDECIDED,
    ]  # fmt: skip
    assert [required(f"accuracy{r}", upper).status for r in (">=.4", ">=.6", "<=.4", "<=.6")] == [
        UNDECIDED, MISSED, UNDECIDED, MET,
    ]  # fmt: skip


def test_a_bracket_rests_on_the_certificate_from_below_and_on_the_attack_from_above(finding):
    both = finding(value=f64(0.7), sandwich=(f64(0.3), f64(0.7)))
    cases = {">=.3": MET, ">=.5": UNDECIDED, ">=.71": MISSED, "<=.7": MET, "<=.5": UNDECIDED, "<=.29": MISSED}
    assert {c: required(f"accuracy{c}", both).status for c in cases} == cases
    assert "a tighter certificate or a stronger attack" in required("accuracy>=.5", both).why


def test_the_sandwich_of_a_network_is_bracketed_and_that_of_one_step_is_not():
    found = audit(sandwich_demo(), claims="robust/*").findings
    sandwich, step, ascent = (found[f"robust/{n}"] for n in ("linf.sandwich", "linf.fgsm", "l2.attack"))
    # Of 6 examples k are certified and m survive: the ends are those of scipy's exact binomial test.
    for i, (k, m) in enumerate(zip(sandwich.low.tolist(), sandwich.value.tolist(), strict=True)):
        ends = (binomtest(round(6 * p), 6).proportion_ci(0.95, "exact") for p in (k, m))
        low, high = (end[side] for side, end in enumerate(ends))
        assert sandwich.sandwich[0][i].item() == pytest.approx(low, abs=1e-9)
        assert sandwich.sandwich[1][i].item() == pytest.approx(high, abs=1e-9)
    assert step.sandwich is None and step.kind == "estimate"
    # an attack certifies nothing, but a ball of radius 0 holds the input alone: there accuracy is measured
    right = round(6 * ascent.value[0].item())
    assert ascent.sandwich[0][0].item() == pytest.approx(binomtest(right, 6).proportion_ci(0.95, "exact").low)
    assert ascent.sandwich[0].tolist()[1:] == [0.0] * 5
    attacked, most = ascent.value[0].item(), ascent.sandwich[1][0].item()
    assert required(f"l2.attack@0%>={attacked}", ascent).status is UNDECIDED
    assert required(f"l2.attack@0%<={attacked}", ascent).status is UNDECIDED
    assert required(f"l2.attack@0%<={most}", ascent).status is MET


@pytest.mark.parametrize("claim", ["accuracy", "linf.sandwich@0", "linf.fgsm@0", "l2.attack@0"])
def test_thirty_of_thirty_do_not_prove_nine_of_ten(claim):
    # The exact interval of 30 of 30 begins at (0.05 / 2)^(1/30) = 0.884.
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.rand(30, 4)
    data, domain = (x, model(x).argmax(1)), (0.0, 1.0)
    asked = [f"{claim}>=.9", f"{claim}>=.88", f"{claim}>=.89"]
    found = audit(model, data, domain=domain, claims="risk.accuracy", require=asked).judgments
    # at radius 0 an attack is no attack: the plain accuracy is measured
    assert [judgment.status for judgment in found] == [UNDECIDED, MET, UNDECIDED]
    assert "[.88, 1.00]: more examples would decide" in found[0].why


def test_the_remedy_is_more_examples_only_where_those_at_hand_would_do(finding):
    sides = {"value": f64(0.7), "low": f64(0.5), "sandwich": (f64(0.3), f64(0.8))}
    both = finding(**sides)
    assert "more examples" in required("accuracy>=.4", both).why
    assert "a tighter certificate" in required("accuracy>=.6", both).why
    assert "more examples" in required("accuracy>=.75", both).why


def test_a_premise_that_is_refuted_passes_nothing(finding):
    broken = finding(premises=(Premise("draws are independent", "refuted", "they are not"),))
    assert required("accuracy>=.4", broken).status is UNDECIDED
    assert "draws are independent" in required("accuracy>=.4", broken).why
    assert required("accuracy>=.6", broken).status is MISSED


def test_a_finding_that_failed_decides_nothing(finding):
    failed = finding(value=f64(math.nan), failure="it did not converge")
    found = required("accuracy<=.4", failed)
    assert (found.status, found.why) == (UNDECIDED, "the claim failed: it did not converge")


LABELS = ("eps 0.01 (1% of the range)", "eps 0.1 (10% of the range)", "5% quantile", "median")


@pytest.mark.parametrize(
    ("label", "index"),
    [(".1", 1), ("0.10", 1), ("10%", 1), ("1e-2", 0), ("median", 3), ("5% quantile", 2), ("Quant", 2)],
)
def test_a_label_means_an_element_by_its_text_a_number_or_a_part(finding, label, index):
    found = finding(value=f64(1, 2, 3, 4), range=(0, 9), labels=LABELS)
    assert elements_meant(requirement_of(f"accuracy@{label}>=1"), found) == [index]


@pytest.mark.parametrize(("label", "message"), [("range", "it could be eps 0.01"), (".2", "it has eps 0.01")])
def test_a_label_that_means_none_or_several_is_refused(finding, label, message):
    found = finding(value=f64(1, 2, 3, 4), range=(0, 9), labels=LABELS)
    with pytest.raises(ValueError, match=message):
        elements_meant(requirement_of(f"accuracy@{label}>=1"), found)
    with pytest.raises(ValueError, match="no labels, leave out the @"):
        elements_meant(requirement_of("accuracy@x>=1"), finding())


def test_without_a_label_every_element_must_satisfy_it(finding):
    found = finding(value=f64(0.2, 0.9), labels=("cat", "dog"))
    judgment = required("recall>=.5", found)
    assert judgment.statuses == {0: MISSED, 1: MET}
    assert judgment.status is MISSED
    assert judgment.why == "cat: the value is .2 (1 of 2 elements)"
    assert required("recall@dog>=.5", found).statuses == {1: MET}


def test_a_requirement_has_its_claim_asked_and_sets_what_fails():
    found = audit(accuracy_demo(), claims="brier", require=["accuracy>=.5", "accuracy>=.999"])
    assert list(found.findings) == ["theory/risk.accuracy", "theory/calibration.brier"]
    assert [j.status for j in found.judgments] == [MET, MISSED]
    assert found.failed
    assert not audit(accuracy_demo(), claims="brier", require="accuracy>=.5").failed
    undecided = audit(accuracy_demo(), claims="brier", require=["accuracy>=.9"])
    assert undecided.failed
    text = plain(undecided.table(), 100)
    assert ">= .9 undecided" in text
    assert "1 undecided (undecided counts as missed)" in text
    document = undecided.as_json()["requirements"]
    assert [(r["claim"], r["status"]) for r in document] == [("theory/risk.accuracy", "undecided")]


def test_what_does_not_apply_is_refused_before_anything_is_asked():
    seen = []
    with pytest.raises(ValueError, match=r"'r2>=.5' is about theory/residuals.r2, which needs predictions"):
        audit(accuracy_demo(), require=["r2>=.5"], progress=lambda *step: seen.append(step))
    assert seen == []


def test_a_claim_that_is_not_asked_is_refused(subject: Subject, claim_of, finding):
    with pytest.raises(ValueError, match="which is not asked"):
        ask(subject, [claim_of(lambda s: finding())], requirements=[requirement_of("accuracy>=.5")])


def test_a_wrong_label_is_told_before_the_next_claim_is_asked():
    seen = []
    with pytest.raises(ValueError, match="no labels"):
        audit(accuracy_demo(), require=["nll@x<=1"], progress=lambda claim, *rest: seen.append(claim.name))
    assert seen == ["theory/calibration.nll"]


def test_needs_are_named(subject, claim_of):
    claim = claim_of(lambda s: None, needs=(Need("the moon", "margin.core.findings:has_domain"),))
    requirement = requirement_of("accuracy>=.5")
    with pytest.raises(ValueError, match="which needs the moon"):
        ask(subject, [claim], requirements=[type(requirement)("x>=1", claim, "", ">=", 1.0)])
