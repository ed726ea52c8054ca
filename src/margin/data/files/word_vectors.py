"""Files of word vectors: word2vec's text and binary (Mikolov et al. 2013), GloVe's text, arrays of NumPy."""

import gzip
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Rows = tuple[tuple[str, ...], Float[Tensor, "words dim"]]
"""Words, and a vector of each."""

ENDINGS = (".txt", ".vec", ".bin", ".npy")
"""Endings of files of word vectors; ``.gz`` may follow, but for an array."""


def is_vectors(path: str | None) -> bool:
    """Whether a path is a file of word vectors by its ending."""
    name = str(path or "").lower().removesuffix(".gz")
    return name.endswith(ENDINGS) and Path(str(path)).is_file()


def read_rows(path: Path, *, words: Path | None = None, wanted: Container[str] | None = None) -> Rows:
    """The words of a file and their vectors, float32.

    Args:
        path: A word and its numbers a line, with or without a first line of counts; ``.bin`` is word2vec's
            binary, ``.npy`` a matrix with a row a word; ``.gz`` is unpacked.
        words: A word a line, for a ``.npy``; the ``.words.txt``, ``.vocab`` or ``.txt`` of its name if not
            given.
        wanted: Keep these words alone; None keeps all.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged; the message names the line.
    """
    ending = Path(path.name.removesuffix(".gz")).suffix
    if ending == ".npy":
        return _of_matrix(path, words, wanted)
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        return _of_binary(file, path, wanted) if ending == ".bin" else _of_text(file, path, wanted)


def _kept(words: list[str], vectors: list[np.ndarray], dim: int) -> Rows:
    matrix = np.stack(vectors) if vectors else np.empty((0, dim), np.float32)
    return tuple(words), torch.from_numpy(matrix)


def _of_matrix(path: Path, words: Path | None, wanted: Container[str] | None) -> Rows:
    named = [path.with_suffix(ending) for ending in (".words.txt", ".vocab", ".txt")]
    place = words or next((one for one in named if one.exists()), None)
    if place is None:
        raise ValueError(f"{path} needs its words, a word a line: give words=, or write {named[0].name}")
    matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    listed = place.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if matrix.ndim != 2 or len(matrix) != len(listed):
        raise ValueError(
            f"{path} must be a matrix with a row a word: got shape {matrix.shape} for {len(listed):,} words"
        )
    kept = [k for k, word in enumerate(listed) if wanted is None or word in wanted]
    return tuple(listed[k] for k in kept), torch.from_numpy(matrix[kept].astype(np.float32))


def _of_text(file: Any, path: Path, wanted: Container[str] | None) -> Rows:
    words: list[str] = []
    vectors: list[np.ndarray] = []
    announced, dim, count = None, 0, 0
    for line, row in enumerate(file, 1):
        text = row.decode("utf-8", "surrogateescape").rstrip()
        head = text.split(" ")
        if line == 1 and len(head) == 2 and head[0].isdigit() and head[1].isdigit():
            announced, dim = int(head[0]), int(head[1])
            continue
        if not text:
            continue
        dim = dim or len(head) - 1
        count += 1
        cells = text.rsplit(" ", dim)  # a word of GloVe's large files may hold blanks
        try:
            numbers = np.array(cells[1:], np.float32).reshape(dim)  # a single number is not all of them
        except ValueError:
            raise ValueError(
                f"{path}, line {line}: a word must have {dim} numbers after it: got {text[:40]!r}"
            ) from None
        if wanted is None or cells[0] in wanted:
            words.append(cells[0])
            vectors.append(numbers)
    if count == 0 or announced not in (None, count):
        said = "none is announced" if announced is None else f"{announced} are announced"
        raise ValueError(f"{path} must have a word and its numbers a line: got {count} words, {said}")
    return _kept(words, vectors, dim)


def _of_binary(file: Any, path: Path, wanted: Container[str] | None) -> Rows:
    head = file.readline(80)
    sizes = head.split()
    if not head.endswith(b"\n") or len(sizes) != 2 or not all(part.isdigit() for part in sizes):
        raise ValueError(f"{path} must begin with the numbers of words and of dimensions: got {head[:20]!r}")
    count, dim = int(sizes[0]), int(sizes[1])
    words: list[str] = []
    vectors: list[np.ndarray] = []
    data, at = file.read(), 0
    for k in range(count):
        blank = data.find(b" ", at)
        stop = blank + 1 + 4 * dim
        if blank < 0 or stop > len(data):
            raise ValueError(f"{path} must hold {count} words of {dim} numbers: it ends in word {k + 1}")
        word = data[at:blank].decode("utf-8", "surrogateescape").lstrip("\n")
        if wanted is None or word in wanted:
            words.append(word)
            vectors.append(np.frombuffer(data, "<f4", dim, blank + 1))
        at = stop
    return _kept(words, vectors, dim)
