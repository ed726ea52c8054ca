"""``margin data [show FILE]``."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin import catalog
from margin.cli.output import Output, columns


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    if words and words[0] == "show":
        return show(words[1:])
    from margin.cli.parsing import call

    return call(sets, words, "margin data")


def sets() -> Output:
    """List the data sets by name and which are on this machine; "margin data show FILE" explains a file."""
    rows: list[dict[str, Any]] = [
        {"name": name, "summary": part.summary, "reference": part.reference, "here": here(name)}
        for name, part in catalog.sources().items()
    ]
    shown = [(row["name"], "here" if row["here"] else "not here", row["summary"]) for row in rows]
    return Output(rows, columns(shown))


def here(name: str) -> bool:
    """Whether a set can be opened: it ships with a package, is made, or its files lie under MARGIN_DATA."""
    if name not in ("mnist", "fashion-mnist"):
        return True
    root = os.environ.get("MARGIN_DATA", "")
    return bool(root) and any((Path(root) / name).glob("train-images*"))


def check_source(source: str) -> None:
    """Refuse a name that is neither a set nor a file, before anything heavy is loaded.

    Raises:
        ValueError: The name is unknown.
    """
    if not Path(source).exists() and not any(mark in source for mark in "./\\"):
        catalog.find(catalog.sources(), source, "data set")


def show(words: Sequence[str]) -> Output:
    """Print what is understood of a set or file, before anything is trained."""
    from margin.cli.parsing import new_parser, parse

    if not words or words[0].startswith("-"):
        raise ValueError("margin data show needs a file or the name of a set, then --data.* options")
    check_source(words[0])
    from margin.cli.sources import data_options, readable

    parser = new_parser(f"margin data show {words[0]}", "Print what is understood of a set or file.")
    data_options(parser, words[0])
    options: dict[str, Any] = parse(parser, readable(words[1:], words[0])).as_dict()
    from margin.data.description import describe, lines
    from margin.data.opening import open_data

    description = describe(open_data(words[0], options.get("data", {})))
    return Output(description, "\n".join(lines(description)))
