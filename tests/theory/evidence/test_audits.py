"""Audits of a module and of a run: what rests on data that leak is unfounded, and says why."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import margin
from margin.core.findings import Verdict
from margin.core.options import Training
from margin.data.examples import Arrays
from margin.data.open import open_data


def of(x, y, groups=None) -> Arrays:
    return Arrays(
        (torch.tensor(x),), torch.tensor(y), groups=None if groups is None else torch.tensor(groups)
    )


def test_an_audit_of_a_module_names_what_it_saw_in_training() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(800, 6)).astype(np.float32), rng.integers(0, 2, 800)
    x[:31], y[:31] = x[400:431], y[400:431]
    model = nn.Linear(6, 2)
    claims = ["risk.accuracy", "risk.loss", "calibration.ece", "confusion.recall"]
    leaking = margin.audit(model, (x[:200], y[:200]), train=(x[200:], y[200:]), claims=claims)
    assert {found.verdict for found in leaking.findings.values()} == {Verdict.UNFOUNDED}
    assert "31 of 200 held-out rows stand in the training part" in " ".join(str(leaking).split())
    rest = (x[31:200], y[31:200])
    clean = margin.audit(model, rest, train=(x[200:], y[200:]), claims=claims)
    assert {found.verdict for found in clean.findings.values()} == {Verdict.MEASURED}
    alone = margin.audit(model, (x[:200], y[:200]), claims=claims)  # nothing is known of the training
    assert {found.verdict for found in alone.findings.values()} == {Verdict.MEASURED}
    codes = np.arange(800) % 40
    held_out, train = of(x[31:200], y[31:200], codes[31:200]), of(x[200:], y[200:], codes[200:])
    grouped = margin.audit(model, held_out, train=train, claims="risk.accuracy")
    assert "169 of 169 held-out examples are of 40 groups that stand in the training part" in str(grouped)


def test_a_run_on_iris_rests_on_sound_data(tmp_path) -> None:
    run = margin.train("mlp", "iris", training=Training(epochs=2), out=tmp_path / "run")
    audit = margin.audit(run, claims=["evidence", "risk.accuracy", "risk.gap"])
    assert {found.verdict for found in audit.findings.values()} == {Verdict.MEASURED}
    assert "theory/evidence.duplicates" in audit.findings


def test_predictions_alone_have_no_rows() -> None:
    from margin.theory.evidence.rows import has_rows
    from margin.theory.prediction.held_out import stated

    assert not has_rows(stated(torch.eye(3)[torch.arange(30) % 3], torch.arange(30) % 3))


def test_a_split_by_groups_cuts_through_none_and_its_columns_have_names(tmp_path: Path) -> None:
    """Each part numbers its groups anew: equal numbers are no group that stands in both."""
    rows = [f"{(7 * i) % 301},{(11 * i) % 293},p{i // 5},{'uv'[(i // 3) % 2]}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,who,y", *rows]))
    data = open_data(tmp_path / "t.csv", {"target": "y", "group": "who"})
    found = margin.audit(
        nn.Linear(2, 2), data, claims=["evidence.groups", "evidence.giveaway", "risk.accuracy"]
    ).findings
    assert found["theory/evidence.groups"].value.tolist() == [0]
    assert set(found["theory/evidence.giveaway"].labels) == {"a", "b", "the best constant"}
    assert found["theory/risk.accuracy"].verdict == "measured"
