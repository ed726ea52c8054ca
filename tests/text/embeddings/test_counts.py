"""Counts of words and their mutual information against hand counts and brute force."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Generator

from margin.data.formats.sequences.rows import Ragged
from margin.math.probability.information import mutual_information
from margin.text.embeddings.counts import Words, cooccurrences, pmi


def counted(ids: torch.Tensor, window: int, size: int, sentence: torch.Tensor | None = None) -> torch.Tensor:
    """The definition, pair by pair."""
    C = torch.zeros(size, size, dtype=torch.float64)
    for i in range(len(ids)):
        for j in range(len(ids)):
            same = sentence is None or sentence[i] == sentence[j]
            if 1 <= abs(i - j) <= window and same:
                C[ids[i], ids[j]] += 1
    return C


@pytest.mark.parametrize("window", [1, 3, 40])
def test_counts_are_those_of_the_definition(window: int) -> None:
    ids = torch.randint(7, (30,), generator=Generator().manual_seed(0))
    C = cooccurrences(Words(ids), window, 8).dense()
    assert torch.equal(C, counted(ids, window, 8))
    assert torch.equal(C, C.T)
    total = 2 * sum(30 - r for r in range(1, min(window, 29) + 1))
    assert C.sum() == total


def test_no_pair_leaves_its_sentence() -> None:
    rows = Ragged.of([torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([0, 2])])
    words = Words.of(SimpleNamespace(sentences=rows))
    C = cooccurrences(words, 2, 4).dense()
    assert torch.equal(C, counted(words.ids, 2, 4, words.sentence))
    assert C[2, 3] == 0 and C[0, 2] == 2


def test_harmonic_counts_divide_by_the_distance() -> None:
    C = cooccurrences(Words(torch.tensor([0, 1, 2])), 2, 3, "harmonic").dense()
    assert torch.equal(C, torch.tensor([[0, 1, 0.5], [1, 0, 1], [0.5, 1, 0]], dtype=torch.float64))


def test_pmi_of_a_corpus_by_hand() -> None:
    """a b a c, window 1: the pairs are ab ba, ba ab, ac ca; |C| = 6, a has 3, b 2, c 1."""
    counts = cooccurrences(Words(torch.tensor([0, 1, 0, 2])), 1, 3)
    found = {
        (int(a), int(b)): float(v) for a, b, v in zip(counts.rows, counts.columns, counts.pmi(), strict=True)
    }
    assert found == pytest.approx(
        {(0, 1): math.log(2 * 6 / (3 * 2)), (1, 0): math.log(2), (0, 2): math.log(6 / 3), (2, 0): math.log(2)}
    )


def test_pmi_of_independent_words_is_0_and_its_mean_the_mutual_information() -> None:
    p, q = torch.tensor([0.2, 0.8], dtype=torch.float64), torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    joint = p[:, None] * q
    torch.testing.assert_close(pmi(joint, p[:, None], q), torch.zeros_like(joint), atol=1e-15, rtol=0)
    generator = Generator().manual_seed(0)
    for _ in range(20):
        P = torch.rand(3, 4, generator=generator, dtype=torch.float64)
        P[0, 1] = 0
        P /= P.sum()
        values = pmi(P, P.sum(1, keepdim=True), P.sum(0))
        assert values[0, 1] == -torch.inf
        mean = float((P * values)[P > 0].sum())
        assert mean == pytest.approx(float(mutual_information(P))) and mean >= 0


def test_a_table_of_numbers_is_no_text() -> None:
    with pytest.raises(ValueError, match="word vectors need a text"):
        Words.of(SimpleNamespace(inputs=(torch.zeros(3),)))
    with pytest.raises(ValueError, match="window must be at least 1"):
        cooccurrences(Words(torch.tensor([0, 1])), 0, 2)
