"""Receptive fields: those of convolutions as stated, and a layer that states too little."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence, State
from margin.sequence.convolution.causal_convolution import CausalConv1d
from margin.sequence.convolution.receptive_field_claims import (
    LONG,
    LONGEST,
    OUTPUTS,
    asked_steps,
    demo,
    gradient_by_lag,
    has_receptive_field,
    support,
)
from margin.sequence.convolution.tcn import classifier
from margin.sequence.convolution.wavenet import WaveNet
from margin.sequence.recurrent import lstm


class Stated(Recurrence):
    """The sum of the last ``reads`` inputs; it states ``field``."""

    def __init__(self, reads: int, field: int) -> None:
        super().__init__(1, 1)
        self.reads, self.receptive_field = reads, field
        self.scale = nn.Parameter(torch.ones(()))

    def initial(self, x: Tensor) -> State:
        return ()

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        raise NotImplementedError

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        total = x.cumsum(1)
        before = torch.cat((torch.zeros_like(total[:, : self.reads]), total), 1)[:, : x.shape[1]]
        return self.scale * (total - before), ()


class Understated(CausalConv1d):
    """A convolution that reads 65 steps; it states 17."""

    def __init__(self) -> None:
        super().__init__(1, 1, kernel=2, dilation=64)

    @property
    def receptive_field(self) -> int:
        return 17


def asked(model: nn.Module, time: int = 3) -> Subject:
    batch = Batch((torch.zeros(2, time, 1),), torch.zeros(2, dtype=torch.long))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def test_the_fields_of_the_networks_are_those_that_they_state() -> None:
    torch.manual_seed(0)
    for model, field in (
        (WaveNet(9, width=6), 1024),
        (WaveNet(9, width=6, layers=4, stacks=2, kernel=3), 61),
        (classifier(2, 2, hidden=32, layers=3), 29),
        (CausalConv1d(2, 3, kernel=4, dilation=5), 16),
    ):
        finding = support(asked(model))
        assert finding.verdict == Verdict.HOLDS
        assert finding.value.tolist() == [field]


@pytest.mark.parametrize(("reads", "field", "verdict"), [
    (5, 5, Verdict.HOLDS),
    (5, 4, Verdict.VIOLATED),
    (5, 6, Verdict.HOLDS),
])  # fmt: skip
def test_a_layer_that_reads_more_than_it_states_is_seen(reads: int, field: int, verdict: Verdict) -> None:
    finding = support(asked(Stated(reads, field)))
    assert finding.value.tolist() == [reads]
    assert finding.verdict == verdict


def test_a_field_understated_by_far_is_seen() -> None:
    torch.manual_seed(0)
    finding = support(asked(Understated()))  # by the reach of its convolution
    assert finding.value.tolist() == [65]
    assert finding.verdict == Verdict.VIOLATED
    assert support(asked(Stated(33, 17))).verdict == Verdict.VIOLATED  # by twice the stated field
    finding = support(asked(Stated(65, 17), 65))  # by the held-out sequences
    assert finding.value.tolist() == [65]
    assert finding.verdict == Verdict.VIOLATED


@pytest.mark.parametrize(("field", "longest", "steps"), [
    (0, 0, 9),
    (17, 30, 42),
    (17, 300, 308),
    (17, 99_999, LONG + 8),
    (LONG - 1, 0, LONG + 8),
    (LONG + 1, 0, LONG + 9),
    (LONGEST, 99_999, LONGEST + 8),
])  # fmt: skip
def test_the_sequences_asked_are_longer_than_the_field_and_no_longer_than_need_be(
    field: int, longest: int, steps: int
) -> None:
    assert asked_steps(Stated(1, 1), field, longest) == steps


def test_the_gradient_by_lag_is_a_convolutions_weight() -> None:
    layer = CausalConv1d(1, 1, kernel=3, dilation=2).double()
    lags = gradient_by_lag(layer, 12)
    generator = Generator().manual_seed(0)
    torch.randn(4, 12, 1, generator=generator, dtype=torch.float64)
    v = torch.randn(4, 1, generator=generator, dtype=torch.float64).abs().max()
    expected = torch.zeros(12, dtype=torch.float64)
    expected[[0, 2, 4]] = layer.weight[0, 0].detach().flip(0).abs() * v
    torch.testing.assert_close(lags, expected, rtol=0, atol=1e-12)


def test_a_dead_layer_reads_nothing_and_nan_fails() -> None:
    layer = CausalConv1d(1, 1, kernel=3)
    with torch.no_grad():
        layer.weight.zero_()
    finding = support(asked(layer))
    assert finding.value.tolist() == [0]
    assert finding.verdict == Verdict.HOLDS
    with torch.no_grad():
        layer.weight.fill_(torch.nan)
    assert support(asked(layer)).verdict == Verdict.FAILED


def test_what_is_refused() -> None:
    assert has_receptive_field(asked(classifier(2, 2)))
    assert not has_receptive_field(asked(lstm.classifier(2, 2)))
    layer = Stated(5, 5)
    layer.causal = False
    finding = support(asked(layer))
    assert finding.verdict == Verdict.UNFOUNDED
    assert "Stated reads later steps too" in finding.premises[0].evidence
    finding = support(asked(Stated(5, LONGEST + 1)))
    assert finding.verdict == Verdict.FAILED
    assert "65,537 steps" in finding.failure
    assert OUTPUTS >= 1


def test_the_demonstration_holds() -> None:
    before = torch.get_rng_state()
    finding = support(demo())
    assert finding.verdict == Verdict.HOLDS
    assert finding.value.tolist() == [13]
    assert torch.equal(torch.get_rng_state(), before)
