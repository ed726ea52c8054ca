"""The verdict at every edge: the first that is so of unfounded, failed, measured, vacuous, holds, ..."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from margin.core.catalog import Claim
from margin.core.findings import (
    Finding,
    Premise,
    Subject,
    Verdict,
    finding_of,
    has_domain,
    has_labels,
    has_parameters,
    has_probabilities,
    has_real_input,
    has_targets,
    has_training_batches,
    is_independent,
)
from margin.core.tasks import CLASSES, HALFSPACE, VALUES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk

ASSUMED = Premise("draws are independent", "assumed", "as the user says")
REFUTED = Premise("every layer has a constant", "refuted", "layer 3 (Softmax)")


def finding(value: float | list[float], **given: object) -> Finding:
    defaults = {"unit": "1", "range": (0.0, 1.0), "premises": (), "reference": "Nobody 1900, Section 1"}
    tensor = (
        torch.tensor(value, dtype=torch.float64) if "value_tensor" not in given else given.pop("value_tensor")
    )
    bounds = {
        k: torch.tensor(v, dtype=torch.float64) for k, v in given.items() if k in ("low", "high", "stderr")
    }
    return Finding(statement="a statement", value=tensor, **{**defaults, **given, **bounds})


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({"value": 0.5}, "measured"),
        ({"value": 0.5, "high": 0.6}, "holds"),
        ({"value": 0.7, "high": 0.6}, "violated"),
        ({"value": 0.5, "low": 0.6}, "violated"),
        ({"value": 0.5, "high": 1.0}, "vacuous"),
        ({"value": 0.5, "low": 0.0}, "vacuous"),
        ({"value": 0.5, "low": 0.0, "high": 0.9}, "holds"),
        ({"value": 0.5, "high": 2.0}, "vacuous"),
        # the edge: an exact value one rounding below the promise cannot be told from it
        ({"value": 0.6, "high": 0.6}, "inconclusive"),
        ({"value": 0.6, "high": 0.6, "tolerance": 1e-9}, "holds"),
        ({"value": 0.6 + 1e-6, "high": 0.6, "tolerance": 1e-9}, "violated"),
        # estimates: 4 standard errors
        ({"value": 0.5, "high": 0.6, "stderr": 0.024, "kind": "estimate"}, "holds"),
        ({"value": 0.5, "high": 0.6, "stderr": 0.026, "kind": "estimate"}, "inconclusive"),
        ({"value": 0.7, "high": 0.6, "stderr": 0.024, "kind": "estimate"}, "violated"),
        ({"value": 0.7, "high": 0.6, "stderr": 0.026, "kind": "estimate"}, "inconclusive"),
        # a value known as 0 +- 100 holds no identity
        (
            {"value": 0.0, "low": 0.0, "high": 0.0, "stderr": 100.0, "kind": "estimate", "tolerance": 0.1},
            "inconclusive",
        ),
        (
            {"value": 0.0, "low": 0.0, "high": 0.0, "stderr": 0.02, "kind": "estimate", "tolerance": 0.1},
            "holds",
        ),
        # one-sided estimates of the truth
        ({"value": 0.7, "high": 0.6, "kind": "lower"}, "violated"),
        ({"value": 0.5, "high": 0.6, "kind": "lower"}, "inconclusive"),
        ({"value": 0.7, "low": 0.6, "kind": "lower"}, "holds"),
        ({"value": 0.5, "high": 0.6, "kind": "upper"}, "holds"),
        ({"value": 0.5, "low": 0.6, "kind": "upper"}, "violated"),
        # scopes that one case cannot violate
        ({"value": 0.7, "high": 0.6, "scope": "limit"}, "measured"),
        ({"value": 0.7, "high": 0.6, "scope": "exists"}, "measured"),
        ({"value": 0.5, "high": 0.6, "scope": "limit"}, "holds"),
        ({"value": 0.7, "high": 0.6, "scope": "probability"}, "violated"),
        # NaN fails every gate
        ({"value": math.nan}, "failed"),
        ({"value": math.nan, "high": 0.6}, "failed"),
        ({"value": math.inf}, "failed"),
        ({"value": 0.5, "high": math.nan}, "failed"),
        ({"value": 0.5, "stderr": math.nan, "kind": "estimate"}, "failed"),
        ({"value": 0.5, "failure": "Lanczos stopped at residual 3e-2"}, "failed"),
        # a refuted premise comes first, an assumed one is only named
        ({"value": math.nan, "premises": (REFUTED,)}, "unfounded"),
        ({"value": 0.7, "high": 0.6, "premises": (REFUTED,)}, "unfounded"),
        ({"value": 0.5, "high": 0.6, "premises": (ASSUMED,)}, "holds"),
        # elements: the gravest
        ({"value": [0.1, 0.7, 0.2], "high": 0.6}, "violated"),
        ({"value": [0.1, 0.2], "high": [0.6, 1.0]}, "vacuous"),
        ({"value": []}, "failed"),
    ],
)
def test_the_verdict(given: dict, verdict: str) -> None:
    assert finding(**given).verdict == verdict


def test_each_element_has_its_own_verdict() -> None:
    found = finding([0.1, 0.7, math.nan, 0.2], high=[0.6, 0.6, 0.6, 1.0])
    assert found.verdicts == [Verdict.HOLDS, Verdict.VIOLATED, Verdict.FAILED, Verdict.VACUOUS]


def test_an_interval_is_the_reach() -> None:
    interval = (torch.tensor(0.2, dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64))
    assert finding(0.3, kind="estimate", interval=interval, high=0.5).verdict is Verdict.HOLDS
    assert finding(0.3, kind="estimate", interval=interval, high=0.35).verdict is Verdict.INCONCLUSIVE
    assert finding(0.3, kind="estimate", interval=interval, high=0.1).verdict is Verdict.VIOLATED


def test_counts_are_not_rounded() -> None:
    found = finding(0, value_tensor=torch.tensor(3), high=3.0, range=(0.0, math.inf))
    assert found.verdict is Verdict.HOLDS
    assert (
        finding(0, value_tensor=torch.tensor(4), high=3.0, range=(0.0, math.inf)).verdict is Verdict.VIOLATED
    )


def test_assumed_premises_are_named() -> None:
    assert finding(0.5, premises=(ASSUMED,)).assuming == ("draws are independent",)


@pytest.mark.parametrize(
    "given",
    [
        {"stderr": 0.1},
        {"stderr": 0.1, "interval": (torch.tensor(0.0), torch.tensor(1.0)), "kind": "estimate"},
        {"labels": ("a", "b")},
    ],
)
def test_contradictions_are_refused(given: dict) -> None:
    with pytest.raises(ValueError, match=r"an exact value|a stderr or an interval|one label per element"):
        finding(0.5, **given)


def test_an_identity_promises_one_value_from_both_sides() -> None:
    """A value 0.2 above 1 violates equality with 1, and would hold with either bound alone left out."""
    value = torch.tensor([1.0, 1.2], dtype=torch.float64)
    found = Finding(statement="a ratio is 1", value=value, range=(0.0, math.inf), equals=1.0, tolerance=0.1)
    assert found.verdicts == [Verdict.HOLDS, Verdict.VIOLATED]
    below = Finding(
        statement="a ratio is 1", value=value - 0.3, range=(0.0, math.inf), equals=1, tolerance=0.15
    )
    assert below.verdicts == [Verdict.VIOLATED, Verdict.HOLDS]
    again = replace(found, reference="Euler 1748")
    assert (again.as_json()["low"], again.as_json()["high"], again.reference) == (1.0, 1.0, "Euler 1748")
    with pytest.raises(ValueError, match="one value: got equals with low or high"):
        Finding(statement="", value=value, range=(0.0, 1.0), equals=1.0, high=torch.tensor(2.0))


def _said(subject: Subject) -> Finding:
    return Finding(statement="", value=torch.tensor(0.5), range=(0.0, 1.0))


def _said_elsewhere(subject: Subject) -> Finding:
    return Finding(
        statement="", value=torch.tensor(0.5), range=(0.0, 1.0), reference="Gauss 1809, Section 177"
    )


@pytest.mark.parametrize(
    ("function", "reference"),
    [("_said", "Laplace 1812, Book II"), ("_said_elsewhere", "Gauss 1809, Section 177")],
)
def test_a_findings_reference_is_its_rows_unless_it_has_its_own(function: str, reference: str) -> None:
    claim = Claim("core/said", f"{__name__}:{function}", "", "What?", "Laplace 1812, Book II")
    found = finding_of(claim, SimpleNamespace(remark=""))
    assert found.reference == reference and found.remarks == ()
    assert finding_of(claim, SimpleNamespace(remark="of one draw")).remarks == ("of one draw",)


def test_json_holds_no_nan() -> None:
    found = finding([0.5, math.nan], high=math.inf, curves={"x": torch.tensor([1.0, math.inf])})
    text = json.dumps(found.as_json(), allow_nan=False)
    assert json.loads(text)["verdicts"] == ["measured", "failed"]


def test_verdicts_are_counted_the_gravest_first() -> None:
    found = finding([0.1, 0.7, 0.2, 0.3], high=[0.6, 0.6, 0.6, 1.0])
    assert list(found.counts.items()) == [(Verdict.VIOLATED, 1), (Verdict.VACUOUS, 1), (Verdict.HOLDS, 2)]


def test_the_gravest_comes_first() -> None:
    # what cannot be trusted at all, then what is wrong, then what says nothing, then what is as promised
    names = ["unfounded", "failed", "violated", "inconclusive", "vacuous", "measured", "holds"]
    assert [str(verdict) for verdict in Verdict] == names
    failed_and_violated = finding([math.nan, 0.7], high=0.6)
    assert failed_and_violated.verdict is Verdict.FAILED
    assert finding([0.6, 0.5], high=[0.6, 1.0]).verdict is Verdict.INCONCLUSIVE
    assert finding([0.5, 0.5], high=[0.6, math.inf]).verdict is Verdict.MEASURED


@pytest.mark.parametrize(("low", "high"), [(None, 0.25), (0.75, None)])
def test_a_reach_that_touches_the_promise_violates_nothing(low: float | None, high: float | None) -> None:
    # ends and bounds are exact in binary; value 0.5, interval [0.25, 0.75]
    interval = (torch.tensor([0.25], dtype=torch.float64), torch.tensor([0.75], dtype=torch.float64))
    given = {name: bound for name, bound in (("low", low), ("high", high)) if bound is not None}
    counts = finding(
        0, value_tensor=torch.tensor([1]), kind="estimate", interval=interval, **given, range=(0.0, 2.0)
    )
    assert counts.verdict is Verdict.INCONCLUSIVE


def test_a_tolerance_makes_no_promise_vacuous() -> None:
    assert finding(0.5, high=0.99, tolerance=0.1).verdict is Verdict.HOLDS


def test_sampled_and_proved_premises_are_no_assumptions() -> None:
    premises = tuple(Premise(status, status, "looked at") for status in ("proved", "sampled", "assumed"))
    assert finding(0.5, premises=premises).assuming == ("assumed",)


def test_json_tells_the_reach_from_below() -> None:
    found = finding([0.5], high=math.inf, stderr=[0.0625], kind="estimate")
    (below,), (above,) = found.as_json()["reach"]
    assert (round(below, 12), round(above, 12)) == (0.25, 0.75)  # 4 standard errors to each side
    assert found.as_json()["high"] == "inf"


def subject(**given: object) -> Subject:
    batch = Batch((torch.zeros(2, 3),), torch.zeros(2, dtype=torch.long))
    defaults = {"model": nn.Linear(3, 2), "test": [batch], "task": CLASSES, "objective": risk(CLASSES)}
    return Subject(**{**defaults, **given})


def test_a_domain_and_one_input_of_real_numbers_are_two_needs() -> None:
    box = Domain(torch.tensor(0.0), torch.tensor(1.0))
    real, ids = torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.long)
    assert has_domain(subject(domain=box)) and has_real_input(subject())
    assert not has_domain(subject())
    assert not has_real_input(subject(test=[Batch((ids,))]))
    assert not has_real_input(subject(test=[Batch((real, real))]))
    assert not has_real_input(subject(test=[]))


def test_what_a_subject_has() -> None:
    assert has_labels(subject()) and has_probabilities(subject()) and has_targets(subject())
    untold = [Batch((torch.zeros(2, 3),))]
    for has in (has_labels, has_probabilities, has_targets):
        assert not has(subject(test=untold))
        assert not has(subject(test=[]))
    assert has_labels(subject(task=HALFSPACE)) and not has_probabilities(subject(task=HALFSPACE))
    assert has_targets(subject(task=VALUES)) and not has_labels(subject(task=VALUES))
    assert has_training_batches(subject(train=untold)) and not has_training_batches(subject())
    assert has_parameters(subject()) and not has_parameters(
        subject(model=nn.Linear(3, 2).requires_grad_(False))
    )
    assert is_independent(subject()) and not is_independent(subject(independent=False))


def test_what_is_printed_is_95_percent_and_inside_the_range_and_the_verdicts_is_wider():
    def f64(x):
        return torch.tensor(x, dtype=torch.float64)

    common = {"statement": "s", "unit": "1", "premises": (), "reference": "r", "kind": "estimate"}
    brier = Finding(value=f64(0.09), range=(0.0, 2.0), stderr=f64(0.08), **common)
    assert [float(end) for end in brier.shown] == pytest.approx([0.0, 0.09 + 1.959964 * 0.08])
    assert [float(end) for end in brier.verdict_interval] == pytest.approx([0.0, 0.09 + 4 * 0.08])
    own = Finding(value=f64(0.5), range=(0.0, 1.0), stderr=f64(0.2), printed=(f64(0.3), f64(1.4)), **common)
    assert [float(end) for end in own.shown] == pytest.approx([0.3, 1.0])
    assert own.as_json()["interval"] == pytest.approx([0.3, 1.0])
    assert own.as_json()["reach"] == pytest.approx([0.0, 1.0])
    wider = Finding(value=f64(0.5), range=(0.0, 9.0), stderr=f64(0.1), printed=(f64(0.4), f64(7.0)), **common)
    assert [float(end) for end in wider.verdict_interval] == pytest.approx(
        [0.1, 7.0]
    )  # a verdict knows no more
    rounded = Finding(value=torch.tensor(0.5), range=(0.0, 1.0), stderr=torch.tensor(0.0), **common)
    assert [float(end) for end in rounded.shown] == pytest.approx([0.5 - 2**-24, 0.5 + 2**-24], abs=1e-12)
    # A lower estimate says nothing of what lies above, an upper one nothing of what lies below.
    sided = {"value": f64(0.5), "range": (-2.0, 9.0), "stderr": f64(0.1)}
    lower, upper = (Finding(**sided, **{**common, "kind": kind}) for kind in ("lower", "upper"))
    for found, ends in ((lower, [0.5 - 0.1959964, 9.0]), (upper, [-2.0, 0.5 + 0.1959964])):
        assert [float(end) for end in found.shown] == pytest.approx(ends)
    # Without bias an estimate may lie outside of its range: the interval holds it all the same.
    outside = Finding(value=f64(-0.1), range=(0.0, 1.0), stderr=f64(0.2), **common)
    assert float(outside.shown[0]) == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="printed interval goes with"):
        Finding(value=f64(0.5), range=(0.0, 1.0), printed=(f64(0.3), f64(0.4)), **common)


@pytest.mark.parametrize(
    ("kind", "value", "ends", "limits", "told"),
    [
        ("lower", 0.0, None, (0.0, math.inf), False),
        ("lower", 1e-9, None, (0.0, math.inf), True),
        ("upper", 1.0, None, (0.0, 1.0), False),
        ("upper", 0.5, None, (0.0, 1.0), True),
        ("estimate", 0.1, (0.0, 1.0), (0.0, 1.0), False),
        ("estimate", 0.1, (0.0, 0.99), (0.0, 1.0), True),
        ("exact", 0.0, None, (0.0, 0.0), True),
    ],
)
def test_an_answer_that_is_no_more_than_its_range_is_not_given(kind, value, ends, limits, told):
    interval = None if ends is None else tuple(torch.tensor(end) for end in ends)
    found = Finding(statement="s", value=torch.tensor(value), range=limits, kind=kind, interval=interval)
    assert found.leaves_open is not told
    failed = replace(found, failure="no number")
    promised = replace(found, low=torch.tensor(0.5), high=torch.tensor(0.6))
    assert not failed.leaves_open and not promised.leaves_open


def test_one_element_that_tells_something_is_enough():
    found = Finding(
        statement="s", value=torch.tensor([0.0, 0.5]), range=(0.0, math.inf), kind="lower", labels=("a", "b")
    )
    assert not found.leaves_open
    assert replace(found, value=torch.zeros(2)).leaves_open
