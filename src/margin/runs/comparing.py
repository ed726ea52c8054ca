"""Runs side by side: means with standard errors, paired differences on the same held-out examples.

Reference: Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the
paired-sample design", for what is right or wrong; Student's interval for other terms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from margin.engine.runs import Run, run_of
from margin.figures.rows import aligned, html_table
from margin.runs.inference import held_out_terms


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """What is found of several runs, or of several audits; it shows itself as a table.

    Args:
        document: The whole as JSON values: of runs each one's model and metrics; a metric's mean, stderr, and
            difference from the first run's with its 95 % interval from low to high.
        records: The numbers, a row each, for :meth:`frame`.
        tables: The same as rows of text, the first of each the header.
        lead: The columns of a table that say what a row is of.
        note: What the examples are, and what is not compared.
    """

    document: Any
    records: Sequence[Mapping[str, Any]]
    tables: Sequence[Sequence[tuple[str, ...]]]
    lead: int
    note: str

    def frame(self) -> Any:
        """A polars DataFrame, one row a run and metric, or an audit and value of a finding."""
        import polars

        return polars.DataFrame(self.records)

    def __repr__(self) -> str:
        text = "\n\n".join(map(aligned, self.tables))
        return f"{text}\n{self.note}" if self.note else text

    def _repr_html_(self) -> str:
        return "".join(map(html_table, self.tables)) + (f"<p>{escape(self.note)}</p>" if self.note else "")


def compare_runs(given: Sequence[str | Path | Run]) -> Comparison:
    """Compare runs by paired differences on the same held-out examples.

    Args:
        given: The runs, or their directories, the baseline first.

    Raises:
        ValueError: The data differ, or no metric is shared.
    """
    runs = [run_of(run) for run in given]
    prints = {run.record["data"]["fingerprint"] for run in runs}
    if len(prints) > 1:
        raise ValueError("these runs were trained on different data: their examples cannot be paired")
    held = [held_out_terms(run) for run in runs]
    terms = [each.terms for each in held]
    shared, left = comparable(held)
    document = [
        {
            "run": str(run.path),
            "model": run.record["recipe"]["model"],
            "metrics": {name: paired(own[name], terms[0][name]) for name in shared},
        }
        for run, own in zip(runs, terms, strict=True)
    ]
    cells: list[tuple[str, ...]] = [("run", "model", "metric", "mean +- s.e.", "difference [95 %]")]
    for row in document:
        for name, m in row["metrics"].items():
            apart = "" if row is document[0] else difference(m)
            cells.append((row["run"], row["model"], name, f"{m['mean']:.4g} +- {m['stderr']:.2g}", apart))
    what = f"{held[0].examples:,} examples held out by each"
    if blocks := held[0].blocks:
        over = f"errors are over {blocks} blocks of neighbors" if blocks > 1 else "too few for an error"
        what += f", which overlap: {over}"
    if left:
        what += f"; not compared: {', '.join(left)}"
    records = [
        {"run": row["run"], "model": row["model"], "metric": name, **numbers}
        for row in document
        for name, numbers in row["metrics"].items()
    ]
    return Comparison(document, records, [cells], 2, f"{what}; differences are paired, from the first")


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


def difference(pair: dict[str, float] | None) -> str:
    """A difference with its interval, "-" where there is none."""
    return f"{pair['difference']:+.4g} [{pair['low']:+.4g}, {pair['high']:+.4g}]" if pair else "-"
