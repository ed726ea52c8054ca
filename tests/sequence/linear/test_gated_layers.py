"""The gated layers of a model, heard with their gates, terms and starts; gates above 1 are named."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.sequence.dynamics.gate_claims import in_range, memory, product
from margin.sequence.linear import gated_layers, lru, mingru, minlstm
from margin.sequence.linear.gated_layers import ANY, bounded, demo, gated, has_average, has_gated, loop
from margin.sequence.linear.scan_claims import associative, depth, is_loop
from margin.sequence.recurrent import elman


def subject(model: nn.Module, dtype: torch.dtype = torch.float32) -> Subject:
    g = Generator().manual_seed(0)
    x = torch.randn(4, 30, 2, generator=g, dtype=dtype)
    batch = Batch((x, torch.tensor([30, 0, 12, 30])), torch.tensor([0, 1, 2, 0]))
    return Subject(model=model.to(dtype), test=[batch], task=CLASSES, objective=risk(CLASSES))


def test_the_loop_of_what_is_heard_is_what_the_layer_returned() -> None:
    for model in (mingru.classifier(2, 3, hidden=5, layers=2), minlstm.classifier(2, 3, hidden=5)):
        found = gated(subject(model, torch.float64), *ANY)
        assert found[0].name == "recurrence.layers.0"
        for one in found:
            states = loop(one.a, one.b, one.start)
            torch.testing.assert_close(states[0], one.states[0])
            torch.testing.assert_close(states[2, :12], one.states[2, :12])


def test_a_linear_recurrent_unit_is_heard_with_its_eigenvalues() -> None:
    (one,) = gated(subject(lru.classifier(2, 3, width=6, states=7, layers=1)), *ANY)
    assert one.a.shape == (7,)
    assert one.b.shape == (4, 30, 7)
    assert one.states is None


class Twofold(nn.Module):
    """A layer that reads a sequence, and then its negative from the state of the first, all by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = mingru.MinGRU(2, hidden=4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y, state = self.layer(lengths=lengths, x=x)
        return y + self.layer(-x, state=state)[0]


def test_of_two_calls_the_first_is_heard_and_arguments_by_name_are() -> None:
    asked = subject(Twofold())
    (one,) = gated(asked, *ANY)
    x, lengths = asked.test[0].inputs
    torch.testing.assert_close(one.x[0], x[0], rtol=0, atol=0)
    assert one.lengths is not None
    assert one.lengths.tolist() == lengths.tolist()
    assert not bool(one.start.any()) and not bool(one.x[1].any())  # a first state of 0; no step, all padding
    torch.testing.assert_close(loop(one.a, one.b, one.start)[2, :12], one.states[2, :12])


def test_which_models_have_them() -> None:
    for model, any_gates, averages in (
        (mingru.classifier(2, 3), True, True),
        (minlstm.classifier(2, 3), True, True),
        (lru.classifier(2, 3), True, False),
        (elman.classifier(2, 3), False, False),
    ):
        assert has_gated(subject(model)) == any_gates
        assert has_average(subject(model)) == averages


def test_asking_leaves_no_trace() -> None:
    asked = demo()
    asked.model.train()
    before = {n: p.clone() for n, p in asked.model.state_dict().items()}
    gated(asked, *ANY)
    assert all(m.training and not m._forward_hooks for m in asked.model.modules())
    assert all(torch.equal(p, before[n]) for n, p in asked.model.state_dict().items())


def test_a_gate_above_one_is_named() -> None:
    found = gated(demo(), *ANY)
    assert bounded(found).status == "proved"
    wrong = found[1]._replace(a=found[1].a.clone().index_fill_(1, torch.tensor([7]), 1.001))
    premise = bounded([found[0], wrong])
    assert premise.status == "refuted"
    assert "recurrence.layers.1 (1.001)" in premise.evidence
    assert "layers.0" not in premise.evidence
    just = found[1]._replace(a=found[1].a.clone().fill_(1.0))
    assert bounded([just]).status == "proved"


def test_few_examples_and_steps_are_asked() -> None:
    x = torch.randn(20, 40, 2, generator=Generator().manual_seed(0))
    model = mingru.classifier(2, 3, hidden=4)
    asked = Subject(
        model=model, test=[Batch((x,), torch.zeros(20).long())], task=CLASSES, objective=risk(CLASSES)
    )
    (one,) = gated(asked, *ANY)
    assert one.b.shape == (gated_layers.EXAMPLES, 40, 4)
    assert one.lengths is None


class ByStep(nn.Module):
    """A layer that is called step by step alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = mingru.MinGRU(2, hidden=4), nn.Linear(4, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        state = self.layer.initial(x)
        for x_t in x.unbind(1):
            y, state = self.layer.step(x_t, state)
        return self.head(y)


@pytest.mark.parametrize("ask", [in_range, product, memory, is_loop, associative, depth])
def test_a_layer_that_is_called_step_by_step_fails_with_a_reason(ask: Callable[[Subject], Finding]) -> None:
    finding = ask(replace(demo(), model=ByStep()))
    assert finding.verdict is Verdict.FAILED
    assert finding.failure == "the model calls its recurrences step by step, not on whole sequences"
