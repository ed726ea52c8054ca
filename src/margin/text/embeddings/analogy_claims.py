"""Analogies by section (Mikolov et al. 2013): which relations of words are a direction of the vectors."""

import os
from collections.abc import Mapping, Sequence
from itertools import permutations

import torch

from margin.core.findings import Finding, NotAsked, Subject, odd_parameter
from margin.data.data_home import folder_of
from margin.nn.preprocessed import core_of
from margin.text.embeddings.claims import words_subject
from margin.text.embeddings.models import GloVe, LogBilinear
from margin.text.embeddings.skipgram import SkipGram
from margin.text.embeddings.spectral import SpectralWords
from margin.text.embeddings.vectors import WordVectors, read_sections
from margin.theory.prediction.risk import clopper_pearson

EACH = 200
"""Analogies of a section that are asked at most, evenly spaced among those whose words are known."""

LEAST = 10
"""Known analogies below which a section is left out."""

PAIRS = (
    "boy girl brother sister brothers sisters dad mom father mother grandfather grandmother grandpa grandma "
    "grandson granddaughter groom bride he she his her husband wife king queen man woman nephew niece "
    "policeman policewoman prince princess son daughter sons daughters stepbrother stepsister stepfather "
    "stepmother stepson stepdaughter uncle aunt"
)
"""The pairs of the section "family", which is asked where the file of all sections is not there."""

FAMILY = tuple(PAIRS.split())

QUESTIONS = ("wordemb", "questions-words.txt")
"""The set and its file, the analogies of word2vec."""


def sections() -> tuple[str, Mapping[str, Sequence[tuple[str, str, str, str]]]]:
    """What is asked, in words, and the analogies of each section: of word2vec's file, or its family alone."""
    if os.environ.get("MARGIN_DATA") and (path := folder_of(QUESTIONS[0]) / QUESTIONS[1]).is_file():
        return f"of {QUESTIONS[1]}", read_sections(path)
    pairs = list(zip(FAMILY[::2], FAMILY[1::2], strict=True))
    return "of the section family alone", {"family": [(*a, *b) for a, b in permutations(pairs, 2)]}


def learns_words(subject: Subject) -> bool:
    """Whether the model is vectors of words and nothing else."""
    return isinstance(core_of(subject.model), SkipGram | GloVe | LogBilinear | SpectralWords)


@torch.no_grad()
def by_section(subject: Subject) -> Finding:
    """The share of analogies a : b = c : d whose first answer, by b - a + c, is d; by section, and of all.

    Args:
        subject: Vectors of words.

    Raises:
        NotAsked: No section has ten analogies whose words are known.
    """
    vectors = WordVectors.of(subject.model, subject.vocabulary)
    said, found = sections()
    counts, total = {}, 0
    for name, questions in found.items():
        known = [four for four in questions if all(word in vectors.numbers for word in four)]
        total += len(questions)
        if len(known) >= LEAST:
            asked = [known[k * len(known) // EACH] for k in range(EACH)] if len(known) > EACH else known
            counts[name] = int(vectors.answers(asked).right.sum()), len(asked)
    if not counts:
        raise NotAsked(f"no section of analogies has {LEAST} whose words are all known")
    counts["all"] = sum(right for right, _ in counts.values()), sum(asked for _, asked in counts.values())
    wide, narrow = (
        torch.tensor(
            [[float(end) for end in clopper_pearson(*pair, level=level)] for pair in counts.values()]
        )
        for level in (1 - 6e-5, 0.95)
    )
    return Finding(
        statement=f"Share of analogies {said} that are answered with the fourth word, among {len(vectors):,} "
        "words: how far a relation is one direction of the vectors. Sections with fewer than "
        f"{LEAST} known analogies are left out.",
        value=torch.tensor([right / count for right, count in counts.values()], dtype=torch.float64),
        kind="estimate",
        interval=(wide[:, 0].double(), wide[:, 1].double()),
        printed=(narrow[:, 0].double(), narrow[:, 1].double()),
        range=(0.0, 1.0),
        failure=odd_parameter(subject.model),
        labels=tuple(f"{name} ({count:,})" for name, (_, count) in counts.items()),
        sample=f"{counts['all'][1]:,} of {total:,} analogies are asked, {EACH} a section at most",
    )


def demo() -> Subject:
    """The words of a family whose vectors are a person plus a sex, and two other words."""
    words = (*FAMILY, "tea", "stone")
    x = torch.randn(len(words), 40, generator=torch.Generator().manual_seed(0))
    x[1 : len(FAMILY) : 2] = x[: len(FAMILY) : 2] + 3 * torch.eye(40)[0]
    return words_subject(x, words)
