"""Texts, and pairs of texts."""

from typing import Literal

from margin.core.catalog import Format

LEVEL = Literal["characters", "words", "wordpiece", "bpe"]
CASE = Literal["kept", "lower"]
TOKENS = {"level": LEVEL, "case": CASE, "vocabulary": "words", "tokenizer?": str}
"""What a record has of a tokenizer."""
LONG = {"longest": int, "long": Literal["error", "cut"]}
"""What a record has of texts of too many tokens."""

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
        record={**TOKENS, "shape": ["positive"], "stride?": "positive"},
    ),
    Format(
        name="texts",
        reader="margin.data.formats.text.texts:read_texts",
        encoder="margin.data.formats.tables.text_column:encode_texts",
        prefix=True,
        numbers=True,
        labeled="name the target column: --target NAME",
        record={
            **TOKENS,
            **LONG,
            "columns?": [{"name": str, "kind": Literal["text", "tokens"]}],
            "target?": {"name": str, "kind": Literal["number", "category", "boolean", "date"]},
            "missing?": str,
            "ignored?": list[str],
            "header?": Literal["first", "none"],
            "separator?": "mark",
            "decimal?": Literal[".", ","] | None,
            "missing_values?": list[str],
            "date_format?": str,
        },
    ),
    Format(
        name="strings",
        reader="margin.data.formats.text.texts:from_texts",
        encoder="margin.data.formats.tables.text_column:encode_texts",
        known="margin.data.source:is_texts",
    ),
    Format(
        name="corpus",
        reader="margin.data.formats.text.corpus:read_corpus",
        encoder="margin.data.formats.text.corpus:encode_corpus",
        prefix=True,
        record={**TOKENS, "sentences": Literal["lines", "marks"]},
    ),
    Format(
        name="documents",
        reader="margin.data.formats.text.corpus:from_corpus",
        encoder="margin.data.formats.text.corpus:encode_corpus",
        known="margin.data.source:are_documents",
    ),
    Format(
        name="tagged",
        reader="margin.data.formats.text.tagged:read_tagged",
        encoder="margin.data.formats.text.tagged:encode_tagged",
        prefix=True,
        endings=(".conllu", ".conll"),
        numbers=True,
        labeled="give a tag beside each word",
        record={
            **TOKENS,
            **LONG,
            "word_column?": int | None,
            "tag_column?": int | None,
        },
    ),
    Format(
        name="words",
        reader="margin.data.formats.text.tagged:from_tagged",
        encoder="margin.data.formats.text.tagged:encode_tagged",
        known="margin.data.source:is_tagged",
    ),
    Format(
        name="questions",
        reader="margin.data.formats.text.questions:read_questions",
        encoder="margin.data.formats.text.questions:encode_questions",
        prefix=True,
        numbers=True,
        labeled="give answers",
        record={**TOKENS, **LONG},
    ),
    Format(name="tokens", record={"vocabulary": "words", "shape": "extents"}),
)
