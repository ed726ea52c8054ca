"""Spectra of recurrent matrices: bounds that are met with equality, that hold, and that are refused."""

import dataclasses
import math

import pytest
import torch

from margin.core.findings import Subject, Verdict
from margin.sequence.dynamics import spectral_claims
from margin.sequence.dynamics.spectral_claims import (
    POWERS,
    bounded_powers,
    demo,
    eigenvalues,
    has_dense_transition,
    has_linear_system,
    has_transition,
    powers,
    radius,
    transitions,
)
from margin.sequence.linear.linear_system import LinearSystem


def with_transition(A: torch.Tensor) -> Subject:
    """A subject whose only recurrent matrix is A."""
    layer = LinearSystem(2, states=len(A)).double()
    with torch.no_grad():
        layer.A.copy_(A)
    return dataclasses.replace(demo(), model=layer, initial=None)


def drawn(seed: int, size: int = 6) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(20))
def test_both_bounds_hold_on_random_matrices(seed: int) -> None:
    subject = with_transition(drawn(seed))
    for ask in (radius, powers):
        assert ask(subject).verdict == Verdict.HOLDS
    assert float(radius(subject).value) < 0.999 * float(radius(subject).high)


def test_both_are_tight_for_a_normal_matrix() -> None:
    Q, _ = torch.linalg.qr(drawn(0))
    A = Q @ torch.diag(torch.tensor([0.9, -0.5, 0.3, 0.2, 0.1, 0.05], dtype=torch.float64)) @ Q.T
    subject = with_transition(A)
    assert float(radius(subject).value) == pytest.approx(0.9, rel=1e-12)
    assert float(radius(subject).high) == pytest.approx(0.9, rel=1.1e-9)
    found = powers(subject)
    assert found.verdict == Verdict.HOLDS
    assert float(found.value) == pytest.approx(1.0, abs=1e-9)
    ratios, condition = bounded_powers(Q)  # all eigenvalues of modulus 1: equality at every power
    assert condition == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(ratios, torch.ones(POWERS).double(), rtol=0, atol=1e-6)


def test_each_matrix_has_the_tolerance_of_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a matrix of norm 1e9 a radius 1e-6 above a norm of about 1 is still violated."""
    model = demo().model
    first, second = (block.core for block in model.recurrence.blocks)
    Q, _ = torch.linalg.qr(drawn(0, 8))
    with torch.no_grad():
        first.A.copy_(Q)
        second.A.mul_(1e9)
    subject = dataclasses.replace(demo(), model=model.double())
    assert radius(subject).verdicts == [Verdict.HOLDS, Verdict.HOLDS]
    found = transitions(model)
    found[0] = found[0]._replace(eigenvalues=found[0].eigenvalues * (1 + 1e-6))
    monkeypatch.setattr(spectral_claims, "transitions", lambda _: found)
    assert radius(subject).verdicts == [Verdict.VIOLATED, Verdict.HOLDS]


def test_the_ratio_is_that_of_the_norm_of_the_power() -> None:
    A = drawn(3)
    ratios, condition = bounded_powers(A)
    size = float(torch.linalg.eigvals(A).abs().max())
    for k in (1, 2, 5):
        norm = float(torch.linalg.matrix_norm(torch.linalg.matrix_power(A, k), 2))
        assert float(ratios[k - 1]) == pytest.approx(norm / (condition * size**k), rel=1e-9)


def test_a_jordan_block_leaves_the_bound_unfounded_and_names_the_layer() -> None:
    found = powers(with_transition(torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double()))
    assert found.verdict == Verdict.UNFOUNDED
    assert "no basis to rounding:  (condition" in found.premises[0].evidence
    model = demo().model
    with torch.no_grad():
        model.recurrence.blocks[1].core.A.copy_(torch.diag(torch.ones(7), 1))
    found = powers(dataclasses.replace(demo(), model=model))
    assert found.verdict == Verdict.UNFOUNDED
    assert "recurrence.blocks.1.core" in found.premises[0].evidence
    assert "recurrence.blocks.0.core" not in found.premises[0].evidence


def test_the_matrix_0_keeps_its_bound() -> None:
    found = powers(with_transition(torch.zeros(3, 3).double()))
    assert found.verdict == Verdict.HOLDS
    assert float(found.value) == 0.0


def test_nan_fails_every_question() -> None:
    subject = with_transition(torch.full((3, 3), math.nan).double())
    for ask in (eigenvalues, radius, powers):
        assert ask(subject).verdict == Verdict.FAILED


def test_eigenvalues_are_measured_with_those_of_the_beginning_beside() -> None:
    subject = demo()
    model = demo().model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    found = eigenvalues(dataclasses.replace(subject, model=model))
    assert found.verdict == Verdict.MEASURED
    now, before = (
        torch.complex(found.curves[f"real part {when}"], found.curves[f"imaginary part {when}"])
        for when in ("now", "at the beginning")
    )
    expected = [t.eigenvalues.abs().max() for t in transitions(model)]
    torch.testing.assert_close(found.value, torch.stack(expected))
    torch.testing.assert_close(now.abs().sum(), before.abs().sum() / 2)
    alone = eigenvalues(dataclasses.replace(subject, initial=None))
    assert set(alone.curves) == {"real part now", "imaginary part now"}


def test_what_the_questions_need() -> None:
    subject = demo()
    other = dataclasses.replace(subject, model=torch.nn.GRU(2, 3))
    for need in (has_transition, has_dense_transition, has_linear_system):
        assert need(subject)
        assert not need(other)
    simple = dataclasses.replace(subject, model=torch.nn.RNN(2, 3))
    assert has_dense_transition(simple)
    assert not has_linear_system(simple)
