"""Write docs/results.md from the figures in docs/results."""

import json
from pathlib import Path

from benchmarks.record import RESULTS


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(shown(item) for item in value)}]"
    if isinstance(value, dict):
        return "; ".join(f"{name} {shown(item)}" for name, item in value.items())
    return str(value)


def section(path: Path) -> str:
    """A result: what was measured, by which command, its figures as a table."""
    document = json.loads(path.read_text())
    rows = ["| what | value | interval | target | published | met |", "|---|---|---|---|---|---|"]
    for row in document["figures"]:
        unit = "" if row.get("unit") in ("1", None) else f" {row['unit']}"
        met = {True: "yes", False: "no"}.get(row.get("met"), "")
        cells = [
            row["what"],
            shown(row["value"]) + unit,
            *(shown(row.get(k, "")) for k in ("interval", "target", "published")),
            met,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return f"{document['title']}.\n`{document['command']}`\n\n" + "\n".join(rows)


def page() -> str:
    """The page, a table a result."""
    parts = ["# Measured figures\n\nEach row as it came out; versions and raw numbers are in `results/`."]
    for path in sorted(RESULTS.rglob("*.json")):
        parts.append(f"## {path.relative_to(RESULTS).with_suffix('')}\n\n{section(path)}")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    (RESULTS.parent / "results.md").write_text(page())
