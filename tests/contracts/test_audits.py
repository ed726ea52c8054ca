"""An audit of every entry's own run: no claim breaks, none is violated, none leaves a trace.

Of the entries of an area that take the same data and predict the same, the first is asked everything, and the
others what their own area asks: what theory asks of any model sees a model's task and inputs, not its name.
"""

import inspect
import time
from dataclasses import replace
from pathlib import Path

import pytest

from margin.auditing.asking.audit import audit
from margin.core.catalog import Entry, models, resolve
from margin.core.findings import Verdict
from margin.core.options import Training
from margin.data.examples import held_out_part
from margin.runs.verbs import train
from smaller import SMALLER


def asked_everything() -> set[str]:
    """The first entry of each area, task and tiny data."""
    first: dict[tuple[str, str, str], str] = {}
    for name, entry in models().items():
        first.setdefault((name.partition("/")[0], entry.task, entry.tiny), name)
    return set(first.values())


EVERYTHING = asked_everything()

FEWER = {
    "margin.theory.curvature.loss_slices:random_directions": {"directions": 2},
    "margin.theory.curvature.trained_weights:trace": {"rank": 4, "probes": 12},
    "margin.theory.dynamics.lr_range:range_test": {"steps": 25},
}
"""Draws and steps of the claims that take the longest; the defaults keep their contracts in test_tables."""


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a claim breaks on no entry and leaves no trace holds of an estimate by any number of draws."""
    for path, options in FEWER.items():
        defaults = inspect.unwrap(resolve(path)).__kwdefaults__
        for name, number in options.items():
            assert defaults[name] > number
            monkeypatch.setitem(defaults, name, number)
    # beyond 4 standard errors of 200 draws lie 9e-5 of them
    monkeypatch.setattr("margin.theory.signal.dropout.MOST_SAMPLES", 200)
    # what is asked within the minutes of an audit does not depend on how busy the machine is
    monkeypatch.setattr(time, "perf_counter", time.process_time)


@pytest.mark.parametrize("entry", models().values(), ids=lambda entry: entry.name)
def test_every_claim_can_be_put_to_a_run_of_every_entry(entry: Entry, tmp_path: Path) -> None:
    data = resolve(entry.tiny)()
    if not held_out_part(data.splits):
        data = replace(data, splits={**data.splits, "test": data.splits["train"]})
    smaller = SMALLER.get(entry.name, {})
    run = train(entry.name, data, smaller, Training(max_steps=3), out=tmp_path / "run")
    area = entry.name.partition("/")[0]
    found = audit(run, data, claims="*" if entry.name in EVERYTHING else f"{area}/*")
    assert {a.claim.name: a.broken for a in found.answers if a.broken} == {}
    violated = {name for name, finding in found.findings.items() if finding.verdict is Verdict.VIOLATED}
    assert violated <= {"theory/baseline.constant"}  # three steps need not do better than a constant answer
