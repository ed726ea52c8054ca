"""Streaming: every causal recurrence is its own step; one that is not is seen; each direction is asked."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.engine.descent import risk
from margin.findings import Subject, Verdict
from margin.sequence import (
    bidirectional,
    deep_transition,
    elman,
    gru,
    linear_system,
    lru,
    lstm,
    mingru,
    minlstm,
    stack_memory,
    tcn,
)
from margin.sequence.gru import ResetBeforeGRU
from margin.sequence.readouts import SequenceClassifier
from margin.sequence.streaming_claims import demo, streaming, streams
from margin.sequence.wavenet import WaveNet
from margin.tasks import CLASSES
from margin.types import Batch

MODELS = {
    "elman": lambda: elman.classifier(3, 2, hidden=4, layers=2),
    "lstm": lambda: lstm.classifier(3, 2, hidden=4, output="matrix"),
    "gru": lambda: gru.classifier(3, 2, hidden=4),
    "mingru": lambda: mingru.classifier(3, 2, hidden=4, layers=2),
    "minlstm": lambda: minlstm.classifier(3, 2, hidden=4),
    "lru": lambda: lru.classifier(3, 2, width=4, states=4),
    "linear": lambda: linear_system.classifier(3, 2, width=4, states=4),
    "deep": lambda: deep_transition.classifier(3, 2, hidden=4),
    "stack": lambda: stack_memory.classifier(3, 2, hidden=4, capacity=5),
    "both ways": lambda: bidirectional.classifier(3, 2, hidden=4),
    "tcn": lambda: tcn.classifier(3, 2, hidden=4, layers=2),
}
LENGTHS = torch.tensor([12, 0, 5, 1])


def subject_of(model: nn.Module, *more: Tensor, time: int = 12) -> Subject:
    x = torch.randn(4, time, 3, generator=Generator().manual_seed(0))
    batch = Batch((x, *more), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


class Rounded(ResetBeforeGRU):
    """A layer whose whole pass, or the state it leaves, is a little off its steps."""

    output = state = 0.0

    def forward(self, x, lengths=None, state=None):  # type: ignore[no-untyped-def]
        y, (z,) = super().forward(x, lengths, state)
        return y + self.output, (z + self.state,)


@pytest.mark.parametrize("name", MODELS)
def test_every_causal_recurrence_is_its_step(name: str) -> None:
    torch.manual_seed(0)
    subject = subject_of(MODELS[name]())
    assert streams(subject)
    for more in ((), (LENGTHS,)):
        finding = streaming(subject_of(subject.model, *more))
        assert finding.verdict == Verdict.HOLDS
        assert float(finding.value.max()) <= 1e-12


def test_a_wavenet_is_its_step_too() -> None:
    tokens = torch.randint(5, (3, 20), generator=Generator().manual_seed(0))
    subject = subject_of(WaveNet(5, width=4, layers=4))
    subject = Subject(
        model=subject.model, test=[Batch((tokens,), tokens)], task=CLASSES, objective=risk(CLASSES)
    )
    assert streaming(subject).verdict == Verdict.HOLDS


@pytest.mark.parametrize("which", ["output", "state"])
def test_a_whole_pass_that_is_off_is_seen(which: str) -> None:
    torch.manual_seed(0)
    layer = Rounded(3, hidden=4)
    subject = subject_of(SequenceClassifier(layer, 2))
    assert streaming(subject).verdict == Verdict.HOLDS
    setattr(layer, which, 1e-9)
    finding = streaming(subject)
    assert finding.verdict == Verdict.VIOLATED
    assert float(finding.value) == pytest.approx(1e-9, rel=1e-5)


def test_a_recurrence_that_reads_both_ways_is_asked_of_each_direction_alone() -> None:
    finding = streaming(subject_of(MODELS["both ways"](), LENGTHS))
    assert finding.labels == ("recurrence.layers.0.ahead", "recurrence.layers.0.back")
    assert not streams(subject_of(nn.Linear(3, 2)))


def test_sequences_without_a_step_hold_and_nan_fails() -> None:
    model = MODELS["gru"]()
    assert streaming(subject_of(model, time=0)).verdict == Verdict.HOLDS
    with torch.no_grad():
        next(model.recurrence.parameters()).fill_(math.nan)
    assert streaming(subject_of(model)).verdict == Verdict.FAILED


def test_the_demonstration_holds_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    assert streaming(demo()).verdict == Verdict.HOLDS
    assert torch.equal(torch.get_rng_state(), before)
