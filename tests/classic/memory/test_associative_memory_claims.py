"""Claims about all memories, dense and continuous ones: hold, tight, broken."""

import dataclasses
import math

import pytest
import torch

from margin.classic.memory import associative_memory_claims as claims
from margin.classic.memory import hopfield_claims
from margin.classic.memory.associative_memory import WithoutTargets, squared_distance, wrong_units
from margin.classic.memory.dense_associative_memory import DenseAssociativeMemory, ModernHopfield
from margin.classic.memory.hopfield import Hopfield
from margin.core.findings import Subject, Verdict
from margin.core.tasks import MEMORY
from margin.data.examples import Arrays, InOrder


def subject_of(
    memory: torch.nn.Module, patterns: torch.Tensor, probes: torch.Tensor | None = None
) -> Subject:
    memory.store(patterns, lambda x: x)
    test = InOrder(WithoutTargets(Arrays((patterns if probes is None else probes,))), 512)
    real = isinstance(memory, ModernHopfield)
    return Subject(model=memory, test=test, task=MEMORY, objective=squared_distance if real else wrong_units)


def signs_of(seed: int, rows: int, n: int) -> torch.Tensor:
    return 2.0 * torch.randint(0, 2, (rows, n), generator=torch.Generator().manual_seed(seed)) - 1


def test_a_share_of_lost_patterns_is_counted() -> None:
    P = signs_of(0, 30, 60)
    finding = claims.lost(subject_of(Hopfield(60, 30, num_patterns=30, inputs="signs"), P))
    memory = Hopfield(60, 30, num_patterns=30, inputs="signs")
    memory.store(P, lambda x: x)
    expected = sum(memory(p[None])[0].tolist() != p.tolist() for p in P) / 30
    assert expected > 0
    assert finding.value.item() == expected
    assert finding.verdict is Verdict.MEASURED
    dense = claims.lost(subject_of(DenseAssociativeMemory(60, 30, inputs="signs"), P))
    assert dense.value.item() == 0


def test_a_continuous_pattern_is_lost_where_another_is_preferred() -> None:
    # products prefer the longer of two parallel patterns, whatever the temperature
    P = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    finding = claims.lost(subject_of(ModernHopfield(2, 3, beta=50.0), P))
    assert finding.value.item() == pytest.approx(1 / 3)


@pytest.mark.parametrize("separation", ["power", "rectified", "exponential"])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_a_dense_energy_never_rises(separation: str, order: int) -> None:
    memory = DenseAssociativeMemory(30, 20, separation=separation, order=order, inputs="signs")
    finding = claims.falling_dense_energy(subject_of(memory, signs_of(0, 20, 30), signs_of(1, 12, 30)))
    assert finding.verdict is Verdict.HOLDS
    assert finding.curves["energy"].diff().min() < 0


def test_a_dense_update_the_wrong_way_is_found() -> None:
    class Contrary(DenseAssociativeMemory):
        def gains(self, overlaps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            g, c = super().gains(overlaps)
            return -g, -c

    memory = Contrary(30, 20, inputs="signs", max_sweeps=3)
    finding = claims.falling_dense_energy(subject_of(memory, signs_of(0, 20, 30), signs_of(0, 20, 30)))
    assert finding.verdict is Verdict.VIOLATED


@pytest.mark.parametrize("beta", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_update_is_attention_and_its_energy_falls(seed: int, beta: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    patterns, probes = torch.randn(15, 8, generator=generator), torch.randn(30, 8, generator=generator)
    subject = subject_of(ModernHopfield(8, 15, beta=beta), patterns, probes)
    assert claims.attention(subject).verdict is Verdict.HOLDS
    finding = claims.falling_continuous_energy(subject)
    assert finding.verdict is Verdict.HOLDS
    assert finding.curves["trajectory"].shape == (claims.UPDATES + 1, 1, 8)
    assert torch.equal(finding.curves["stimulus"][0], probes[0].double())


def test_another_temperature_than_attentions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = claims.continuous_update
    monkeypatch.setattr(claims, "continuous_update", lambda X, x, beta: right(X, x, beta / math.sqrt(64)))
    assert claims.attention(claims.demo_continuous()).verdict is Verdict.VIOLATED


def test_an_update_that_overshoots_raises_the_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    right = claims.continuous_update
    monkeypatch.setattr(claims, "continuous_update", lambda X, x, beta: x + 2.5 * (right(X, x, beta) - x))
    assert claims.falling_continuous_energy(claims.demo_continuous()).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_the_retrieval_error_is_below_its_bound(beta: float) -> None:
    P = torch.randn(20, 32, generator=torch.Generator().manual_seed(0))
    finding = claims.retrieval_error(subject_of(ModernHopfield(32, 20, beta=beta), P))
    assert Verdict.VIOLATED not in finding.verdicts
    assert Verdict.HOLDS in finding.verdicts


def test_the_retrieval_bound_is_tight_for_opposite_patterns() -> None:
    # x and -x: the other pattern's weight is 1 / (1 + e^(2 beta)), the bound's e^(-2 beta)
    P = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    for beta in (2.0, 5.0):
        finding = claims.retrieval_error(subject_of(ModernHopfield(2, 2, beta=beta), P))
        ratio = finding.value / finding.high
        assert torch.allclose(ratio, torch.full((2,), 1 / (1 + math.exp(-2 * beta)), dtype=torch.float64))
        assert finding.verdict is Verdict.HOLDS


def test_patterns_that_are_not_separated_leave_the_bound_vacuous() -> None:
    P = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    finding = claims.retrieval_error(subject_of(ModernHopfield(2, 2), P))
    assert finding.verdicts[0] is Verdict.VACUOUS


def test_each_claim_knows_its_models() -> None:
    hopfield, dense, real = hopfield_claims.demo(), claims.demo_dense(), claims.demo_continuous()
    assert [claims.is_memory(s) for s in (hopfield, dense, real)] == [True, True, True]
    assert [claims.is_dense(s) for s in (hopfield, dense, real)] == [False, True, False]
    assert [claims.is_continuous(s) for s in (hopfield, dense, real)] == [False, False, True]
    assert not claims.is_memory(dataclasses.replace(dense, model=torch.nn.Linear(2, 2)))
    assert not claims.is_memory(dataclasses.replace(dense, model=DenseAssociativeMemory(4, 4)))
