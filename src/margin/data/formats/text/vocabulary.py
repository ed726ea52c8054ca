"""Tokens of a text and their numbers: characters, or words and marks, and a vocabulary of those in training.

A word is a run of letters and digits, with single apostrophes and hyphens inside it; every other mark is a
token of its own, and so is a line break. No blank is kept, so words are joined by blanks again.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Level = Literal["characters", "words", "wordpiece", "bpe"]
"""What a token is."""

Case = Literal["kept", "lower"]
"""Whether capitals are told from small letters."""

UNKNOWN = "<unk>"
"""What stands for a token that is not in the vocabulary."""

WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]|\n")


def composed(text: str, case: Case) -> str:
    """A text in Unicode's normal form C, its capitals kept or made small."""
    text = unicodedata.normalize("NFC", text)
    return text.lower() if case == "lower" else text


def tokens_of(text: str, level: Level, case: Case) -> list[str]:
    """The characters or words of a text in order, of its Unicode normal form C."""
    text = composed(text, case)
    return list(text) if level == "characters" else WORD.findall(text)


def text_of(tokens: Iterable[str], level: Level) -> str:
    """Tokens as text: characters as they come, words with blanks between, none around a line break."""
    if level == "characters":
        return "".join(tokens)
    return re.sub(" ?\n ?", "\n", " ".join(tokens))


def written(ids: Sequence[int], vocabulary: Sequence[str]) -> str:
    """Tokens as a person reads them: pieces joined to words, no padding, what is special in brackets.

    Pieces of bytes that are no letters by themselves stay as the vocabulary writes them.
    """
    padding = vocabulary[0] if vocabulary[0] in ("<pad>", "[PAD]") else ""
    tokens = [vocabulary[k] for k in ids if 0 <= k < len(vocabulary)]
    tokens = [token for token in tokens if token != padding]
    if any("\u0120" in token for token in vocabulary):  # byte pairs write a blank so
        return "".join(tokens).replace("\u0120", " ").replace("\u010a", "\n").strip()
    if all(len(token) == 1 or token[0] + token[-1] == "<>" for token in vocabulary):
        return "".join(tokens)
    return " ".join(tokens).replace(" ##", "")


def vocabulary_of(
    tokens: Iterable[str], *, min_count: int = 1, special: Sequence[str] = ()
) -> tuple[str, ...]:
    """The special tokens, then those seen ``min_count`` times or more, the most frequent first.

    Raises:
        ValueError: ``min_count`` is below 1, or leaves no token.
    """
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1: got {min_count}")
    counts = Counter(tokens)
    kept = sorted((t for t, n in counts.items() if n >= min_count), key=lambda t: (-counts[t], t))
    if not kept:
        most = max(counts.values(), default=0)
        raise ValueError(
            f"min_count must leave a token: got min_count={min_count}, the most frequent of "
            f"{len(counts)} kinds is seen {most} times"
        )
    return (*special, *(token for token in kept if token not in special))


def numbered(vocabulary: Sequence[str]) -> Mapping[str, int]:
    """The number of each token."""
    return {token: number for number, token in enumerate(vocabulary)}
