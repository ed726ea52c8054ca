"""BPTT's recursion beside autograd on whole models: it holds, sees a wrong gradient, and refuses."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.engine.descent import risk
from margin.findings import Subject, Verdict
from margin.sequence import bidirectional, bptt_claims, elman, gru
from margin.sequence.bptt import Gradients
from margin.sequence.bptt_claims import demo, equals_autograd, has_elman
from margin.sequence.recurrence import Recurrence
from margin.tasks import CLASSES
from margin.types import Batch

MODELS = {
    "tanh": lambda: elman.classifier(3, 2, hidden=4),
    "three layers": lambda: elman.classifier(3, 2, hidden=4, layers=3),
    "relu": lambda: elman.classifier(3, 2, hidden=4, layers=2, nonlinearity="relu"),
    "mean": lambda: elman.classifier(3, 2, hidden=4, pool="mean"),
    "both ways": lambda: bidirectional.classifier(3, 2, cell="elman", hidden=4, layers=2),
}


def subject_of(model: nn.Module, *more: Tensor) -> Subject:
    x = torch.randn(5, 9, 3, generator=Generator().manual_seed(0))
    batch = Batch((x, *more), torch.arange(5) % 2, torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0]))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


class Ends(nn.Module):
    """Logits of the states that a recurrence returns, and of none of its outputs."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.recurrence, self.head = recurrence, nn.Linear(2 * recurrence.output_size, 2)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.head(self.recurrence(x, lengths)[1][0].flatten(1))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = elman.classifier(3, 2, hidden=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) + self.model(-x)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_autograd_whatever_the_lengths(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    for more in ((), (torch.tensor([9, 0, 4, 1, 9]),)):
        finding = equals_autograd(subject_of(model, *more))
        assert finding.verdict == Verdict.HOLDS
        assert float(finding.value.max()) <= 1e-13


def test_what_the_loss_reads_of_the_returned_states_counts_too() -> None:
    torch.manual_seed(0)
    model = Ends(elman.recurrence(3, hidden=4, layers=2))
    for more in ((), (torch.tensor([9, 0, 4, 1, 9]),)):
        assert equals_autograd(subject_of(model, *more)).verdict == Verdict.HOLDS


def test_frozen_weights_are_asked_all_the_same() -> None:
    model = elman.classifier(3, 2, hidden=4).requires_grad_(False)
    assert equals_autograd(subject_of(model)).verdict == Verdict.HOLDS
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("which", Gradients._fields[:3])
def test_a_gradient_that_is_off_by_a_billionth_is_seen(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*given):  # type: ignore[no-untyped-def]
        found = right(*given)
        return found._replace(**{which: getattr(found, which) * (1 + 1e-8)})

    right = bptt_claims.bptt
    monkeypatch.setattr(bptt_claims, "bptt", off)
    torch.manual_seed(0)
    assert equals_autograd(subject_of(elman.classifier(3, 2, hidden=4))).verdict == Verdict.VIOLATED


def test_a_network_that_is_called_twice_and_nan_fail() -> None:
    finding = equals_autograd(subject_of(Twice()))
    assert finding.verdict == Verdict.FAILED
    assert "recurrence must be called once on whole sequences: got 2 calls" in finding.failure
    model = elman.classifier(3, 2, hidden=4)
    with torch.no_grad():
        model.head.weight.fill_(math.nan)
    assert equals_autograd(subject_of(model)).verdict == Verdict.FAILED


def test_who_is_asked() -> None:
    subject = subject_of(MODELS["tanh"]())
    assert has_elman(subject)
    assert not has_elman(subject_of(gru.classifier(3, 2)))
    assert not has_elman(dataclasses.replace(subject, test=()))
    model = MODELS["tanh"]()
    nn.utils.parametrizations.weight_norm(model.recurrence.layer, "weight_hh_l0")
    assert not has_elman(subject_of(model))


def test_the_demonstration_holds_and_leaves_no_trace() -> None:
    before, subject = torch.get_rng_state(), demo()
    assert equals_autograd(subject).verdict == Verdict.HOLDS
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in subject.model.parameters())
