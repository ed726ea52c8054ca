"""The ensemble: closed forms, the worst case of its attacks, masked gradients and softmaxes named."""

import pytest
import torch
from torch import nn

from margin.core.tasks import BINARY, CLASSES, VALUES
from margin.core.types import Batch, Domain
from margin.robust.attacks.ensemble import Budget, ensemble, in_logits, masked
from margin.robust.attacks.gradient import missed
from margin.robust.attacks.linear_models import dual_length
from margin.robust.attacks.threat_models import Threat

WIDE = Domain(torch.tensor(-9.0), torch.tensor(9.0))
SHORT = Budget(steps=10, targets=2, boundary=5, queries=30)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def net(classes=4, features=12):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(features, 32), nn.BatchNorm1d(32), nn.Dropout(), nn.ReLU(), nn.Linear(32, classes)
    )


def right(model, count=150, features=12):
    x = torch.randn(count, features, generator=seeded(1))
    with torch.no_grad():
        y = model.eval()(x).argmax(1)
    return Batch((x,), y)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_linear_model_is_broken_where_its_closed_form_says(norm, classes):
    torch.manual_seed(0)
    model = nn.Linear(12, classes).double()
    x = torch.randn(200, 12, generator=seeded(2)).double()
    scores = model(x).detach()
    y = scores.argmax(1)
    slopes = dual_length(model.weight[y][:, None] - model.weight[None], norm)
    gaps = (scores.gather(1, y[:, None]) - scores) / slopes
    distance = gaps.scatter(1, y[:, None], torch.inf).amin(1).detach()
    eps = float(distance.median())
    budget = Budget(steps=20, targets=9, boundary=5, queries=0)
    found = ensemble(model, Batch((x,), y), CLASSES, Threat(WIDE, eps, norm), seeded(), budget=budget)
    near = (distance - eps).abs() < 0.02 * eps
    assert 80 < int(found.broken.sum()) < 120
    assert torch.equal(found.broken[~near], (distance < eps)[~near])
    assert found.names[1] == ("APGD-margin" if classes == 2 else "APGD-DLR")
    assert found.remarks == ()


def test_an_error_is_no_success_and_no_trace_is_left():
    model = net()
    batch = right(model)
    labels = batch.targets.clone()
    labels[:7] = (labels[:7] + 1) % 4
    model.train()
    model[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [m.training for m in model.modules()]
    found = ensemble(model, Batch(batch.inputs, labels), CLASSES, Threat(WIDE, 0.1), seeded(), budget=SHORT)
    assert [m.training for m in model.modules()] == flags
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(found.inputs[:7], batch.inputs[0][:7])
    assert (found.by[:7] == -1).all() and found.broken[:7].all() and not found.clean[:7].any()
    model.eval()
    assert torch.equal(missed(CLASSES)(model(found.inputs), labels), found.broken)
    assert torch.equal(found.by >= 0, found.broken & found.clean)
    assert found.accuracy == 1 - float(found.broken.double().mean())
    assert 0 < int((found.by >= 0).sum()) < 143


def test_it_is_at_least_as_strong_as_each_of_its_attacks():
    model, threat = net(), Threat(WIDE, 0.15)
    batch = right(model)
    whole = ensemble(model, batch, CLASSES, threat, seeded(), budget=SHORT)
    for alone in (
        Budget(steps=10, targets=0, boundary=0, queries=0),
        Budget(steps=10, restarts=0, targets=2, boundary=0, queries=0),
        Budget(steps=0, boundary=5, targets=2, queries=0),
        Budget(steps=0, boundary=0, queries=30),
    ):
        one = ensemble(model, batch, CLASSES, threat, seeded(), budget=alone)
        assert len(one.names) == 1 and one.names[0] in whole.names
        assert whole.accuracy <= one.accuracy < 1


def test_epsilon_0_returns_the_bits():
    model = net()
    batch = right(model)
    found = ensemble(model, batch, CLASSES, Threat(WIDE, 0.0), seeded(), budget=SHORT)
    assert torch.equal(found.inputs, batch.inputs[0]) and not found.broken.any()


def test_a_model_that_shows_no_gradient_is_broken_by_square_and_named():
    model = net().eval()

    class Killed(nn.Module):
        def forward(self, x):
            return model(x.detach() + 0 * x)

    batch = right(model)
    found = ensemble(
        Killed(), batch, CLASSES, Threat(WIDE, 0.3), seeded(), budget=Budget(steps=5, boundary=2, queries=200)
    )
    assert found.names[-1] == "Square" and int((found.by == len(found.names) - 1).sum()) > 30
    assert found.remarks[-1].startswith("the gradients are masked: exactly 0 at 150 of 150 right examples")
    assert "beaten by an attack that reads none" in found.remarks[-1]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((100, 2, 2, 2), ""),
        ((100, 3, 0, 0), "exactly 0 at 3 of 100"),
        ((100, 0, 3, 0), "not finite at 3 of 100"),
        ((100, 0, 0, 3), "broke 3 more of 100"),
        ((10, 0, 0, 1), ""),
        ((10, 0, 0, 2), "broke 2 more of 10"),
    ],
)
def test_more_than_one_in_fifty_are_masked(numbers, said):
    assert (said in masked(*numbers)) if said else masked(*numbers) == ""


def test_rows_that_sum_to_one_are_probabilities_and_logits_are_not():
    logits = torch.randn(6, 4, generator=seeded(3))
    task, said = in_logits(CLASSES, logits.softmax(1))
    assert "probabilities" in said[0]
    scores = task.classes(logits.softmax(1))
    torch.testing.assert_close(
        scores - scores[:, :1], (logits - logits[:, :1]).double(), rtol=1e-5, atol=1e-5
    )
    for outputs in (
        logits,
        logits.log_softmax(1),
        logits.sigmoid(),
        logits - logits.mean(1, keepdim=True) + 0.25,
    ):
        assert in_logits(CLASSES, outputs) == (CLASSES, ())
    assert in_logits(BINARY, torch.tensor([0.3, 0.7])) == (BINARY, ())


def test_one_class_alone_can_never_fall():
    batch = Batch((torch.rand(5, 12),), torch.zeros(5, dtype=torch.long))
    found = ensemble(net(classes=1), batch, CLASSES, Threat(WIDE, 5.0), seeded(), budget=SHORT)
    assert not found.broken.any() and torch.equal(found.inputs, batch.inputs[0])


def test_what_cannot_be_attacked_is_refused_in_words():
    model = net()
    batch = right(model)
    with pytest.raises(ValueError, match="inputs must lie in the stated domain: example 0"):
        ensemble(model, Batch((batch.inputs[0] + 50,), batch.targets), CLASSES, Threat(WIDE, 0.1), seeded())
    with pytest.raises(ValueError, match="an adversary needs classes: the task 'values' has none"):
        ensemble(model, batch, VALUES, Threat(WIDE, 0.1), seeded())
    tokens = Batch((torch.zeros(3, 4, dtype=torch.long),), batch.targets[:3])
    with pytest.raises(ValueError, match=r"an attack moves one input of real numbers: got torch.int64"):
        ensemble(model, tokens, CLASSES, Threat(WIDE, 0.1), seeded())
    with pytest.raises(ValueError, match="a budget needs numbers >= 0, and an attack that is asked"):
        Budget(steps=0, boundary=0, queries=0)
