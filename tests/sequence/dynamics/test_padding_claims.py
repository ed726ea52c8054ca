"""Padding: models that heed the lengths, one that does not, and what is put behind the sequences."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, TOKENS
from margin.core.types import Batch
from margin.data.sets.tiny import sequences as tiny_sequences
from margin.engine.loop import risk
from margin.sequence.convolution import tcn
from margin.sequence.convolution.wavenet import WaveNet
from margin.sequence.dynamics.padding_claims import MORE, demo, invariance, padded, takes_lengths, told
from margin.sequence.linear import lru, mingru
from margin.sequence.recurrent import bidirectional, elman, gru, lstm

LENGTHS = torch.tensor([9, 0, 3, 1])
CLASSIFIERS = {
    "elman": lambda: elman.classifier(3, 2),
    "lstm": lambda: lstm.classifier(3, 2),
    "gru": lambda: gru.classifier(3, 2, reset="before"),
    "mingru": lambda: mingru.classifier(3, 2),
    "lru": lambda: lru.classifier(3, 2),
    "tcn": lambda: tcn.classifier(3, 2),
    "tcn mean": lambda: tcn.classifier(3, 2, pool="mean"),
    "bidirectional": lambda: bidirectional.classifier(3, 2),
}


class Deaf(nn.Module):
    """The sum over all steps, padding included, or over a sequence's own alone."""

    def __init__(self, heeds: bool) -> None:
        super().__init__()
        self.heeds = heeds

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if self.heeds and lengths is not None:
            x = x * (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
        return x.sum(1)


class Tagger(nn.Module):
    """Scores of each step from the steps to its own, or from all; what it says at padding is garbage."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x.cumsum(1) if self.causal else x - x.mean(1, keepdim=True)


class Cut(Tagger):
    """A tagger whose outputs end with the longest sequence."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return super().forward(x[:, : int(lengths.max())])


class Slight(Deaf):
    """The sum over a sequence's own steps, and a billionth of that over all."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return super().forward(x, lengths) + 1e-9 * x.sum(1)


def tagged(model: nn.Module, lengths: Tensor, weight: Tensor | None = None) -> Subject:
    batch = Batch((drawn(), lengths), torch.zeros(4, 9, dtype=torch.long), weight)
    return Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS))


def asked(model: nn.Module, *inputs: Tensor) -> Subject:
    batch = Batch(inputs, torch.zeros(len(inputs[0]), dtype=torch.long))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def drawn() -> Tensor:
    return torch.randn(4, 9, 3, generator=Generator().manual_seed(0))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_padding_changes_nothing_of_any_classifier(name: str) -> None:
    torch.manual_seed(0)
    model = CLASSIFIERS[name]()
    for inputs in ((drawn(), LENGTHS), (drawn(),)):
        assert invariance(asked(model, *inputs)).verdict == Verdict.HOLDS


def test_padding_changes_nothing_of_a_model_of_tokens() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(7, (4, 9), generator=Generator().manual_seed(0))
    for model in (WaveNet(7, width=4, layers=3), tcn.language(7), lstm.language(7)):
        subject = Subject(
            model=model, test=[Batch((tokens, LENGTHS), tokens)], task=TOKENS, objective=risk(TOKENS)
        )
        assert invariance(subject).verdict == Verdict.HOLDS


def test_a_model_that_does_not_heed_its_lengths_is_seen() -> None:
    for inputs in ((drawn(), LENGTHS), (drawn(),)):
        assert invariance(asked(Deaf(True), *inputs)).verdict == Verdict.HOLDS
        finding = invariance(asked(Deaf(False), *inputs))
        assert finding.verdict == Verdict.VIOLATED
        assert float(finding.value) > 1
    full = torch.full((4,), 9)
    assert (
        invariance(asked(Deaf(False), drawn(), full)).verdict == Verdict.VIOLATED
    )  # by the steps put behind


def test_what_a_tagger_says_at_padding_counts_for_nothing() -> None:
    weight = (torch.arange(9) < LENGTHS[:, None]).float()
    for given in (None, weight):
        assert invariance(tagged(Tagger(True), LENGTHS, given)).verdict == Verdict.HOLDS
        assert invariance(tagged(Tagger(False), LENGTHS, given)).verdict == Verdict.VIOLATED
    assert invariance(tagged(Cut(True), LENGTHS, weight)).verdict == Verdict.HOLDS
    assert invariance(tagged(Cut(False), LENGTHS, weight)).verdict == Verdict.VIOLATED


def test_a_tagger_of_no_steps_shows_nothing() -> None:
    finding = invariance(tagged(Tagger(True), 0 * LENGTHS))
    assert finding.verdict == Verdict.FAILED
    assert "no held-out sequence has a step" in finding.failure


def test_a_billionth_of_the_padding_is_seen() -> None:
    """ROUNDING = 1e-3 would not see it."""
    finding = invariance(asked(Slight(True), drawn(), LENGTHS))
    assert finding.verdict == Verdict.VIOLATED
    assert 1e-9 < float(finding.value) < 1e-6


def test_nan_fails() -> None:
    x = drawn()
    x[0, 0, 0] = torch.nan
    assert invariance(asked(Deaf(True), x, LENGTHS)).verdict == Verdict.FAILED


def test_what_is_put_behind_keeps_each_sequence_and_changes_all_else() -> None:
    x = drawn()
    got = padded(x, LENGTHS, Generator().manual_seed(0))
    assert got.shape == (4, 9 + MORE, 3)
    for i, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(got[i, :length], x[i, :length])
        assert not (got[i, length:9] == x[i, length:]).any()
    tokens = torch.randint(7, (4, 9), generator=Generator().manual_seed(0))
    ids = padded(tokens, LENGTHS, Generator().manual_seed(0))
    assert ids.dtype == torch.int64
    assert 0 <= int(ids.min()) <= int(ids.max()) <= int(tokens.max())


def test_which_models_are_told_the_lengths() -> None:
    x, tokens = drawn(), torch.zeros(4, 9, dtype=torch.long)
    assert told(asked(tcn.classifier(3, 2), x, LENGTHS)) == (0, True)
    assert told(asked(tcn.classifier(3, 2), x)) == (0, False)
    assert told(asked(nn.Flatten(), x)) is None
    assert told(asked(nn.Identity(), tokens, LENGTHS, tokens)) == (0, True)
    assert told(asked(nn.Identity(), x, LENGTHS + 1)) is None  # these are no lengths
    assert told(asked(nn.Identity(), x, LENGTHS[:2])) is None  # nor these, as the sizes of graphs
    assert takes_lengths(asked(Deaf(True), x))
    assert not takes_lengths(Subject(model=Deaf(True), test=[], task=CLASSES, objective=risk(CLASSES)))
    with pytest.raises(ValueError, match="told the lengths"):
        invariance(asked(nn.Flatten(), x))


def test_it_can_be_asked_of_real_batches_and_of_the_demonstration() -> None:
    before = torch.get_rng_state()
    assert invariance(demo()).verdict == Verdict.HOLDS
    assert torch.equal(torch.get_rng_state(), before)
    data = tiny_sequences.ragged_classes()
    batch = data.splits["train"].take(torch.arange(20), Generator())
    model = tcn.classifier(data.spec["input_size"], 2)
    assert invariance(asked(model, *batch.inputs)).verdict == Verdict.HOLDS
