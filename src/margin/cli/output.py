"""What a command answers: a JSON document and its readable form, of which one is printed."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from margin.cli.streams import tell_result, width


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A command's answer.

    Args:
        document: JSON values, printed with ``--json``.
        text: What is printed otherwise: a string, something that rich can render as wide as the terminal, or
            several of these in a tuple.
        status: The exit status.
    """

    document: Any
    text: Any
    status: int = 0


def show(output: Output, *, as_json: bool) -> int:
    """Print the answer to stdout; return its status."""
    if as_json:
        tell_result(json.dumps(finite(output.document), indent=2, allow_nan=False))
        return output.status
    for part in output.text if isinstance(output.text, tuple) else (output.text,):
        tell_result(part if isinstance(part, str) else _rendered(part))
    return output.status


def _rendered(part: Any) -> str:
    from rich.console import Console

    console = Console(soft_wrap=False)
    with console.capture() as shown:
        console.print(part)
    return shown.get().removesuffix("\n")


def finite(value: Any) -> Any:
    """JSON values in which a number that is not finite has become null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of text in aligned columns, two spaces apart; a row too wide for the terminal goes on below."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    limit = width()
    if limit is None or max(map(len, lines)) <= limit:
        return "\n".join(lines)
    return "\n".join(line for row in rows for line in _folded(row, limit))


def _folded(row: Sequence[str], limit: int) -> list[str]:
    """The cells of a row one after another, in as many lines as they need, all but the first indented."""
    import textwrap

    text = "  ".join(cell for cell in row if cell)
    return textwrap.wrap(text, limit, subsequent_indent="  ") or [""]
