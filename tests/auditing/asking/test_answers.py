import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from margin.auditing.asking.answers import ask
from margin.auditing.report.table import absences
from margin.core.catalog import Need
from margin.core.findings import NotAsked, Verdict


def answering(finding, disturb=None):
    def question(subject):
        if disturb is not None:
            disturb(subject)
        return finding()

    return question


def test_claims_are_asked_in_order_with_progress(subject, claim_of, finding):
    first = claim_of(answering(finding), "a/one")
    second = claim_of(answering(finding), "a/two")
    seen = []
    audit = ask(subject, iter([first, second]), progress=lambda *step: seen.append(step))
    assert seen == [(first, 1, 2), (second, 2, 2)]
    assert list(audit.findings) == ["a/one", "a/two"]
    assert audit.title == "Net"


def test_a_claim_that_does_not_apply_is_listed_and_not_asked(subject, claim_of):
    def never(subject):
        raise AssertionError

    claim = claim_of(never, needs=(Need("a domain", "margin.core.findings:has_domain"),))
    audit = ask(subject, [claim])
    assert [(a.finding, a.refusal) for a in audit.answers] == [(None, "needs a domain")]
    assert not audit.failed


def test_what_a_claim_raises_is_told_and_the_others_are_asked(subject, claim_of, finding):
    def broken(subject):
        raise KeyError("mine")

    audit = ask(subject, [claim_of(broken, "a/one"), claim_of(answering(finding), "a/two")])
    assert list(audit.findings) == ["a/two"] and audit.failed
    assert audit.answers[0].absence == "broken, which is a defect: KeyError: 'mine'"
    assert "test_answers.py" in audit.answers[0].as_json()["broken"]
    assert "1 broken" in str(audit.table()) and "KeyError: 'mine'" in str(audit.table())

    def disturbing(subject):
        subject.model.eval()
        raise KeyError("mine")

    subject.model.train()
    with pytest.raises(RuntimeError, match=r"(?s)must leave no trace.*KeyError: 'mine'"):
        ask(subject, [claim_of(disturbing)])


def test_a_claim_that_cannot_be_asked_says_so_and_nothing_has_failed(subject, claim_of, finding):
    def capped(subject):
        raise NotAsked("more than 200,000 regions")

    bag = torch.nn.EmbeddingBag(5, 2)

    def twice(subject):
        loss = bag(torch.tensor([[0, 1]])).square().sum()
        (slope,) = torch.autograd.grad(loss, bag.weight, create_graph=True)
        torch.autograd.grad(slope.sum(), bag.weight)

    asked = [claim_of(capped, "a/one"), claim_of(twice, "a/two"), claim_of(answering(finding), "a/three")]
    audit = ask(subject, asked)
    assert not audit.failed and list(audit.findings) == ["a/three"]
    assert audit.answers[0].absence == "not asked: more than 200,000 regions"
    assert audit.answers[1].absence.startswith("not asked: torch cannot differentiate the model so: ")
    assert "_embedding_bag" in audit.answers[1].absence and "\n" not in audit.answers[1].absence
    assert absences(audit) == ["2 cannot be asked"]
    assert [answer.broken for answer in audit.answers] == ["", "", ""]


@pytest.mark.parametrize("raised", [RuntimeError("vmapped"), ValueError("vmap: no"), NotImplementedError()])
def test_what_only_looks_like_a_missing_derivative_is_a_defect(subject, claim_of, raised):
    def broken(subject):
        raise raised

    audit = ask(subject, [claim_of(broken)])
    assert audit.failed and "broken, which is a defect" in audit.answers[0].absence


def test_a_reason_that_many_share_is_told_once(subject, claim_of, finding):
    def failing():
        return finding(failure="the output is not finite for 3 of 20 terms")

    claims = [claim_of(answering(failing), f"a/{name}") for name in ("one", "two", "three")]
    other = claim_of(answering(lambda: finding(failure="it did not settle")), "a/four")
    text = " ".join(str(ask(subject, [*claims, other]).table()).split())
    assert text.count("not finite for 3 of 20") == 2  # the sentence, and the reason with all that share it
    assert "not finite for 3 of 20 terms: a/one, a/two, a/three" in text
    assert "a/four it did not settle" in text


def set_eval(subject):
    subject.model.eval()


def set_one_flag(subject):
    subject.model.norm.training = False


def leave_grad(subject):
    subject.model.out(torch.ones(2, 4)).sum().backward()


def change_grad(subject):
    subject.model.norm.weight.grad[0] += 1


def drop_grad(subject):
    subject.model.norm.weight.grad = None


def move_generator(subject):
    torch.rand(1)


def move_numpy(subject):
    np.random.rand()


def write_buffer(subject):
    subject.model(subject.test[0].inputs[0])


def write_parameter(subject):
    with torch.no_grad():
        subject.model.out.bias[1] += 1e-7


def replace_parameter(subject):
    subject.model.out.bias = torch.nn.Parameter(subject.model.out.bias.detach().clone())


def freeze(subject):
    subject.model.out.weight.requires_grad_(False)


def hook(subject):
    subject.model.out.register_forward_hook(lambda *call: None)


def add_module(subject):
    subject.model.extra = torch.nn.Identity()


def write_input(subject):
    subject.test[1].inputs[0].add_(1)


def track_input(subject):
    subject.test[0].inputs[0].requires_grad_(True)


def set_type(subject):
    torch.set_default_dtype(torch.float64)


DISTURBANCES = {
    set_eval: "training flag of the model",
    set_one_flag: "training flag of module 'norm'",
    leave_grad: "left a gradient in 'out.weight'",
    change_grad: "changed the gradient of 'norm.weight'",
    drop_grad: "dropped a gradient in 'norm.weight'",
    move_generator: "moved torch's global generator",
    move_numpy: "moved NumPy's global generator",
    write_buffer: "changed the tensor 'norm.running_mean'",
    write_parameter: "changed the tensor 'out.bias'",
    replace_parameter: "changed the tensor 'out.bias'",
    freeze: "changed requires_grad of 'out.weight'",
    hook: "changed the hooks of module 'out'",
    add_module: "added or removed the module 'extra'",
    write_input: "changed input 0 of test batch 1",
    track_input: "changed input 0 of test batch 0",
    set_type: "moved the default type",
}


@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda f: f.__name__)
def test_a_claim_that_leaves_a_trace_is_named(subject, claim_of, finding, disturb):
    subject.model.norm.weight.grad = torch.ones(4)
    try:
        with pytest.raises(RuntimeError) as caught:
            ask(subject, [claim_of(answering(finding, disturb), "room/guilty")])
    finally:
        torch.set_default_dtype(torch.float32)
    assert "claim room/guilty" in str(caught.value)
    assert DISTURBANCES[disturb] in str(caught.value)


def test_a_claim_that_undoes_what_it_did_is_innocent(subject, claim_of, finding):
    def careful(subject):
        state = torch.get_rng_state()
        torch.rand(3)
        torch.set_rng_state(state)
        weight = subject.model.out.weight
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.add_(1)
            weight.copy_(kept)
        return finding()

    with torch.no_grad():
        subject.model.norm.running_mean[0] = math.nan  # a NaN must equal itself
    assert not ask(subject, [claim_of(careful)]).failed


def test_asking_itself_leaves_no_trace(subject, claim_of, finding):
    state = {k: v.clone() for k, v in subject.model.state_dict().items()}
    generator = torch.get_rng_state()
    ask(subject, [claim_of(answering(finding))])
    assert all(torch.equal(v, state[k]) for k, v in subject.model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert all(module.training for module in subject.model.modules())
    assert all(p.grad is None for p in subject.model.parameters())


def test_facts_identify_the_subject(subject):
    facts = ask(subject, [], facts={"task": "mine"}).facts
    assert facts["parameters"] == 4 + 4 + 15
    assert facts["held-out examples"] == 20
    assert facts["task"] == "mine"
    assert torch.__version__ in facts["versions"]


def test_weight_0_is_no_example_and_the_fingerprint_does_not_see_batches(subject):
    from dataclasses import replace

    x, y = (torch.cat(parts) for parts in zip(*[(b.inputs[0], b.targets) for b in subject.test], strict=True))
    batch = subject.test[0]
    whole = replace(subject, test=[batch._replace(inputs=(x,), targets=y)])
    moved = replace(subject, test=[batch._replace(inputs=(x,), targets=y.flip(0))])
    prints = [ask(s, []).facts["held-out fingerprint"] for s in (subject, whole, moved)]
    assert prints[0] == prints[1] != prints[2]
    weight = torch.ones(20)
    weight[:7] = 0
    masked = replace(subject, test=[batch._replace(inputs=(x,), targets=y, weight=weight)])
    assert ask(masked, []).facts["held-out examples"] == 13


def test_json_is_strict_and_comes_back(subject, claim_of, every_verdict):
    claims = [claim_of(answering(lambda f=f: f), f"a/{name}") for name, f in every_verdict.items()]
    never = claim_of(answering(None), "a/never", needs=(Need("x", "margin.core.findings:has_domain"),))
    audit = ask(
        subject, [*claims, never], history=[{"step": 1, "train_loss": math.nan, "lr": torch.tensor(0.5)}]
    )
    back = json.loads(json.dumps(audit.as_json(), allow_nan=False))
    assert back["failed"] is True
    assert back["counts"] == {str(v): 1 for v in Verdict}
    assert [a["finding"]["verdict"] for a in back["answers"][:-1]] == list(every_verdict)
    assert back["answers"][-1] == {
        "claim": "a/never", "summary": "Is it so?", "finding": None, "refusal": "needs x", "skipped": "",
        "broken": "", "seconds": 0.0, "most": None, "held_out": None,
    }  # fmt: skip
    assert back["history"] == [{"step": 1, "train_loss": "nan", "lr": 0.5}]
    assert len(back["hardest"]) == 12
    assert back["hardest"][0].keys() == {"index", "target", "class", "probability", "loss", "margin"}


def test_a_claim_to_be_named_is_asked_where_it_is(subject, claim_of, finding, monkeypatch):
    import margin
    from margin.core import catalog

    asked = []

    def known(subject):
        asked.append("identity")
        return finding()

    identity = replace(claim_of(known, "a/identity"), by_name="the answer is known before")
    rows = {"a/identity": identity, "a/other": claim_of(answering(finding), "a/other")}
    monkeypatch.setattr(catalog, "claims", lambda: rows)
    audit = margin.audit(subject)
    assert (list(audit.findings), asked) == (["a/other"], [])
    assert audit.answers[0].absence == "not asked: the answer is known before; name it with --claims"
    assert absences(audit) == ["1 asked only by name"]
    for patterns in ("a/*", ["a/identity"], "identity"):
        assert "a/identity" in margin.audit(subject, claims=patterns).findings
    assert "a/identity" in margin.audit(subject, require=["a/identity<=2"]).findings
    assert len(asked) == 4
