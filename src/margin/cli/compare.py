"""``margin compare RUN RUN ...``: runs, or audits, side by side with their errors."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin.cli.output import Output, columns
from margin.cli.parsing import call


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(compare, words, "margin compare")


def compare(first: str, others: tuple[str, ...]) -> Output:
    """Compare runs on the examples that both held out, or audits finding by finding.

    Args:
        first: A run or an audit, with which the others are compared.
        others: Further ones.
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
            difference = (
                "" if row is document[0] else f"{m['difference']:+.4g} [{m['low']:+.4g}, {m['high']:+.4g}]"
            )
            rows.append((row["run"], row["model"], name, f"{m['mean']:.4g} +- {m['stderr']:.2g}", difference))
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
    """Mean and standard error of a term, and the paired difference from another's with its t interval.

    Args:
        own: Terms, with the example that each belongs to: examples are what errors are computed over.
        base: The same terms of another run.
    """
    from scipy.stats import t

    from margin.theory.prediction.held_out import weighted_mean

    mean, gap = weighted_mean(own), weighted_mean(own._replace(values=own.values - base.values))
    half = float(t.ppf(0.975, len(own.example.unique()) - 1)) * float(gap.stderr)
    return {
        "mean": float(mean.mean),
        "stderr": float(mean.stderr),
        "difference": float(gap.mean),
        "low": float(gap.mean) - half,
        "high": float(gap.mean) + half,
    }


def compare_audits(paths: Sequence[Path]) -> Output:
    """The values and verdicts of each claim, then what became of each requirement, a column an audit."""
    read = [answers_in(path) for path in paths]
    audits, required = [findings for findings, _ in read], [statuses for _, statuses in read]
    names = list(dict.fromkeys(name for audit in audits for name in audit))
    document = {name: [audit.get(name) for audit in audits] for name in names}
    rows = [("claim", *(str(path) for path in paths))]
    rows += [(name, *(cell(finding) for finding in found)) for name, found in document.items()]
    texts = list(dict.fromkeys(text for statuses in required for text in statuses))
    rows += [(f"required {text}", *(statuses.get(text, "-") for statuses in required)) for text in texts]
    decided = {f"required {text}": [statuses.get(text) for statuses in required] for text in texts}
    return Output({**document, **decided}, columns(rows))


def answers_in(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What an audit's directory or findings.json holds: findings by claim, statuses by requirement.

    Raises:
        ValueError: The file is damaged.
    """
    file = path / "findings.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{path} is neither a run nor an audit: no run.yaml, no findings.json")
    try:
        document = json.loads(file.read_text())
        findings = {answer["claim"]: answer["finding"] for answer in document["answers"] if answer["finding"]}
        statuses = {r["requirement"]: r["status"] for r in document.get("requirements", ())}
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged or no audit: {error}") from None
    return findings, statuses


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
