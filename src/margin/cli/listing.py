"""``margin list [--kind K] [AREA]``."""

from collections.abc import Sequence
from typing import Any

from margin.cli.output import Output, columns
from margin.cli.parsing import call
from margin.core import catalog


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(list_rows, words, "margin list")


def list_rows(area: str = "", *, kind: str = "") -> Output:
    """List every row of the catalog: models, rules, parts and claims.

    Args:
        area: Only those of this area, such as theory.
        kind: Only those of this kind: model, rule, claim, source, attack, ...
    """
    every = [*_rows()]
    rows = [
        row for row in every if (not area or row["name"].startswith(f"{area}/")) and kind in ("", row["kind"])
    ]
    if not rows:
        kinds = ", ".join(sorted({row["kind"] for row in every}))
        areas = ", ".join(sorted({row["name"].partition("/")[0] for row in every}))
        raise ValueError(
            f"no rows of kind {kind or 'any'} in {area or 'any area'}; kinds: {kinds}; areas: {areas}"
        )
    shown = []
    for row in rows:
        covers = f" [{', '.join(row['covers'])}]" if row["covers"] else ""
        shown += [(row["kind"], row["name"], row["summary"]), ("", "", f"{row['reference']}{covers}")]
    return Output(rows, columns(shown))


def _rows() -> list[dict[str, Any]]:
    tables: list[tuple[str, Any]] = [
        ("model", catalog.models()),
        ("rule", catalog.rules()),
        ("", catalog.parts()),
        ("claim", catalog.claims()),
    ]
    return [
        {
            "kind": kind or row.kind,
            "name": row.name,
            "summary": row.summary,
            "reference": row.reference,
            "covers": list(row.covers),
        }
        for kind, table in tables
        for row in table.values()
    ]
