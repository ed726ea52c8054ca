"""WordPieces and byte pairs of the package ``tokenizers``: trained on a text, or read from a model's files.

WordPieces are BERT's (Devlin et al. 2019), byte pairs are GPT-2's (Radford et al. 2019).
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from margin.data.files.reading import regular, text_of
from margin.data.formats.text.vocabulary import Case, Level, numbered

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""BERT's tokens of padding, of what is unknown, of a beginning, of an end, of what is hidden."""

FILES = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""What a tokenizer is read from: the library's own, BERT's, GPT-2's, and GPT-2's as OpenAI named them."""

MOST_LETTERS = 1000
"""Letters that WordPieces are made of: rarer ones are unknown."""


@lru_cache(maxsize=4)
def core_of(text: str) -> Any:
    """The package's tokenizer of its JSON text."""
    return library().Tokenizer.from_str(text)


def trained_core(
    texts: Sequence[str], *, level: Level, case: Case, vocab_size: int, min_count: int, special: Sequence[str]
) -> Any:
    """The package's tokenizer of a training part; see :meth:`margin.data.formats.text.tokenizers.Tokenizer`.

    Raises:
        ValueError: ``min_count`` is below 1, or the vocabulary is too small for its alphabet.
    """
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1: got {min_count}")
    unknown = "<unk>" if "<unk>" in special else "[UNK]"
    core = _untrained(level, case, unknown=unknown)
    if level == "wordpiece" and unknown not in special:
        special = (unknown, *special)
    letters = _letters(core, texts) if level == "wordpiece" else []
    core.train_from_iterator(texts, trainer=_trainer(vocab_size, min_count, special, letters))
    core = _without_added(core, set(letters))
    if (size := core.get_vocab_size()) > vocab_size:
        alphabet = "256 bytes" if level == "bpe" else "letters"
        raise ValueError(
            f"vocab_size must hold the {alphabet} and the {len(special)} special tokens: "
            f"got vocab_size={vocab_size}, they are {size}"
        )
    return core


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The package's tokenizer of a file or folder; what is wrong with it names the file.

    Raises:
        FileNotFoundError: There is nothing, or its second file is missing.
        ValueError: It is no tokenizer.
    """
    if path.is_dir():
        names = next((names for names in FILES if all((path / n).is_file() for n in names)), None)
        if names is None:
            wanted = "; ".join(" and ".join(names) for names in FILES)
            raise ValueError(f"{path}: a folder of a tokenizer needs one of: {wanted}")
    else:
        names = next((names for names in FILES if path.name in names), (path.name,))
        path = path.parent
    files = [regular(path / name, "file of a tokenizer") for name in names]
    try:
        yield _core_of(files)
    except Exception as error:  # the package raises nothing narrower than Exception
        if type(error) not in (Exception, ValueError, KeyError):
            raise
        raise ValueError(f"{files[0]}: no tokenizer could be read: {error}") from None


def library() -> Any:
    """The package ``tokenizers``.

    Raises:
        ValueError: It is not installed.
    """
    try:
        import tokenizers
    except ImportError:
        raise ValueError('pieces of words need tokenizers: pip install "margin[text]"') from None
    return tokenizers


def _untrained(level: Level, case: Case, model: Any = None, unknown: str = "[UNK]") -> Any:
    """BERT's or GPT-2's tokenizer of a model, or of none yet."""
    package = library()
    if level == "wordpiece":
        core = package.Tokenizer(model or package.models.WordPiece(unk_token=unknown))
        core.normalizer = package.normalizers.BertNormalizer(lowercase=case == "lower")
        core.pre_tokenizer = package.pre_tokenizers.BertPreTokenizer()
        core.decoder = package.decoders.WordPiece()
        return core
    core = package.Tokenizer(model or package.models.BPE())
    if case == "lower":
        core.normalizer = package.normalizers.Lowercase()
    core.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = package.decoders.ByteLevel()
    return core


def _letters(core: Any, texts: Sequence[str]) -> list[str]:
    """The most frequent letters of a text as the words go on with them, ``##a``, in their own order.

    The package numbers these in an order that is drawn anew in each process, and breaks ties by it.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(core.normalizer.normalize_str(text))
    ranked = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return [f"##{letter}" for letter in sorted(ranked[:MOST_LETTERS])]


def _trainer(vocab_size: int, min_count: int, special: Sequence[str], letters: Sequence[str]) -> Any:
    """The trainer of WordPieces of some letters, of byte pairs without any."""
    trainers, alphabet = library().trainers, library().pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": vocab_size, "min_frequency": min_count, "show_progress": False}
    if not letters:
        return trainers.BpeTrainer(special_tokens=list(special), initial_alphabet=sorted(alphabet), **options)
    begins = [letter[2:] for letter in letters]
    return trainers.WordPieceTrainer(
        special_tokens=[*special, *letters], initial_alphabet=begins, limit_alphabet=len(begins), **options
    )


def _without_added(core: Any, tokens: Set[str]) -> Any:
    """The same tokenizer, in which these tokens are pieces like any others."""
    record = json.loads(core.to_str())
    record["added_tokens"] = [token for token in record["added_tokens"] if token["content"] not in tokens]
    return library().Tokenizer.from_str(json.dumps(record))


def _core_of(files: Sequence[Path]) -> Any:
    """What the files of one of :data:`FILES` hold."""
    package = library()
    if len(files) == 2:
        model = package.models.BPE.from_file(*map(str, files))
        core = _untrained("bpe", "kept", model)
        ends = [token for token in ("<|endoftext|>",) if core.token_to_id(token) is not None]
        core.add_special_tokens(ends)
        return core
    if files[0].suffix == ".json":
        return package.Tokenizer.from_str(text_of(files[0]))
    lines = text_of(files[0]).split("\n")
    tokens = [line.rstrip("\r") for line in lines[: len(lines) - (not lines[-1])]]
    if "[UNK]" not in tokens or len(set(tokens)) < len(tokens):
        raise ValueError("a vocabulary of WordPieces must have [UNK], and each line once")
    model = package.models.WordPiece(dict(numbered(tokens)), unk_token="[UNK]")
    small = all(token == token.lower() for token in tokens if not token.startswith("["))
    core = _untrained("wordpiece", "lower" if small else "kept", model)
    core.add_special_tokens([token for token in BERT if token in tokens])
    return core


def described(core: Any) -> tuple[Level, Case, tuple[str, ...], str]:
    """What a tokenizer is of, whether it makes capitals small, its tokens by number, itself as JSON text.

    Raises:
        ValueError: It is neither of WordPieces nor of byte pairs.
    """
    core.no_padding()
    core.no_truncation()
    text = core.to_str()
    record = json.loads(text)
    kinds: dict[str, Level] = {"WordPiece": "wordpiece", "BPE": "bpe"}
    if (kind := record["model"].get("type")) not in kinds:
        raise ValueError(f"a tokenizer must be of WordPiece or BPE: got {kind}")
    at = {number: token for token, number in core.get_vocab().items()}
    tokens = tuple(at.get(k, f"<unused {k}>") for k in range(max(at) + 1))
    return kinds[kind], "lower" if makes_small(record["normalizer"]) else "kept", tokens, text


def makes_small(normalizer: Any) -> bool:
    """Whether a normalizer, as JSON, makes capitals small."""
    if not normalizer:
        return False
    several = normalizer.get("normalizers", ())
    return (
        bool(normalizer.get("lowercase"))
        or normalizer["type"] == "Lowercase"
        or any(map(makes_small, several))
    )
