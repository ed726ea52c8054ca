"""The smallest sequences that models train on: what the contracts and demonstrations use."""

from dataclasses import replace

import torch
from torch import Generator

from margin.data.examples import Arrays, Data
from margin.data.formats.sequences.sources import from_sequences
from margin.data.formats.series.sources import from_series
from margin.data.formats.text.corpus import from_corpus
from margin.data.formats.text.sources import from_text
from margin.data.formats.text.texts import from_texts
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.sets.copy_memory import copy_memory
from margin.data.sets.counting import anbn
from margin.data.sets.reversal import reversal
from margin.data.sets.synthetic_sequences import adding, parity, token_encoding
from margin.data.splits import Split


def ragged_classes() -> Data:
    """Sixty sequences of 0 .. 8 bits with their parity."""
    return parity(examples=60, shortest=0, longest=8)


def classes() -> Data:
    """Sixty noisy sequences of 8 steps and 2 numbers, in three classes by their frequency."""
    generator = Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    phase = torch.arange(8) * (1.0 + labels[:, None]) * 0.7
    waves = torch.stack((phase.sin(), phase.cos()), -1)
    noise = 0.3 * torch.randn(waves.shape, generator=generator)
    return from_sequences(waves + noise, labels, name="waves")


def values() -> Data:
    """Sixty sequences of the adding problem, 8 steps each."""
    return adding(examples=60, time=8, test=0.25, val=0.15)


def tokens() -> Data:
    """Sixty sequences of 12 tokens whose next token is the last but one, with rare mistakes."""
    generator = Generator().manual_seed(0)
    ids = torch.randint(5, (60, 13), generator=generator)
    wrong = torch.rand(60, 13, generator=generator) < 0.1
    for t in range(2, 13):
        ids[:, t] = torch.where(wrong[:, t], ids[:, t], ids[:, t - 2])
    return _tokens(ids)


def ragged_tokens() -> Data:
    """Forty strings a^n b^n of 2 .. 8 tokens."""
    return anbn(examples=40, longest=4, test_longest=6)


def copies() -> Data:
    """Forty sequences of the copy memory task with lag 2."""
    return copy_memory(examples=40, lag=2)


def pairs() -> Data:
    """Sixty words of 1 .. 5 letters with their reversal."""
    return reversal(examples=60, longest=5, symbols=4)


def corpus() -> Data:
    """Twelve documents of 4 to 6 sentences, each of which counts on from the one before, as WordPieces."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    documents = [
        "\n".join(" ".join(words[(k + 3 * j + i) % 10] for i in range(3)) for j in range(4 + k % 3))
        for k in range(12)
    ]
    tokens = Tokenization(level="wordpiece", vocab_size=80)
    return from_corpus(documents, name="counting on", tokens=tokens, test=0.2, val=0.2)


def series() -> Data:
    """Fifty windows of two noisy waves: 8 steps of 2 numbers, the next 3 steps of both."""
    generator = Generator().manual_seed(0)
    start = torch.arange(50)[:, None]
    phase = (start + torch.arange(11)) * 0.5
    noise = 0.1 * torch.randn(50, 11, 2, generator=generator)
    waves = torch.stack((phase.sin(), phase.cos()), -1) + noise
    cuts = {"train": slice(0, 30), "val": slice(30, 40), "test": slice(40, 50)}
    splits = {part: Arrays((waves[cut, :8],), waves[cut, 8:]) for part, cut in cuts.items()}
    return Data(
        name="two waves",
        splits=splits,
        spec={
            "input_size": 2,
            "time": 8,
            "in_features": 16,
            "horizon": 3,
            "num_targets": 2,
            "num_examples": 30,
        },
        encoding={
            "format": "series",
            "kind": "series",
            "task": "series",
            "shape": [8, 2],
            "dtype": "float32",
            "classes": [],
            "split": {"test": 0.2, "val": 0.2, "seed": 0, "official": False},
            "columns": ["sine", "cosine"],
            "targets": ["sine", "cosine"],
            "horizon": 3,
            "stride": 1,
            "time_column": None,
            "missing": "error",
            "about": [["windows", "8 steps of 2 numbers, the next 3 of both"]],
        },
    )


def _tokens(ids: torch.Tensor) -> Data:
    cuts = {"train": slice(0, 40), "val": slice(40, 50), "test": slice(50, 60)}
    splits = {part: Arrays((ids[cut, :-1],), ids[cut, 1:]) for part, cut in cuts.items()}
    return Data(
        name="repeated pairs",
        splits=splits,
        spec={"vocab_size": 5, "time": 12, "num_examples": 40},
        encoding=token_encoding("abcde", [12], Split(test=1 / 6, val=1 / 6))
        | {"about": [["tokens", "5 kinds, 12 each"]]},
    )


def waves() -> Data:
    """Seventy rows of two noisy waves of period 12, far from mean 0: 12 rows foretell the next 3 of both."""
    phase = torch.arange(70) * (2 * torch.pi / 12)
    noise = 0.1 * torch.randn(70, 2, generator=Generator().manual_seed(0))
    waves = torch.stack((100 + 10 * phase.sin(), -3 + phase.cos()), 1) + noise
    return from_series(waves, name="two waves", context=12, horizon=3)


def words() -> Data:
    """Six hundred words of two topics, ten words each, that keep to their own for a while."""
    generator = Generator().manual_seed(0)
    topic = (torch.arange(600) // 20) % 2
    drawn = torch.randint(10, (600,), generator=generator) + 10 * topic
    text = " ".join("abcdefghij"[k % 10] * (1 + k // 10) for k in drawn.tolist())
    rule = Tokenization(level="words", case="kept")
    return from_text(text, Split(test=0.1, val=0.1), "topics", rule, time=16)


def text() -> Data:
    """The same in blocks that begin where the last one ended."""
    data = words()
    return replace(
        data, splits={part: replace(blocks, start="fixed") for part, blocks in data.splits.items()}
    )


def reviews() -> Data:
    """Sixty texts of one to six words, whose class is that of the more frequent kind of word."""
    generator, kinds = Generator().manual_seed(0), (("good", "fine", "great"), ("bad", "poor", "awful"))
    labels = [k % 2 for k in range(60)]
    counts = torch.randint(1, 6, (60,), generator=generator).tolist()
    picks = torch.randint(3, (60, 6), generator=generator).tolist()
    rows = [
        " ".join([*(kinds[label][pick] for pick in row[:count]), *["film"] * (count > 2)])
        for label, row, count in zip(labels, picks, counts, strict=True)
    ]
    return from_texts(rows, labels, name="reviews", tokens=Tokenization())
