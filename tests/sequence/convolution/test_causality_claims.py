"""Causality: models that keep it, models that leak by a step, and a layer that reads from the end."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, Verdict
from margin.core.tasks import CLASSES, TOKENS
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence, State, without_padding
from margin.sequence.convolution import tcn
from margin.sequence.convolution.causality_claims import (
    cuts,
    derivative,
    derivative_demo,
    predicts_next,
    replacement,
    replacement_demo,
    said_next,
)
from margin.sequence.convolution.wavenet import WaveNet
from margin.sequence.linear import lru, mingru, minlstm
from margin.sequence.recurrent import bidirectional, elman, gru, lstm

LANGUAGES = {
    "elman": lambda: elman.language(5),
    "lstm": lambda: lstm.language(5),
    "gru": lambda: gru.language(5),
    "mingru": lambda: mingru.language(5),
    "lru": lambda: lru.language(5),
    "tcn": lambda: tcn.language(5),
    "wavenet": lambda: WaveNet(5, width=4, layers=4),
}
CLASSIFIERS = {
    "elman": lambda: elman.classifier(3, 2),
    "lstm": lambda: lstm.classifier(3, 2),
    "gru": lambda: gru.classifier(3, 2),
    "reset before": lambda: gru.classifier(3, 2, reset="before"),
    "mingru": lambda: mingru.classifier(3, 2),
    "minlstm": lambda: minlstm.classifier(3, 2),
    "lru": lambda: lru.classifier(3, 2),
    "tcn": lambda: tcn.classifier(3, 2),
}


class Leaking(Recurrence):
    """The running mean, to which a little of the next step is added: it says that it is causal."""

    def __init__(self, share: float) -> None:
        super().__init__(3, 3)
        self.share = share
        self.scale = nn.Parameter(torch.ones(()))

    def initial(self, x: Tensor) -> State:
        return ()

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        raise NotImplementedError

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        mean = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return self.scale * (mean + self.share * x.roll(-1, 1)), ()


class Read(Leaking):
    """What a function makes of the sequences: it says that it is causal."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__(0.0)
        self.function = function

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        return self.scale * without_padding(self.function(without_padding(x, lengths)), lengths), ()


def doubled(x: Tensor) -> Tensor:
    """z_t = 2 z_{t-1} + x_t, a step at a time."""
    z, states = torch.zeros_like(x[:, 0]), []
    for x_t in x.unbind(1):
        z = 2 * z + x_t
        states.append(z)
    return torch.stack(states, 1)


def by_fourier(x: Tensor) -> Tensor:
    """The causal convolution with the weights 1, 1/2, 1/4, ..: rounding reaches every step."""
    weights = 0.5 ** torch.arange(x.shape[1], dtype=x.dtype)
    count = 2 * x.shape[1]
    spectrum = torch.fft.rfft(x, count, dim=1) * torch.fft.rfft(weights, count)[:, None]
    return torch.fft.irfft(spectrum, count, dim=1)[:, : x.shape[1]]


class LastOf(nn.Module):
    """The last output of a recurrence."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.r = recurrence

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.r(x, lengths)[0][:, -1]


class Later(nn.Module):
    """Logits at t from the token at t + shift: 0 keeps causality, 1 gives the answer away."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.embedding = nn.Embedding(5, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens.roll(-self.shift, 1))


def classes(model: nn.Module, *more: Tensor, time: int = 20) -> Subject:
    x = torch.randn(4, time, 3, generator=Generator().manual_seed(0))
    batch = Batch((x, *more), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def tokens_of(model: nn.Module, time: int = 20) -> Subject:
    row = torch.randint(5, (4, time + 1), generator=Generator().manual_seed(0))
    batch = Batch((row[:, :-1],), row[:, 1:])
    return Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS))


def value(finding: Finding) -> float:
    return float(finding.value.max())


def test_cuts_have_a_later_step_and_hold_the_first_and_the_last() -> None:
    assert cuts(0) == []
    assert cuts(1) == []
    assert cuts(2) == [0]
    assert cuts(3) == [0, 1]
    assert cuts(9) == list(range(8))
    assert (cuts(512)[0], cuts(512)[-1], len(cuts(512))) == (0, 510, 8)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_causal_recurrence_has_no_derivative_by_a_later_input(name: str) -> None:
    torch.manual_seed(0)
    for more in ((), (torch.tensor([20, 0, 7, 13]),)):
        finding = derivative(classes(CLASSIFIERS[name](), *more))
        assert finding.verdict == Verdict.HOLDS
        assert value(finding) <= 1e-12


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_model_says_the_same_whatever_comes_later(name: str) -> None:
    torch.manual_seed(0)
    subject = tokens_of(LANGUAGES[name]())
    for ask in (derivative, replacement):
        finding = ask(subject)
        assert finding.verdict == Verdict.HOLDS
        assert value(finding) <= 1e-12


def test_a_leak_of_one_step_is_seen_and_measured() -> None:
    """The mean of t steps has derivative 1 / t by its own: at the last cut, of 19 steps, the leak is 19/4."""
    layer = Leaking(0.25)
    model = LastOf(layer)
    finding = derivative(classes(model))
    assert finding.verdict == Verdict.VIOLATED
    assert finding.labels == ("r, derivative", "r, change")
    assert float(finding.value[0]) == pytest.approx(19 * 0.25, abs=1e-12)
    layer.share = 1e-9
    assert derivative(classes(model)).verdict == Verdict.VIOLATED
    layer.share = 0.0
    assert derivative(classes(model)).verdict == Verdict.HOLDS


LEAKS = {
    "a step of the mean": lambda x: x + (x.mean(1, keepdim=True) > 0),
    "a detached deviation": lambda x: x / x.std(1, keepdim=True).detach(),
    "a share of a detached later step": lambda x: x + 1e-8 * x[:, -1:].detach(),
    "the next step alone": lambda x: x.roll(-1, 1),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_seen_whether_it_has_a_derivative_or_not(name: str) -> None:
    finding = derivative(classes(LastOf(Read(LEAKS[name]))))
    assert finding.verdict == Verdict.VIOLATED
    assert bool(finding.value.isfinite().all())


@pytest.mark.parametrize("time", [20, 60, 400])
def test_explosion_hides_no_leak_and_is_none(time: int) -> None:
    """The derivatives grow to 2^time; that of step 1 by its own input is 1, and so is the leak's."""
    assert derivative(classes(LastOf(Read(doubled)), time=time)).verdict == Verdict.HOLDS
    finding = derivative(classes(LastOf(Read(lambda x: doubled(x) + x[:, -1:])), time=time))
    assert finding.verdict == Verdict.VIOLATED
    assert float(finding.value[0]) == pytest.approx(1.0, abs=1e-12)


def test_the_rounding_of_a_fourier_transform_is_no_leak() -> None:
    for time in (20, 300):
        finding = derivative(classes(LastOf(Read(by_fourier)), time=time))
        assert finding.verdict == Verdict.HOLDS
        assert not bool(finding.value.any())


def test_a_delay_has_no_own_derivative_and_is_measured_by_its_largest() -> None:
    def delayed(x: Tensor) -> Tensor:
        return torch.cat((0 * x[:, :1], x[:, :-1]), 1)

    assert derivative(classes(LastOf(Read(delayed)))).verdict == Verdict.HOLDS
    finding = derivative(classes(LastOf(Read(lambda x: delayed(x) + 0.25 * x[:, -1:]))))
    assert finding.verdict == Verdict.VIOLATED
    assert float(finding.value[0]) == pytest.approx(1.0)  # of the first step, that reads nothing else


def test_a_small_leak_is_no_rounding() -> None:
    finding = derivative(classes(LastOf(Read(lambda x: by_fourier(x) + 1e-9 * x[:, -1:]))))
    assert finding.verdict == Verdict.VIOLATED


def test_sequences_without_a_later_step_prove_nothing() -> None:
    model = tcn.classifier(3, 2)
    for lengths in (torch.zeros(4, dtype=torch.long), torch.tensor([1, 0, 1, 1])):
        finding = derivative(classes(model, lengths))
        assert finding.verdict == Verdict.FAILED
        assert "fewer than two steps" in finding.failure
    assert derivative(classes(model, torch.tensor([1, 0, 2, 1]))).verdict == Verdict.HOLDS


def test_cuts_lie_where_the_sequences_are() -> None:
    """Of 400 steps only the first 3 are given: the cuts are steps 1 and 2."""
    lengths = torch.tensor([3, 1, 0, 2])
    leaking = LastOf(Read(lambda x: x + torch.where(torch.arange(x.shape[1])[:, None] == 1, x[:, 2:3], 0)))
    assert derivative(classes(leaking, lengths, time=400)).verdict == Verdict.VIOLATED


def test_a_layer_that_reads_from_the_end_is_refused_by_name() -> None:
    finding = derivative(classes(bidirectional.classifier(3, 2)))
    assert finding.verdict == Verdict.UNFOUNDED
    (premise,) = finding.premises
    assert "recurrence reads later steps too" in premise.evidence


def test_nan_and_too_short_sequences_fail() -> None:
    model = tcn.classifier(3, 2)
    with torch.no_grad():
        model.recurrence.blocks[0].shortcut.weight.fill_(torch.nan)
    assert derivative(classes(model)).verdict == Verdict.FAILED
    short = Subject(
        model=tcn.classifier(3, 2),
        test=[Batch((torch.randn(4, 1, 3),), torch.zeros(4, dtype=torch.long))],
        task=CLASSES,
        objective=risk(CLASSES),
    )
    finding = derivative(short)
    assert finding.verdict == Verdict.FAILED
    assert "fewer than two steps" in finding.failure


def test_an_answer_given_away_is_seen_in_any_model() -> None:
    assert replacement(tokens_of(Later(0))).verdict == Verdict.HOLDS
    finding = replacement(tokens_of(Later(1)))
    assert finding.verdict == Verdict.VIOLATED
    assert value(finding) > 0.1
    model = Later(1)
    with torch.no_grad():
        model.embedding.weight[:] = torch.nan
    assert replacement(tokens_of(model)).verdict == Verdict.FAILED


def test_a_single_token_cannot_be_replaced() -> None:
    tokens = torch.zeros(2, 9, dtype=torch.long)
    batch = Batch((tokens[:, :-1],), tokens[:, 1:])
    model = tcn.language(1, hidden=4, layers=2)
    finding = replacement(Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS)))
    assert finding.verdict == Verdict.FAILED
    assert "single token" in finding.failure


def test_the_input_whose_next_token_is_the_target() -> None:
    row = torch.randint(5, (3, 9), generator=Generator().manual_seed(0))
    source = torch.randint(5, (3, 8), generator=Generator().manual_seed(1))
    lengths = torch.tensor([8, 8, 8])
    assert said_next(Batch((row[:, :-1],), row[:, 1:])) == 0
    assert said_next(Batch((source, lengths, row[:, :-1]), row[:, 1:])) == 2
    assert said_next(Batch((source,), row[:, 1:])) is None
    assert said_next(Batch((row[:, :-1],), row[:, :-1])) is None  # a masked model's target
    assert said_next(Batch((row,), None)) is None
    wrong, weight = row[:, 1:].clone(), torch.ones(3, 8)
    wrong[1, 4:], weight[1, 4:] = 9, 0
    assert said_next(Batch((row[:, :-1],), wrong, weight)) == 0  # what has no weight is padding
    assert said_next(Batch((row[:, :-1],), wrong)) is None
    assert said_next(Batch((row[:, :-1],), wrong, torch.zeros(3))) is None
    subject = tokens_of(Later(0))
    assert predicts_next(subject)
    assert not predicts_next(classes(tcn.classifier(3, 2)))


def test_the_demonstrations_hold_and_leave_the_generator_alone() -> None:
    before = torch.get_rng_state()
    assert derivative(derivative_demo()).verdict == Verdict.HOLDS
    assert replacement(replacement_demo()).verdict == Verdict.HOLDS
    assert torch.equal(torch.get_rng_state(), before)
