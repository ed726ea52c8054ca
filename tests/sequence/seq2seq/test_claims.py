"""The claims on encoder-decoders: they hold where they must, and see what is broken."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import margin
from margin.auditing.asking.side_effects import Snapshot
from margin.core.findings import Subject, Verdict
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.decoding import State
from margin.nn.seq2seq import BEGIN, END, Seq2Seq
from margin.sequence.seq2seq import claims as seq2seq_claims
from margin.sequence.seq2seq.claims import (
    aligned,
    alignment,
    by_length,
    demo,
    diagonal_terms,
    normalization,
    rows,
    search,
    smallest,
)
from margin.sequence.seq2seq.model import AttentionSeq2Seq, EncoderDecoder
from margin.theory.prediction.held_out import weighted_mean


def with_model(subject: Subject, model: nn.Module) -> Subject:
    return replace(subject, model=model)


def without_tokens(subject: Subject) -> Subject:
    batch = subject.test[0]
    lengths = batch.inputs[1].clone()
    lengths[0] = 0
    return replace(subject, test=[batch._replace(inputs=(batch.inputs[0], lengths, batch.inputs[2]))])


def test_rows_hold_with_padding_and_without_any_token() -> None:
    for subject in (demo(), without_tokens(demo())):
        found = rows(subject)
        assert found.verdict == Verdict.HOLDS
        assert float(found.value[1]) == 0


@pytest.mark.parametrize("broken", ["leak", "sum", "nan"])
def test_rows_see_a_wrong_mask_and_a_wrong_sum(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A softmax over padding too, one that is divided by a little more, and no number."""
    right = AttentionSeq2Seq.alignment

    def wrong(self: AttentionSeq2Seq, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        if broken == "leak":
            return right(self, source, torch.full_like(lengths, source.shape[1]), target)
        return right(self, source, lengths, target) * (1 - 1e-5 if broken == "sum" else math.nan)

    monkeypatch.setattr(AttentionSeq2Seq, "alignment", wrong)
    found = rows(demo())
    assert found.verdict == (Verdict.FAILED if broken == "nan" else Verdict.VIOLATED)
    gravest = {"leak": 1, "sum": 0, "nan": 0}[broken]
    assert found.verdicts[gravest] == found.verdict


def test_diagonal_shares_by_hand() -> None:
    """Three pairs of 3, 2 and 0 tokens: a copy, a reversal of which one place is wrong, and nothing."""
    weights = torch.zeros(3, 4, 4)
    for pair, most in enumerate(([0, 1, 2, 3], [1, 1, 0, 0], [0, 0, 0, 0])):
        weights[pair, torch.arange(4), torch.tensor(most)] = 1
    same, back = map(weighted_mean, diagonal_terms(weights, torch.tensor([3, 2, 0]), torch.ones(3, 4)))
    # the copy: 3 of 3 at the same place, 1 (the middle) from the end; the other: 1 of 2, and 1 of 2
    assert float(same.mean) == pytest.approx(4 / 5)
    assert float(back.mean) == pytest.approx(2 / 5)
    counted = torch.ones(3, 4)
    counted[0] = 0
    same, back = map(weighted_mean, diagonal_terms(weights, torch.tensor([3, 2, 0]), counted))
    assert (float(same.mean), float(back.mean)) == (0.5, 0.5)


def test_the_end_of_a_source_is_no_place() -> None:
    """A model that reads each word backward is told so although every source ends with END."""
    subject = demo()
    ((_, source, lengths, _),), _ = aligned(subject)
    tokens = lengths - 1
    place = torch.arange(source.shape[1])
    most = (tokens[:, None] - 1 - place).clamp_min(0)
    backward = nn.functional.one_hot(most, source.shape[1]).float()

    class Known(AttentionSeq2Seq):
        def alignment(self, source: Tensor, source_lengths: Tensor | None, target: Tensor) -> Tensor:
            return backward

    known = Known(5, 5, embedding=2, hidden=2, attention=2)
    found = alignment(with_model(subject, known))
    assert float(found.value[1]) == 1
    assert found.verdict == Verdict.MEASURED
    picture = found.curves["alignment"]
    longest = int(lengths.max())
    assert picture.shape == (longest, longest)  # its letters and END; the longest source is shown
    assert picture[: longest - 1].argmax(1).tolist() == list(range(longest - 1))[::-1]


@pytest.mark.parametrize("kind", [EncoderDecoder, AttentionSeq2Seq])
def test_probabilities_sum_to_one(kind: type) -> None:
    torch.manual_seed(0)
    found = normalization(with_model(demo(), kind(5, 5, embedding=3, hidden=4)))
    assert found.verdict == Verdict.HOLDS
    assert "within 7 tokens" in found.statement  # 4^6 beginnings of 7 logits of 5 tokens


def test_a_decoder_that_looks_ahead_does_not_sum_to_one() -> None:
    """The logits at a step depend on how many tokens follow: a mutant that no single softmax shows."""

    class Ahead(EncoderDecoder):
        def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
            logits = super().forward(source, source_lengths, target)
            later = torch.arange(target.shape[1]).flip(0).to(logits)
            return logits + later[:, None] * torch.arange(5).to(logits) / 10

    torch.manual_seed(0)
    found = normalization(with_model(demo(), Ahead(5, 5, embedding=3, hidden=4)))
    assert found.verdict == Verdict.VIOLATED


class Known(Seq2Seq):
    """A model whose next token depends on the last one alone, by a table of probabilities."""

    def __init__(self, table: list[list[float]]) -> None:
        super().__init__()
        self.log_p = nn.Parameter(torch.tensor(table, dtype=torch.float64).log())

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        return self.log_p[target]

    def initial(self, source: Tensor, source_lengths: Tensor | None = None) -> State:
        return (torch.zeros(len(source), 1),)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        return self.log_p[token], state


GARDEN = [[0.4, 0.3, 0.3], [0.6, 0.0, 0.4], [1 / 3, 1 / 3, 1 / 3]]
"""After BEGIN (1): 0 with .6, the end with .4. After 0: 0 again with .4, the end with .3."""


def test_an_exhaustive_search_is_promised_to_lose_nothing() -> None:
    """Greedy takes 0 (.6) and then 0 for ever: it has no end. With an end at .45 it has one, of .6 x .45."""
    subject = with_model(smallest(), Known([[0.3, 0.25, 0.45], *GARDEN[1:]]))
    found = search(subject)
    assert found.verdict == Verdict.HOLDS
    assert float(found.low) == 0
    # the end at once, .4, is more than .6 x .45
    assert float(found.value) == pytest.approx(math.log(0.4 / (0.6 * 0.45)), abs=1e-6)
    assert "more probable in 6, less in 0" in found.statement
    assert search(with_model(smallest(), Known(GARDEN))).verdict == Verdict.FAILED  # no greedy one ends


def test_a_search_that_loses_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Seq2Seq.translate

    def wrong(self: Seq2Seq, *given: Tensor, width: int, longest: int) -> object:
        found = right(self, *given, width=width, longest=longest)
        return found if width == 1 else found._replace(log_probability=found.log_probability - 3)

    monkeypatch.setattr(Seq2Seq, "translate", wrong)
    subject = with_model(smallest(), Known([[0.3, 0.25, 0.45], *GARDEN[1:]]))
    assert search(subject).verdict == Verdict.VIOLATED


def test_a_search_that_loses_one_translation_is_seen_whatever_the_others_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Seq2Seq.translate

    def wrong(self: Seq2Seq, *given: Tensor, width: int, longest: int) -> object:
        found = right(self, *given, width=width, longest=longest)
        lost = found.log_probability.clone()
        lost[0] -= 0.0 if width == 1 else 1.0  # the others gain .39 each
        return found._replace(log_probability=lost)

    monkeypatch.setattr(Seq2Seq, "translate", wrong)
    subject = with_model(smallest(), Known([[0.3, 0.25, 0.45], *GARDEN[1:]]))
    assert search(subject).verdict == Verdict.VIOLATED


def test_a_beam_alone_promises_nothing() -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(5, 5, embedding=3, hidden=4)
    with torch.no_grad():
        model.readout.bias[END] += 1
    found = search(with_model(demo(), model))
    assert found.verdict == Verdict.MEASURED
    assert found.low is None
    assert "a beam of 5" in found.statement


def test_accuracy_by_length_by_hand() -> None:
    """A model that is right on sources of 1 to 3 tokens, and wrong on longer ones."""

    class Short(nn.Module):
        def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
            token = torch.where(lengths <= 3, 4, 3)
            return nn.functional.one_hot(token, 5).float()[:, None].expand(-1, target.shape[1], -1)

    lengths = torch.arange(1, 10).repeat(2)
    source, asked = torch.full((18, 9), 3), torch.full((18, 2), 4)
    shown = torch.full((18, 2), BEGIN)
    batch = Batch((source, lengths, shown), asked, torch.ones(18, 2))
    subject = Subject(model=Short(), test=[batch], task=TOKENS, objective=risk(TOKENS))
    found = by_length(subject)
    assert float(found.value) == -1
    assert found.curves["tokens of the source"].tolist() == list(range(1, 10))
    assert found.curves["share of right next tokens"].tolist() == [1.0] * 3 + [0.0] * 6
    two = batch._replace(inputs=(source, torch.tensor([3, 5]).repeat(9), shown))
    assert float(by_length(replace(subject, test=[two])).value) == -1  # the ends of both thirds count
    one = batch._replace(inputs=(source, torch.full((18,), 4), shown))
    assert by_length(replace(subject, test=[one])).verdict == Verdict.FAILED


def test_lengths_are_told_in_whole_tokens() -> None:
    """The thirds of 1, 2, 4, 8, 16 lie between lengths: at 2 2/3 and 6 2/3 of linear interpolation."""
    subject = demo()
    asked = torch.full((5, 2), 4)
    inputs = (torch.full((5, 16), 3), torch.tensor([1, 2, 4, 8, 16]), torch.full((5, 2), BEGIN))
    batch = Batch(inputs, asked, torch.ones(5, 2))
    found = by_length(replace(subject, test=[batch]))
    assert "has 8 tokens or more, less that where it has at most 2." in found.statement


def test_who_is_asked() -> None:
    other = with_model(demo(), nn.Linear(1, 1))
    torch.manual_seed(0)
    plain = with_model(demo(), EncoderDecoder(5, 5))
    claims = margin.claims()

    def asked(name: str) -> list[bool]:
        return [not claims[f"sequence/{name}"].refusal(subject) for subject in (demo(), plain, other)]

    assert [asked(f"seq2seq.{name}") for name in ("normalization", "search", "by_length")] == [
        [True, True, False]
    ] * 3
    assert [asked(f"attention_seq2seq.{name}") for name in ("rows", "alignment")] == [
        [True, False, False]
    ] * 2
    with pytest.raises(ValueError, match="an encoder-decoder with attention: got EncoderDecoder"):
        alignment(plain)
    assert claims["sequence/attention_seq2seq.alignment"].refusal(plain).startswith("is asked only of")
    assert not claims["sequence/seq2seq.search"].refusal(plain)


@pytest.mark.parametrize("ask", [rows, alignment, normalization, search, by_length])
def test_asking_leaves_no_trace(ask: object) -> None:
    subject = demo()
    before = Snapshot.of(subject)
    assert callable(ask)
    ask(subject)
    assert not before.difference(subject)
    assert seq2seq_claims.demo().model is not subject.model
