"""An audit keeps to its minutes, and what is interrupted keeps what was answered."""

import math
import time
from dataclasses import replace

import pytest
import torch

from margin.auditing.asking.answers import Interrupted, ask
from margin.auditing.asking.budget import LEAST, Budget, count, duration
from margin.auditing.asking.requirements import Requirement, Status
from margin.auditing.report.screen import plain
from margin.core.catalog import Cost
from margin.core.types import Batch


class Slow(torch.nn.Module):
    """A linear model that takes 1 ms an example."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        time.sleep(0.001 * len(x))
        return self.linear(x)


@pytest.fixture
def slow(subject):
    return replace(subject, model=Slow())


def claims_of(claim_of, finding, costs):
    return [
        replace(claim_of(lambda s: finding(), f"room/topic.{name}"), cost=Cost(passes))
        for name, passes in costs.items()
    ]


def test_a_claim_costs_its_passes_over_its_examples(slow, claim_of, finding):
    plan = Budget(slow, 1.0)
    claim = claim_of(lambda s: finding())
    pass_ = plan.seconds(claim) - LEAST
    assert 0.02 <= pass_ <= 0.06  # 20 examples of 1 ms
    assert plan.seconds(replace(claim, cost=Cost(50))) - LEAST == pytest.approx(50 * pass_)
    assert plan.seconds(replace(claim, cost=Cost(50, limit=5))) - LEAST == pytest.approx(12.5 * pass_)
    train = replace(slow, train=[*slow.test] * 3)
    ratio = (Budget(train, 1.0).seconds(replace(claim, cost=Cost(1, "train"))) - LEAST) / pass_
    assert 2 < ratio < 4.5
    assert plan.seconds(replace(claim, cost=Cost(1, "train"))) - LEAST == pytest.approx(pass_)


def test_examples_are_counted_without_making_every_batch():
    sizes = (5, 5, 2)
    assert count([Batch((torch.zeros(n, 1),)) for n in sizes]) == 12
    assert count(()) == 0


def test_the_cheapest_come_first_and_what_does_not_fit_is_listed(slow, claim_of, finding):
    claims = claims_of(claim_of, finding, {"dear": 100_000, "cheap": 1, "middle": 10})
    seen = []
    audit = ask(slow, claims, minutes=1.0, progress=lambda claim, *rest: seen.append(claim.name))
    assert seen[:2] == ["room/topic.cheap", "room/topic.middle"]
    dear = audit.answers[0]
    assert dear.finding is None
    assert dear.skipped.startswith("needs about ")
    assert "of the" in dear.skipped
    assert dear.absence == f"not asked: {dear.skipped}"
    assert [a.claim.name for a in audit.answers] == [c.name for c in claims]
    text = plain(audit.table(), 100)
    assert "not asked: needs about" in text
    assert "1 not asked" in text
    assert audit.as_json()["answers"][0]["skipped"] == dear.skipped
    assert not audit.interrupted


def test_what_is_required_comes_first_and_is_undecided_where_it_does_not_fit(slow, claim_of, finding):
    claims = claims_of(claim_of, finding, {"cheap": 1, "middle": 10, "dear": 100_000})
    needed = [Requirement(f"{c.name}>=.1", c, "", ">=", 0.1) for c in claims[1:]]
    seen = []
    audit = ask(
        slow, claims, minutes=1.0, requirements=needed, progress=lambda claim, *rest: seen.append(claim.name)
    )
    assert seen[0] == "room/topic.middle"
    assert [j.status for j in audit.judgments] == [Status.MET, Status.UNDECIDED]
    assert audit.judgments[1].why.startswith("not asked: needs about")
    assert "room/topic.dear>=.1 is undecided: not asked: needs" in " ".join(plain(audit.table(), 100).split())
    assert audit.failed


def test_the_time_is_kept_up_to_the_error_of_one_claim(slow, claim_of, finding):
    def sleeps(subject):
        time.sleep(0.5)  # each is expected to take 0.2 s
        return finding()

    claims = [claim_of(sleeps, f"room/topic.number_{i}") for i in range(12)]
    start = time.perf_counter()
    audit = ask(slow, claims, minutes=2 / 60)
    spent = time.perf_counter() - start
    assert 2 <= len(audit.findings) <= 4
    assert spent <= 2 + 0.5 + 0.3
    assert all("remain" in answer.skipped for answer in audit.answers if not answer.finding)


def test_what_was_measured_corrects_what_is_expected(slow, claim_of, finding):
    plan, claim = Budget(slow, 1.0), replace(claim_of(lambda s: finding()), cost=Cost(100))
    before = plan.seconds(claim)
    for share in (0.1, 0.1, 0.1):
        plan.took(claim, LEAST + share * (before - LEAST))
    assert plan.seconds(claim) == pytest.approx(LEAST + 0.1 * (before - LEAST))
    # A question that fits once it is known that they take a tenth is asked.
    costs = {"a": 10, "b": 15, "c": 20, "dear": 1000}
    audit = ask(slow, claims_of(claim_of, finding, costs), minutes=12 / 60)
    assert len(audit.findings) == 4


def test_a_long_forward_is_run_on_one_example_to_time_it(subject, claim_of, finding):
    seen = []

    class Long(Slow):
        def forward(self, x):
            seen.append(len(x))
            time.sleep(0.1 * len(x))
            return self.linear(x)

    plan = Budget(replace(subject, model=Long()), 1.0)
    assert seen == [1]
    assert plan.seconds(claim_of(lambda s: finding())) - LEAST == pytest.approx(2.0, rel=0.3)


def test_without_a_limit_everything_is_asked_in_order(slow, claim_of, finding):
    claims = claims_of(claim_of, finding, {"dear": 1e9, "cheap": 1})
    assert list(ask(slow, claims).findings) == [c.name for c in claims]


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.nan])
def test_minutes_must_be_above_0(slow, minutes):
    with pytest.raises(ValueError, match="minutes must be above 0"):
        ask(slow, [], minutes=minutes)


def test_times_are_spoken_in_their_unit():
    assert [duration(s) for s in (0.0, 4.04, 57.5, 180, 9000)] == ["0 s", "4 s", "0.96 min", "3 min", "2.5 h"]


def test_ctrl_c_keeps_what_was_answered(slow, claim_of, finding):
    def stopped(subject):
        subject.model(subject.test[0].inputs[0])
        raise KeyboardInterrupt

    claims = [
        claim_of(lambda s: finding(), "a/x.one"),
        claim_of(stopped, "a/x.two"),
        claim_of(lambda s: finding(), "a/x.three"),
    ]
    needed = [Requirement(f"{c.name}>=.1", c, "", ">=", 0.1) for c in claims[:2]]
    with pytest.raises(Interrupted, match="1 of 3 claims were answered") as caught:
        ask(slow, claims, requirements=needed)
    audit = caught.value.audit
    assert audit.interrupted
    assert [a.skipped for a in audit.answers] == ["", "interrupted", "interrupted"]
    assert [j.status for j in audit.judgments] == [Status.MET, Status.UNDECIDED]
    assert audit.judgments[1].why == "not asked: interrupted"
    assert "2 not asked, interrupted" in plain(audit.table(), 100)
    assert audit.as_json()["interrupted"] is True


def test_questions_of_one_kind_correct_each_other_more_than_others(slow, claim_of, finding):
    """Curvature took 4 times what was expected: of curvature 3.25 times is expected next, of others 2.5."""
    plan = Budget(slow, 1.0)
    own = claim_of(lambda s: finding())
    curvature = replace(own, ask="margin.theory.curvature.trace:trace", cost=Cost(1000))
    another = replace(curvature, ask="margin.theory.curvature.eigenpairs:leading")
    risk = replace(curvature, ask="margin.theory.prediction.risk:loss")
    expected = plan.seconds(curvature) - LEAST
    assert plan.seconds(risk) - LEAST == pytest.approx(expected)
    plan.took(curvature, LEAST + 4 * expected)
    assert plan.seconds(another) - LEAST == pytest.approx(3.25 * expected)  # between 2.5 and 4
    assert plan.seconds(risk) - LEAST == pytest.approx(2.5 * expected)  # between 1 and 4
