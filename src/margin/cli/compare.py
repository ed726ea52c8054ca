"""``margin compare RUN RUN ...``: runs, or audits, side by side with their errors."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin.cli.output import Output, columns


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
    from margin.engine.runs import Run
    from margin.runs.inference import held_out_terms

    runs = [Run(path) for path in paths]
    prints = {run.record["data"]["fingerprint"] for run in runs}
    if len(prints) > 1:
        raise ValueError("these runs were trained on different data: their examples cannot be paired")
    held = [held_out_terms(run) for run in runs]
    terms = [each.terms for each in held]
    shared, others = comparable(held)
    document = [
        {
            "run": str(path),
            "model": run.record["recipe"]["model"],
            "metrics": {name: paired(own[name], terms[0][name]) for name in shared},
        }
        for path, run, own in zip(paths, runs, terms, strict=True)
    ]
    rows = [("run", "model", "metric", "mean +- s.e.", "difference from the first [95 %]")]
    for row in document:
        for name, m in row["metrics"].items():
            apart = "" if row is document[0] else difference(m)
            rows.append((row["run"], row["model"], name, f"{m['mean']:.4g} +- {m['stderr']:.2g}", apart))
    what = f"{held[0].examples:,} examples held out by each"
    if blocks := held[0].blocks:
        over = f"errors are over {blocks} blocks of neighbors" if blocks > 1 else "too few for an error"
        what += f", which overlap: {over}"
    if others:
        what += f"; not compared: {', '.join(others)}"
    return Output(document, f"{columns(rows)}\n{what}; differences are paired")


def comparable(held: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The metrics that are one quantity for all runs, and those that are not, with what each run means.

    Raises:
        ValueError: There is none, or the runs are judged on other examples.
    """
    first = held[0].terms
    names = list(dict.fromkeys(name for each in held for name in each.terms))
    shared = [name for name in names if all(name in each.terms for each in held)]
    losses = list(dict.fromkeys(each.loss for each in held))
    if len(losses) > 1 and "loss" in shared:
        shared.remove("loss")
    told = {"loss": f"loss ({' | '.join(losses)})"}
    others = [told.get(name, name) for name in names if name not in shared]
    if not shared:
        raise ValueError(f"runs are compared by a metric that all of them have: {', '.join(others)}")
    for name in shared:
        for each in held:
            if not each.terms[name].example.equal(first[name].example):
                raise ValueError(
                    f"runs are compared on the same held-out examples: {name} has "
                    f"{len(first[name].example):,} terms in one, {len(each.terms[name].example):,} in another"
                )
    return shared, others


def paired(own: Any, base: Any) -> dict[str, float]:
    """Mean and standard error of a term, and the paired difference from another's with its 95 % interval.

    Of what is right or wrong the interval is Tango's, which is none of width 0 where both are right on the
    same examples; of other terms Student's.

    Args:
        own: Terms, with the example that each belongs to: examples are what errors are computed over.
        base: The same terms of another run.
    """
    from scipy.stats import t

    from margin.theory.prediction.differences import paired_shares
    from margin.theory.prediction.held_out import weighted_mean

    mean, gap = weighted_mean(own), weighted_mean(own._replace(values=own.values - base.values))
    if all(bool(((terms.values == 0) | (terms.values == 1)).all()) for terms in (own, base)):
        _, low, high = paired_shares(own.values == 1, base.values == 1, own)
    else:
        half = float(t.ppf(0.975, len(own.example.unique()) - 1)) * float(gap.stderr)
        low, high = float(gap.mean) - half, float(gap.mean) + half
    return {
        "mean": float(mean.mean),
        "stderr": float(mean.stderr),
        "difference": float(gap.mean),
        "low": low,
        "high": high,
    }


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
    pairs, told = paired_audits(paths, prints), columns(rows)
    if any(pairs[1:]):
        told += f"\n\n{columns(differences(paths, pairs))}\ndifferences are paired, example by example"
    return Output({**document, **decided, "paired differences": pairs}, told)


def paired_audits(paths: Sequence[Path], prints: Sequence[str]) -> list[dict[str, dict[str, float]]]:
    """Of each audit the paired differences from the first; {} where it is of other held-out examples."""
    from margin.auditing.asking.outcomes import FILE, read_outcomes

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
    rows = [("mean", str(paths[0]), *(f"{path} - {paths[0]} [95 %]" for path in paths[1:]))]
    for name, base in pairs[0].items():
        others = [difference(pair.get(name)) for pair in pairs[1:]]
        rows.append((name, f"{base['mean']:.4g} +- {base['stderr']:.2g}", *others))
    return rows


def difference(pair: dict[str, float] | None) -> str:
    """A difference with its interval, "-" where there is none."""
    return f"{pair['difference']:+.4g} [{pair['low']:+.4g}, {pair['high']:+.4g}]" if pair else "-"


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
