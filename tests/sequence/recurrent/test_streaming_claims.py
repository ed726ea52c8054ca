"""Streaming: every causal recurrence is its own step; one that is not is seen; each direction is asked."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence, unrolled
from margin.sequence.convolution import tcn
from margin.sequence.convolution.wavenet import WaveNet
from margin.sequence.linear import linear_system, lru, mingru, minlstm
from margin.sequence.recurrent import bidirectional, deep_transition, elman, gru, lstm, stack_memory
from margin.sequence.recurrent.gru import ResetBeforeGRU
from margin.sequence.recurrent.heard import causal_ones, heard
from margin.sequence.recurrent.readouts import SequenceClassifier
from margin.sequence.recurrent.streaming_claims import demo, growth, streaming, streams
from margin.sequence.recurrent.torch_recurrent import TorchRecurrence

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
    (one,) = heard(subject, causal_ones)
    with torch.no_grad():
        outputs, (state,) = unrolled(layer.double().step, one.x, None, layer.initial(one.x))
    largest = (outputs if which == "output" else state).abs().max()
    assert float(finding.value) == pytest.approx(1e-9 / float(largest), rel=1e-5)


class Small(Recurrence):
    """Outputs, or states, of any size, whose steps have another sign."""

    size, state = 1.0, 0.0

    def initial(self, x):  # type: ignore[no-untyped-def]
        return (x.new_zeros(x.shape[0], 3),)

    def step(self, x, state):  # type: ignore[no-untyped-def]
        return x if self.state else -self.size * x, (-self.state * x,)

    def forward(self, x, lengths=None, state=None):  # type: ignore[no-untyped-def]
        return x if self.state else self.size * x, (self.state * x[:, -1],)


@pytest.mark.parametrize("size", [1e-11, 1e-200, 1.0, 1e11])
@pytest.mark.parametrize("which", ["size", "state"])
def test_a_wrong_sign_of_small_numbers_is_seen(which: str, size: float) -> None:
    """A small state is not excused by large outputs, nor a small output by the number 1."""
    layer = Small(3, 3)
    setattr(layer, which, size)
    finding = streaming(subject_of(SequenceClassifier(layer, 2)))
    assert finding.verdict == Verdict.VIOLATED
    assert float(finding.value) == pytest.approx(2.0)


def chaotic(times: float, kind: type[TorchRecurrence] = TorchRecurrence) -> nn.Module:
    """An Elman network of 64 units whose recurrent matrix is some times what torch draws."""
    torch.manual_seed(0)
    layer = kind(nn.RNN(3, 64, batch_first=True))
    with torch.no_grad():
        layer.layer.weight_hh_l0.mul_(times)
    return SequenceClassifier(layer, 2)


class Backward(TorchRecurrence):
    """A step that reads its input with another sign."""

    def step(self, x, state):  # type: ignore[no-untyped-def]
        return super().step(-x, state)


class Slight(TorchRecurrence):
    """A step that is off by a billionth."""

    def step(self, x, state):  # type: ignore[no-untyped-def]
        y, (h,) = super().step(x, state)
        return y * (1 + 1e-9), (h * (1 + 1e-9),)


@pytest.mark.parametrize(("times", "time"), [(3.0, 500), (4.0, 100)])
def test_a_chaotic_recurrence_fails_where_rounding_grows_and_holds_on_the_steps_that_are_named(
    times: float, time: int
) -> None:
    model, lengths = chaotic(times), torch.tensor([time, 0, time // 2, 1])
    finding = streaming(subject_of(model, lengths, time=time))
    assert finding.verdict == Verdict.FAILED
    assert f"over the {time} steps of recurrence: ask on shorter sequences, of" in finding.failure
    steps = int(finding.failure.split(", of ")[1].split()[0])
    assert 10 < steps < time
    assert streaming(subject_of(model, lengths.clamp_max(steps), time=steps)).verdict == Verdict.HOLDS


@pytest.mark.parametrize("kind", [Backward, Slight])
def test_a_wrong_step_of_a_chaotic_recurrence_is_seen_all_the_same(kind: type[TorchRecurrence]) -> None:
    finding = streaming(subject_of(chaotic(3.0, kind), torch.tensor([500, 0, 250, 1]), time=500))
    assert finding.verdict == Verdict.VIOLATED
    assert float(finding.value) > 5e-10


class Beside(nn.Module):
    """Two recurrences that read the same."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return sum(layer(x, lengths)[0][:, -1] for layer in self.layers)


def test_of_a_wrong_layer_and_a_chaotic_one_the_wrong_one_is_told() -> None:
    wrong, right = chaotic(1.0, Backward).recurrence, chaotic(4.0).recurrence
    model = Beside(wrong, right)
    finding = streaming(subject_of(model, torch.tensor([200, 0, 100, 1]), time=200))
    assert finding.verdict == Verdict.VIOLATED
    assert finding.verdicts[0] == Verdict.VIOLATED


class Doubling(Recurrence):
    """z -> 2 z + x mod 1, which doubles a distance."""

    def initial(self, x):  # type: ignore[no-untyped-def]
        return (x.new_zeros(x.shape[0], 3),)

    def step(self, x, state):  # type: ignore[no-untyped-def]
        z = (2 * state[0] + x).remainder(1)
        return z, (z,)


def test_rounding_grows_as_the_steps_stretch() -> None:
    """The map z -> 2 z + x mod 1 doubles a distance at each step."""
    (one,) = heard(subject_of(SequenceClassifier(Doubling(3, 3), 2), time=20), causal_ones)
    grown = growth(one)
    assert len(grown) == 20
    factor = (grown[-1] / grown[4]) ** (1 / 15)
    assert 1.8 < float(factor) < 2.2


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
