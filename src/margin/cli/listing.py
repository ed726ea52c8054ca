"""``margin models [AREA]``, ``margin list [--kind K] [AREA]``, ``margin claims [PATTERN ...]``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin.cli.output import Output, say
from margin.cli.tables import columns
from margin.core import catalog


def models(area: str = "") -> Output:
    """List the models of the catalog.

    Args:
        area: Only those of this area, such as vision.
    """
    rows = [row for name, row in catalog.models().items() if not area or name.startswith(f"{area}/")]
    heads = {name: [other for other in heads if other] for name, heads in _heads(rows).items()}
    if not rows:
        areas = sorted({name.partition("/")[0] for name in catalog.models()})
        raise ValueError(f"no models in {area!r}; areas with models: {', '.join(areas)}")
    document = [{"name": row.name, "summary": row.summary, "reference": row.reference} for row in rows]
    bodies = [row for row in rows if ":" not in row.name]
    lines = [(row.name, f"{row.summary}{''.join(f' :{head}' for head in heads[row.name])}") for row in bodies]
    return Output(document, columns(lines, ("bold",)))


def _heads(rows: Sequence[catalog.Entry]) -> dict[str, list[str]]:
    """The heads of each body, "" the first; the data choose among them."""
    found: dict[str, list[str]] = {}
    for row in rows:
        body, _, head = row.name.partition(":")
        found.setdefault(body, []).append(head)
    return found


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
    return Output(rows, columns(shown, ("dim", "bold")))


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


def claims(patterns: tuple[str, ...] = (), *, book: str = "") -> Output:
    """Check claims on their own examples, models whose answers are known.

    Args:
        patterns: Names or patterns of claims; all if none is given.
        book: A folder for the book of theorems, a page a claim; it needs the extra docs.
    """
    from margin.auditing.asking.named import claims_named

    if book:
        from margin.auditing.book.site import write_book

        write_book(Path(book), {claim.name for claim in claims_named(patterns or ("*",))}, say)
        return Output({"book": f"{book}/index.html"}, f"{book}/index.html")
    from margin.core.findings import demonstrated

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


def table(asked: Sequence[tuple[Any, Any, float]]) -> str:
    """Promise, value, verdict and seconds of every claim; a claim with several values has a row each."""
    from margin.auditing.report.table import rows
    from margin.auditing.report.terminal import STYLES

    cells = [("claim", "promised", "measured", "verdict", "seconds")]
    for claim, finding, seconds in asked:
        shown = rows(claim.name, finding)
        if shown[0].label:
            cells.append((claim.name, "", "", "", f"{seconds:.2f}"))
        for row in shown:
            name, taken = (f" {row.label}", "") if row.label else (claim.name, f"{seconds:.2f}")
            cells.append((name, row.promised, row.measured, row.verdict, taken))
    return columns(cells, ("", "", "", {str(verdict): style for verdict, style in STYLES.items()}), lead=1)
