"""The claims that a user names: by patterns, or one by any end of its name that is its own."""

import fnmatch
from collections.abc import Sequence

from margin.core import catalog
from margin.core.catalog import Claim, UnknownName, nearest


def claims_named(patterns: Sequence[str]) -> list[Claim]:
    """The claims whose name matches a pattern, or has it as a part.

    Raises:
        UnknownName: A pattern matches none.
    """
    table = catalog.claims()
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in table):
            raise UnknownName(f"no claim matches {pattern!r}; {_see(pattern)}")
    return [row for name, row in table.items() if any(_matches(name, pattern) for pattern in patterns)]


def claim_named(name: str) -> Claim:
    """The one claim of that name: in full, by what follows its last ``/`` or ``.``, or as the only match.

    Of several that end alike the one is meant that asks whether the model is right: ``accuracy`` is that on
    held-out examples.

    Raises:
        UnknownName: No claim has that name, or several do.
    """
    table = catalog.claims()
    if name in table:
        return table[name]
    short = [full for full in table if name in (full.rpartition("/")[2], full.rpartition(".")[2])]
    short = [full for full in short if table[full].question == "right"] or short
    found = short or [full for full in table if _matches(full, name)]
    right = [full for full in short if table[full].question == "right"]
    if len(right) == 1:
        return table[right[0]]
    if len(found) > 1:
        raise UnknownName(f"claim {name!r} could be {', '.join(found)}: give the full name")
    if not found:
        raise UnknownName(f"unknown claim {name!r}; {_see(name)}")
    return table[found[0]]


def _see(name: str) -> str:
    forms = {full.rpartition(".")[2]: full for full in reversed(list(catalog.claims()))}  # the first counts
    near = list(dict.fromkeys([*(forms[n] for n in nearest(name, forms)), *nearest(name, catalog.claims())]))
    return f"nearest: {', '.join(near[:3]) or 'none'}; see margin list --kind claim"


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*{pattern}*")
