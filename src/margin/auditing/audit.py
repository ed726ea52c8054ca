"""``margin.audit``: what theory promises of a model, a run's or anybody's, beside what is measured."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from margin import catalog
from margin.auditing.answers import Audit, Progress, ask
from margin.auditing.runs import subject_of_run
from margin.auditing.subjects import subject_of
from margin.catalog import Claim, UnknownName, nearest
from margin.engine.runs import Run
from margin.findings import Subject
from margin.types import Domain


def audit(
    model: nn.Module | Run | Subject | str | Path,
    data: Any = None,
    *,
    claims: str | Sequence[str] = "*",
    task: str | None = None,
    train: Any = None,
    domain: Domain | tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Put every claim that applies to a model, and collect the findings.

    Args:
        model: Any module, a run or its directory, or a subject.
        data: Held-out examples: arrays ``(x, y)``, batches, or Data. A run brings its own.
        claims: Patterns of claim names, such as ``theory/*`` or ``calibration``.
        task: How a module's outputs are read: classes, halfspace or values; inferred if not given.
        train: The examples that a module was trained on, for the claims that need them.
        domain: Where one input of a module may lie, in the data's units.
        progress: Called before each claim is asked.

    Returns:
        The audit; it prints itself, ``as_json()`` and ``margin.auditing.report.write_report`` keep it.

    Raises:
        ValueError: The data do not fit the model, or no claim has such a name.
    """
    chosen = claims_named([claims] if isinstance(claims, str) else claims)
    if isinstance(model, str | Path):
        model = Run(model)
    if isinstance(model, Run):
        if task or train is not None or domain is not None:
            raise ValueError("a run knows its task, training examples and domain: leave them out")
        record = model.record
        facts = {
            "model": record["recipe"]["model"],
            "run": str(model.path),
            "data": record["data"]["name"],
            "data fingerprint": record["data"]["fingerprint"][:16],
            "trained": model.reason,
        }
        title = f"{record['recipe']['model']} on {record['data']['name']}"
        subject = subject_of_run(model, data)
        return ask(subject, chosen, title=title, facts=facts, history=model.history, progress=progress)
    if isinstance(model, Subject):
        return ask(model, chosen, progress=progress)
    if data is None:
        raise ValueError("a module is audited on held-out data: give them as (x, y)")
    return ask(subject_of(model, data, task=task, train=train, domain=domain), chosen, progress=progress)


def claims_named(patterns: Sequence[str]) -> list[Claim]:
    """The claims whose name matches a pattern, or has it as a part.

    Raises:
        UnknownName: A pattern matches none.
    """
    table = catalog.claims()
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in table):
            near = ", ".join(nearest(pattern, table)) or "none"
            raise UnknownName(f"no claim matches {pattern!r}; nearest: {near}; see margin list --kind claim")
    return [row for name, row in table.items() if any(_matches(name, pattern) for pattern in patterns)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*{pattern}*")
