"""A second audit of the same takes over what stands, asks what does not, and loses nothing."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import margin
from margin.auditing.asking.answers import Answer, Interrupted, ask
from margin.auditing.asking.reuse import Earlier, continues, earlier_of
from margin.core.catalog import drawn
from margin.core.findings import NotAsked
from margin.engine.schema import sealed
from margin.theory.prediction.held_out import held_out_answers


class Asked:
    """A question that counts how often it is asked."""

    def __init__(self, answer):
        self.answer, self.count = answer, 0

    def __call__(self, subject):
        self.count += 1
        return self.answer(subject)


def raising(error):
    def answer(subject):
        raise error

    return answer


def test_what_stands_is_taken_over_and_the_rest_is_asked(subject, claim_of, finding):
    questions = {
        "found": Asked(lambda s: finding()),
        "broken": Asked(raising(KeyError("mine"))),
        "unable": Asked(raising(NotAsked("more than 200,000 regions"))),
        "other": Asked(lambda s: finding(value=torch.tensor(0.25))),
        "new": Asked(lambda s: finding()),
    }
    claims = {name: claim_of(question, f"room/{name}") for name, question in questions.items()}
    first = ask(subject, [claims[name] for name in ("found", "broken", "unable", "other")])
    second = ask(
        subject,
        [claims[name] for name in ("found", "broken", "unable", "new")],
        earlier=earlier_of(first),
    )
    assert {name: question.count for name, question in questions.items()} == {
        "found": 1, "broken": 2, "unable": 2, "other": 1, "new": 1,
    }  # fmt: skip
    answers = {answer.claim.name: answer for answer in second.answers}
    assert set(answers) == {f"room/{name}" for name in questions}  # the other is not lost
    assert answers["room/found"] is first.answers[0] and answers["room/other"] is first.answers[3]
    assert second.facts["earlier audit"] == "2 findings of the audit of Net taken over, 3 asked"
    assert second.worst_examples is not None and second.outcomes
    assert second.identity == first.identity


def test_one_finding_is_said_as_one(subject, claim_of, finding):
    claims = [claim_of(lambda s: finding())]
    second = ask(subject, claims, earlier=earlier_of(ask(subject, claims)))
    assert second.facts["earlier audit"] == "1 finding of the audit of Net taken over, 0 asked"


def test_of_another_subject_nothing_is_taken_over(subject, claim_of, finding):
    question = Asked(lambda s: finding())
    claims, other = [claim_of(question)], claim_of(lambda s: finding(), "room/other")
    first = ask(subject, [*claims, other])
    with torch.no_grad():
        subject.model.out.bias[0] += 1e-6
    second = ask(subject, claims, earlier=earlier_of(first))
    assert question.count == 2 and [a.claim for a in second.answers] == claims
    said = "nothing of the audit of Net is taken over: it is of other weights"
    assert second.facts["earlier audit"] == said
    binding = replace(earlier_of(first), name="place", binding=True)
    with pytest.raises(FileExistsError, match="place holds an audit of other weights: choose another"):
        ask(subject, claims, earlier=binding)
    assert question.count == 2 and not subject.kept


class Scaled(torch.nn.Linear):
    """A layer that answers by what no digest of it sees."""

    def forward(self, x):
        return super().forward(x) * float(os.environ["SCALE_OF_A_TEST"])


def test_other_outputs_are_another_subject(subject, monkeypatch):
    subject = replace(subject, model=Scaled(4, 3))
    monkeypatch.setenv("SCALE_OF_A_TEST", "1.0")
    first = ask(subject, [])
    assert "outputs" in first.identity
    assert ask(subject, [], earlier=earlier_of(first)).facts["earlier audit"].endswith("0 asked")
    monkeypatch.setenv("SCALE_OF_A_TEST", "1.5")
    second = ask(subject, [], earlier=earlier_of(first))
    assert second.facts["earlier audit"].endswith("it is of other outputs")


def test_outputs_are_known_of_smaller_batches_and_where_an_audit_was_interrupted(
    subject, claim_of, monkeypatch
):
    monkeypatch.setattr("margin.auditing.asking.passes.HELD", 1)  # batches of one

    def interrupt(s):
        assert len(s.test[0].inputs[0]) == 1
        held_out_answers(s)
        raise KeyboardInterrupt

    subject = replace(subject, model=Scaled(4, 3))
    monkeypatch.setenv("SCALE_OF_A_TEST", "1.0")
    whole = ask(subject, [], minutes=9.0)
    with pytest.raises(Interrupted) as stopped:
        ask(subject, [claim_of(interrupt)], minutes=9.0)
    monkeypatch.setenv("SCALE_OF_A_TEST", "1.5")
    for first in (whole, stopped.value.audit):
        second = ask(subject, [], minutes=9.0, earlier=earlier_of(first))
        assert second.facts["earlier audit"].endswith("it is of other outputs")


@pytest.mark.parametrize(
    ("before", "now", "stands"),
    [
        (None, None, True),
        (None, 128, True),
        (128, 128, True),
        (256, 128, True),
        (128, 256, False),
        (128, None, False),
    ],
)
def test_an_answer_of_drawn_examples_stands_where_no_more_would_be_drawn(
    claim_of, finding, before, now, stands
):
    claim = claim_of(None)
    for place in ("most", "held_out"):
        answer = Answer(claim, finding(), "", 1.0, **{place: before})
        earlier = Earlier("a", {}, (answer,))
        given = (now, None) if place == "most" else (None, now)
        assert (earlier.standing(claim, *given) is answer) is stands
    assert Earlier("a", {}, (Answer(claim, None, "", 0.0, "interrupted"),)).standing(claim, now, None) is None
    assert earlier.standing(replace(claim, name="room/other"), now, None) is None


@pytest.mark.parametrize(
    ("before", "now", "count"), [(512, 512, 1), (512, 128, 1), (128, 512, 2), (128, 2000, 2)]
)
def test_more_examples_are_asked_anew(subject, claim_of, finding, monkeypatch, before, now, count):
    batch = subject.test[0]
    subject = replace(subject, train=[batch] * 100)
    question = Asked(lambda s: finding(sample=f"{s.most} drawn"))
    claims = [replace(claim_of(question), cost=drawn(10))]
    most = {"drawn": before}
    monkeypatch.setattr("margin.auditing.asking.budget.Budget.drawn", lambda plan, claim: most["drawn"])
    first = ask(subject, claims)
    assert first.answers[0].most == before
    most["drawn"] = now
    second = ask(subject, claims, earlier=earlier_of(first))
    assert question.count == count
    assert second.answers[0].most == {512: {512: 512, 128: 512}, 128: {512: 512, 2000: None}}[before][now]


def test_what_finds_no_time_now_keeps_what_was_found_before(subject, claim_of, finding, monkeypatch):
    question = Asked(lambda s: finding())
    dear = replace(claim_of(question, "room/dear"), cost=drawn(10))
    subject = replace(subject, train=[subject.test[0]] * 100)
    most: list[int | None] = [128]
    monkeypatch.setattr("margin.auditing.asking.budget.Budget.drawn", lambda plan, claim: most[0])
    first = ask(subject, [dear])
    most[0] = None
    monkeypatch.setattr("margin.auditing.asking.budget.Budget.lacking", lambda *given: "needs about 3 h")
    second = ask(subject, [dear], earlier=earlier_of(first))
    assert second.answers == first.answers and question.count == 1
    monkeypatch.setattr("margin.auditing.asking.budget.Budget.lacking", lambda *given: "")
    question.answer = raising(KeyError("mine"))  # a defect is shown, whatever was found before
    assert ask(subject, [dear], earlier=earlier_of(first)).answers[0].broken


def test_an_interrupted_audit_is_gone_on_with(subject, claim_of, finding):
    stop = [True]

    def answer(s):
        if stop[0]:
            raise KeyboardInterrupt
        return finding()

    one, two = Asked(lambda s: finding()), Asked(answer)
    claims = [
        claim_of(one, "room/one"),
        claim_of(two, "room/two"),
        claim_of(lambda s: finding(), "room/three"),
    ]
    with pytest.raises(Interrupted) as stopped:
        ask(subject, claims)
    with pytest.raises(Interrupted) as again:  # and interrupted once more: nothing is lost
        ask(subject, claims[1:], earlier=earlier_of(stopped.value.audit))
    assert list(again.value.audit.findings) == ["room/one"]
    stop[0] = False
    whole = ask(subject, claims, earlier=earlier_of(again.value.audit))
    assert list(whole.findings) == ["room/one", "room/two", "room/three"] and not whole.interrupted
    assert (one.count, two.count) == (1, 3)


def test_requirements_are_those_of_the_last_audit(subject):
    from margin.auditing.asking.requirements import requirement_of

    required = requirement_of("accuracy>=.99")
    first = ask(subject, [required.claim], requirements=[required])
    second = ask(subject, [required.claim], earlier=earlier_of(first))
    assert first.judgments and not second.judgments
    third = ask(subject, [required.claim], requirements=[required], earlier=earlier_of(second))
    assert third.judgments == first.judgments
    assert third.facts["earlier audit"].endswith("taken over, 0 asked")


# files


X = torch.rand(40, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(40) % 3


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


@pytest.fixture
def place(model, tmp_path):
    margin.audit(model, (X, Y), claims=["risk.loss", "calibration"]).save(tmp_path / "a")
    return tmp_path / "a"


def test_a_saved_audit_is_brought_up_to_date(model, place):
    before = json.loads((place / "findings.json").read_text())
    audit = margin.audit(model, (X, Y), claims="confusion", reuse=place)
    audit.save(place)  # without force: nothing of what was there is lost
    after = json.loads((place / "findings.json").read_text())
    answers = {row["claim"]: row for row in after["answers"]}
    assert [answers[row["claim"]] for row in before["answers"]] == before["answers"]
    assert len(answers) > len(before["answers"])
    order = [name for name in margin.claims() if name in answers]
    assert list(answers) == order  # as if all had been asked at once
    assert after["hardest"] == before["hardest"] and after["identity"] == before["identity"]
    whole = margin.audit(model, (X, Y), claims=["risk.loss", "calibration", "confusion"])
    same = {name: found.as_json() for name, found in whole.findings.items()}
    assert {name: found.as_json() for name, found in audit.findings.items()} == same
    report = (place / "report.html").read_text()
    assert "earlier audit" in report
    whole.save(place.parent / "whole")
    pictures = (place.parent / "whole" / "report.html").read_text().count("<svg")
    assert report.count("<svg") == pictures > 0


def test_one_that_lacks_a_finding_or_is_of_another_does_not_replace_it(model, place):
    fewer = margin.audit(model, (X, Y), claims="risk.loss")
    assert not continues(fewer, place)
    with pytest.raises(FileExistsError, match="holds an audit: choose another directory"):
        fewer.save(place)
    other = margin.audit(model, (X, Y.flip(0)), claims=["risk.loss", "calibration"])
    assert not continues(other, place)
    with pytest.raises(FileExistsError, match="holds an audit: choose another directory"):
        other.save(place)
    assert continues(margin.audit(model, (X, Y), claims=["risk.loss", "calibration"]), place)


def test_an_audit_that_does_not_say_of_what_it_is_is_not_continued(model, place):
    audit = margin.audit(model, (X, Y), claims=["risk.loss", "calibration"])
    document = json.loads((place / "findings.json").read_text())
    for identity in (document["identity"], {}):
        document["identity"] = identity
        (place / "findings.json").write_text(json.dumps(sealed(document)))
        assert continues(replace(audit, identity=identity), place) is bool(identity)


def test_another_version_is_not_read(model, place):
    document = json.loads((place / "findings.json").read_text())
    del document["digest"]
    document["identity"]["versions"] = "margin 0.0.1"
    document["answers"][0]["claim"] = "theory/gone"
    (place / "findings.json").write_text(json.dumps(document))
    audit = margin.audit(model, (X, Y), claims="risk.loss", reuse=place)
    assert audit.facts["earlier audit"] == f"nothing of {place} is taken over: it is of other versions"


def test_what_two_threads_answered_is_asked_of_one_again(model):
    """A sum that is divided into other parts has other last bits, of a gradient at least."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = margin.audit(model, (X, Y), claims="risk.loss")
        again = margin.audit(model, (X, Y), claims="risk.loss", reuse=first)
        torch.set_num_threads(1)
        other = margin.audit(model, (X, Y), claims="risk.loss", reuse=first)
    finally:
        torch.set_num_threads(threads)
    assert "1 finding of the audit" in again.facts["earlier audit"]
    assert "it is of other processor" in other.facts["earlier audit"]


DAMAGES = {
    "digest is another": lambda d: d["answers"][0].update(seconds=1.5),
    "answers[0].finding is no finding: verdict does not follow": lambda d: d["answers"][0]["finding"].update(
        verdict="holds"
    ),
    "answers[0].finding is no finding: value": lambda d: d["answers"][0]["finding"].pop("value"),
    "answers[0].claim names no claim that is here: 'theory/gone'": lambda d: d["answers"][0].update(
        claim="theory/gone"
    ),
    "answers[0].seconds must be a number": lambda d: d["answers"][0].update(seconds="1"),
    "answers must be a list": lambda d: d.update(answers={}),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_or_forged_file_is_refused_in_a_line(model, place, what):
    file = place / "findings.json"
    document = json.loads(file.read_text())
    DAMAGES[what](document)
    file.write_text(json.dumps(document if what.startswith("digest") else sealed(document)))
    with pytest.raises(ValueError) as error:
        margin.audit(model, (X, Y), claims="risk.loss", reuse=place)
    assert str(file) in str(error.value) and what in str(error.value) and "\n" not in str(error.value)


def test_where_no_audit_is_none_is_reused(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no audit: no findings\.json"):
        margin.audit(model, (X, Y), claims="risk.loss", reuse=Path(tmp_path))
