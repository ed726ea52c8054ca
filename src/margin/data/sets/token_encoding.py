"""The record of token sequences whose vocabulary is known."""

from collections.abc import Sequence
from typing import Any

from margin.data.splits import Split


def token_encoding(
    vocabulary: Sequence[str], shape: Sequence[int], split: Split, *, official: bool = False
) -> dict[str, Any]:
    """The encoding of token sequences of a known vocabulary."""
    return {
        "format": "tokens",
        "kind": "tokens",
        "task": "tokens",
        "shape": list(shape),
        "dtype": "int64",
        "classes": [],
        "vocabulary": list(vocabulary),
        "split": split.as_json(official=official),
    }
