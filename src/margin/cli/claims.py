"""``margin claims [PATTERN ...]``."""

import time
from collections.abc import Sequence
from typing import Any

from margin.cli.output import Output
from margin.cli.parsing import call
from margin.cli.streams import say


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(claims, words, "margin claims")


def claims(patterns: tuple[str, ...] = ()) -> Output:
    """Put every claim to its own demonstration, a case whose answer is known.

    Args:
        patterns: Names or patterns of claims; all if none is given.
    """
    from margin.auditing.asking.budget import claims_named

    asked = []
    for claim in claims_named(patterns or ("*",)):
        say(claim.name)
        asked.append((claim, *demonstrated(claim)))
    document = [
        {"claim": claim.name, "seconds": round(seconds, 3), "finding": finding.as_json()}
        for claim, finding, seconds in asked
    ]
    failed = any(finding.verdict in ("violated", "failed") for _, finding, _ in asked)
    return Output(document, table(asked), int(failed))


def demonstrated(claim: Any) -> tuple[Any, float]:
    """The finding of a claim's demonstration, and how long the question took."""
    from margin.core.catalog import resolve

    subject = resolve(claim.demo)()
    start = time.perf_counter()
    finding = resolve(claim.ask)(subject)
    return finding, time.perf_counter() - start


def table(asked: Sequence[tuple[Any, Any, float]]) -> Any:
    """Promise, value, verdict and seconds of every claim; a claim with several values has a row each."""
    from rich.table import Table
    from rich.text import Text

    from margin.auditing.report.table import rows

    made = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    made.add_column("claim", no_wrap=True)
    for name in ("promised", "measured", "verdict", "seconds"):
        made.add_column(name)
    for claim, finding, seconds in asked:
        shown = rows(claim.name, finding)
        if shown[0].label:
            made.add_row(claim.name, "", "", "", f"{seconds:.2f}")
        for row in shown:
            name = f" {row.label}" if row.label else claim.name
            time_cell = "" if row.label else f"{seconds:.2f}"
            made.add_row(*map(Text, (name, row.promised, row.measured, row.verdict, time_cell)))
    return made
