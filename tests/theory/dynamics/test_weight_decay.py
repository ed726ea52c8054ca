"""Decay and penalties: torch's optimizers against formulas, on weights of unequal gradients."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.catalog import parts
from margin.core.findings import Verdict
from margin.core.tasks import CLASSES
from margin.engine.build import optimizer_of
from margin.feedforward.mlp.model import MLP
from margin.theory.dynamics import weight_decay
from margin.theory.dynamics.weight_decay import (
    adam_shrinks_unevenly,
    decayed_step,
    demo,
    first_adam_step,
    sgd_is_penalty,
    shrinking,
)
from margin.theory.prediction.held_out import stated


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stepped(make, gradients, theta):
    """The weights after steps of an optimizer along given gradients, (theta) -> gradient."""
    parameter = nn.Parameter(theta.clone())
    optimizer = make([parameter])
    for gradient in gradients:
        parameter.grad = gradient(parameter.detach()).clone()
        optimizer.step()
    return parameter.detach()


def test_sgd_with_decay_is_the_formula_and_the_penalized_gradient():
    theta, g, lr, mu = f64(6), f64(6, seed=1), 0.3, 0.2
    torchs = stepped(lambda p: torch.optim.SGD(p, lr=lr, weight_decay=mu), [lambda _: g], theta)
    penalized = stepped(lambda p: torch.optim.SGD(p, lr=lr), [lambda w: g + mu * w], theta)
    ours = decayed_step(theta, g, lr=lr, decay=mu)
    torch.testing.assert_close(torchs, ours, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(torchs, penalized, rtol=0, atol=0)
    # the sign as printed, -eta (grad - mu theta), and the last term without eta
    assert float((torchs - (theta - lr * (g - mu * theta))).abs().max()) > 1e-2
    assert float((torchs - (theta - lr * g - mu * theta)).abs().max()) > 1e-2


def test_with_momentum_it_is_the_penalized_gradient_too():
    H, theta = torch.tensor([3.0, 0.1]).double(), f64(2)
    plain = {"lr": 0.1, "momentum": 0.9}
    one = stepped(lambda p: torch.optim.SGD(p, weight_decay=0.2, **plain), [lambda w: H * w] * 20, theta)
    other = stepped(lambda p: torch.optim.SGD(p, **plain), [lambda w: H * w + 0.2 * w] * 20, theta)
    torch.testing.assert_close(one, other, rtol=1e-13, atol=0)


def test_the_norm_shrinks_by_1_minus_eta_mu_where_the_gradient_is_0():
    theta = f64(9)
    w = stepped(lambda p: torch.optim.SGD(p, lr=0.5, weight_decay=0.1), [torch.zeros_like] * 7, theta)
    assert float(w.norm() / theta.norm()) == pytest.approx(0.95**7, rel=1e-13)
    printed = theta - 0.5 * (0 - 0.1 * theta)
    assert float(printed.norm()) > float(theta.norm())  # the printed sign grows the weights
    adamw = stepped(lambda p: torch.optim.AdamW(p, lr=0.5, weight_decay=0.1), [torch.zeros_like] * 7, theta)
    assert float(adamw.norm() / theta.norm()) == pytest.approx(0.95**7, rel=1e-13)


@pytest.mark.parametrize(
    ("kind", "optimizer"), [("penalty", torch.optim.Adam), ("decoupled", torch.optim.AdamW)]
)
def test_the_first_step_of_adam_is_the_formula(kind, optimizer):
    theta, g = f64(6), f64(6, seed=1)
    torchs = stepped(lambda p: optimizer(p, lr=0.1, weight_decay=0.3), [lambda _: g], theta)
    ours = first_adam_step(theta, g, lr=0.1, decay=0.3, kind=kind)
    torch.testing.assert_close(torchs, ours, rtol=1e-12, atol=1e-13)


def test_adam_and_adamw_differ_on_gradients_of_unequal_scale():
    theta, g = torch.tensor([1.0, 1.0]).double(), torch.tensor([100.0, 0.01]).double()
    given = {"lr": 0.1, "decay": 0.05}
    plain = first_adam_step(theta, g, lr=0.1, decay=0.0, kind="penalty")
    penalty = plain - first_adam_step(theta, g, kind="penalty", **given)
    decoupled = plain - first_adam_step(theta, g, kind="decoupled", **given)
    torch.testing.assert_close(decoupled, torch.full((2,), 0.1 * 0.05).double())  # all alike
    assert float(penalty.abs().max()) < 1e-6  # a first step has length eta whatever is added
    # over many steps: noise of mean 0 and unequal size, no drift but the decay's
    noise = [torch.tensor([10.0, 0.1]).double() * (1 - 2 * (i % 2)) for i in range(600)]
    runs = [
        stepped(lambda p, o=o: o(p, lr=1e-3, weight_decay=0.2), [lambda _, n=n: n for n in noise], theta)
        for o in (torch.optim.Adam, torch.optim.AdamW)
    ]
    shrunk = 1 - runs[0]
    assert float(shrunk[1] / shrunk[0]) > 10  # the smaller its gradients, the faster it shrinks
    even = 1 - runs[1]
    assert float(even[1] / even[0]) == pytest.approx(1, rel=0.02)


def test_the_rate_of_shrinking_is_one_over_the_root_of_the_mean_square():
    theta = torch.tensor([0.0, 2.0]).double()
    gradients = torch.tensor([[3.0, 0.98], [4.0, -1.02]]).double()
    found = shrinking(theta, list(gradients), decay=0.01)
    torch.testing.assert_close(found, torch.tensor([1 / math.sqrt(12.5), 1.0]).double(), rtol=1e-7, atol=0)


def classifier(dtype=torch.float64, rows=48, size=16):
    x, labels = f64(rows, 6).to(dtype), torch.arange(rows) % 3
    torch.manual_seed(0)
    model = MLP(6, 3, hidden=(10,), dropout=0.5).to(dtype).train()
    subject = stated(x, labels, task=CLASSES)
    batches = [type(subject.test[0])((x[i : i + size],), labels[i : i + size]) for i in range(0, rows, size)]
    return replace(subject, model=model, test=batches, train=batches)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_identity_holds_on_a_network_and_leaves_no_trace(dtype):
    subject = classifier(dtype)
    before = Snapshot.of(subject)
    found = sgd_is_penalty(subject)
    assert found.verdict == Verdict.HOLDS
    assert found.tolerance < 1e-4
    adam_shrinks_unevenly(subject)
    assert not before.difference(subject)


def test_a_penalty_of_another_size_violates_the_identity(monkeypatch):
    class Doubled(torch.optim.SGD):
        def __init__(self, parameters, lr, weight_decay):
            super().__init__(parameters, lr=lr, weight_decay=2 * weight_decay)

    monkeypatch.setattr(weight_decay.torch.optim, "SGD", Doubled)
    assert sgd_is_penalty(classifier()).verdict == Verdict.VIOLATED


def test_unevenness_is_that_of_gradients_taken_by_hand():
    subject = demo()
    (weight, bias) = subject.model[0].parameters()
    gradients = []
    for batch in subject.train:
        residual = batch.inputs[0] @ weight[0] + bias - batch.targets
        gradients.append(torch.cat((2 * (residual @ batch.inputs[0]) / 8, 2 * residual.mean()[None])))
    theta = torch.cat((weight[0], bias)).detach()
    mean_square = (torch.stack(gradients).detach() + 0.01 * theta).square().mean(0)
    rates = (1 / mean_square.sqrt()).sort().values
    assert float(adam_shrinks_unevenly(subject).value) == pytest.approx(float(rates[7] / rates[1]), rel=1e-6)


def test_gradients_that_are_no_numbers_fail():
    subject = classifier()
    with torch.no_grad():
        subject.model.layers[1].weight[0, 0] = math.nan
    assert sgd_is_penalty(subject).verdict == Verdict.FAILED
    found = adam_shrinks_unevenly(subject)
    assert found.verdict == Verdict.FAILED
    assert found.failure == "a gradient is not finite, or every weight is 0"


@pytest.mark.parametrize("ask", [sgd_is_penalty, adam_shrinks_unevenly])
def test_a_batch_of_fillers_is_passed_over(ask):
    subject = demo()
    batches = list(subject.train)
    fillers = batches[0]._replace(weight=torch.zeros(8).double())
    found = ask(replace(subject, train=[fillers, *batches]))
    assert found.as_json() == ask(subject).as_json()


def test_the_row_of_the_rule_is_no_name_of_an_optimizer():
    assert parts()["theory/weight_decay"].kind != "optimizer"
    with pytest.raises(ValueError, match="unknown optimizer 'weight_decay'"):
        optimizer_of(nn.Linear(1, 1), "weight_decay", lr=0.1, options={}, decay_norms=True)
