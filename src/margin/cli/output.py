"""What a command answers: a JSON document and its readable form, of which one is printed."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A command's answer.

    Args:
        document: JSON values, printed with ``--json``.
        text: What is printed otherwise: a string or something that rich can render.
        status: The exit status.
    """

    document: Any
    text: Any
    status: int = 0


def show(output: Output, *, as_json: bool) -> int:
    """Print the answer to stdout; return its status."""
    if as_json:
        json.dump(finite(output.document), sys.stdout, indent=2, allow_nan=False)
        print()
    elif isinstance(output.text, str):
        print(output.text)
    else:
        from rich.console import Console

        Console(soft_wrap=False).print(output.text)
    sys.stdout.flush()
    return output.status


def finite(value: Any) -> Any:
    """JSON values in which a number that is not finite has become null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of text in aligned columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
