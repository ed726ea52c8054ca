"""Claims of word vectors: neighbors, similarity as people judge it, analogies, the optimum of skip-gram."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject, without_loss
from margin.core.tasks import CODES
from margin.data.examples import InOrder
from margin.engine.evaluation import in_double
from margin.nn.preprocessed import core_of
from margin.text.embeddings.counts import Counts, Entries, Words, cooccurrences
from margin.text.embeddings.skipgram import POWER, SkipGram, Windows
from margin.text.embeddings.spectral import SpectralWords, associations
from margin.text.embeddings.vectors import WordVectors
from margin.theory.prediction.risk import clopper_pearson

SHOWN, NEAR = 6, 5
"""Words whose neighbors are shown, and neighbors of each."""

FREQUENT, APART = 100, 20
"""Ranks by frequency: where words of meaning begin, and how far apart they are taken."""

LARGEST = 2000
"""Words of the vocabulary whose whole matrix is decomposed, at most."""

ROUNDING = 1e-5
"""Of vectors in float32, relative to the matrix."""


def has_words(subject: Subject) -> bool:
    """Whether the model has a vector for each of some words that are known; characters are none."""
    if 2 * sum(len(word) > 1 for word in subject.vocabulary) <= len(subject.vocabulary):
        return False
    core: Any = core_of(subject.model)
    tables = [m for m in core.modules() if isinstance(m, nn.Embedding)]
    sizes = {len(table.weight) for table in tables}
    return callable(getattr(core, "vectors", None)) or len(subject.vocabulary) in sizes


def shown_words(words: Sequence[str]) -> list[str]:
    """Frequent words of four letters and more, some ranks apart; the first words where there are too few."""
    meant = [word for word in words[FREQUENT:] if len(word) > 3 and word.isalpha()][::APART]
    return (meant if len(meant) >= SHOWN else [word for word in words if word.isalnum()] or list(words))[
        :SHOWN
    ]


def principal_plane(x: Float[Tensor, "points dim"]) -> Float[Tensor, "points two"]:
    """The points seen along their two directions of largest variance, each turned to its larger side."""
    centered = (x - x.mean(0)).double()
    U, S, _ = torch.linalg.svd(centered, full_matrices=False)
    sign = U.gather(0, U.abs().argmax(0, keepdim=True)).sign()
    plane = (U * sign * S)[:, :2]
    return torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))


@torch.no_grad()
def neighbors(subject: Subject) -> Finding:
    """The nearest neighbors of frequent words by the cosine, and both on a map.

    Args:
        subject: Any model with a table of tokens whose words are known.
    """
    vectors = WordVectors.of(subject.model, subject.vocabulary)
    near = {word: vectors.nearest(word, NEAR) for word in shown_words(vectors.words)}
    drawn = [*near, *(other for found in near.values() for other, _ in found)]
    plane = principal_plane(vectors.unit(torch.tensor([vectors.number(word) for word in drawn])))
    return Finding(
        statement=f"Cosine of {len(near)} frequent words to their nearest neighbors among {len(vectors):,} "
        "words. Near are words that stand in like company; opposites do too.",
        value=torch.tensor([cosine for found in near.values() for _, cosine in found], dtype=torch.float64),
        range=(-1.0, 1.0),
        labels=tuple(f"{word}: {other}" for word, found in near.items() for other, _ in found),
        remarks=tuple(f"{word}: {', '.join(other for other, _ in found)}." for word, found in near.items()),
        curves={"word map": plane},
    )


def fisher_interval(rho: float, count: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of a rank correlation by Fisher's transformation, with the variance of Bonett and Wright.

    Reference: Bonett and Wright 2000, Equation 3: (1 + rho^2 / 2) / (n - 3).
    """
    z = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64))
    half = float(z) * math.sqrt((1 + rho**2 / 2) / (count - 3))
    center = math.atanh(min(max(rho, -1 + 1e-12), 1 - 1e-12))
    return math.tanh(center - half), math.tanh(center + half)


def similarity(vectors: WordVectors, pairs: Sequence[tuple[str, str, float]], name: str) -> Finding:
    """Spearman's rank correlation of cosines with what people judged, over the pairs that are known.

    Args:
        vectors: Of words.
        pairs: Judged pairs, see :func:`margin.text.embeddings.vectors.read_pairs`.
        name: Of the set.

    Raises:
        ValueError: Fewer than ten pairs are known.
    """
    known = vectors.similarities(pairs)
    if len(known) < 10:
        raise ValueError(f"a rank correlation needs ten known pairs: got {len(known)} of {len(pairs)}")
    from scipy.stats import spearmanr

    rho = float(spearmanr(known[:, 0].numpy(), known[:, 1].numpy()).statistic)
    low, high = fisher_interval(rho, len(known), level=1 - 6e-5)
    least, most = fisher_interval(rho, len(known))
    return Finding(
        statement=f"Spearman's rank correlation of cosines with human judgments, {name}.",
        value=torch.tensor(rho, dtype=torch.float64),
        kind="estimate",
        interval=(torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)),
        printed=(torch.tensor(least, dtype=torch.float64), torch.tensor(most, dtype=torch.float64)),
        range=(-1.0, 1.0),
        sample=f"{len(known)} of {len(pairs)} pairs are known",
        reference="Bonett and Wright 2000, Equation 3",
    )


def analogies(vectors: WordVectors, questions: Sequence[Sequence[str]], name: str) -> Finding:
    """The share of analogies a : b = c : d whose d is the first answer, over those whose words are known.

    Args:
        vectors: Of words.
        questions: Four words each, see :func:`margin.text.embeddings.vectors.read_analogies`.
        name: Of the set.

    Raises:
        ValueError: No question has words that are all known.
    """
    answers = vectors.answers(questions)
    count, right = len(answers.right), int(answers.right.sum())
    if not count:
        raise ValueError(f"no analogy of {name} has words that are all known: got {len(questions)}")
    bounds = clopper_pearson(right, count, level=1 - 6e-5), clopper_pearson(right, count, level=0.95)
    wide, narrow = (tuple(torch.tensor(end, dtype=torch.float64) for end in ends) for ends in bounds)
    return Finding(
        statement=f"Share of analogies that are answered with the fourth word, {name}.",
        value=torch.tensor(right / count, dtype=torch.float64),
        kind="estimate",
        interval=(wide[0], wide[1]),
        printed=(narrow[0], narrow[1]),
        range=(0.0, 1.0),
        sample=f"{count:,} of {len(questions):,} have words that are known",
        reference="Mikolov, Yih and Zweig 2013, Section 4",
    )


def optimal_scores(counts: Counts, negatives: int, power: float) -> Float[Tensor, " entries"]:
    r"""Where the loss of each seen pair is least, were every score free: log C_ab / (C_a k q(b)).

    That is PMI - log k where q has the frequencies of the words, power 1.

    Reference: Levy and Goldberg 2014, Equations 6 to 8.
    """
    first, second = counts.margins
    noise = second.pow(power) / second.pow(power).sum()
    return counts.values.log() - (first[counts.rows] * negatives * noise[counts.columns]).log()


def examples_of(subject: Subject, kind: type) -> Any:
    """The examples that the model was trained on.

    Raises:
        NotAsked: They are of another kind.
    """
    found = getattr(subject.train, "examples", None)
    if not isinstance(found, kind):
        raise NotAsked("the text that the vectors were trained on is not at hand")
    return found


@torch.no_grad()
def shifted_pmi(subject: Subject) -> Finding:
    """How far scores of seen pairs rise with the logarithm of counts that they are at the optimum.

    Args:
        subject: A skip-gram model and its training text.
    """
    core: Any = core_of(subject.model)
    examples = examples_of(subject, Windows)
    counts = cooccurrences(examples.words, examples.window, core.words.num_embeddings)
    best = optimal_scores(counts, examples.negatives, POWER)
    x, y = core.words.weight[counts.rows].double(), core.contexts.weight[counts.columns].double()
    pair = torch.stack(((x * y).sum(1).cpu(), best))
    covariance = pair.cov(aweights=counts.values)
    scale = covariance.diagonal().prod().sqrt()
    return Finding(
        statement="Correlation of the scores x . y with their optimum log C_ab / (C_a k q(b)), PMI - log k "
        f"up to the power of the noise, over the {len(counts.values):,} pairs that are seen, by how often. "
        "Vectors of few numbers cannot reach it everywhere, nor a training that ends before.",
        value=torch.where(scale == 0, scale, covariance[0, 1] / scale).clamp(-1, 1),  # 0 of constant scores
        range=(-1.0, 1.0),
    )


@torch.no_grad()
def best_rank(subject: Subject) -> Finding:
    """What a product of rank k leaves of the matrix, against the least that any leaves.

    Args:
        subject: Vectors by a truncated decomposition, and the counts that they are of.

    Raises:
        NotAsked: The vocabulary is too large for a whole decomposition.
    """
    core = in_double(core_of(subject.model))
    if not isinstance(core, SpectralWords):
        raise ValueError(f"this is asked of singular vectors of words: got {type(core).__name__}")
    size = core.words.num_embeddings
    if size > LARGEST:
        raise NotAsked(f"a whole decomposition takes {LARGEST:,} words at most: got {size:,}")
    counts = examples_of(subject, Entries).counts
    M = associations(Counts(counts.rows, counts.columns, counts.values, size), core.matrix).dense()
    total = M.square().sum()
    left = (M - (core.words.weight @ core.contexts.weight.T).cpu()).square().sum()
    least = torch.linalg.svdvals(M)[len(core.spectrum) :].square().sum()
    return Finding(
        statement=f"No product of rank {len(core.spectrum)} is nearer to the matrix: the share of squares "
        "that this one leaves out, against the tail of the spectrum.",
        value=left / total,
        range=(0.0, math.inf),
        equals=least / total,
        tolerance=ROUNDING,
    )


def words_demo() -> Subject:
    """Five words in a plane, the first two near each other."""
    vectors = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.2], [0.1, -1.0]])
    return words_subject(vectors, ("king", "queen", "tea", "rain", "stone"))


def words_subject(vectors: Float[Tensor, "words dim"], words: tuple[str, ...]) -> Subject:
    """A skip-gram model of these vectors, on a text of each word once."""
    count, dim = vectors.shape
    model = SkipGram(count, dim=dim)
    model.words.weight.data.copy_(vectors)
    law = torch.arange(1.0, count + 1)
    batch = Windows(Words(torch.arange(count)), 2, 1, torch.ones(count), law, 2)
    return Subject(
        model=model.eval(),
        test=InOrder(batch, 1),
        task=CODES,
        objective=without_loss,
        vocabulary=words,
    )


def counts_demo() -> Subject:
    """A text of six words, and its singular vectors of rank 3."""
    words = Words(torch.randint(6, (80,), generator=Generator().manual_seed(0)))
    entries = Entries(cooccurrences(words, 2, 6))
    model = SpectralWords(6, dim=3).double()
    U, S, Vh = torch.linalg.svd(associations(entries.counts, "ppmi").dense())
    model.words.weight.data.copy_((U * S.sqrt())[:, :3])
    model.contexts.weight.data.copy_((Vh.T * S.sqrt())[:, :3])
    model.get_buffer("spectrum").copy_(S[:3])
    batches = InOrder(entries, len(entries), dtype=torch.float64)
    return Subject(model=model.eval(), test=batches, train=batches, task=CODES, objective=without_loss)


def optimum_demo() -> Subject:
    """A skip-gram model of as many numbers as words, at its optimum on the pairs of a text."""
    words = Words(torch.randint(6, (300,), generator=Generator().manual_seed(0)))
    law = words.ids.bincount().double().pow(POWER).cumsum(0).float()
    examples = Windows(words, 2, 5, torch.ones(6), law, 8)
    counts = cooccurrences(words, 2, 6)
    scores = counts.dense(optimal_scores(counts, 5, POWER))
    model = SkipGram(6, dim=6, window=2).double()
    model.words.weight.data.copy_(torch.eye(6))
    model.contexts.weight.data.copy_(scores.T)
    batches = InOrder(examples, 1, dtype=torch.float64)
    return Subject(model=model.eval(), test=batches, train=batches, task=CODES, objective=without_loss)
