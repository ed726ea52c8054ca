"""Audits side by side: the findings claim by claim, and paired differences on the same held-out examples."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from margin.auditing.asking.answers import Audit
from margin.auditing.asking.outcomes import FILE, read_outcomes
from margin.engine.runs import Run
from margin.engine.schema import check, check_digest, parsed, text_of
from margin.runs.comparing import Comparison, compare_runs, difference, paired
from margin.theory.prediction.held_out import Terms


class Source(NamedTuple):
    """An audit, as far as it is compared.

    Args:
        name: What its column is called.
        findings: By claim, as JSON values.
        statuses: What became of each requirement.
        fingerprint: Of the held-out examples; "" where it is not known.
        outcomes: What each of them came to, by name.
    """

    name: str
    findings: Mapping[str, Mapping[str, Any]]
    statuses: Mapping[str, str]
    fingerprint: str
    outcomes: Mapping[str, Terms]


def compare(first: str | Path | Run | Audit, *others: str | Path | Run | Audit) -> Comparison:
    """Compare runs by paired differences on the same held-out examples, or audits finding by finding.

    Args:
        first: Baseline, with which the others are compared: a run, an audit, or the directory of one, or its
            ``findings.json``.
        others: Further ones of the same kind.

    Raises:
        FileNotFoundError: There is neither a run nor an audit.
        ValueError: There is none to compare with, some are runs and some audits, or the data of runs differ.
    """
    if not others:
        raise ValueError("a comparison needs at least two runs or audits: got one")
    given: tuple[Any, ...] = (first, *others)
    runs = [each for each in given if _is_run(each)]
    if not runs:
        return compare_audits(_apart([_read(each) for each in given]))
    if len(runs) < len(given):
        raise ValueError("a comparison takes runs or audits: these are some of each")
    return compare_runs(runs)


def _is_run(given: Any) -> bool:
    return isinstance(given, Run) or (not isinstance(given, Audit) and (Path(given) / "run.yaml").is_file())


def _apart(audits: Sequence[Source]) -> list[Source]:
    """The audits, those of one name numbered."""
    count = Counter(audit.name for audit in audits)
    return [
        audit._replace(name=f"{audit.name} ({k})") if count[audit.name] > 1 else audit
        for k, audit in enumerate(audits, 1)
    ]


def compare_audits(audits: Sequence[Source]) -> Comparison:
    """The values and verdicts of each claim, then what became of each requirement, a column an audit."""
    claims = list(dict.fromkeys(name for audit in audits for name in audit.findings))
    texts = list(dict.fromkeys(text for audit in audits for text in audit.statuses))
    found = {name: [audit.findings.get(name) for audit in audits] for name in claims}
    decided = {f"required {text}": [audit.statuses.get(text) for audit in audits] for text in texts}
    rows = [("claim", *(audit.name for audit in audits))]
    rows += [(name, *map(cell, findings)) for name, findings in found.items()]
    rows += [(name, *(status or "-" for status in statuses)) for name, statuses in decided.items()]
    pairs, tables, note = paired_audits(audits), [rows], ""
    if any(pairs[1:]):
        tables.append(differences(audits, pairs))
        note = "differences are paired, example by example"
    records = [
        {"audit": audit.name, "claim": name, "value": value, "low": low, "high": high, "verdict": verdict}
        for audit in audits
        for name, finding in audit.findings.items()
        for value, low, high in _values(finding)
        for verdict in [finding["verdict"]]
    ]
    return Comparison({**found, **decided, "paired differences": pairs}, records, tables, 1, note)


def paired_audits(audits: Sequence[Source]) -> list[dict[str, dict[str, float]]]:
    """Of each audit the paired differences from the first; {} where it is of other held-out examples."""
    base = audits[0]
    return [
        {
            name: paired(terms, base.outcomes[name])
            for name, terms in audit.outcomes.items()
            if name in base.outcomes
            and audit.fingerprint == base.fingerprint
            and terms.example.equal(base.outcomes[name].example)
        }
        for audit in audits
    ]


def differences(
    audits: Sequence[Source], pairs: Sequence[Mapping[str, dict[str, float]]]
) -> list[tuple[str, ...]]:
    """The table of paired differences from the first audit."""
    base = audits[0].name
    rows = [("mean", base, *(f"{audit.name} - {base} [95 %]" for audit in audits[1:]))]
    for name, own in pairs[0].items():
        others = [difference(pair.get(name)) for pair in pairs[1:]]
        rows.append((name, f"{own['mean']:.4g} +- {own['stderr']:.2g}", *others))
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


def _read(given: str | Path | Audit) -> Source:
    """What an audit, its directory or its findings.json holds.

    Raises:
        FileNotFoundError: There is none.
        ValueError: The file is damaged.
    """
    if isinstance(given, Audit):
        name = str(given.facts.get("run", given.title))
        return _source(name, given.as_json(), given.outcomes)
    path = Path(given)
    file = path / "findings.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{path} is neither a run nor an audit: no run.yaml, no findings.json")
    document = parsed(file, text_of(file, math.inf), "")
    check(document, AUDIT, "", file)
    check_digest(file, document)
    beside = file.with_name(FILE)
    return _source(str(path), document, read_outcomes(beside) if beside.is_file() else {})


def _source(name: str, document: Mapping[str, Any], outcomes: Mapping[str, Terms]) -> Source:
    findings = {answer["claim"]: answer["finding"] for answer in document["answers"] if answer["finding"]}
    statuses = {row["requirement"]: row["status"] for row in document.get("requirements", ())}
    mark = document.get("facts", {}).get("held-out fingerprint", "")
    return Source(name, findings, statuses, mark, outcomes)


def cell(finding: Mapping[str, Any] | None) -> str:
    """A finding in a cell: its first values with half of their reach, and the verdict."""
    if finding is None:
        return "-"
    values = _values(finding)
    shown = [f"{v:.4g}" if v == a else f"{v:.4g} [{b:.4g}, {a:.4g}]" for v, b, a in values[:3]]
    return f"{', '.join(shown)}{', ...' if len(values) > 3 else ''} {finding['verdict']}"


def _values(finding: Mapping[str, Any]) -> list[tuple[float, float, float]]:
    """The values of a finding, each with the ends of its reach."""
    return list(zip(*(_flat(x) for x in (finding["value"], *finding["reach"])), strict=True))


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [x for item in value for x in _flat(item)]
    return [float(value)]
