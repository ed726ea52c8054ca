"""Claims of word vectors: right on a known case, otherwise on a wrong one."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import spearmanr
from torch import Generator

from margin.core.findings import NotAsked, Verdict
from margin.figures.svg import drawing
from margin.text.embeddings import claims
from margin.text.embeddings.counts import Words, cooccurrences
from margin.text.embeddings.figures import word_map
from margin.text.embeddings.skipgram import SkipGram
from margin.text.embeddings.vectors import WordVectors


def test_neighbors_are_named_and_drawn() -> None:
    found = claims.neighbors(claims.words_demo())
    assert found.labels[0] == "king: queen" and found.verdict is Verdict.MEASURED
    assert found.value[0] == pytest.approx(0.9 / (0.81 + 0.01) ** 0.5)
    assert found.remarks[0].startswith("king: queen, ")
    with drawing() as (_, axes):
        assert "5 frequent words" in word_map(axes, found)
        assert {text.get_text() for text in axes.texts} == {"king", "queen", "tea", "rain", "stone"}
        assert word_map(axes, replace(found, curves={})) == ""


def test_any_model_with_a_row_a_word_is_asked_and_no_other() -> None:
    subject = claims.words_demo()
    assert claims.has_words(subject)
    assert not claims.has_words(replace(subject, vocabulary=subject.vocabulary[:4]))
    assert not claims.has_words(replace(subject, vocabulary=tuple("abcde")))
    assert not claims.has_words(replace(subject, vocabulary=()))
    assert claims.has_words(replace(subject, model=torch.nn.Sequential(torch.nn.Embedding(5, 3))))


def test_frequent_words_are_words_of_meaning() -> None:
    words = [
        "the",
        ",",
        *(f"{'abcdefghij'[k % 10]}{'klmnopqrst'[k // 10 % 10]}word{'xyz'[k % 3]}" for k in range(300)),
    ]
    assert claims.shown_words(words) == [words[100 + 20 * k] for k in range(6)]
    assert claims.shown_words(["the", ",", "of"]) == ["the", "of"]


def test_the_plane_is_that_of_the_principal_components() -> None:
    x = torch.randn(30, 5, generator=Generator().manual_seed(0)) * torch.tensor([9.0, 4, 1, 1, 1])
    plane = claims.principal_plane(x)
    values = torch.linalg.eigvalsh((x - x.mean(0)).double().T.cov(correction=0)).flip(0)
    assert plane.square().mean(0).tolist() == pytest.approx(values[:2].tolist())
    assert claims.principal_plane(torch.ones(2, 1)).shape == (2, 2)


def test_a_rank_correlation_has_an_interval_that_covers() -> None:
    """Of normal pairs of correlation r Spearman's is (6 / pi) asin(r / 2): 95 % of intervals hold it."""
    generator, r, hits = Generator().manual_seed(0), 0.6, 0
    truth = 6 / torch.pi * torch.asin(torch.tensor(r / 2)).item()
    for _ in range(400):
        x = torch.randn(80, 2, generator=generator, dtype=torch.float64)
        y = r * x[:, 0] + (1 - r**2) ** 0.5 * x[:, 1]
        low, high = claims.fisher_interval(float(spearmanr(x[:, 0], y).statistic), 80)
        hits += low <= truth <= high
    assert 360 <= hits <= 396  # fails by chance 1 time in 1e4 at a coverage of .94 to .96


def test_similarity_and_analogies_are_findings_with_their_samples() -> None:
    words = tuple(f"w{k}" for k in range(30))
    vectors = WordVectors(words, torch.randn(30, 4, generator=Generator().manual_seed(0)))
    pairs = [(words[k], words[k + 1], vectors.similarity(words[k], words[k + 1]) ** 3) for k in range(20)]
    found = claims.similarity(vectors, [*pairs, ("w0", "none", 1.0)], "a set")
    assert found.value.item() == pytest.approx(1.0) and "20 of 21" in found.sample
    with pytest.raises(ValueError, match="ten known pairs: got 9 of 9"):
        claims.similarity(vectors, pairs[:9], "a set")
    right = [(a, b, c, vectors.analogy(a, b, c)[0][0]) for a, b, c in (words[k : k + 3] for k in range(10))]
    wrong = [(*question[:3], "w29" if question[3] != "w29" else "w28") for question in right[:5]]
    found = claims.analogies(vectors, [*right, *wrong, ("w0", "w1", "w2", "none")], "a set")
    assert found.value.item() == pytest.approx(10 / 15) and "15 of 16" in found.sample
    assert found.shown[0] < 10 / 15 < found.shown[1]
    with pytest.raises(ValueError, match="no analogy of a set"):
        claims.analogies(vectors, [("x", "y", "z", "u")], "a set")


def test_the_optimum_of_free_scores_is_where_the_loss_has_no_slope() -> None:
    counts = cooccurrences(Words(torch.randint(5, (90,), generator=Generator().manual_seed(0))), 2, 5)
    C, S = counts.dense(), counts.dense(claims.optimal_scores(counts, 3, 0.75))
    noise = C.sum(0).pow(0.75) / C.sum(0).pow(0.75).sum()
    slope = -C * (-S).sigmoid() + 3 * C.sum(1, keepdim=True) * noise * S.sigmoid()
    torch.testing.assert_close(slope[C > 0], torch.zeros_like(slope[C > 0]), atol=1e-10, rtol=0)
    even = claims.optimal_scores(counts, 3, 1.0)
    torch.testing.assert_close(even, counts.pmi() - torch.tensor(3.0, dtype=torch.float64).log())


def test_scores_at_the_optimum_correlate_wholly_and_random_ones_do_not() -> None:
    subject = claims.optimum_demo()
    assert claims.shifted_pmi(subject).value.item() == pytest.approx(1.0)
    torch.manual_seed(0)
    other = SkipGram(6, dim=6, window=2).double()
    torch.nn.init.normal_(other.contexts.weight)
    assert abs(claims.shifted_pmi(replace(subject, model=other)).value.item()) < 0.8
    with pytest.raises(NotAsked):
        claims.shifted_pmi(replace(subject, train=list(subject.train)))


def test_no_product_of_a_rank_is_nearer_than_the_truncated_decomposition() -> None:
    subject = claims.counts_demo()
    assert claims.best_rank(subject).verdict is Verdict.HOLDS
    with torch.no_grad():
        subject.model.words.weight[0, 0] += 0.1
    assert claims.best_rank(subject).verdict is Verdict.VIOLATED
