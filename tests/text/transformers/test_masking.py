"""Hidden tokens: 15 % asked for, 80/10/10 shown, no special one; pairs of sentences; the loss of both."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator

from margin.data.formats.sequences.rows import Ragged
from margin.data.formats.text.corpus import Corpus
from margin.nn.losses import IGNORED
from margin.text.transformers import bert
from margin.text.transformers.masking import MASKED, MaskedPairs, luck, masked_loss

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
VOCAB = 25


def corpus(documents: int = 20, sentences: int = 5, words: int = 6, seed: int = 0) -> Corpus:
    g = Generator().manual_seed(seed)
    rows = [
        torch.randint(5, VOCAB, (int(n),), generator=g)
        for n in torch.randint(1, words + 1, (documents * sentences,), generator=g)
    ]
    return Corpus(Ragged.of(rows), torch.arange(documents).repeat_interleave(sentences), SPECIAL, VOCAB)


def within(count: int, n: int, p: float) -> bool:
    """Within 5 standard deviations of a binomial: fails with probability below 1e-6."""
    return abs(count - n * p) < 5 * math.sqrt(n * p * (1 - p))


def test_luck_is_even_and_a_function_of_its_place_alone() -> None:
    index, place = torch.arange(400)[:, None].expand(400, 50), torch.arange(50).expand(400, 50)
    draws = luck(7, index, place, 0)
    counts = (draws * 10).long().flatten().bincount(minlength=10)
    assert all(within(int(n), 20_000, 0.1) for n in counts)
    for one, other in (
        (draws[:-1], draws[1:]),
        (draws[:, :-1], draws[:, 1:]),
        (draws, luck(7, index, place, 1)),
        (draws, luck(8, index, place, 0)),
    ):
        r = torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1]
        assert abs(float(r)) < 5 / 19_000**0.5
    assert torch.equal(luck(7, index[3:5, :20], place[3:5, :20], 0), draws[3:5, :20])


def test_the_masking_rule() -> None:
    """Of a long corpus: the counts of each kind, and which tokens are never asked for."""
    pairs = MaskedPairs(corpus(400, 6, 30), VOCAB)
    batch = pairs.take(torch.arange(len(pairs)), Generator().manual_seed(0))
    shown, lengths, _ = batch.inputs
    real = torch.arange(shown.shape[1]) < lengths[:, None]
    targets = batch.targets.clone()
    targets[:, 0] = IGNORED
    asked = targets != IGNORED
    assert bool((asked <= real).all())
    assert not bool(torch.isin(targets[asked], torch.tensor(list(SPECIAL.values()))).any())
    assert not bool((asked & torch.isin(shown, torch.tensor([2, 3]))).any())
    ordinary = int((real & ~torch.isin(shown, torch.tensor([2, 3]))).sum())
    n = int(asked.sum())
    assert ordinary > 50_000
    # at least one of each text is asked for: of those of k tokens another .85^k
    counts = (real & ~torch.isin(shown, torch.tensor([2, 3]))).sum(1)
    expected = 0.15 * ordinary + float((0.85 ** counts.double()).sum())
    assert abs(n - expected) < 5 * math.sqrt(ordinary * 0.15 * 0.85)
    hidden = asked & (shown == 4)
    kept = asked & (shown == targets)
    other = asked & (shown != 4) & (shown != targets)
    words = VOCAB - len(SPECIAL)
    assert within(int(hidden.sum()), n, 0.8)
    assert within(int(kept.sum()), n, 0.1 + 0.1 / words)
    assert within(int(other.sum()), n, 0.1 * (1 - 1 / words))
    assert bool((shown[other] >= 5).all())
    assert not bool((~asked & (shown == 4)).any())


def test_the_pairs() -> None:
    data = corpus()
    pairs = MaskedPairs(data, VOCAB)
    rows = [row.tolist() for row in torch.split(data.sentences.steps, data.sentences.lengths.tolist())]
    first = [k for k in range(100) if k % 5 < 4]
    assert len(pairs) == 80 and pairs.firsts.tolist() == first
    seen = []
    for seed in range(30):
        batch = pairs.take(torch.arange(80), Generator().manual_seed(seed))
        shown, lengths, segments = batch.inputs
        original = torch.where(batch.targets == IGNORED, shown, batch.targets)
        original[:, 0] = shown[:, 0]
        for k in range(80):
            text = original[k, : int(lengths[k])].tolist()
            a = rows[first[k]]
            assert text[: len(a) + 2] == [2, *a, 3] and text[-1] == 3
            b, apart = text[len(a) + 2 : -1], int(batch.targets[k, 0])
            assert apart in (0, 1)
            assert (b == rows[first[k] + 1]) if not apart else (b in rows)
            assert segments[k].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (
                shown.shape[1] - len(text)
            )
            if apart and rows.count(b) == 1:
                assert rows.index(b) // 5 != first[k] // 5
            seen.append(apart)
    assert within(sum(seen), len(seen), 0.5)


def test_an_example_does_not_depend_on_its_batch() -> None:
    pairs = MaskedPairs(corpus(), VOCAB)
    together = pairs.take(torch.tensor([3, 40, 7]), Generator().manual_seed(5))
    alone = pairs.take(torch.tensor([40]), Generator().manual_seed(5))
    time = alone.targets.shape[1]
    assert torch.equal(together.targets[1, :time], alone.targets[0])
    assert torch.equal(together.inputs[0][1, :time], alone.inputs[0][0])
    other = pairs.take(torch.tensor([40]), Generator().manual_seed(6))
    assert other.inputs[0].shape != alone.inputs[0].shape or not torch.equal(other.inputs[0], alone.inputs[0])


def test_one_document_and_long_sentences() -> None:
    data = Corpus(
        Ragged.of([torch.full((n,), 5 + n % 7) for n in (600, 40, 700)]),
        torch.zeros(3).long(),
        SPECIAL,
        VOCAB,
    )
    pairs = MaskedPairs(data, VOCAB)
    for seed in range(20):
        batch = pairs.take(torch.arange(2), Generator().manual_seed(seed))
        assert batch.inputs[1].max() <= 512
        follows = batch.targets[:, 0] == 0
        assert batch.inputs[1].tolist()[0] == 512 or not follows[0]  # 469 of 600, and 40
        assert batch.inputs[1].tolist()[1] == 512 or not follows[1]


def test_the_loss_is_the_mean_of_the_hidden_plus_that_of_the_next() -> None:
    torch.manual_seed(0)
    model = bert.masked(VOCAB, 12, width=8, depth=1, heads=2, dropout=0.0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    batch = MaskedPairs(corpus(), VOCAB).take(torch.arange(6), Generator().manual_seed(1))
    logits, targets = model(*batch.inputs), batch.targets
    found = masked_loss(model, batch, Generator())
    for k in range(6):
        asked = [t for t in range(1, targets.shape[1]) if targets[k, t] != IGNORED]
        words = F.cross_entropy(logits[k, asked], targets[k, asked])
        follows = F.cross_entropy(logits[k, 0, :2], targets[k, 0])
        torch.testing.assert_close(found[k], words + follows)
        right = (logits[k, asked].argmax(1) == targets[k, asked]).float().mean()
        assert float(MASKED.scores["masked_accuracy"](logits, targets)[k]) == pytest.approx(float(right))
    right = (logits[:, 0].argmax(1) == targets[:, 0]).float()
    assert torch.equal(MASKED.scores["next_accuracy"](logits, targets), right)
    shown = MASKED.predict(logits)["follows"]
    torch.testing.assert_close(shown, 1 / (1 + (logits[:, 0, 1] - logits[:, 0, 0]).exp()))


def test_it_learns_which_sentence_follows() -> None:
    """A document says one word: two sentences follow each other where theirs are the same, of four."""
    torch.manual_seed(0)
    rows, documents = [torch.full((4,), 5 + k // 20) for k in range(80)], torch.arange(4)
    data = Corpus(Ragged.of(rows), documents.repeat_interleave(20), SPECIAL, VOCAB)
    pairs = MaskedPairs(data, VOCAB)
    model = bert.masked(VOCAB, 11, width=32, depth=2, heads=2, dropout=0.0)
    optimizer, g = torch.optim.AdamW(model.parameters(), 3e-3), Generator().manual_seed(0)
    for _ in range(200):
        batch = pairs.take(torch.randint(len(pairs), (32,), generator=g), g)
        optimizer.zero_grad()
        masked_loss(model, batch, g).mean().backward()
        optimizer.step()
    batch = pairs.take(torch.arange(60).repeat(5), g)
    logits = model(*batch.inputs)
    assert float((logits[:, 0].argmax(1) == batch.targets[:, 0]).float().mean()) > 0.95


def test_what_is_missing_is_refused() -> None:
    data = corpus()
    with pytest.raises(ValueError, match=r"got no \[MASK\]; read the corpus by --data.level wordpiece"):
        MaskedPairs(Corpus(data.sentences, data.documents, {"[CLS]": 2, "[SEP]": 3}, VOCAB), VOCAB)
    with pytest.raises(ValueError, match="a document must have two sentences: each of 100 has one"):
        MaskedPairs(Corpus(data.sentences, torch.arange(100), SPECIAL, VOCAB), VOCAB)
    with pytest.raises(
        ValueError, match=r"no longer than the 4 positions: the longest has 5 tokens; .*--model.places 5"
    ):
        bert.masked(VOCAB, 5, places=4)
