import pytest
import torch

from margin.auditing.answers import Answer, Audit
from margin.auditing.table import elements, premises_assumed, rows
from margin.auditing.terminal import plain
from margin.catalog import Claim
from margin.findings import Premise, Verdict

ASSUMED = Premise("draws are independent", "assumed", "")


def f64(*values):
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


def audit_of(findings, refused=(), **fields):
    def named(name):
        return Claim(name=name, summary="", ask="", demo="", reference="")

    answers = [Answer(named(name), finding, "", 0.1) for name, finding in findings.items()]
    answers += [Answer(named(name), None, why, 0.0) for name, why in refused]
    return Audit(title="a model", answers=tuple(answers), **fields)


@pytest.mark.parametrize("verdict", [str(v) for v in Verdict])
def test_a_scalar_has_one_row_with_its_verdict(every_verdict, verdict):
    (row,) = rows("room/topic", every_verdict[verdict], ["examples are independent"])
    assert row.level == verdict
    assert row.verdict == ("holds, assuming" if verdict == "holds" else verdict)
    assert row.notes == ((1,) if verdict == "holds" else ())


def test_a_refuted_premise_and_a_failure_say_why(every_verdict, finding):
    (row,) = rows("a", every_verdict["unfounded"])
    assert row.why == ("refuted: the layers are known (layer 'deep.3' is not)",)
    (row,) = rows("a", finding(value=f64(float("nan")), failure="did not converge"))
    assert row.why == ("did not converge",)


def test_labels_expand_into_rows_with_their_own_verdicts(finding):
    found = finding(value=f64(0.1, 0.5, 0.9), labels=("a", "b", "c"), low=f64(0.0, 0.6, 0.8))
    made = rows("room/topic", found)
    assert [row.claim for row in made] == ["room/topic", "", ""]
    assert [(row.label, row.promised, row.measured, row.verdict) for row in made] == [
        ("a", ">= 0", ".1", "vacuous"),
        ("b", ">= .6", ".5", "violated"),
        ("c", ">= .8", ".9", "holds"),
    ]


def test_per_example_values_are_counted_the_gravest_first_and_the_worst_named(finding):
    found = finding(value=f64(0.9, 0.2, 0.7, float("nan"), 0.1), low=f64(0.5))
    (row,) = rows("room/topic", found)
    assert row.verdict == "1 failed, 2 violated, 2 holds"
    assert row.level is Verdict.FAILED
    assert row.measured == ".1 to .9, median .45, 1 not finite"
    assert row.why[0] == "worst examples: 3 (nan), 4 (.1), 1 (.2), 2 (.7), 0 (.9)"


def test_per_example_promises_that_differ_are_not_shown_as_one(finding):
    (row,) = rows("a", finding(value=f64(0.5, 0.6), low=f64(0.1, 0.2)))
    assert row.promised == ">= its own"
    (row,) = rows("a", finding(value=f64(0.5, 0.6), low=f64(0.1, 0.1)))
    assert row.promised == ">= .1"


def test_the_worst_of_an_upper_promise_exceeds_it_most(finding):
    (row,) = rows("a", finding(value=f64(0.1, 0.8, 0.6), high=f64(0.5)))
    assert row.why[0] == "worst examples: 1 (.8), 2 (.6), 0 (.1)"


@pytest.mark.parametrize(
    ("fields", "promised", "measured"),
    [
        ({"low": f64(0.5), "high": f64(0.5)}, "= .5", ".5"),
        ({"high": f64(0.25), "scope": "probability"}, "<= .25 w. p.", ".5"),
        ({"low": f64(0.25), "high": f64(0.75)}, "[.25, .75]", ".5"),
        ({"kind": "lower"}, "", ">= .5"),
        ({"kind": "upper"}, "", "<= .5"),
        ({"kind": "estimate", "stderr": f64(0.01)}, "", ".500 [.460, .540]"),
        ({"kind": "estimate", "interval": (f64(0.4), f64(0.55))}, "", ".50 [.40, .55]"),
        ({"kind": "lower", "stderr": f64(0.01)}, "", ">= .500 [.460, 1.000]"),
        ({"kind": "estimate", "stderr": f64(1e-12)}, "", ".5"),
    ],
)
def test_promise_and_reach_as_text(finding, fields, promised, measured):
    (row,) = rows("a", finding(**fields))
    assert (row.promised, row.measured) == (promised, measured)


def test_a_promise_of_existence_prints_the_ratio(finding):
    (row,) = rows("a", finding(high=f64(0.4), scope="exists"))
    assert (row.verdict, row.level) == ("measured, 1.2 x promised", "measured")
    (row,) = rows("a", finding(low=f64(0.8), scope="limit"))
    assert row.verdict == "measured, .62 x promised"


def test_a_unit_of_one_is_not_shown(finding):
    assert rows("a", finding())[0].unit == ""
    assert rows("a", finding(unit="nat"))[0].unit == "nat"


def test_elements_broadcast_one_promise(finding):
    found = finding(value=f64(0.1, 0.2), high=f64(0.15))
    assert [(e.low, e.high) for e in elements(found)] == [(-float("inf"), 0.15)] * 2


def test_how_far_a_value_misses_its_promise(finding):
    found = finding(value=f64(0.1, 0.6, float("nan")), low=f64(0.2), high=f64(0.5))
    assert [e.shortfall for e in elements(found)] == pytest.approx([0.1, 0.1, float("inf")])


def test_only_premises_under_a_verdict_of_holds_are_numbered(finding):
    held = finding(high=f64(0.9), premises=(ASSUMED,))
    measured = finding(premises=(Premise("unused", "assumed", ""),))
    assert premises_assumed([measured, held, held]) == ["draws are independent"]


def test_80_columns_show_every_verdict_and_break_no_number(every_verdict):
    audit = audit_of({f"room/topic.{name}": f for name, f in every_verdict.items()})
    text = plain(audit, 80)
    assert max(map(len, text.splitlines())) <= 80
    for verdict in every_verdict:
        assert any(
            line.split()[0] == f"topic.{verdict}" and verdict in line for line in text.splitlines() if line
        )
    assert ".50 [.10, .90]" in text


def test_terminal_lists_what_was_assumed_first_and_what_does_not_apply(every_verdict):
    audit = audit_of(
        {"room/topic": every_verdict["holds"]},
        refused=[("room/attack", "needs a domain")],
        assumed=("task: classes [sic]",),
    )
    text = str(audit)
    assert text.index("task: classes [sic]") < text.index("topic")
    assert "does not apply: needs a domain" in text
    assert "holds, assuming [1]" in text
    assert "[1] examples are independent" in text


def test_counts_come_the_gravest_first_and_decide_the_exit(every_verdict):
    whole = audit_of(every_verdict)
    assert list(whole.counts) == list(Verdict)
    assert whole.failed
    for name, found in every_verdict.items():
        assert audit_of({"one": found}).failed == (name in ("violated", "failed"))
