"""A default audit of every entry's own run: no claim breaks, none is violated, none leaves a trace."""

from dataclasses import replace
from pathlib import Path

import pytest

from margin.auditing.audit import audit
from margin.catalog import Entry, models, resolve
from margin.data.examples import judged
from margin.engine.plan import objective_of
from margin.findings import Verdict
from margin.options import Training
from margin.training import train

JUDGED = [entry for entry in models().values() if objective_of(entry, resolve(entry.task)) is not None]


@pytest.mark.parametrize("entry", JUDGED, ids=lambda entry: entry.name)
def test_every_claim_can_be_put_to_a_run_of_every_entry(entry: Entry, tmp_path: Path) -> None:
    data = resolve(entry.tiny)()
    if not judged(data.splits):
        data = replace(data, splits={**data.splits, "test": data.splits["train"]})
    run = train(entry.name, data, training=Training(max_steps=3), out=tmp_path / "run")
    found = audit(run, data)
    assert {a.claim.name: a.broken for a in found.answers if a.broken} == {}
    assert [name for name, finding in found.findings.items() if finding.verdict is Verdict.VIOLATED] == []
