"""What a second audit of the same weights and data takes beside the first: LeNet-5 on digits.

Each audit is a process of its own, as two calls of the command are; what is timed begins when the model is
built and ends with the report. The third asks something more: two claims by name and a requirement.

    python -m benchmarks.audit_again
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.audit_budget import CASES
from benchmarks.record import record

MOST = 0.25
"""The share of the first audit's processor seconds that a second one may take."""

ASKED = {
    "first": {},
    "second": {},
    "third": {
        "claims": ["inequality.label_information", "symmetry.permutation"],
        "require": ["accuracy>=.9"],
    },
}
"""What each asks beside what an audit of everything asks."""


def measured(name: str, place: Path) -> dict[str, object]:
    """The row of one audit, in this process."""
    import margin

    torch.manual_seed(0)
    model, x, y, held, domain = CASES["lenet5"][0]()
    reuse = place if (place / "findings.json").exists() else None
    wall, processor = time.perf_counter(), time.process_time()
    audit = margin.audit(
        model, (x[:held], y[:held]), train=(x[held:], y[held:]), domain=domain, reuse=reuse, **ASKED[name]
    )
    asked = time.process_time() - processor
    audit.save(place)
    return {
        "audit": name, "seconds": round(time.perf_counter() - wall, 2),
        "processor seconds": round(time.process_time() - processor, 2),
        "of these for the report": round(time.process_time() - processor - asked, 2),
        "findings": len(audit.findings), "earlier audit": audit.facts.get("earlier audit", ""),
        "KiB of findings.json": (place / "findings.json").stat().st_size // 1024,
        "load average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def findings_in(place: Path) -> dict[str, object]:
    rows = json.loads((place / "findings.json").read_text())["answers"]
    return {row["claim"]: row["finding"] for row in rows if row["finding"]}


def main() -> None:
    rows, found = {}, {}
    with tempfile.TemporaryDirectory() as out:
        place = Path(out) / "audit"
        for name in ASKED:
            words = [sys.executable, "-m", "benchmarks.audit_again", name, str(place)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            rows[name] = json.loads(done.stdout.splitlines()[-1])
            rows[name]["earlier audit"] = rows[name]["earlier audit"].replace(str(place), "audit")
            found[name] = findings_in(place)
            print(rows[name], flush=True)
    share = rows["second"]["processor seconds"] / rows["first"]["processor seconds"]
    changed = sum(found["second"].get(name) != finding for name, finding in found["first"].items())
    lost = sum(found["third"].get(name) != finding for name, finding in found["first"].items())
    record(
        "auditing/again",
        title="A second audit of the same weights and data beside the first: LeNet-5 on digits, with report",
        figures=[
            {"what": "processor seconds of the second audit by those of the first", "value": round(share, 3),
             "unit": "1", "target": f"<= {MOST}", "met": share <= MOST},
            {"what": "findings of the first that differ in the second, in any bit", "value": changed,
             "unit": "findings", "target": "0", "met": changed == 0},
            {"what": "findings of the first that differ in a third that asks more", "value": lost,
             "unit": "findings", "target": "0", "met": lost == 0},
        ],
        rows=list(rows.values()),
    )  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
