"""Every row of every table keeps its contract."""

from pathlib import Path

import pytest

from margin import testing
from margin.core.catalog import Claim, Entry, Part, Rule, claims, models, parts, rules
from mutants import MUTANTS, Mutant, drift_of
from mutants import main as run_mutants


@pytest.mark.parametrize(
    "row", [*models().values(), *rules().values(), *parts().values()], ids=lambda r: r.name
)
def test_a_row_is_well_formed(row: Entry | Rule | Part) -> None:
    testing.check_row(row)


# up to seven seconds: a training with all that an entry promises, of the slowest to build
@pytest.mark.parametrize("entry", models().values(), ids=lambda e: e.name)
def test_an_entry_keeps_every_contract(entry: Entry, tmp_path: Path) -> None:
    testing.check_entry(entry, tmp_path)


@pytest.mark.parametrize("claim", claims().values(), ids=lambda c: c.name)
def test_a_claim_keeps_every_contract(claim: Claim) -> None:
    testing.check_claim(claim)


# six seconds: the text of every mutant is sought in its file
def test_every_mutant_can_still_be_planted() -> None:
    """One that the source has moved away from defends nothing: give it the new text, or the new test."""
    drifted = {mutant.old: drift for mutant in MUTANTS if (drift := drift_of(mutant))}
    assert drifted == {}


def test_a_mutant_that_drifted_says_so(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    texts = (MUTANTS[0].old, "no such text", "import torch", MUTANTS[1].old)
    tests = ("core/test_findings.py",) * 3 + ("core/test_nothing.py",)
    monkeypatch.setattr("mutants.MUTANTS", [Mutant(a, "", b) for a, b in zip(texts, tests, strict=True)])
    monkeypatch.setattr("sys.argv", ["mutants.py", "--list"])
    assert run_mutants() == 1
    said = capsys.readouterr().out.splitlines()
    assert (
        said[0]
        == "  1 DRIFTED  the old text must stand in the source once: it stands nowhere: 'no such text'"
    )
    assert said[1].startswith(
        "  2 DRIFTED  the old text must stand in the source once: it stands src/margin/"
    )
    assert said[2].startswith(
        "  3 DRIFTED  its test must be a file below tests/: got 'core/test_nothing.py': "
    )
    assert said[3] == "  0 src/margin/core/findings.py"
