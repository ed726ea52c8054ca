"""Analogies by section: a planted direction is found, of the sections that are known, and no other."""

from dataclasses import replace

import pytest
import torch

from margin.core.catalog import claims
from margin.core.findings import NotAsked, Verdict
from margin.text.embeddings import analogy_claims
from margin.text.embeddings.analogy_claims import FAMILY, by_section, demo, sections
from margin.text.embeddings.claims import words_subject


def asked(vectors, words=FAMILY):
    return by_section(words_subject(vectors, tuple(words)))


def test_the_family_is_that_of_the_file(tmp_path, monkeypatch) -> None:
    """506 questions: each pair with each other, both in their order."""
    monkeypatch.delenv("MARGIN_DATA", raising=False)
    said, found = sections()
    assert "alone" in said and list(found) == ["family"] and len(found["family"]) == 23 * 22
    assert found["family"][0] == ("boy", "girl", "brother", "sister")
    (tmp_path / "wordemb").mkdir()
    lines = [": capital", "Athens Greece Oslo Norway", ": family", "boy girl king queen"]
    (tmp_path / "wordemb" / "questions-words.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    assert sections()[1] == {
        "capital": [("athens", "greece", "oslo", "norway")],
        "family": [("boy", "girl", "king", "queen")],
    }


def test_shares_are_of_each_section_and_of_all(monkeypatch) -> None:
    """One section by a common direction, another by random vectors, a third unknown."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(len(FAMILY), 30, generator=g)
    x[1:20:2] = x[:20:2] + 3 * torch.eye(30)[0]  # ten pairs apart by one direction, thirteen by chance
    pairs = list(zip(FAMILY[::2], FAMILY[1::2], strict=True))
    apart, chance = ([(*a, *b) for a in p for b in p if a != b] for p in (pairs[:10], pairs[10:]))
    few = [("boy", "girl", "king", "queen")] * 9
    given = {"apart": apart, "unknown": [("x", "y", "z", "u")] * 50, "chance": chance, "few": few}
    monkeypatch.setattr(analogy_claims, "sections", lambda: ("of a test", given))
    found = asked(x)
    assert found.labels == ("apart (90)", "chance (156)", "all (246)")
    right = found.value * torch.tensor([90, 156, 246])
    assert right[0] == 90 and right[1] < 16 and right[2] == right[0] + right[1]
    assert "246 of 305" in found.sample and found.verdict is Verdict.MEASURED
    assert (found.interval[0] <= found.value).all() and (found.value <= found.interval[1]).all()


def test_a_section_is_asked_two_hundred_times_at_most_and_evenly(monkeypatch) -> None:
    monkeypatch.delenv("MARGIN_DATA", raising=False)
    found = by_section(demo())
    assert found.labels == ("family (200)", "all (200)") and found.value.tolist() == [1.0, 1.0]
    right, wrong = ("boy", "girl", "king", "queen"), ("boy", "girl", "king", "tea")
    given = {"half": [wrong] * 250 + [right] * 250}
    monkeypatch.setattr(analogy_claims, "sections", lambda: ("of a test", given))
    assert by_section(demo()).value.tolist() == [0.5, 0.5]  # not the first, nor the last two hundred


def test_only_vectors_of_words_are_asked(monkeypatch) -> None:
    claim = claims()["text/vectors.analogies"]
    subject = demo()
    assert not claim.refusal(subject)
    other = torch.nn.Sequential(torch.nn.Embedding(len(subject.vocabulary), 3))
    assert "vectors of words" in claim.refusal(replace(subject, model=other))
    unknown = replace(subject, vocabulary=tuple(f"word{k}" for k in range(len(subject.vocabulary))))
    with pytest.raises(NotAsked, match="no section of analogies has 10"):
        by_section(unknown)
