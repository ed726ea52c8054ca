"""Causality: models that keep it, models that leak by a step, and a layer that reads from the end."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.engine.descent import risk
from margin.findings import Finding, Subject, Verdict
from margin.sequence import bidirectional, elman, gru, lru, lstm, mingru, minlstm, tcn
from margin.sequence.causality_claims import (
    cuts,
    derivative,
    derivative_demo,
    predicts_next,
    replacement,
    replacement_demo,
    said_next,
)
from margin.sequence.recurrence import Recurrence, State
from margin.sequence.wavenet import WaveNet
from margin.tasks import CLASSES, TOKENS
from margin.types import Batch

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


class LastOf(nn.Module):
    """The last output of a recurrence."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.r = recurrence

    def forward(self, x: Tensor) -> Tensor:
        return self.r(x)[0][:, -1]


class Later(nn.Module):
    """Logits at t from the token at t + shift: 0 keeps causality, 1 gives the answer away."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.embedding = nn.Embedding(5, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens.roll(-self.shift, 1))


def classes(model: nn.Module, *more: Tensor) -> Subject:
    x = torch.randn(4, 20, 3, generator=Generator().manual_seed(0))
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
    """The mean's largest derivative is 1, at the first step, and the leak's is its share."""
    layer = Leaking(0.25)
    model = LastOf(layer)
    finding = derivative(classes(model))
    assert finding.verdict == Verdict.VIOLATED
    assert value(finding) == pytest.approx(0.25, abs=1e-12)
    layer.share = 1e-9
    assert derivative(classes(model)).verdict == Verdict.VIOLATED
    layer.share = 0.0
    assert derivative(classes(model)).verdict == Verdict.HOLDS


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
