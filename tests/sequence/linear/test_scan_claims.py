"""A scan is its loop within rounding and no wrong scan is; steps compose; the depth is a logarithm."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from margin.core.findings import Finding, Subject, Verdict
from margin.nn.scan import compose, scan
from margin.sequence.linear import lru, scan_claims
from margin.sequence.linear.scan_claims import ANY, associative, demo, depth, gated, is_loop, rounding

ASKS = (is_loop, associative, depth)


def linear() -> Subject:
    torch.manual_seed(0)
    return replace(demo(), model=lru.classifier(2, 3, width=6, states=7))


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("make", [demo, linear])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_hold_on_models_in_their_own_type(ask, make, dtype: torch.dtype) -> None:
    asked = make()
    batch = asked.test[0].to(dtype=dtype, device="cpu")
    finding: Finding = ask(replace(asked, model=asked.model.to(dtype), test=[batch]))
    assert finding.verdict is Verdict.HOLDS
    assert finding.value.numel() == 2


@pytest.mark.parametrize("ask", ASKS)
def test_a_parameter_that_is_not_finite_fails(ask) -> None:
    asked = demo()
    with torch.no_grad():
        asked.model.recurrence.layers[0].candidate.weight[0, 0] = math.nan
    assert ask(asked).verdict is Verdict.FAILED


@pytest.mark.parametrize("ask", ASKS)
def test_gates_above_one_leave_them_unfounded(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gated(demo(), *ANY)
    wrong = found[1]._replace(a=1.01 + 0 * found[1].a)
    monkeypatch.setattr(scan_claims, "gated", lambda *_: [found[0], wrong])
    finding = ask(demo())
    assert finding.verdict is Verdict.UNFOUNDED
    assert "recurrence.layers.1" in finding.premises[0].evidence


def test_a_scan_with_one_gate_too_late_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        return scan(a.roll(1, 1) if a.ndim > 1 else a, b, start)

    monkeypatch.setattr(scan_claims, "scan", late)
    assert is_loop(demo()).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("factor", [0.9, 1.3])
def test_the_bound_is_sharp_to_its_factor(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """States moved by so much of what rounding may do, on top of the loop in 64 bits: inside and outside."""
    (one, _) = gated(demo(), *ANY)
    _, most = rounding(one)
    assert most == pytest.approx(1.01 * (50 + 3))  # steps, and levels of chunks of 16

    def moved(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        wide = [x.double() for x in (a, b, start)]
        size = scan(*(x.abs() for x in wide))
        eps = torch.finfo(torch.float32).eps
        return scan(*wide) + factor * most * eps * size

    monkeypatch.setattr(scan_claims, "scan", moved)
    assert is_loop(demo()).verdict is (Verdict.HOLDS if factor < 1 else Verdict.VIOLATED)


def test_what_underflows_is_no_violation() -> None:
    """Gates of 1e-3 from a start of 1: after 15 steps float32 holds 0, and the loop in 64 bits 1e-45."""
    (one, _) = gated(demo(), *ANY)
    tiny = one._replace(
        a=torch.full_like(one.a, 1e-3), b=torch.zeros_like(one.b), start=torch.ones_like(one.start)
    )
    value, most = rounding(tiny)
    assert value <= most


def test_an_operation_that_is_not_associative_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(later: tuple[Tensor, Tensor], earlier: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return later[0] * earlier[0], later[0] * earlier[1] - later[1]

    monkeypatch.setattr(scan_claims, "compose", wrong)
    assert associative(demo()).verdict is Verdict.VIOLATED


def test_a_composition_off_by_some_roundings_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the four compositions that are asked the last is off: two groupings then differ by 8 eps."""
    calls = []

    def off(later: tuple[Tensor, Tensor], earlier: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        calls.append(later)
        a, b = compose(later, earlier)
        return a, b * (1 + (len(calls) % 6 == 4) * 8 * torch.finfo(b.dtype).eps)

    monkeypatch.setattr(scan_claims, "compose", off)
    finding = associative(demo())
    assert finding.verdict is Verdict.VIOLATED
    assert 4 < float(finding.value.max()) < 20


@pytest.mark.parametrize(("gate", "needed"), [(1.0, 6.0), (1e-9, 1.0), (0.0, 0.0)])
def test_gates_that_forget_need_fewer_doublings_and_gates_of_one_need_all(
    gate: float, needed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 steps of 1: of gates of 1e-9 one doubling is enough, for 1e-18 is below rounding."""
    found = [
        one._replace(a=torch.full_like(one.a, gate), b=torch.ones_like(one.b)) for one in gated(demo(), *ANY)
    ]
    monkeypatch.setattr(scan_claims, "gated", lambda *_: found)
    finding = depth(demo())
    assert finding.verdict is Verdict.HOLDS
    assert finding.value.tolist() == [needed, needed]
    assert finding.high.tolist() == [6.0, 6.0]


def test_doublings_that_compose_the_wrong_way_are_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scan_claims,
        "compose",
        lambda later, earlier: (later[0] * earlier[0], earlier[0] * later[1] + earlier[1]),
    )
    assert depth(demo()).verdict is Verdict.VIOLATED
