"""BPTT's recursion beside autograd on whole models: it holds, sees a wrong gradient, and refuses."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence
from margin.sequence.recurrent import bidirectional, bptt_claims, elman, gru
from margin.sequence.recurrent.bptt import Gradients
from margin.sequence.recurrent.bptt_claims import counted, demo, equals_autograd, has_elman

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


class Onward(nn.Module):
    """Logits of a recurrence that goes on from a state that is not 0."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.recurrence, self.head = recurrence, nn.Linear(recurrence.output_size, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        (h,) = self.recurrence.initial(x)
        state = h + torch.arange(h.shape[1])[:, None] - 0.5
        return self.head(self.recurrence(x, lengths, (state,))[0].sum(1))


class ByName(nn.Module):
    """A head that sums all outputs of a recurrence, which is given its arguments by their names."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.recurrence, self.head = elman.recurrence(3, hidden=4, layers=2), nn.Linear(4, 2)
        self.which = which

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        calls = {
            "lengths": lambda: self.recurrence(x, lengths=lengths),
            "x": lambda: self.recurrence(x=x, lengths=lengths),
            "order": lambda: self.recurrence(state=self.recurrence.initial(x), lengths=lengths, x=x),
        }
        return self.head(calls[self.which]()[0].sum(1))


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


@pytest.mark.parametrize("which", ["lengths", "x", "order"])
def test_arguments_that_are_passed_by_name_are_heard(which: str) -> None:
    torch.manual_seed(0)
    finding = equals_autograd(subject_of(ByName(which), torch.tensor([9, 0, 4, 1, 9])))
    assert finding.verdict == Verdict.HOLDS
    assert float(finding.value) <= 1e-13


def chaotic(times: float, layers: int) -> nn.Module:
    """An Elman network of 64 units whose recurrent matrices are some times what torch draws."""
    torch.manual_seed(0)
    model = elman.classifier(3, 2, hidden=64, layers=layers)
    with torch.no_grad():
        for name, parameter in model.recurrence.named_parameters():
            if "weight_hh" in name:
                parameter.mul_(times)
    return model


@pytest.mark.parametrize(("times", "time"), [(3.0, 500), (4.0, 100)])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_chaotic_network_is_asked_on_its_own_states(
    times: float, time: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States computed anew would be others: to move the input by 1e-15 of it moves the gradient by .1."""
    x = torch.randn(5, time, 3, generator=Generator().manual_seed(0))
    for more in ((), (torch.tensor([time, 0, time // 2, 1, time]),)):
        batch = Batch((x, *more), torch.arange(5) % 2)
        subject = dataclasses.replace(subject_of(chaotic(times, layers)), test=[batch])
        finding = equals_autograd(subject)
        assert finding.verdict == Verdict.HOLDS
        assert float(finding.value) <= 1e-11

    def off(*given):  # type: ignore[no-untyped-def]
        found = right(*given)
        return found._replace(U=found.U * (1 + 1e-8))

    right = bptt_claims.bptt
    monkeypatch.setattr(bptt_claims, "bptt", off)
    assert equals_autograd(subject).verdict == Verdict.VIOLATED


def test_a_state_that_goes_on_is_heard_with_each_layer() -> None:
    torch.manual_seed(0)
    model = Onward(elman.recurrence(3, hidden=4, layers=3))
    assert equals_autograd(subject_of(model, torch.tensor([9, 0, 4, 1, 9]))).verdict == Verdict.HOLDS


def test_sequences_without_a_step_fail_with_a_reason() -> None:
    for x, lengths in ((torch.randn(5, 9, 3), torch.zeros(5).long()), (torch.randn(5, 0, 3), None)):
        batch = Batch((x,) if lengths is None else (x, lengths), torch.arange(5) % 2)
        finding = equals_autograd(dataclasses.replace(subject_of(MODELS["three layers"]()), test=[batch]))
        assert finding.verdict == Verdict.FAILED
        assert finding.failure == "the held-out sequences have no step"


def filled(*weights: Tensor) -> Subject:
    """Batches of 16 examples with these weights."""
    x, targets = torch.randn(16, 9, 3, generator=Generator().manual_seed(0)), torch.arange(16) % 2
    torch.manual_seed(0)
    batches = [Batch((x + i,), targets, weight) for i, weight in enumerate(weights)]
    return dataclasses.replace(subject_of(MODELS["tanh"]()), test=batches)


def test_examples_that_count_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight fillers before the first that counts: with them alone 0 = 0 would hold of any recursion."""
    late, none = (torch.arange(16) >= 8).float(), torch.zeros(16)
    right = bptt_claims.bptt
    for weights in ((late,), (none, late)):
        assert equals_autograd(filled(*weights)).verdict == Verdict.HOLDS
        with monkeypatch.context() as patch:
            patch.setattr(bptt_claims, "bptt", lambda *given: right(*given)._replace(U=2 * right(*given).U))
            assert equals_autograd(filled(*weights)).verdict == Verdict.VIOLATED
    finding = equals_autograd(filled(none, none))
    assert finding.verdict == Verdict.FAILED
    assert finding.failure == "no held-out term counts: all weights are 0"


def test_an_example_counts_by_any_of_its_terms() -> None:
    weight = torch.tensor([[0.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    batch = counted(Batch((torch.arange(3), torch.arange(6).view(3, 2)), torch.arange(3), weight))
    assert batch.inputs[0].tolist() == [1, 2] and batch.inputs[1].tolist() == [[2, 3], [4, 5]]
    assert batch.targets is not None and batch.targets.tolist() == [1, 2]
    assert batch.weight is not None and batch.weight.tolist() == [[0.0, 2.0], [1.0, 1.0]]


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
