"""An audit as an object: a finding by its name, all as a frame, the worst rows, how it shows itself."""

import re

import polars as pl
import pytest
import torch
from torch import nn

import margin
from margin.auditing.asking.answers import Answer, Audit
from margin.auditing.report.screen import plain
from margin.core.catalog import Claim, UnknownName


def claim(name, question="", **given):
    return Claim(name=name, summary="", ask="", demo="", reference="", question=question, **given)


@pytest.fixture(scope="module")
def audit():
    """A classifier of 12 points of 3 classes, wrong for two."""
    y = torch.arange(12) % 3
    scores = 4 * torch.eye(3)[y]
    scores[[2, 7]] = 5 * torch.eye(3)[(y[[2, 7]] + 1) % 3]
    scores[7] *= 2
    return margin.audit(nn.Identity(), (scores, y), class_names=("a", "b", "c"), claims=["risk", "confusion"])


def test_a_finding_is_had_by_any_form_of_its_name(audit):
    whole = audit["theory/risk.accuracy"]
    assert whole is audit["risk.accuracy"] is audit["accuracy"] is audit.findings["theory/risk.accuracy"]
    assert float(whole.value) == pytest.approx(10 / 12)


def test_a_name_that_has_no_finding_says_why_and_what_is_near(finding):
    answers = [
        Answer(claim("theory/risk.accuracy", "right"), finding(), "", 0.0),
        Answer(claim("theory/memorization.accuracy", "memorized"), finding(), "", 0.0),
        Answer(claim("a/one.same"), finding(), "", 0.0),
        Answer(claim("b/two.same"), finding(), "", 0.0),
        Answer(claim("robust/linf.sandwich", "moves"), None, "needs a domain", 0.0),
    ]
    audit = Audit(title="t", answers=tuple(answers))
    assert audit["accuracy"] is audit["theory/risk.accuracy"]
    for name, words in {
        "acuracy": "no finding 'acuracy'; nearest: theory/risk.accuracy",
        "same": "finding 'same' could be a/one.same, b/two.same: give the full name",
        "sandwich": "robust/linf.sandwich has no finding: it does not apply: needs a domain",
    }.items():
        with pytest.raises(UnknownName) as raised:
            audit[name]
        assert words in str(raised.value)


def test_a_frame_has_a_row_for_each_number(audit):
    frame = audit.frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == ["question", "claim", "label", "value", "low95", "high95", "unit", "promise",
                             "verdict", "n"]  # fmt: skip
    recall = frame.filter(pl.col("claim") == "theory/confusion.recall")
    assert recall["label"].to_list() == ["a", "b", "c"]
    assert recall["value"].to_list() == pytest.approx([1.0, 0.75, 0.75])
    (accuracy,) = frame.filter(pl.col("claim") == "theory/risk.accuracy").to_dicts()
    found = audit["accuracy"]
    assert (accuracy["question"], accuracy["n"], accuracy["verdict"]) == ("right", 12, "measured")
    assert [accuracy["low95"], accuracy["high95"]] == pytest.approx([float(end) for end in found.shown])
    assert len(frame) == sum(f.value.numel() for f in audit.findings.values())


def test_a_part_of_the_examples_is_no_count_of_them(finding):
    facts = {"held-out examples": 40, "training examples": 90}
    rows = [
        Answer(claim("a/x.all"), finding(), "", 0.0),
        Answer(claim("a/x.some"), finding(sample="8 drawn"), "", 0.0),
        Answer(claim("a/x.capped", cost=margin.core.catalog.Cost(1.0, "train", 50)), finding(), "", 0.0),
        Answer(claim("a/x.train", cost=margin.core.catalog.Cost(1.0, "train", 500)), finding(), "", 0.0),
        Answer(claim("a/x.weights", cost=margin.core.catalog.Cost(0.0)), finding(), "", 0.0),
    ]
    frame = Audit(title="t", answers=tuple(rows), facts=facts).frame()
    assert frame["n"].to_list() == [40, None, None, 90, None]
    assert Audit(title="t", answers=()).frame().columns == frame.columns


def test_the_worst_examples_come_the_worst_first_with_names(audit):
    worst = audit.worst(3)
    assert worst["row"].to_list()[:2] == [7, 2]
    assert worst["target"].to_list()[:2] == ["b", "c"]
    assert worst["class"].to_list()[:2] == ["c", "a"]
    assert worst["loss"].to_list() == sorted(worst["loss"].to_list(), reverse=True)
    assert worst["margin"].to_list()[:2] == pytest.approx([-10.0, -5.0])
    assert len(worst) == 3 and len(audit.worst()) == 5
    with pytest.raises(ValueError, match="count must be at least 1: got 0"):
        audit.worst(0)
    with pytest.raises(ValueError, match="worst examples need a loss of each example"):
        Audit(title="t", answers=()).worst()


def test_it_shows_itself_in_one_line_on_one_screen_and_whole(audit):
    assert (
        repr(audit) == f"<Audit of Identity: {len(audit.findings)} findings: {len(audit.findings)} measured>"
    )
    screen, whole = str(audit), str(audit.table())
    assert len(screen.splitlines()) <= 24 < len(whole.splitlines())
    assert "audit.table()" in screen
    assert "confusion.precision" in whole and "confusion.precision" not in screen
    assert plain(audit, 60) != plain(audit, 120)
    html = audit._repr_html_()
    first, _, folded = html.partition("<details>")
    assert "Right for" in first and "<table" not in first
    assert "<table" in folded and "confusion.precision" in folded


def test_an_answer_shows_its_numbers_and_picture_on_any_page(audit):
    """Also where no style sheet defines a color, and twice on a page: each color has one to fall back on."""
    recall = audit.answer("recall")
    assert recall is audit.answer("theory/confusion.recall")
    html = recall._repr_html_()
    assert "theory/confusion.recall" in html and 'role="img"' in html and "<figure><svg" in html
    assert [c for c in re.findall(r"var\(--([\w-]+)([,)])", html) if c[1] == ")"] == []
    names = [set(re.findall(r' id="([^"]+)"', text)) for text in (html, recall._repr_html_())]
    assert names[0] and not names[0] & names[1]
    assert recall.finding.statement.split(",")[0] in html
    nothing = Answer(claim("a/x.y"), None, "needs a domain", 0.0)._repr_html_()
    assert re.sub("<[^>]+>", "", nothing) == "a/x.y: does not apply: needs a domain"
    with pytest.raises(UnknownName, match="no finding 'nothing'"):
        audit.answer("nothing")


def test_all_of_it_is_grouped_by_question_and_counts_other_kinds_of_model(audit):
    whole = str(audit.table())
    places = [whole.index(f"\n{text}") for text in ("Is it right?", "Where does it fail?")]
    assert places == sorted(places)
    assert whole.index("confusion.recall", places[1]) > places[1] > whole.index("risk.loss", places[0])
    every = plain(margin.audit(nn.Identity(), (torch.eye(3).repeat(4, 1), torch.arange(12) % 3)).table(), 100)
    assert "are about other kinds of model" in every
    assert "classic/hopfield" not in every
