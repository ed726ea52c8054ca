"""Texts, and pairs of texts."""

from typing import Literal

from margin.core.catalog import Format

LEVEL = Literal["characters", "words"]
CASE = Literal["kept", "lower"]

FORMATS = (
    Format(
        name="pairs",
        reader="margin.data.formats.text.pairs:read_pairs",
        encoder="margin.data.formats.text.pairs:encode_pairs",
        prefix=True,
        gives={"source_vocab_size": "pairs of texts"},
        record={"level": LEVEL, "case": CASE, "vocabulary": "words", "source_vocabulary": "words"},
    ),
    Format(
        name="text",
        reader="margin.data.formats.text.sources:read_text",
        encoder="margin.data.formats.text.sources:encode_text",
        prefix=True,
        gives={"vocab_size": "tokens"},
        record={"level": LEVEL, "case": CASE, "vocabulary": "words", "shape": ["positive"]},
    ),
    Format(name="tokens", record={"vocabulary": "words", "shape": "extents"}),
)
