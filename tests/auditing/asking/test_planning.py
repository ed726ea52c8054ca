"""An audit keeps to its minutes, and what is interrupted keeps what was answered."""

import math
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch

import margin
from margin.auditing.asking.answers import Interrupted, _fewer, ask
from margin.auditing.asking.budget import LEAST, Budget, count
from margin.auditing.asking.named import claims_named
from margin.auditing.asking.passes import PassCost, Passes, cost_of_passes
from margin.auditing.asking.requirements import Requirement, Status
from margin.auditing.asking.side_effects import Snapshot
from margin.auditing.report.screen import plain
from margin.core.catalog import Cost, drawn
from margin.core.deadline import duration
from margin.core.findings import NotAsked, finding_of
from margin.core.types import Batch, Domain
from margin.data.examples import Arrays, InOrder
from margin.engine.evaluation import sample_examples
from margin.theory.prediction.held_out import outputs_of


@pytest.fixture(autouse=True)
def _own_time(monkeypatch):
    """The clock of this process alone: a sleep passes at once, and what others compute takes no time here."""
    slept = Counter()
    monkeypatch.setattr(time, "sleep", lambda seconds: slept.update(seconds=seconds + 1e-6))  # or more
    monkeypatch.setattr(time, "perf_counter", lambda: time.process_time() + slept["seconds"])


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


def passes_cost(monkeypatch, counted, timed=None):
    """Both passes over an example count for so many seconds, and take as many, or others."""
    alike = PassCost(Passes(counted, counted), Passes(*[counted if timed is None else timed] * 2))
    monkeypatch.setattr("margin.auditing.asking.budget.cost_of_passes", lambda *_: alike)


def test_a_claim_costs_its_passes_over_its_examples(slow, claim_of, finding, monkeypatch):
    plan = Budget(slow, 1.0)
    claim = claim_of(lambda s: finding())
    pass_ = plan.seconds(claim) - LEAST
    assert 0.02 <= pass_ <= 0.06  # 20 examples of 1 ms
    assert plan.seconds(replace(claim, cost=Cost(50))) - LEAST == pytest.approx(50 * pass_)
    assert plan.seconds(replace(claim, cost=Cost(50, limit=5))) - LEAST == pytest.approx(12.5 * pass_)
    passes_cost(monkeypatch, 0.001)
    plan, pass_ = Budget(slow, 1.0), 0.02
    train = replace(slow, train=[*slow.test] * 3)
    ratio = (Budget(train, 1.0).seconds(replace(claim, cost=Cost(1, "train"))) - LEAST) / pass_
    assert ratio == pytest.approx(3.4)  # batches are counted as if all but the last were as long as the first
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


def test_a_long_forward_is_run_on_few_examples_to_time_it(subject, claim_of, finding):
    seen = []

    class Long(Slow):
        def forward(self, x):
            seen.append(len(x))
            time.sleep(0.3 * len(x))
            return self.linear(x)

    plan = Budget(replace(subject, model=Long()), 1.0)
    assert seen == [1, 4]  # 1.2 s are enough to time it by
    assert plan.seconds(claim_of(lambda s: finding())) - LEAST == pytest.approx(6.0, rel=0.3)


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


class Passing:
    """A question of so many passes over training examples that it draws: it runs the model as often."""

    def __init__(self, finding, passes):
        self.finding, self.passes, self.seen = finding, passes, []

    def __call__(self, subject):
        batches = sample_examples(subject.train, subject.at_most(1024)).batches
        self.seen.append(sum(len(b.inputs[0]) for b in batches))
        for _ in range(self.passes):
            for batch in batches:
                subject.model(*batch.inputs)
        return self.finding()


@pytest.fixture
def many(slow, monkeypatch):
    """A thousand training examples, of 1 ms each."""
    passes_cost(monkeypatch, 0.001)
    batch = slow.test[0]
    rows = torch.arange(1000) % len(batch.inputs[0])
    return replace(slow, train=[Batch((batch.inputs[0][rows],), batch.targets[rows])])


def test_a_question_that_would_not_fit_is_asked_of_fewer_examples(many, claim_of, finding):
    """20 passes of 1 ms over 1,000 examples are 20 s: over 128 2.6 s, a twelfth of 31, a fourth of 10."""
    asked = Passing(finding, 20)
    claim = replace(claim_of(asked, "room/topic.dear"), cost=drawn(20))
    for seconds, rows in ((32, 128), (30, 64), (12, 64), (6, 32)):
        start = time.perf_counter()
        audit = ask(many, [claim], minutes=seconds / 60, everything=False)
        assert asked.seen.pop() == rows
        assert len(audit.findings) == 1
        assert time.perf_counter() - start <= seconds
    audit = ask(many, [claim], minutes=0.5 / 60, everything=False)
    assert "on 32 examples of the" in audit.answers[0].skipped and not asked.seen


def test_what_is_asked_by_name_shares_the_time(many, claim_of, finding):
    """One question that is named may take all of 8 s: 512 examples; of an audit of all, a fortieth, or 64."""
    named, one_of_many = Passing(finding, 10), Passing(finding, 10)
    for question, everything in ((named, True), (one_of_many, False)):
        claim = replace(claim_of(question), cost=drawn(10))
        ask(many, [claim], minutes=8 / 60, everything=everything)
    assert named.seen == [512] and one_of_many.seen == [64]


def test_questions_of_one_kind_draw_as_many_examples_as_the_dearest_of_them(many, claim_of, finding):
    own = claim_of(lambda s: finding())
    cheap = replace(own, name="a/b.cheap", ask="margin.theory.curvature.x:y", cost=drawn(6))
    dear = replace(cheap, name="a/b.dear", cost=drawn(12))
    other = replace(cheap, name="a/b.other", ask="margin.theory.dynamics.x:y")
    plan = Budget(many, 2.0)
    plan._part = 2.0  # seconds: 128 to 166 examples of 12 ms, 256 to 333 of 6 ms
    plan.order([cheap, dear, other])
    assert plan.drawn(cheap) == plan.drawn(dear) == 128
    assert plan.drawn(other) == 256
    assert Budget(many).drawn(dear) is None  # without a limit each takes what it says


def test_telling_questions_come_first_then_the_cheap(slow, claim_of, finding):
    own = claim_of(lambda s: finding())
    claims = [
        replace(own, name="a/b.cheap", cost=Cost(0)),
        replace(own, name="a/b.trained", cost=Cost(0), question="trained"),
        replace(own, name="a/b.moves", cost=Cost(9), question="moves"),
        replace(own, name="a/b.dear", cost=Cost(90), question="right"),
        replace(own, name="a/b.right", cost=Cost(5), question="right"),
    ]
    order = [claim.name.partition(".")[2] for claim in Budget(slow, 1.0).order(claims)]
    assert order == ["right", "dear", "moves", "cheap", "trained"]


def test_outputs_that_are_known_cost_nothing_more(slow, claim_of, finding):
    plan = Budget(slow, 1.0)
    accuracy, train = (
        claim_of(lambda s: finding()),
        replace(claim_of(lambda s: finding()), cost=Cost(1, "train")),
    )
    before = plan.seconds(accuracy)
    outputs_of(slow, "test")
    assert before > LEAST == plan.seconds(accuracy)
    assert plan.seconds(train) > LEAST
    assert plan.seconds(replace(accuracy, cost=Cost(2))) > LEAST


def test_the_clock_runs_from_when_the_audit_began(slow, claim_of, finding):
    claim = claim_of(lambda s: finding())
    assert Budget(slow, 1.0).lacking(claim) == ""
    assert Budget(slow, 1.0, began=time.perf_counter() - 59).lacking(claim).startswith("needs about")


def test_a_backward_pass_that_is_dear_is_timed(slow, claim_of, finding):
    class Back(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            time.sleep(0.005 * len(g))
            return g

    class Dear(Slow):
        def forward(self, x):
            return Back.apply(super().forward(x))

    plan = Budget(replace(slow, model=Dear()), 1.0)
    many, one = (replace(claim_of(lambda s: finding()), cost=Cost(n)) for n in (30, 1))
    # a gradient is worth 3 passes and takes 6 ms: 2 ms a pass
    ratio = (plan.seconds(many) - LEAST) / (plan.seconds(one) - LEAST)
    assert ratio == pytest.approx(60, rel=0.3)


def test_a_loss_of_its_own_is_timed_in_place_of_a_forward_without_end(subject, claim_of, finding):
    """As of a diffusion, whose forward is a bound over a thousand steps and whose loss is of one."""

    class Bound(Slow):
        def forward(self, x):
            raise AssertionError("the forward is not run to plan")

        def one_step(self, x):
            return self.linear(x).sum(1)

    own = replace(
        subject, model=Bound(), objective=lambda model, batch, generator: model.one_step(*batch.inputs)
    )
    assert Budget(own, 1.0).seconds(claim_of(lambda s: finding())) < LEAST + 0.1


def test_held_out_examples_that_take_too_long_are_drawn_and_each_finding_says_so(
    subject, finding, monkeypatch
):
    """3,000 of 10 ms are 30 s: in a quarter of 24 s the model answers 600, of which a power of 2 is drawn."""
    passes_cost(monkeypatch, 0.01, timed=0.001)
    large = replace(subject, test=[Batch((torch.randn(3000, 4),), torch.arange(3000) % 3)])
    audit = ask(large, claims_named(["risk.accuracy"]), minutes=24 / 60)
    (accuracy,) = audit.findings.values()
    assert accuracy.sample == "512 of 3,000 drawn"
    assert "512 held-out examples" in accuracy.statement
    assert audit.facts["held-out examples"] == 3000
    assert audit.worst_examples is None  # of those that were drawn no row of the file can be named
    for whole in (replace(large, independent=False), replace(large, groups="site")):
        assert count(Budget(whole, 24 / 60).within(whole).test) == 3000


def test_a_question_that_loops_is_stopped_at_its_time_and_the_next_is_asked(slow, claim_of, finding):
    """Of 4 s a question may take an eighth, or three times the 0.2 s that the least takes: 0.6 s."""

    def endless(subject):
        while True:
            subject.model(*subject.test[0].inputs)

    claims = [claim_of(endless, "a/x.endless"), claim_of(lambda s: finding(), "a/x.next")]
    start = time.perf_counter()
    audit = ask(slow, [replace(claim, cost=Cost(0)) for claim in claims], minutes=4 / 60)
    assert time.perf_counter() - start <= 3
    assert audit.answers[0].skipped.startswith("stopped after 0.")
    assert list(audit.findings) == ["a/x.next"]
    assert not slow.model._forward_pre_hooks and not audit.failed


@pytest.mark.parametrize("passes", [2, 7])
def test_every_default_question_that_is_stopped_leaves_no_trace(subject, passes):
    """Wherever a pass is refused: the weights, flags, hooks and generators are as before."""
    moved = Domain(torch.tensor(-5.0), torch.tensor(5.0))
    whole = replace(subject, train=[*subject.test], domain=moved)
    before = Snapshot.of(whole)
    calls = []

    def refuse(module, args):
        calls.append(len(args))
        if len(calls) >= passes:
            raise NotAsked("stopped")

    stopped = 0
    for claim in (claim for claim in claims_named(["*"]) if not claim.by_name):
        if claim.refusal(whole):
            continue
        calls.clear()
        handle = whole.model.register_forward_pre_hook(refuse)
        try:
            finding_of(claim, whole.drawing(8))
        except NotAsked:
            stopped += len(calls) >= passes
        finally:
            handle.remove()
        assert not before.difference(whole), claim.name
        whole.kept.clear()
    assert stopped >= 9


def test_the_clock_changes_no_answer(many, claim_of, finding, monkeypatch):
    """A machine twice as fast, or half, draws the same examples in the same order: it is only done sooner."""

    def seen_by(rate):
        real, start = time.perf_counter, time.perf_counter()
        questions = {passes: Passing(finding, passes) for passes in (6, 20, 3)}
        claims = [
            replace(claim_of(ask, f"room/topic.{n}"), cost=drawn(n), question="moves")
            for n, ask in questions.items()
        ]
        claims += [claim for claim in claims_named(["risk.loss", "calibration.*"]) if not claim.by_name]
        order = []
        with monkeypatch.context() as patch:
            patch.setattr(time, "perf_counter", lambda: start + rate * (real() - start))
            passes_cost(patch, 0.001, timed=0.0005 * rate)
            audit = ask(many, claims, minutes=2, everything=False, progress=lambda c, *_: order.append(c))
        document = audit.as_json()
        for answer in document["answers"]:
            answer.pop("seconds")
        return document, [ask.seen for ask in questions.values()], [claim.name for claim in order]

    normal = seen_by(1.0)
    assert normal[1] == [[128], [128], [128]]  # of 3 s, for 20 passes: 150
    assert all(answer["finding"] or answer["refusal"] for answer in normal[0]["answers"])
    assert seen_by(2.0) == normal == seen_by(0.5)


@pytest.mark.parametrize(
    ("times", "slower"), [(0.1, 1), (1, 1), (7.9, 1), (8.1, 4), (31.9, 4), (32.1, 16), (1000, 256)]
)
def test_a_machine_that_is_far_slower_draws_fewer_by_powers_of_4_and_says_so(
    many, claim_of, finding, monkeypatch, times, slower
):
    passes_cost(monkeypatch, 1e-4, timed=1e-4 * times)
    asked = Passing(finding, 1)
    claim = replace(claim_of(asked), cost=drawn(45))
    plan = Budget(many, 2.0)
    plan.order([claim])
    most = {1: 512, 4: 128, 16: 128, 256: 32}[slower]  # of 3 s, 45 passes of 0.1 ms: 667
    assert plan.drawn(claim) == most
    said = ask(many, [claim], minutes=2.0, everything=False).assumed
    assert [f"1/{slower} of the examples" in line for line in said] == [True] * (slower > 1)


def test_a_refusal_that_a_question_swallows_stops_it_all_the_same(slow, claim_of, finding):
    """Else what it made of the refusal, as a premise that was not checked, would depend on the clock."""

    def swallows(subject):
        try:
            while True:
                subject.model(*subject.test[0].inputs)
        except Exception:
            return finding()

    audit = ask(slow, [replace(claim_of(swallows), cost=Cost(0))], minutes=4 / 60)
    assert audit.answers[0].skipped.startswith("stopped after 0.")
    assert audit.answers[0].finding is None and not audit.findings and not audit.failed


def test_what_a_question_computes_beside_its_passes_is_expected(slow, claim_of, finding):
    """Of 20 held-out examples and 60 training ones, of which it reads 50 at most: 5 s at 0.1 s each."""
    whole = replace(slow, train=[*slow.test] * 3)
    costs = {
        8.0: Cost(0, "train", beside=0.1),
        5.0: Cost(0, "train", 50, beside=0.1),
        2.0: Cost(0, beside=0.1),
    }
    trained = Budget(whole, 1.0)._sizes["train"]
    for seconds, cost in costs.items():
        expected = Budget(whole, 1.0).seconds(replace(claim_of(lambda s: finding()), cost=cost)) - LEAST
        assert expected == pytest.approx(seconds + (0.1 * (trained - 60) if seconds == 8.0 else 0.0))


def test_batches_are_cut_to_what_a_pass_may_hold(slow, monkeypatch):
    """Of 3 MB an example 44 would fit in the 128 MiB that are allowed: 32 is the power of 2."""
    cost = PassCost(Passes(1e-4, 1e-4), Passes(1e-4, 1e-4), held=3e6)
    monkeypatch.setattr("margin.auditing.asking.budget.cost_of_passes", lambda *_: cost)
    x, y = torch.randn(100, 4), torch.arange(100) % 3
    lazy = InOrder(Arrays((x,), y, groups=torch.arange(100)), 50, dtype=torch.float64)
    large = replace(slow, test=[Batch((x[:80],), y[:80]), Batch((x[80:],), y[80:])], train=lazy)
    found = Budget(large, 2.0).within(large)
    assert [len(batch.inputs[0]) for batch in found.test] == [32, 32, 16, 20]
    assert torch.equal(torch.cat([batch.inputs[0] for batch in found.test]), x)
    assert [len(batch.inputs[0]) for batch in found.train] == [32, 32, 32, 4]
    assert found.train.examples is lazy.examples and found.train[0].inputs[0].dtype == torch.float64
    assert torch.equal(torch.cat([batch.targets for batch in found.train]), y)
    for whole in (replace(large, independent=False), replace(slow, train=slow.test)):
        assert Budget(whole, 2.0).within(whole) is whole
    assert Budget(large).within(large) is large


def test_of_which_held_out_examples_a_question_is_asked_is_said(slow, claim_of, finding, monkeypatch):
    passes_cost(monkeypatch, 1e-3)
    large = replace(slow, test=[Batch((torch.randn(1000, 4),), torch.arange(1000) % 3)])
    claim = replace(claim_of(lambda s: finding()), cost=Cost(50, limit=512, drawn=True))
    audit = ask(large, [claim], minutes=2.0, everything=False)
    assert next(iter(audit.findings.values())).sample == "128 drawn"  # of 3 s, 50 passes of 1 ms: 60
    audit = ask(large, [replace(claim, cost=Cost(2, limit=512, drawn=True))], minutes=2.0, everything=False)
    assert next(iter(audit.findings.values())).sample == ""  # all of the 512 that its row names


def both_cost(monkeypatch, forward, gradient):
    """A pass of an example takes so long, and one with a backward pass."""
    alike = PassCost(Passes(forward, gradient), Passes(forward, gradient))
    monkeypatch.setattr("margin.auditing.asking.budget.cost_of_passes", lambda *_: alike)


def refused(plan, claim, rows, *, graph=False):
    """Whether a pass over so many rows is refused within the time of a question."""
    model, x = plan._subject.model, torch.zeros(rows, 4)
    try:
        with plan.bounded(claim), torch.set_grad_enabled(graph):
            model(x)
    except NotAsked:
        return True
    return False


def test_a_pass_is_refused_by_its_rows_and_by_whether_it_is_differentiated(
    subject, claim_of, finding, monkeypatch
):
    """Of 8 s a question may take an eighth, 1 s: 100 rows of 10 ms, 33 of the 30 ms of a gradient."""
    both_cost(monkeypatch, 0.01, 0.03)
    subject.model.eval()
    plan, claim = Budget(subject, 8 / 60), replace(claim_of(lambda s: finding()), cost=Cost(0))
    assert [refused(plan, claim, rows) for rows in (90, 110)] == [False, True]
    assert [refused(plan, claim, rows, graph=True) for rows in (30, 40)] == [False, True]
    dear = replace(claim, cost=Cost(5))  # 5 passes over 20 examples are 1 s: three times 1.2 s are allowed
    assert [refused(plan, dear, rows) for rows in (340, 380)] == [False, True]
    late = Budget(subject, 8 / 60, began=time.perf_counter() - 7)  # of the last second the report has .53
    assert [refused(late, claim, rows) for rows in (30, 60)] == [False, True]
    plan._ratios, plan._alike = [1.0, 4.0], {}  # passes took 2.5 times what they were timed at
    assert [refused(plan, claim, rows) for rows in (35, 45)] == [False, True]


@pytest.mark.parametrize(("times", "ratio"), [(1000, 30), (1 / 1000, 1 / 30), (20, 20), (1 / 20, 1 / 20)])
def test_one_answer_corrects_by_a_factor_of_30_at_most(slow, claim_of, finding, monkeypatch, times, ratio):
    """Next is expected the median of two: that of all, 1 and the ratio, and that of its kind, the ratio."""
    passes_cost(monkeypatch, 0.001)
    plan, claim = Budget(slow, 1.0), replace(claim_of(lambda s: finding()), cost=Cost(100))
    plan.took(claim, LEAST + times * 2.0)  # 100 passes over 20 examples of 1 ms
    assert plan.seconds(claim) - LEAST == pytest.approx(2.0 * ((1 + ratio) / 2 + ratio) / 2)


def test_an_answer_of_hardly_any_time_tells_nothing(slow, claim_of, finding, monkeypatch):
    passes_cost(monkeypatch, 0.001)
    plan, claim = Budget(slow, 1.0), replace(claim_of(lambda s: finding()), cost=Cost(5))
    plan.took(claim, 0.05)  # .1 s were expected
    assert plan.seconds(claim) == pytest.approx(LEAST + 0.1)


@pytest.mark.parametrize(
    ("minutes", "spent", "fits"),
    [(10, 590, True), (10, 594, False), (0.5, 27, True), (0.5, 28.5, False)],
)
def test_8_seconds_are_left_for_the_report_or_a_fifteenth(
    slow, claim_of, finding, monkeypatch, minutes, spent, fits
):
    passes_cost(monkeypatch, 0.001)
    plan = Budget(slow, minutes, began=time.perf_counter() - spent)
    assert (plan.lacking(replace(claim_of(lambda s: finding()), cost=Cost(0))) == "") is fits


@pytest.mark.parametrize(("left", "named"), [(0.3, False), (0.6, True)])
def test_the_worst_examples_are_named_where_two_passes_fit(slow, monkeypatch, left, named):
    passes_cost(monkeypatch, 0.01)  # two over 20 examples are .4 s
    assert Budget(slow, 1.0, began=time.perf_counter() - 56 + left).can_name_the_worst is named


def test_as_many_examples_as_a_question_names_are_not_fewer(many, claim_of, finding):
    """10 passes of 1 ms: in 6 s over 512 of the 1,000, which are all that a row with this limit draws."""
    plan = Budget(many, 2.0)
    plan._part = 6.0
    claim = replace(claim_of(lambda s: finding()), cost=drawn(10, limit=512))
    assert plan.drawn(claim) == 1000  # no bound
    assert plan.drawn(replace(claim, cost=drawn(10, limit=513))) == 512
    test = replace(claim, cost=Cost(10, limit=16, drawn=True))
    assert plan.sample(test, 16) == "" and plan.sample(test, 15) == "15 drawn"


def test_of_how_many_examples_an_answer_was_is_kept_where_they_are_fewer(slow, claim_of, finding):
    batch = slow.test[0]
    rows = torch.arange(50) % len(batch.inputs[0])
    whole = replace(slow, train=[Batch((batch.inputs[0][rows],), batch.targets[rows])])
    plan, own = Budget(whole), claim_of(lambda s: finding())
    for cost, most, fewer in (
        (drawn(1, limit=32), 32, None),
        (drawn(1, limit=32), 31, 31),
        (drawn(1, limit=0), 50, None),
        (drawn(1, limit=0), 20, 20),  # as many as are held out, and fewer than were trained on
        (Cost(1, limit=0, drawn=True), 20, None),
        (drawn(1), None, None),
    ):
        assert _fewer(whole, replace(own, cost=cost), plan, most) == (fewer, None)


def test_few_examples_are_for_what_does_not_fit_not_for_what_is_named(many, claim_of, finding):
    """Alone it may take all of 3 s: 256 at 10 ms. As one of many it would have 128, of 1.3 s: that is 32."""
    claim = replace(claim_of(lambda s: finding()), cost=drawn(10))
    assert Budget(many, 3 / 60, named=1).drawn(claim) == 256
    assert Budget(many, 3 / 60).drawn(claim) == 32


def test_after_the_time_is_over_no_pass_tells_whether_a_claim_applies(subject, monkeypatch):
    passed = []

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x):
            passed.append(len(x))
            return self.linear(x)

    passes_cost(monkeypatch, 1.0)
    asked = claims_named(["signal", "regions", "shrinkage", "hopfield"])
    audit = ask(replace(subject, model=Counting()), asked, minutes=0.1, began=time.perf_counter() - 100)
    assert passed == [] and not any(answer.broken for answer in audit.answers)
    late = [answer for answer in audit.answers if answer.skipped]
    assert late and all(answer.skipped.endswith("of the 0 s that remain") for answer in late)
    assert any(answer.refusal for answer in audit.answers)  # what asks no model is told all the same


def test_training_examples_are_answered_in_a_sixteenth_of_the_time_one_draw_for_all(
    slow, claim_of, finding, monkeypatch
):
    """Of 24 s the model answers 150 of 10 ms: 128 of 1,000. The gap and the memorization cost one pass."""
    passes_cost(monkeypatch, 0.01, timed=0.0001)
    rows = torch.arange(1000) % 12
    batch = slow.test[0]
    large = replace(slow, train=[Batch((batch.inputs[0][rows],), batch.targets[rows])])
    plan = Budget(large, 24 / 60)
    assert plan.within(large).most_answered == 128
    gap, memorized = claims_named(["risk.gap", "memorization.accuracy"])
    assert plan.seconds(gap) == pytest.approx(plan.seconds(memorized)) == pytest.approx(LEAST + 0.0128)
    audit = ask(large, [memorized, gap], minutes=24 / 60)
    assert [found.sample for found in audit.findings.values()] == [
        "128 training examples drawn",
        "128 of 1,000 training examples drawn",
    ]
    assert [answer.most for answer in audit.answers] == [128, 128]
    assert Budget(large, 240 / 60).within(large).most_answered is None  # 1,500 would fit
    grouped = replace(large, train=InOrder(Arrays((batch.inputs[0],), batch.targets, groups=rows[:12]), 50))
    assert Budget(grouped, 0.5 / 60).within(grouped).most_answered is None


def test_outputs_that_were_drawn_are_known_to_all_that_read_them(slow, monkeypatch):
    passes_cost(monkeypatch, 0.01)
    large = replace(slow, train=[*slow.test] * 3)
    plan = Budget(large, 2.0)
    large = plan.within(large)
    gap, linear = claims_named(["risk.gap", "baseline.linear"])
    before = plan.seconds(gap)
    outputs_of(large, "train")
    assert before > LEAST == plan.seconds(gap)
    assert plan.seconds(linear) == pytest.approx(LEAST + 5e-4 * (20 + plan._sizes["train"]))  # no pass


def test_what_is_dear_waits_until_all_that_tells_something_was_asked(slow, claim_of, finding, monkeypatch):
    """Of 60 s a question may count for .6 s before it waits; what bears on no question comes last."""
    passes_cost(monkeypatch, 0.001)
    own = claim_of(lambda s: finding())
    rows = {
        "plain": Cost(0),
        "dear": Cost(31),  # .62 s
        "moves": Cost(29),
        "rests": Cost(1),
        "of_outputs": Cost(1),
    }
    asked = {"dear": "right", "moves": "moves", "rests": "rests", "of_outputs": "right"}
    claims = [
        replace(own, name=f"a/b.{name}", cost=cost, question=asked.get(name, ""))
        for name, cost in rows.items()
    ]
    order = [claim.name.partition(".")[2] for claim in Budget(slow, 1.0).order(claims)]
    assert order == ["of_outputs", "moves", "rests", "dear", "plain"]
    passes_cost(monkeypatch, 1.0)  # a pass of all alone counts for 20 s, once for all that read the outputs
    order = [claim.name.partition(".")[2] for claim in Budget(slow, 1.0).order(claims)]
    assert order == ["of_outputs", "rests", "dear", "moves", "plain"]


class Waiting(torch.nn.Module):
    """A linear model that waits half a second at every call, however many rows it is given."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.seen = []

    def forward(self, x):
        time.sleep(0.5)
        self.seen.append(len(x))
        return self.linear(x)


def test_a_model_that_waits_for_half_a_second_is_audited_in_six():
    """In its time a pass over all is run, which the cheapest questions share; to try it out less is asked."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=generator)
    y = x[:, :3].argmax(1)
    told = {"data": (x[:100], y[:100]), "train": (x[100:], y[100:]), "minutes": 0.1}
    margin.audit(torch.nn.Linear(4, 3), **told)  # whatever is loaded, is now
    model, start = Waiting(), time.perf_counter()
    audit = margin.audit(model, **told)
    assert time.perf_counter() - start <= 6 + 0.5 + 0.5  # its budget, a pass, and what runs beside
    assert len(audit.findings) >= 5 and "theory/risk.accuracy" in audit.findings
    assert any("no time to try it" in line for line in audit.assumed)
    assert len(model.seen) <= 12


def test_a_pass_that_waits_is_timed_of_one_of_four_and_of_all_examples(subject):
    """Of 20 s half a second is noticed: it is not repeated. Of 200 it is: of each batch, and twice of all."""
    batch = subject.test[0]
    rows = torch.arange(100) % len(batch.inputs[0])
    whole = replace(subject, test=[Batch((batch.inputs[0][rows],), batch.targets[rows])], model=Waiting())
    cost = cost_of_passes(whole, 19.0)
    assert whole.model.seen == [1, 4, 100]
    assert cost.timed.forward == pytest.approx(0.005, rel=0.2)
    whole.model.seen.clear()
    cost_of_passes(whole, 200.0)
    assert whole.model.seen == [1, 4, 16, 64, 100, 100, 100]


@pytest.mark.parametrize(("each", "seconds", "rows"), [(0.9, 19.0, [1]), (0.1, 3.0, [1, 4])])
def test_a_pass_that_computes_longer_for_more_is_not_run_on_all_to_time_it(subject, each, seconds, rows):
    """Of any model .8 s are enough; where .08 s are noticed, four examples that take longer than one."""

    class Dear(Waiting):
        def forward(self, x):
            time.sleep(each * len(x) - 0.5)
            return super().forward(x)

    whole = replace(subject, model=Dear())
    cost_of_passes(whole, seconds)
    assert whole.model.seen == rows


def test_what_makes_no_pass_tells_nothing_of_what_passes_take(slow, claim_of, finding, monkeypatch):
    """Loading a library took its time: it took 30 times what was expected."""
    passes_cost(monkeypatch, 0.001)
    plan, claim = Budget(slow, 1.0), claim_of(lambda s: finding())
    before = plan.seconds(claim)
    plan.took(replace(claim, cost=Cost(0, beside=0.01)), 60.0)
    assert plan.seconds(claim) == before


def test_an_answer_that_took_long_though_little_was_expected_tells_what_passes_take(
    slow, claim_of, finding, monkeypatch
):
    """Of .05 s that were expected it took .85 s beside the least: 17 times. Mutant: it tells nothing."""
    passes_cost(monkeypatch, 0.001)
    plan, claim = Budget(slow, 1.0), replace(claim_of(lambda s: finding()), cost=Cost(2.5))
    plan.took(claim, LEAST + 0.85)
    assert plan.seconds(claim) - LEAST == pytest.approx(0.05 * (9 + 17) / 2)


def test_at_most_10_000_training_examples_are_answered_and_count(slow, monkeypatch):
    passes_cost(monkeypatch, 1e-6)
    rows = torch.arange(12_000) % 12
    batch = slow.test[0]
    plan = Budget(replace(slow, train=[Batch((batch.inputs[0][rows],), batch.targets[rows])]), 10.0)
    (gap,) = claims_named(["risk.gap"])
    assert plan.seconds(gap) == pytest.approx(LEAST + 0.01)
