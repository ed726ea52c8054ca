"""Sequences of values or tokens, of any lengths."""

from margin.core.catalog import Format

FORMATS = (
    Format(
        name="sequences",
        reader="margin.data.formats.sequences.sources:read_sequences",
        encoder="margin.data.formats.sequences.sources:encode_sequences",
        prefix=True,
        gives={"input_size": "sequences"},
        real=True,
        numbers=True,
        record={},
    ),
    Format(
        name="ragged",
        reader="margin.data.formats.sequences.sources:from_sequences",
        known="margin.data.source:is_ragged",
    ),
)
