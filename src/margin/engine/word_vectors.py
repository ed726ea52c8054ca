"""Word vectors of a file (Mikolov et al. 2013; Pennington et al. 2014) as the beginning of a model's own."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from margin.core.hints import flag

VECTORS = (".txt", ".vec", ".npy")
"""Endings of files of word vectors: the text of word2vec, fastText and GloVe, ``.gz`` too; an array."""


def is_vectors(path: str | None) -> bool:
    """Whether a path is a file of word vectors by its ending."""
    name = str(path or "").lower().removesuffix(".gz")
    return name.endswith(VECTORS) and Path(str(path)).is_file()


def with_vectors(model: nn.Module, path: Path, vocabulary: Sequence[str]) -> tuple[str, int]:
    """Begin the rows of a model's token vectors with those of a file; words that it lacks stay as drawn.

    Args:
        model: With one ``nn.Embedding`` of the vocabulary's size; changed in place.
        path: A word and its numbers a line, with or without a first line of counts; or ``.npy``, an array
            (words, numbers) whose words stand in the ``.txt`` of the same name, one a line.
        vocabulary: The tokens of the data in the order of their numbers.

    Returns:
        The name of the tensor, and how many words were found.

    Raises:
        ValueError: The model has no such vectors or of another length, a line is none of these, or no word is
            found.

    Reference: Kim 2014, Section 3.3 (words that are not among the pretrained ones are drawn).
    """
    tables = {name: m for name, m in model.named_modules() if isinstance(m, nn.Embedding)}
    held = {name: m for name, m in tables.items() if m.num_embeddings == len(vocabulary)}
    if not vocabulary or len(held) != 1:
        raise ValueError(
            f"{path}: word vectors need a model with one table of the {len(vocabulary):,} tokens"
        )
    ((name, table),) = held.items()
    wanted = {word: k for k, word in enumerate(vocabulary)}
    found = _array_rows(path, wanted) if path.suffix == ".npy" else _text_rows(path, wanted)
    if not found:
        raise ValueError(f"{path}: none of the {len(vocabulary):,} tokens has a vector in it")
    sizes = {len(row) for row in found.values()}
    if sizes != {table.embedding_dim}:
        raise ValueError(
            f"{path}: the vectors have {', '.join(map(str, sorted(sizes)))} numbers, the model's "
            f"{table.embedding_dim}: set {flag('model.embedding')} {max(sizes)}"
        )
    with torch.no_grad():
        for k, row in found.items():
            table.weight[k] = row.to(table.weight)
    return f"{name}.weight", len(found)


def _text_rows(path: Path, wanted: Mapping[str, int]) -> dict[int, Tensor]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    found: dict[int, Tensor] = {}
    with opener(path, "rt", encoding="utf-8", errors="replace") as lines:
        for count, line in enumerate(lines, 1):
            word, _, numbers = line.rstrip().partition(" ")
            if word not in wanted or (count == 1 and numbers.isdigit()):
                continue
            try:
                found[wanted[word]] = torch.tensor([float(x) for x in numbers.split(" ")])
            except ValueError:
                raise ValueError(f"{path}, line {count}: a line must be a word and its numbers") from None
    return found


def _array_rows(path: Path, wanted: Mapping[str, int]) -> dict[int, Tensor]:
    words = path.with_suffix(".txt")
    if not words.is_file():
        raise ValueError(f"{path}: the words of its rows must stand in {words.name}, one a line")
    rows, names = np.load(path, mmap_mode="r"), words.read_text("utf-8").removesuffix("\n").split("\n")
    if rows.ndim != 2 or len(rows) != len(names):
        raise ValueError(f"{path}: it must have a row a word: got {rows.shape} for {len(names):,} words")
    return {wanted[w]: torch.tensor(np.array(rows[k])) for k, w in enumerate(names) if w in wanted}
