"""Texts, and pairs of texts."""

from typing import Literal

from margin.core.catalog import Format

LEVEL = Literal["characters", "words", "wordpiece", "bpe"]
CASE = Literal["kept", "lower"]
TOKENS = {"level": LEVEL, "case": CASE, "vocabulary": "words", "tokenizer?": str}
"""What a record has of a tokenizer."""

FORMATS = (
    Format(
        name="pairs",
        reader="margin.data.formats.text.pairs:read_pairs",
        encoder="margin.data.formats.text.pairs:encode_pairs",
        prefix=True,
        gives={"source_vocab_size": "pairs of texts"},
        record={**TOKENS, "source_vocabulary": "words", "source_tokenizer?": str},
    ),
    Format(
        name="text",
        reader="margin.data.formats.text.sources:read_text",
        encoder="margin.data.formats.text.sources:encode_text",
        prefix=True,
        gives={"vocab_size": "tokens"},
        record={**TOKENS, "shape": ["positive"]},
    ),
    Format(name="tokens", record={"vocabulary": "words", "shape": "extents"}),
)
