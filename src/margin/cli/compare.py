"""``margin compare RUN RUN ...``: runs, or audits, side by side with their errors."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin.cli.output import Output
from margin.cli.tables import columns, told


def compare(first: str, others: tuple[str, ...]) -> Output:
    """Compare runs by paired differences on the same held-out examples, or audits finding by finding.

    Args:
        first: Baseline: the run or audit with which the others are compared.
        others: Further runs or audits.
    """
    if not others:
        raise ValueError("margin compare needs at least two runs or audits")
    paths = [Path(path) for path in (first, *others)]
    kinds = {"run" if (path / "run.yaml").is_file() else "audit" for path in paths}
    if len(kinds) == 2:
        raise ValueError("margin compare takes runs or audits: these are some of each")
    return compare_runs(paths) if kinds == {"run"} else compare_audits(paths)


def compare_runs(paths: Sequence[Path]) -> Output:
    """Means with standard errors, and the paired difference from the first run with its interval."""
    from margin.runs.comparing import compare

    found = compare(*paths)
    return Output(found.rows, f"{columns(found.cells, lead=2)}\n{told(found.note)}")


def compare_audits(paths: Sequence[Path]) -> Output:
    """The values and verdicts of each claim, then what became of each requirement, a column an audit."""
    audits, required, prints = zip(*map(answers_in, paths), strict=True)
    names = list(dict.fromkeys(name for audit in audits for name in audit))
    document = {name: [audit.get(name) for audit in audits] for name in names}
    rows = [("claim", *(str(path) for path in paths))]
    rows += [(name, *(cell(finding) for finding in found)) for name, found in document.items()]
    texts = list(dict.fromkeys(text for statuses in required for text in statuses))
    rows += [(f"required {text}", *(statuses.get(text, "-") for statuses in required)) for text in texts]
    decided = {f"required {text}": [statuses.get(text) for statuses in required] for text in texts}
    pairs, text = paired_audits(paths, prints), columns(rows, lead=1)
    if any(pairs[1:]):
        text += (
            f"\n\n{columns(differences(paths, pairs), lead=1)}\ndifferences are paired, example by example"
        )
    return Output({**document, **decided, "paired differences": pairs}, text)


def paired_audits(paths: Sequence[Path], prints: Sequence[str]) -> list[dict[str, dict[str, float]]]:
    """Of each audit the paired differences from the first; {} where it is of other held-out examples."""
    from margin.auditing.asking.outcomes import FILE, read_outcomes
    from margin.runs.comparing import paired

    files = [(path if path.is_dir() else path.parent) / FILE for path in paths]
    read = [read_outcomes(file) if file.is_file() else {} for file in files]
    base = read[0]
    return [
        {
            name: paired(terms, base[name])
            for name, terms in own.items()
            if name in base and mark == prints[0] and terms.example.equal(base[name].example)
        }
        for own, mark in zip(read, prints, strict=True)
    ]


def differences(paths: Sequence[Path], pairs: Sequence[dict[str, dict[str, float]]]) -> list[tuple[str, ...]]:
    """The table of paired differences from the first audit."""
    from margin.runs.comparing import difference

    rows = [("mean", str(paths[0]), *(f"{path} - {paths[0]} [95 %]" for path in paths[1:]))]
    for name, base in pairs[0].items():
        others = [difference(pair.get(name)) for pair in pairs[1:]]
        rows.append((name, f"{base['mean']:.4g} +- {base['stderr']:.2g}", *others))
    return rows


def finding(value: Any) -> str:
    """Whether a value is null, or a finding with as many ends on each side of it as values."""
    if value is None:
        return ""
    try:
        below, above = value["reach"]
        sizes = {len(_flat(each)) for each in (value["value"], below, above)}
        whole = len(sizes) == 1 and isinstance(value["verdict"], str)
    except (LookupError, TypeError, ValueError):
        whole = False
    return "" if whole else "must be a finding with a value, its reach and a verdict"


AUDIT = {
    "answers": [{"claim": str, "finding": finding}],
    "requirements?": [{"requirement": str, "status": str}],
    "facts?": {"held-out fingerprint?": str},
}
"""What ``findings.json`` holds, as far as it is compared."""


def answers_in(path: Path) -> tuple[dict[str, Any], dict[str, str], str]:
    """What an audit's directory or findings.json holds: findings by claim, statuses by requirement.

    The third is the fingerprint of the examples that were held out, "" where there is none.

    Raises:
        ValueError: The file is damaged.
    """
    file = path / "findings.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{path} is neither a run nor an audit: no run.yaml, no findings.json")
    from margin.engine.schema import check, check_digest, parsed, text_of

    document = parsed(file, text_of(file, math.inf), "")
    check(document, AUDIT, "", file)
    check_digest(file, document)
    findings = {answer["claim"]: answer["finding"] for answer in document["answers"] if answer["finding"]}
    statuses = {r["requirement"]: r["status"] for r in document.get("requirements", ())}
    return findings, statuses, document.get("facts", {}).get("held-out fingerprint", "")


def cell(finding: dict[str, Any] | None) -> str:
    """A finding in a cell: its first values with half of their reach, and the verdict."""
    if finding is None:
        return "-"
    values, below, above = (_flat(x) for x in (finding["value"], *finding["reach"]))
    shown = [
        f"{v:.4g}" if v == a else f"{v:.4g} [{b:.4g}, {a:.4g}]"
        for v, b, a in list(zip(values, below, above, strict=True))[:3]
    ]
    return f"{', '.join(shown)}{', ...' if len(values) > 3 else ''} {finding['verdict']}"


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [x for item in value for x in _flat(item)]
    return [float(value)]
