"""Documents of sentences as tokens: what word vectors and masked language models learn from.

A line is a sentence; a blank line, and the end of a file, ends a document (Devlin et al. 2019, the input of
BERT's pre-training).
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.assembly import tokens_schema
from margin.data.examples import PARTS_OF_DATA, Data
from margin.data.formats.sequences.rows import Ragged, evaluation_batch, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.texts import SPECIAL
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.options import option_groups
from margin.data.splits import Split

Sentences = Literal["lines", "marks"]
"""A sentence is a line, or ends after a full stop, an exclamation or a question mark before a capital."""

ENDS = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]*[A-ZÀ-Þ])")

WORDS = Tokenization()
SPLIT = Split(test=0.05, val=0.05)


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Sentences as rows of tokens, and the document of each: inputs ``(tokens, lengths)``, no targets.

    Args:
        sentences: The sentences, none of them empty, in the order of the text.
        documents: The document of each, counted from 0, never falling.
        special: The numbers of special tokens, as [CLS].
        vocab_size: Number of tokens.

    Raises:
        ValueError: There is not one document a sentence.
    """

    sentences: Ragged
    documents: Int[Tensor, " sentences"]
    special: Mapping[str, int] = field(default_factory=dict)
    vocab_size: int = 0

    def __post_init__(self) -> None:
        if len(self.documents) != len(self.sentences):
            raise ValueError(
                f"documents must be one a sentence: got {len(self.documents)} for {len(self.sentences)}"
            )

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def targets(self) -> None:
        """None: what is asked for is cut from the sentences by an entry."""
        return

    @property
    def lengths(self) -> Int[Tensor, " sentences"]:
        """The number of tokens of each sentence."""
        return self.sentences.lengths

    @property
    def evaluation_batch(self) -> int:
        """Sentences a batch of an evaluation."""
        return evaluation_batch(int(self.lengths.max()))

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The sentences at ``index``; nothing is drawn."""
        return Batch(self.sentences.padded(index))

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.sentences.steps, self.sentences.offsets, self.documents]


@option_groups("split_seed", "longest")
def read_corpus(
    path: str | os.PathLike[str],
    *,
    tokens: Tokenization = WORDS,
    sentences: Sentences = "lines",
    split: Split = SPLIT,
) -> Data:
    """Documents in a file, or in the ``.txt`` files of a folder and of the folders in it, in UTF-8.

    The corpus is cut in three in its own order. The vocabulary is that of the training part, its beginning,
    and begins with padding and the unknown token; that of WordPieces with BERT's special tokens.

    Args:
        path: The file (``.gz`` too) or folder.
        tokens: What tokens are.
        sentences: Whether a sentence is a line, or ends after a mark before a capital.
        split: Test and validation part, seed.
        test: Share of the test part, the last sentences, in [0, 1).
        val: Share of the validation part before it.

    Returns:
        Data whose parts are :class:`Corpus`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not UTF-8, there is no text, or a part is left without a sentence.
    """
    path = Path(path)
    data = from_corpus(_files(path), name=str(path), tokens=tokens, sentences=sentences, split=split)
    return replace(data, name=path.name)


@option_groups("split_seed", "longest")
def from_corpus(
    x: Iterable[str],
    *,
    name: str = "corpus",
    tokens: Tokenization = WORDS,
    sentences: Sentences = "lines",
    split: Split = SPLIT,
) -> Data:
    """Documents in memory, see :func:`read_corpus`.

    Args:
        x: Texts, each of one document or, with blank lines between, of several.
        name: What messages and records call the data.
        tokens: What tokens are.
        sentences: Whether a sentence is a line, or ends after a mark before a capital.
        split: Test and validation part, seed.
        test: Share of the test part, the last sentences, in [0, 1).
        val: Share of the validation part before it.

    Returns:
        Data whose parts are :class:`Corpus`.

    Raises:
        ValueError: There is no text, or a part is left without a sentence.
    """
    texts, documents = sentences_of(x, sentences)
    cuts = _cuts(len(texts), split, name)
    tokenizer = tokens.made(texts[cuts["train"]], SPECIAL.get("bpe" if tokens.tokenizer else tokens.level))
    splits = {part: _corpus(tokenizer, texts[cut], documents[cut]) for part, cut in cuts.items()}
    lengths = torch.cat([part.lengths for part in splits.values()])
    train = splits["train"]
    about = [
        ["corpus", f"{len(set(documents)):,} documents of {len(texts):,} sentences"],
        ["tokens", f"{tokenizer.called} of {tokenizer.size:,} kinds; {lengths_line(lengths, 'a sentence')}"],
    ]
    if (number := tokenizer.unknown) >= 0:
        shares = [f"{part} {(c.sentences.steps == number).double().mean():.1%}" for part, c in splits.items()]
        about.append(["unknown", ", ".join(shares)])
    own = {
        **tokenizer.as_json(),
        "sentences": sentences,
        "split": split.as_json(official=False),
        "about": about,
    }
    return Data(
        name=name,
        splits=splits,
        spec={
            "vocab_size": tokenizer.size,
            "longest": int(train.lengths.max()),
            "num_examples": len(train),
        },
        encoding=tokens_schema(format="corpus", kind="corpus", shape=(0,), own=own).as_json(),
        fingerprint=fingerprint_of(splits),
    )


def encode_corpus(source: Any, encoding: Mapping[str, Any]) -> Corpus:
    """New documents by a run's record: a file, a folder, texts in a list.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not UTF-8, or there is no text.
    """
    texts = _files(Path(source)) if isinstance(source, str | os.PathLike) else source
    rows, documents = sentences_of(texts, encoding["sentences"])
    if not rows:
        raise ValueError(f"{source}: a corpus needs a sentence: got none")
    return _corpus(Tokenizer.from_json(encoding), rows, documents)


def sentences_of(texts: Iterable[str], how: Sentences) -> tuple[list[str], list[int]]:
    """The sentences of texts in order, and the document of each; blank ones are none."""
    rows: list[str] = []
    documents: list[int] = []
    count = 0
    for text in texts:
        for document in re.split(r"\n\s*\n", text):
            lines = document.split("\n") if how == "lines" else ENDS.split(" ".join(document.split()))
            found = [line.strip() for line in lines if line.strip()]
            rows += found
            documents += [count] * len(found)
            count += bool(found)
    return rows, documents


def _corpus(tokenizer: Tokenizer, texts: Sequence[str], documents: Sequence[int]) -> Corpus:
    """The tokens of sentences; one of which no token is left is left out."""
    rows = [(ids, k) for ids, k in zip(tokenizer.encode(texts), documents, strict=True) if ids]
    ragged = Ragged.of([torch.tensor(ids, dtype=torch.int64) for ids, _ in rows])
    return Corpus(ragged, torch.tensor([k for _, k in rows]), tokenizer.special, tokenizer.size)


def _files(path: Path) -> list[str]:
    """The text of a file, or of each ``.txt`` file of a folder and of those in it, by name."""
    if not path.is_dir():
        return [text_in(path)]
    files = sorted(file for end in ("*.txt", "*.txt.gz") for file in path.rglob(end))
    if not files:
        raise ValueError(f"{path}: a corpus needs .txt files: the folder has none")
    return [text_in(file) for file in files]


def _cuts(count: int, split: Split, name: str) -> dict[str, slice]:
    """The parts of sentences in their own order; a part of share 0 is left out."""
    shares = split.shares()
    held = {part: round(count * float(shares[part])) for part in PARTS_OF_DATA[1:] if part in shares}
    sizes = {"train": count - sum(held.values()), **held}
    if empty := [part for part, size in sizes.items() if size < 1]:
        raise ValueError(
            f"{name}: every part ({', '.join(sizes)}) needs a sentence: got {count:,} in all, none for "
            f"{', '.join(empty)}; give more text, or set --data.test 0 --data.val 0"
        )
    first, cuts = 0, {}
    for part, size in sizes.items():
        cuts[part] = slice(first, first + size)
        first += size
    return cuts
