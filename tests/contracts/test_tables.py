"""Every row of every table keeps its contract."""

from pathlib import Path

import pytest

from margin import testing
from margin.core.catalog import Claim, Entry, Part, Rule, claims, models, parts, rules


@pytest.mark.parametrize(
    "row", [*models().values(), *rules().values(), *parts().values()], ids=lambda r: r.name
)
def test_a_row_is_well_formed(row: Entry | Rule | Part) -> None:
    testing.check_row(row)


@pytest.mark.parametrize("entry", models().values(), ids=lambda e: e.name)
def test_an_entry_keeps_every_contract(entry: Entry, tmp_path: Path) -> None:
    testing.check_entry(entry, tmp_path)


@pytest.mark.parametrize("claim", claims().values(), ids=lambda c: c.name)
def test_a_claim_keeps_every_contract(claim: Claim) -> None:
    testing.check_claim(claim)
