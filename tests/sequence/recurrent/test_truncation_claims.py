"""The bias of truncated BPTT: against the explicit recursion, its error, and 0 where nothing is cut."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, TOKENS
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.sequence.linear import lru
from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.recurrent import claims, elman, gru
from margin.sequence.recurrent.claims import (
    GROUPS,
    demo,
    gradient,
    longest_call,
    truncation_bias,
    windows_of,
)
from margin.sequence.recurrent.readouts import SequenceClassifier


def subject_of(model: nn.Module, count: int = 24, time: int = 12) -> Subject:
    x = torch.randn(count, time, 3, generator=Generator().manual_seed(0))
    batch = Batch((x,), torch.arange(count) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def test_windows_are_powers_of_two_and_the_whole() -> None:
    assert windows_of(0) == [1]
    assert windows_of(1) == [1]
    assert windows_of(2) == [1, 2]
    assert windows_of(8) == [1, 2, 4, 8]
    assert windows_of(9) == [1, 2, 4, 8, 9]
    assert windows_of(1024)[0] == 4  # 256 windows at most
    assert windows_of(1025)[0] == 8


def test_the_value_is_the_mean_relative_error_over_groups_with_its_standard_error() -> None:
    torch.manual_seed(0)
    subject = subject_of(gru.classifier(3, 2, hidden=4).double())
    finding = truncation_bias(subject)
    assert finding.labels == ("window 1", "window 2", "window 4", "window 8", "window 12")
    batch = subject.test[0]
    rows = []
    for i in range(0, 24, 3):
        part = Batch((batch.inputs[0][i : i + 3].double(),), batch.targets[i : i + 3])  # type: ignore[index]
        whole, cut = gradient(subject, subject.model, part), gradient(subject, subject.model, part, 4)
        rows.append(float((cut - whole).norm() / whole.norm()))
    values = torch.tensor(rows, dtype=torch.float64)
    assert len(rows) == GROUPS
    assert float(finding.value[2]) == pytest.approx(float(values.mean()), rel=1e-9)
    assert finding.stderr is not None
    assert float(finding.stderr[2]) == pytest.approx(float(values.std()) / math.sqrt(8), rel=1e-9)
    assert float(finding.value[4]) <= 1e-14


def test_smaller_windows_are_wrong_and_the_whole_one_is_without_error() -> None:
    finding = truncation_bias(demo())
    assert set(finding.verdicts) == {Verdict.MEASURED}
    assert float(finding.value[-1]) <= claims.ROUNDING
    assert bool((finding.value[:-1] > 1e-3).all())


def test_a_whole_window_that_cuts_all_the_same_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = claims.truncated
    monkeypatch.setattr(claims, "truncated", lambda model, window: cut(model, min(window, 4)))
    torch.manual_seed(0)
    finding = truncation_bias(subject_of(elman.classifier(3, 2, hidden=4), count=64))
    assert float(finding.value[-1]) == float(finding.value[2]) > claims.ROUNDING


def test_a_whole_gradient_that_is_off_by_a_millionth_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = claims.gradient
    monkeypatch.setattr(claims, "gradient", lambda *given: right(*given) * (1 + 1e-6 * (len(given) > 3)))
    finding = truncation_bias(subject_of(gru.classifier(3, 2, hidden=4)))
    assert float(finding.value[-1]) == pytest.approx(1e-6, rel=1e-6)


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrence, self.head = elman.recurrence(3, hidden=4), nn.Linear(4, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.head(self.recurrence(lengths=lengths, x=x)[0].sum(1))


def test_arguments_that_are_passed_by_name_are_heard() -> None:
    subject = subject_of(ByName())
    batch = subject.test[0]
    lengths = torch.arange(24) % 13
    inputs = (batch.inputs[0], lengths)
    assert longest_call(subject.model, Batch(inputs)) == 12
    named = truncation_bias(dataclasses.replace(subject, test=[batch._replace(inputs=inputs)]))
    assert named.labels[-1] == "window 12"
    assert float(named.value[-1]) <= claims.ROUNDING


def test_examples_that_count_are_asked_and_without_a_step_or_a_term_it_fails() -> None:
    torch.manual_seed(0)
    subject = subject_of(gru.classifier(3, 2, hidden=4))
    (batch,) = subject.test
    late = (torch.arange(24) >= 16).float()
    finding = truncation_bias(dataclasses.replace(subject, test=[batch._replace(weight=late)]))
    (x,), targets = batch.inputs, batch.targets
    alone = truncation_bias(dataclasses.replace(subject, test=[Batch((x[16:],), targets[16:])]))  # type: ignore[index]
    assert finding.verdict == Verdict.MEASURED
    torch.testing.assert_close(finding.value, alone.value)
    for weight, lengths, why in (
        (0 * late, torch.full((24,), 12), "no held-out term counts: all weights are 0"),
        (late, torch.zeros(24).long(), "the model calls its recurrences step by step, or on no step"),
    ):
        test = [Batch((x, lengths), targets, weight)]
        finding = truncation_bias(dataclasses.replace(subject, test=test))
        assert finding.verdict == Verdict.FAILED
        assert finding.failure == why


def test_a_state_that_is_forgotten_at_once_loses_nothing() -> None:
    """With A = 0 no derivative goes from a step to the one before, and what crosses a cut is a number."""
    layer = LinearSystem(3, states=4)
    with torch.no_grad():
        layer.A.zero_()
    assert float(truncation_bias(subject_of(SequenceClassifier(layer, 2))).value.max()) <= 1e-15


def test_one_example_has_no_error_and_nan_fails() -> None:
    model = elman.classifier(3, 2, hidden=4)
    finding = truncation_bias(subject_of(model, count=1))
    assert finding.kind == "exact" and finding.verdict == Verdict.MEASURED
    with torch.no_grad():
        next(model.recurrence.parameters()).fill_(math.nan)
    assert truncation_bias(subject_of(model)).verdict == Verdict.FAILED


def test_asking_leaves_no_trace() -> None:
    subject = subject_of(lru.classifier(3, 2, width=4, states=4))
    before = torch.get_rng_state()
    assert truncation_bias(subject).verdict == Verdict.MEASURED
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in subject.model.parameters())
    assert all("forward" not in vars(module) for module in subject.model.modules())
    assert longest_call(subject.model, subject.test[0]) == 12


def test_models_of_tokens_are_asked_on_all_their_targets() -> None:
    torch.manual_seed(0)
    row = torch.randint(5, (6, 9), generator=Generator().manual_seed(0))
    batch = Batch((row[:, :-1],), row[:, 1:], torch.ones(6, 8))
    model = gru.language(5, embedding=3, hidden=4)
    finding = truncation_bias(Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS)))
    assert finding.verdict == Verdict.MEASURED
    assert 0 < float(finding.value[2]) < float(finding.value[0])
