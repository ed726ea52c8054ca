"""Averages stay in range and outside it they are found; memories are products of gates."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from margin.core.findings import Finding, Subject, Verdict
from margin.sequence.dynamics import gradient_claims
from margin.sequence.dynamics.gradient_claims import in_range, memory, product
from margin.sequence.linear import lru, minlstm
from margin.sequence.linear.scan_claims import ANY, demo, gated


def linear() -> Subject:
    torch.manual_seed(0)
    return replace(demo(), model=lru.classifier(2, 3, width=6, states=7))


def lstm() -> Subject:
    torch.manual_seed(0)
    return replace(demo(), model=minlstm.classifier(2, 3, hidden=6))


def constant(share: float) -> Subject:
    """The demonstration's model with one share everywhere."""
    asked = demo()
    with torch.no_grad():
        for layer in asked.model.recurrence.layers:
            layer.gate.weight.zero_()
            layer.gate.bias.fill_(math.log(share / (1 - share)))
    return asked


@pytest.mark.parametrize("make", [demo, linear, lstm])
def test_a_derivative_is_a_product_of_gates(make) -> None:
    assert product(make()).verdict is Verdict.HOLDS


@pytest.mark.parametrize("make", [demo, lstm])
def test_averages_stay_in_range(make) -> None:
    assert in_range(make()).verdict is Verdict.HOLDS


def altered(change: float) -> Subject:
    """The demonstration, whose first layer returns states that are off by a factor."""
    asked = demo()
    layer = asked.model.recurrence.layers[0]
    layer.register_forward_hook(lambda m, x, y: (change * y[0], y[1]))
    return asked


def test_shares_of_another_layer_are_not_proved_to_be_sigmoids() -> None:
    assert [p.status for p in in_range(demo()).premises] == ["proved"]
    kept = in_range(altered(1.0))
    assert kept.verdict is Verdict.HOLDS
    assert kept.premises[0].status == "sampled"
    assert "recurrence.layers.0 is a MinGRU with a hook" in kept.premises[0].evidence
    wrong = in_range(altered(1.1))
    assert wrong.verdict is Verdict.UNFOUNDED
    assert "recurrence.layers.0" in wrong.premises[0].evidence
    assert "recurrence.layers.1" not in wrong.premises[0].evidence


def test_a_subclass_whose_shares_exceed_1_is_unfounded() -> None:
    class Wide(minlstm.MinLSTM):
        def forward(self, x, lengths=None, state=None):
            y, state = super().forward(x, lengths, state)
            return 2 * y - self.candidate(x), state

    asked = lstm()
    asked.model.recurrence.layers[0].__class__ = Wide
    finding = in_range(asked)
    assert finding.verdict is Verdict.UNFOUNDED
    assert "is a Wide" in finding.premises[0].evidence


@pytest.mark.parametrize("step", [0, 20, 49])
def test_a_state_outside_its_range_is_violated(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By 1e-3 above the largest or below the least value seen so far, at one step of one example."""
    found = gated(demo(), *ANY)
    seen = torch.cat((found[0].start[:, None], found[0].layer.candidate(found[0].x)), 1).detach()
    for sign, end in ((1, seen.cummax(1).values), (-1, seen.cummin(1).values)):
        states = found[0].states.clone()
        states[0, step, 3] = end[0, step + 1, 3] + sign * 1e-3
        wrong = [found[0]._replace(states=states), found[1]]
        monkeypatch.setattr(gradient_claims, "gated", lambda *_, wrong=wrong: wrong)
        finding = in_range(demo())
        assert [v is Verdict.VIOLATED for v in finding.verdicts] == [True, False]
        assert finding.value[0].item() == pytest.approx(1e-3, rel=1e-2)


def test_what_comes_later_is_not_in_the_range_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state at step 1 equal to the value of step 2 is outside, though within the range of all steps."""
    found = gated(demo(), *ANY)
    values = found[0].layer.candidate(found[0].x).detach()
    later = torch.where(values[0, 1].abs() > values[0, 0].abs(), values[0, 1], -values[0, 0])
    states = found[0].states.clone()
    states[0, 0] = 2 * later
    monkeypatch.setattr(gradient_claims, "gated", lambda *_: [found[0]._replace(states=states)])
    assert in_range(demo()).verdict is Verdict.VIOLATED


def test_padding_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gated(demo(), *ANY)
    states = found[0].states.clone()
    states[1, 33:] = 1e6  # the second example has 33 steps
    monkeypatch.setattr(gradient_claims, "gated", lambda *_: [found[0]._replace(states=states)])
    assert in_range(demo()).verdict is Verdict.HOLDS


@pytest.mark.parametrize("ask", [in_range, product, memory])
def test_a_parameter_that_is_not_finite_fails(ask) -> None:
    asked = demo()
    with torch.no_grad():
        asked.model.recurrence.layers[0].gate.weight[0, 0] = math.nan
    assert ask(asked).verdict is Verdict.FAILED


def test_a_derivative_that_is_not_the_product_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part in 1e9 too much, at one lag of one unit."""
    real = gradient_claims.survival

    def wrong(one) -> Tensor:
        found = real(one).clone()
        found[0, 5, 2] *= 1 + 1e-9
        return found

    monkeypatch.setattr(gradient_claims, "survival", wrong)
    assert product(demo()).verdict is Verdict.VIOLATED


def test_a_gate_above_one_leaves_the_product_unfounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gated(demo(), *ANY)
    monkeypatch.setattr(gradient_claims, "gated", lambda *_: [found[0]._replace(a=found[0].a + 1)])
    monkeypatch.setattr(gradient_claims, "survival", lambda one: one.a.cumprod(1))
    finding: Finding = product(demo())
    assert finding.verdict is Verdict.UNFOUNDED
    assert "recurrence.layers.0" in finding.premises[0].evidence


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_memory_of_a_constant_gate_is_its_time_constant(share: float) -> None:
    """s^k = 1/e at k = -1 / log s, also with lengths of 0 and 1 among the examples."""
    finding = memory(constant(share))
    assert finding.verdict is Verdict.MEASURED
    assert finding.value.tolist() == pytest.approx([-1 / math.log(share)] * 4, rel=1e-4)


def test_an_eigenvalue_keeps_by_its_modulus() -> None:
    asked = linear()
    expected = torch.exp(
        asked.model.recurrence.blocks[0].core.nu.detach().double().neg()
    )  # -1 / log |lambda|
    assert memory(asked).value[:2].tolist() == pytest.approx(
        [expected.median().item(), expected.max().item()], rel=1e-3
    )


def test_of_no_step_no_memory_is_told() -> None:
    asked = demo()
    x, lengths = asked.test[0].inputs
    batch = asked.test[0]._replace(inputs=(x, torch.zeros_like(lengths)))
    assert memory(replace(asked, test=[batch])).verdict is Verdict.FAILED


@pytest.mark.parametrize("bias", [200.0, -200.0])
def test_gates_at_their_ends_have_finite_memories(bias: float) -> None:
    asked = demo()
    with torch.no_grad():
        for layer in asked.model.recurrence.layers:
            layer.gate.bias.fill_(bias)
    finding = memory(asked)
    assert finding.verdict is Verdict.MEASURED
    assert (finding.value > 1e6).all() if bias > 0 else (finding.value < 0.1).all()


def test_sequences_without_a_step_have_no_memory_to_measure() -> None:
    asked = demo()
    (x, lengths), *_ = asked.test[0]
    empty = asked.test[0]._replace(inputs=(x, torch.zeros_like(lengths)))
    finding = memory(replace(asked, test=(empty,)))
    assert finding.verdict is Verdict.FAILED
    assert finding.failure == "the held-out sequences have no step"
