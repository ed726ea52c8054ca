r"""Vectors of words by their names: nearest neighbors, analogies, similarity; files of word2vec and GloVe.

.. math:: \cos(a, b) = \frac{x_a \cdot x_b}{\|x_a\| \|x_b\|}, \qquad
    a : b = c : \arg\max_d \cos(x_d,\; \hat x_b - \hat x_a + \hat x_c), \quad d \notin \{a, b, c\}
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.data.files.word_vectors import read_rows
from margin.engine.runs import Run, load, run_of
from margin.nn.preprocessed import core_of

CHUNK = 512
"""Questions that are answered at once."""

Neighbors = list[tuple[str, float]]
"""Words and their cosines, the largest first."""


class Answers(NamedTuple):
    """Analogies that were asked: whether each answer is right, and how many had a word that is unknown."""

    right: Tensor
    unknown: int


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and a vector of each: of skip-gram, of a file of another library, of a model's table of tokens.

    Args:
        words: Each once.
        vectors: One a word; of length 0 none is near another.

    Raises:
        ValueError: They differ in number, or a word stands twice.
    """

    words: tuple[str, ...]
    vectors: Float[Tensor, "words dim"]
    numbers: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.words) != len(self.vectors):
            raise ValueError(
                f"there must be a vector a word: got {len(self.words)} words, {len(self.vectors)} vectors"
            )
        object.__setattr__(self, "numbers", {word: k for k, word in enumerate(self.words)})
        if len(self.numbers) != len(self.words):
            twice = next(word for k, word in enumerate(self.words) if self.numbers[word] != k)
            raise ValueError(f"each word must stand once: got {twice!r} twice")

    @classmethod
    def of(cls, model: nn.Module, words: Sequence[str]) -> "WordVectors":
        """The vectors of a model: of its own ``vectors()``, else of its table with a row a word.

        Args:
            model: Any module; of several tables of that size the first is taken.
            words: What each token stands for, in order.

        Raises:
            ValueError: It has no such table.
        """
        core: Any = core_of(model)
        if callable(getattr(core, "vectors", None)):
            return cls(tuple(words), core.vectors().detach())
        tables = [m.weight for m in core.modules() if isinstance(m, nn.Embedding)]
        fit = [table for table in tables if len(table) == len(words)]
        if not fit:
            sizes = ", ".join(f"{len(table):,}" for table in tables) or "none"
            raise ValueError(f"a table of vectors must have a row a word, {len(words):,}: got rows {sizes}")
        return cls(tuple(words), fit[0].detach())

    @classmethod
    def of_run(cls, run: Run | str | Path) -> "WordVectors":
        """The vectors of a run's model, of the words of the text that it was trained on.

        Raises:
            FileNotFoundError: There is no such run.
            ValueError: It was not trained on a text, or has no vector a word.
        """
        run = run_of(run)
        words = run.record["data"]["encoding"].get("vocabulary")
        if not words:
            raise ValueError(f"vectors of words need a run on a text: {run.path} is of another kind of data")
        return cls.of(load(run), words)

    def __len__(self) -> int:
        return len(self.words)

    def number(self, word: str) -> int:
        """The row of a word.

        Raises:
            ValueError: It has none; the message names words that are spelled like it.
        """
        if word in self.numbers:
            return self.numbers[word]
        like = [form for form in (word.lower(), word.capitalize()) if form in self.numbers]
        near = list(dict.fromkeys([*like, *difflib.get_close_matches(word, self.words[:20000], 3, 0.75)]))
        hint = f"; spelled like it: {', '.join(near)}" if near else ""
        raise ValueError(f"a word must be one of the {len(self.words):,} known: got {word!r}{hint}")

    def unit(self, index: Tensor | slice = slice(None)) -> Float[Tensor, "rows dim"]:
        """The rows brought to length 1."""
        return F.normalize(self.vectors[index], dim=-1)

    def similarity(self, first: str, second: str) -> float:
        """The cosine of the angle between two words."""
        a, b = self.unit(torch.tensor([self.number(first), self.number(second)]))
        return float(a @ b)

    def nearest(self, word: str, k: int = 10) -> Neighbors:
        """The k words of largest cosine to a word, itself left out."""
        own = torch.tensor([self.number(word)])
        return self._best(self.unit(own), own[None], k)[0]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> Neighbors:
        """The k words that are to c as b is to a, the three left out.

        ``analogy("man", "king", "woman")`` asks for a queen.

        Reference: Mikolov, Yih and Zweig 2013, Section 4, with vectors of length 1.
        """
        asked = torch.tensor([[self.number(word) for word in (a, b, c)]])
        return self._best(self._offset(asked), asked, k)[0]

    def _offset(self, asked: Int[Tensor, "questions three"]) -> Float[Tensor, "questions dim"]:
        a, b, c = (self.unit(column) for column in asked.unbind(1))
        return F.normalize(b - a + c, dim=-1)

    def _best(self, x: Tensor, without: Tensor, k: int) -> list[Neighbors]:
        if k < 1:
            raise ValueError(f"k must be at least 1: got {k}")
        cosines = (x @ self.unit().T).scatter(1, without, -torch.inf)
        values, rows = cosines.topk(min(k, len(self.words) - without.shape[1]), dim=1)
        return [
            [(self.words[row], value) for row, value in zip(*pair, strict=True)]
            for pair in zip(rows.tolist(), values.tolist(), strict=True)
        ]

    def answers(self, questions: Iterable[Sequence[str]]) -> Answers:
        """Which analogies ``a b c d`` have d as the first answer; one with an unknown word is left out."""
        asked, unknown = [], 0
        for question in questions:
            rows = [self.numbers.get(word) for word in question]
            known = [row for row in rows if row is not None]
            unknown += len(known) < 4
            asked += [known] * (len(known) == 4)
        unit, right = self.unit(), []
        for part in torch.tensor(asked, dtype=torch.int64).reshape(-1, 4).split(CHUNK):
            cosines = (self._offset(part[:, :3]) @ unit.T).scatter(1, part[:, :3], -torch.inf)
            right.append(cosines.argmax(1) == part[:, 3])
        return Answers(torch.cat(right) if right else torch.zeros(0, dtype=torch.bool), unknown)

    def similarities(self, pairs: Iterable[tuple[str, str, float]]) -> Float[Tensor, "known two"]:
        """Of each pair of words that is known: what it was judged, and its cosine."""
        rows = [(self.numbers.get(a), self.numbers.get(b), value) for a, b, value in pairs]
        known = [row for row in rows if None not in row]
        first, second, judged = (
            (list(column) for column in zip(*known, strict=True)) if known else ([], [], [])
        )
        index = torch.tensor([first, second], dtype=torch.int64)
        cosine = (self.unit(index[0]) * self.unit(index[1])).sum(1).double()
        return torch.stack((torch.tensor(judged, dtype=torch.float64), cosine), 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the text format of word2vec: a line of both sizes, then a word and its numbers a line."""
        with Path(path).open("w", encoding="utf-8") as file:
            file.write(f"{len(self.words)} {self.vectors.shape[1]}\n")
            for word, row in zip(self.words, self.vectors.tolist(), strict=True):
                file.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n")


def read_vectors(path: str | os.PathLike[str], *, words: str | os.PathLike[str] | None = None) -> WordVectors:
    """Vectors of another library: word2vec's text or binary, GloVe's text, ``.npy`` with a list of words.

    The arguments and errors are those of :func:`margin.data.files.word_vectors.read_rows`.
    """
    return WordVectors(*read_rows(Path(path), words=None if words is None else Path(words)))


def read_pairs(path: str | os.PathLike[str]) -> list[tuple[str, str, float]]:
    """Judged pairs of words, ``word word number`` a line with blanks, tabs or commas between.

    Raises:
        ValueError: A line is none; the message names it.
    """
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        cells = line.replace(",", " ").replace(";", " ").split()
        try:
            found += [(cells[0].lower(), cells[1].lower(), float(cells[2]))] if cells else []
        except (IndexError, ValueError):
            raise ValueError(
                f"{path}, line {number}: a pair must be word word number: got {line!r}"
            ) from None
    return found


def read_analogies(path: str | os.PathLike[str]) -> Iterator[tuple[str, str, str, str]]:
    """Analogies ``a b c d``, four words a line; a line that begins with a colon names a section.

    Raises:
        ValueError: A line has another number of words; the message names it.
    """
    for section in read_sections(path).values():
        yield from section


def read_sections(path: str | os.PathLike[str]) -> dict[str, list[tuple[str, str, str, str]]]:
    """Analogies as of :func:`read_analogies` by the names of their sections, "" before the first.

    Raises:
        ValueError: A line has another number of words; the message names it.
    """
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    name = ""
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        words = line.lower().split()
        if line.startswith(":"):
            name = line.removeprefix(":").strip()
        elif words and len(words) != 4:
            raise ValueError(f"{path}, line {number}: an analogy must be four words: got {line!r}")
        elif words:
            found.setdefault(name, []).append((words[0], words[1], words[2], words[3]))
    return found
