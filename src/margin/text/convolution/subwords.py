"""Words cut into pieces: WordPiece (Schuster and Nakajima 2012), byte-pair encoding (Sennrich et al. 2016).

These are the rules themselves, for reading and for checks. What data are read with is the package
``tokenizers`` (:mod:`margin.data.formats.text.tokenizers`), which gives the same pieces faster.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

GOES_ON = "##"
"""How a piece begins that does not begin a word."""


def wordpiece(word: str, vocabulary: Set[str], unknown: str = "[UNK]") -> list[str]:
    """The pieces of a word: from its beginning on, each time the longest that the vocabulary has.

    A piece after the first is looked up behind ``##``. Where none fits, the whole word is unknown.

    Args:
        word: The word, not empty.
        vocabulary: The pieces.
        unknown: What stands for a word that cannot be cut.

    Raises:
        ValueError: The word is empty.

    Reference: Wu et al. 2016, Section 4.1; the greedy match is that of Devlin et al. 2019's code.
    """
    if not word:
        raise ValueError("a word must have a letter: got ''")
    pieces, start = [], 0
    while start < len(word):
        mark = GOES_ON * (start > 0)
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in vocabulary), None)
        if end is None:
            return [unknown]
        pieces.append(mark + word[start:end])
        start = end
    return pieces


def train_wordpiece(counts: Mapping[str, int], size: int) -> list[str]:
    """The pieces of words that are seen so often: letters, then pairs joined one after the other.

    Each time the pair a, b of neighbors is joined whose count(ab) / (count(a) count(b)) is largest, ties by
    the pair's letters; so rare letters that belong together go before frequent ones that meet by chance.

    Args:
        counts: How often each word is seen.
        size: Pieces at most; the letters are all kept.

    Returns:
        The letters, sorted, and the joined pieces in their order.

    Reference: Schuster and Nakajima 2012, Section 3 (the likelihood of a model of single pieces); its rule as
    the ratio is that of the documentation of Hugging Face. The package joins the most frequent pair instead.
    """
    words = {word: [word[0], *(GOES_ON + letter for letter in word[1:])] for word in counts if word}
    pieces = sorted({piece for cut in words.values() for piece in cut})
    while len(pieces) < size:
        alone: Counter[str] = Counter()
        together: Counter[tuple[str, str]] = Counter()
        for word, cut in words.items():
            for piece in cut:
                alone[piece] += counts[word]
            for pair in pairwise(cut):
                together[pair] += counts[word]
        if not together:
            break
        first, second = min(together, key=lambda p: (-together[p] / (alone[p[0]] * alone[p[1]]), p))
        joined = first + second.removeprefix(GOES_ON)
        words = {word: _joined(cut, (first, second), joined) for word, cut in words.items()}
        pieces.append(joined)
    return pieces


def merged(pieces: Sequence[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """The pieces of a word after byte-pair encoding: the pair learned first is joined first, everywhere.

    Args:
        pieces: The word's letters or bytes.
        ranks: The pairs in the order in which they were learned, from 0.

    Reference: Sennrich, Haddow and Birch 2016, Section 3.2, Algorithm 1.
    """
    found = list(pieces)
    while len(found) > 1:
        pairs = [pair for pair in pairwise(found) if pair in ranks]
        if not pairs:
            break
        best = min(pairs, key=ranks.__getitem__)
        found = _joined(found, best, "".join(best))
    return found


def _joined(cut: Sequence[str], pair: tuple[str, str], joined: str) -> list[str]:
    """The pieces with the pair as one wherever it stands, from the left."""
    found: list[str] = []
    at = 0
    while at < len(cut):
        met = tuple(cut[at : at + 2]) == pair
        found.append(joined if met else cut[at])
        at += 2 if met else 1
    return found
