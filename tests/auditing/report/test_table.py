import io
import math
import re

import pytest
import torch
from rich.console import Console
from rich.text import Text

from margin.auditing.asking.answers import Answer, Audit
from margin.auditing.asking.requirements import check_requirement, requirement_of
from margin.auditing.report.screen import _lines, plain
from margin.auditing.report.table import absences, elements, left_out, premises_assumed, rows, statuses, unmet
from margin.core.catalog import Claim
from margin.core.findings import Premise, Verdict

ASSUMED = Premise("draws are independent", "assumed", "")


def f64(*values):
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


def audit_of(findings, refused=(), questions=(), **fields):
    def named(name):
        about = dict(questions).get(name, "")
        return Claim(name=name, summary="", ask="", demo="", reference="", question=about)

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
        ({"kind": "estimate", "stderr": f64(0.01)}, "", ".500 [.480, .520]"),
        ({"kind": "estimate", "interval": (f64(0.4), f64(0.55))}, "", ".50 [.40, .55]"),
        ({"kind": "lower", "stderr": f64(0.01)}, "", ">= .500 [.480, 1.000]"),
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
    text = plain(audit.table(), 80)
    assert max(map(len, text.splitlines())) <= 80
    for verdict in every_verdict:
        assert any(
            line.split()[0] == f"topic.{verdict}" and verdict in line for line in text.splitlines() if line
        )
    assert ".50 [.30, .70]" in text


def test_terminal_lists_what_was_assumed_first_and_what_does_not_apply(every_verdict):
    audit = audit_of(
        {"room/topic": every_verdict["holds"]},
        refused=[("room/attack", "needs a domain")],
        assumed=("task: classes [sic]",),
    )
    text = plain(audit.table(), 100)
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


def test_a_finding_counts_by_row_where_its_rows_differ_and_once_where_they_agree(finding):
    labels = tuple(f"eps {i}" for i in range(6))
    value = torch.linspace(0.9, 0.4, 6, dtype=torch.float64)
    mixed = finding(value=value, low=f64(0.8, 0.5, 0.2, 0, 0, 0), labels=labels)
    alike = finding(value=value, labels=labels)
    audit = audit_of({"room/sandwich": mixed, "room/alike": alike, "room/one": finding(high=f64(0.9))})
    assert audit.counts == {Verdict.VACUOUS: 3, Verdict.MEASURED: 1, Verdict.HOLDS: 4}
    words = "3 findings, 8 verdicts: 3 vacuous, 1 measured, 4 holds"
    assert words in str(audit.table())
    page = re.sub(r"\s+", " ", re.sub("<[^>]+>", "", audit._repr_html_()))
    assert words in page
    assert audit.as_json()["counts"] == {"vacuous": 3, "measured": 1, "holds": 4}
    # One violated row fails the audit, however many others hold.
    one = finding(value=value, low=f64(0.8, 0.5, 0.2, 0.1, 0.1, 0.5), labels=labels)
    assert audit_of({"a": one}).failed
    assert audit_of({"a": one}).counts == {Verdict.VIOLATED: 1, Verdict.HOLDS: 5}
    # What is measured example by example has one row, which has its own counts.
    many = finding(value=value, low=f64(0.8, 0.5, 0.2, 0, 0, 0))
    assert audit_of({"a": many}).counts == {Verdict.VACUOUS: 1}
    assert "1 finding: 1 vacuous" in str(audit_of({"a": many}).table())


def test_where_certificate_and_attack_contradict_each_other_nothing_is_between(finding):
    value = f64(0.16, 0.5)
    crossed = finding(value=value, labels=("a", "b"), sandwich=(f64(0.84, 0.3), f64(0.16, 0.7)))
    text = str(audit_of({"room/one": crossed}).table())
    assert ".84" not in text
    assert re.search(r"a +\.16\b(?! \[)", text)
    assert "[.3" in text


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 140])
def test_no_width_loses_a_word(finding, width):
    found = {
        "theory/confusion.balanced_accuracy": finding(high=f64(0.9)),
        "theory/curvature.sharpness": finding(
            value=f64(8.118490, 0.0180543), range=(0, 9), unit="loss / weight^2", kind="estimate",
            interval=(f64(8.118489, 0.0180536), f64(8.118492, 0.0180550)), labels=("largest", "smallest"),
        ),
        "theory/risk.accuracy": finding(kind="estimate", stderr=f64(0.05)),
    }  # fmt: skip
    judgments = (check_requirement(requirement_of("accuracy>=.45"), found["theory/risk.accuracy"]),)
    text = plain(audit_of(found, refused=[("a/b.c", "needs the moon")], judgments=judgments).table(), width)
    assert max(map(len, text.splitlines())) <= width
    words = {word.rstrip(":") for word in text.split()}
    number = {"8.118490", "[8.118489,", "8.118492]"}
    assert number | {"undecided", "holds", "measured", "largest", "smallest", "needs"} <= words
    assert {"balanced_accuracy", "confusion.balanced_accuracy", "theory/confusion.balanced_accuracy"} & words


def test_a_question_has_its_own_table_where_one_for_all_is_too_wide(finding):
    wide = finding(
        value=f64(8.118490), unit="(loss / weight)^2", kind="estimate", range=(0, 9),
        interval=(f64(8.118489), f64(8.118492)),
    )  # fmt: skip
    promised = finding(high=f64(0.9), premises=(ASSUMED,))
    names = {"theory/curvature.sharpness": "trained", "theory/confusion.balanced_accuracy": "right"}
    audit = audit_of(dict(zip(names, (wide, promised), strict=True)), questions=names)
    tables = {width: plain(audit.table(), width) for width in range(50, 121)}
    heads = {width: len(re.findall("^claim ", text, re.MULTILINE)) for width, text in tables.items()}
    assert heads[120] == 1
    assert heads[80] == 2
    for width, text in tables.items():
        assert max(map(len, text.splitlines())) <= width
        assert "(loss / weight)^2" in text  # no unit is broken
        assert "8.118490 [8.118489, 8.118492]" in text
    assert all("holds, assuming [1]" in text for text in (tables[80], tables[120]))


def test_a_sentence_breaks_inside_of_no_interval():
    console = Console(file=io.StringIO(), width=40)
    said = Text("bad  Worse than a linear (-.19 [-.35, -.037]), of 10 % of all.")
    lines = [line.plain for line in _lines(console, console.options, [said])]
    assert lines == ["bad  Worse than a linear", "     (-.19 [-.35, -.037]), of 10 % of", "     all."]


def test_a_finding_of_many_labels_has_one_row_and_names_the_lowest(finding):
    value = torch.linspace(0.5, 0.9, 30, dtype=torch.float64)
    found = finding(value=value, labels=tuple(f"class {i}" for i in range(30)))
    (row,) = rows("a", found)
    assert row.measured == ".5 to .9, median .7"
    assert row.why[0].startswith("lowest: class 0 (.5), class 1 (.514), class 2")
    assert len(rows("a", found, most=30)) == 30
    (promised,) = rows("a", finding(value=value, labels=found.labels, high=f64(0.8)))
    assert promised.why[0].startswith("worst: class 29 (.9), class 28")


def test_a_requirement_stands_beside_the_elements_that_it_is_about(finding):
    found = finding(value=f64(0.2, 0.9), labels=("cat", "dog"))
    judgments = [
        check_requirement(requirement_of(text), found)
        for text in ("recall@dog>=.5", "recall>=.1", "recall@dog>=1")
    ]
    cat, dog = rows("a", found, judgments=judgments)
    assert cat.required == ((">= .1", "met"),)
    assert dog.required == ((">= 1", "missed"), (">= .5", "met"), (">= .1", "met"))
    assert dog.why == ()  # said once, below the table
    text = " ".join(
        plain(audit_of({"theory/confusion.recall": found}, judgments=tuple(judgments)).table(), 100).split()
    )
    assert text.count("recall@dog>=1 is missed: dog: the value is .9") == 1
    assert text.index("recall@dog>=1 is missed") < text.index("confusion.recall cat")
    (all_,) = rows("a", found, judgments=judgments, most=1)
    assert all_.required[0] == (">= 1", "missed")


def absent(skipped, count=1):
    claim = Claim(name="room/topic", summary="", ask="", demo="", reference="")
    refusal = "needs a domain" if skipped is None else ""
    return [Answer(claim, None, refusal, 0.0, skipped or "")] * count


@pytest.mark.parametrize(
    ("answers", "interrupted", "phrases"),
    [
        (absent(None), False, ["1 does not apply"]),
        (absent(None, 2) + absent("needs about 3 min of the 1 min that remain"), False,
         ["2 do not apply", "1 not asked for lack of time"]),
        (absent("needs about 3 h of the 1 h that remain") + absent("interrupted", 4), True,
         ["1 not asked for lack of time", "4 not asked, interrupted"]),
        ([], True, ["interrupted"]),
        ([], False, []),
    ],
)  # fmt: skip
def test_what_is_absent_is_counted_by_its_reason(answers, interrupted, phrases):
    audit = Audit(title="a model", answers=tuple(answers), interrupted=interrupted)
    assert absences(audit) == phrases
    for phrase in phrases:
        assert f"; {phrase}" in plain(audit.table(), 140)


def test_what_was_left_out_is_grouped_by_its_reason():
    claims = {name: Claim(name=name, summary="", ask="", demo="", reference="") for name in "abcd"}
    answers = [
        Answer(claims["a"], None, "needs x", 0.0),
        Answer(claims["b"], None, "", 0.0, "interrupted"),
        Answer(claims["c"], None, "needs x", 0.0),
    ]
    assert left_out(answers) == {"does not apply: needs x": ["a", "c"], "not asked: interrupted": ["b"]}


def test_requirements_are_counted_and_listed_the_gravest_first(finding):
    found = finding(value=f64(0.2, 0.9), labels=("cat", "dog"))
    texts = ("recall@cat>=.1", "recall@dog>=.1", "recall@dog<=.5")
    judgments = [check_requirement(requirement_of(text), found) for text in texts]
    absent = judgments[0].__class__(judgments[0].requirement, {}, "not asked: interrupted")
    judgments = [absent, *judgments]
    assert statuses(judgments) == {"missed": 1, "undecided": 1, "met": 2}
    assert list(statuses(judgments)) == ["missed", "undecided", "met"]
    assert [j.status for j in unmet(judgments)] == ["missed", "undecided"]
    assert unmet(judgments)[0].requirement.text == "recall@dog<=.5"


@pytest.mark.parametrize(
    ("kind", "ends", "text"),
    [
        ("estimate", (-math.inf, 0.1639), "-.75 [<= .16]"),
        ("estimate", (-1.31, math.inf), "-.75 [>= -1.31]"),
        ("estimate", (-math.inf, math.inf), "-.7545"),
        ("lower", (-1.31, 0.2), ">= -.75 [>= -1.31]"),
        ("lower", (-0.7545, 0.2), ">= -.7545"),
    ],
)
def test_an_interval_without_an_end_shows_the_other(finding, kind, ends, text):
    below, above = (f64(end) for end in ends)
    fields = {"kind": kind, "interval": (below, above), "range": (-math.inf, math.inf)}
    (row,) = rows("a", finding(value=f64(-0.7545), **fields))
    assert row.measured == text
