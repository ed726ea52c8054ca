"""Tables of rows and columns: CSV, TSV, Parquet, JSON lines, data frames."""

from typing import Literal

from margin.core.catalog import Format

NAMED = {"name": str, "kind": Literal["number", "category", "boolean", "date"]}
WRITTEN = {"unit?": str, "grouped?": bool, "folded?": bool}
MISSING = Literal["error", "drop", "mean", "median", "mode", "indicate"]

FORMATS = (
    Format(
        name="table",
        reader="margin.data.formats.tables.tables:read_table",
        encoder="margin.data.formats.tables.encoder:encode_file",
        endings=(".csv", ".tsv", ".tab", ".txt", ".data", ".parquet", ".pq", ".jsonl", ".ndjson"),
        gives={"in_features": "vectors"},
        real=True,
        numbers=True,
        labeled="name the target column: --target NAME",
        record={
            "columns": [NAMED, "column"],
            "target?": {**NAMED, **WRITTEN},
            "missing": MISSING,
            "header": Literal["first", "none"],
            "separator?": "mark",
            "decimal?": Literal[".", ","] | None,
            "missing_values?": list[str],
            "date_format?": str,
        },
    ),
    Format(
        name="frame",
        reader="margin.data.formats.tables.tables:read_frame",
        encoder="margin.data.formats.tables.encoder:encode_frame",
        known="margin.data.source:is_frame",
    ),
)
