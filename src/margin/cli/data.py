"""``margin data``, ``margin data show FILE``, ``margin data get NAME``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin.cli import tables
from margin.cli.output import Output, say
from margin.cli.parsing import HELP, call, named, new_parser, parse, reader_options
from margin.cli.tables import columns, fitted
from margin.core import catalog
from margin.data.data_home import FETCHED, FOUR, LYING, PLACED, folder_of, lies_there, missing
from margin.data.source import Source

SHOWN = """usage: margin data show DATA [options]

Describe a data set, a file or a folder as it would be read, before anything is trained.

  margin data show DATA --help       the options of what reads it
  --target NAME                      the column to predict
  --task classes|values              how it is read
  --data.NAME VALUE                  how the data are read and split
  --augment shift:2,flip --out FILE  draw ten examples under a data augmentation"""


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    if words and words[0] == "show":
        return show(words[1:])
    if words and words[0] == "get":
        return call(get, words[1:], "margin data get")
    return call(sets, words, "margin data")


def sets() -> Output:
    """List the data sets; "margin data show DATA" describes a set or file, "get NAME" downloads a set."""
    rows: list[dict[str, Any]] = [
        {"name": name, "summary": part.summary, "reference": part.reference, "here": here(name)}
        for name, part in catalog.sources().items()
    ]
    shown = [(row["name"], "here" if row["here"] else "not here", row["summary"]) for row in rows]
    return Output(rows, columns(shown, ("bold", {"here": "green", "not": "dim"})))


def here(name: str) -> bool:
    """Whether a set can be opened: it ships with a package, is made, or its files lie under MARGIN_DATA."""
    if name in LYING:
        return lies_there(name)
    if name not in PLACED:
        return True
    try:
        return not missing(folder_of(name))
    except FileNotFoundError:
        return False


def get(name: str, *, out: str = "") -> Output:
    """Download the files of a data set, each checked by its SHA-256; files that are there already are kept.

    Args:
        name: Name of the data set, as margin data lists it.
        out: Output folder; $MARGIN_DATA/NAME if not given.
    """
    part = named(catalog.sources(), name, "data set", "data")
    name = part.name.removeprefix("data/")
    if name in LYING:
        files = ", ".join(f"$MARGIN_DATA/{file}" for file in LYING[name])
        raise ValueError(f"{name} is not fetched, but read from {files}: put the files there")
    if name not in PLACED:
        raise ValueError(f"{name} is here already: it ships with a package, or is made")
    if name not in FETCHED:
        files = ", ".join(file for pair in FOUR.values() for file in pair)
        raise ValueError(
            f"{name} is not fetched, but read from $MARGIN_DATA/{name}: put there {files} (.gz too)"
        )
    if not out:
        try:
            folder = folder_of(name)
        except FileNotFoundError:
            raise ValueError(
                "margin data get needs a folder: set the environment variable MARGIN_DATA, or give --out DIR"
            ) from None
    else:
        folder = Path(out)
    from margin.data.sets import download

    done = download.fetch(folder, told, base=download.BASE)
    document = {"name": name, "folder": str(folder), "files": done}
    return Output(document, f"{columns([*done.items()])}\n{name} lies in {folder}")


def told(file: str, so_far: int, total: int) -> None:
    """Show on stderr how a file comes: as it grows in a terminal, when it is there elsewhere."""
    whole = so_far == total
    if sys.stderr is not None and sys.stderr.isatty():
        shown = f"\r\x1b[2K{file}  {so_far / 1e6:.1f} of {total / 1e6:.1f} MB"
        say(shown, end="\n" if whole else "")
    elif whole:
        say(f"{file}  {total / 1e6:.1f} MB")


def check_source(source: str) -> None:
    """Refuse a name that is neither a set nor a file, before anything heavy is loaded.

    Raises:
        ValueError: The name is unknown.
    """
    if not Path(source).exists() and not any(mark in source for mark in "./\\:"):
        named(catalog.sources(), source, "data set", "data")


def show(words: Sequence[str]) -> Output:
    """Print what is understood of a set or file, before anything is trained."""
    if words and words[0] in HELP:
        return Output({"usage": SHOWN}, fitted(SHOWN))
    if not words or words[0].startswith("-"):
        raise ValueError("margin data show needs a file or the name of a set, then --data.* options")
    check_source(words[0])
    parser = new_parser(f"margin data show {words[0]}", "Describe a data set or file as it would be read.")
    parser.add_argument(
        "--augment", type=str, default="", help="Data augmentation to be drawn, as shift:2,flip."
    )
    parser.add_argument(
        "--out",
        type=str,
        default="",
        help="Output picture of the augmentation, a .png; augmented.png if not given.",
    )
    source = Source(words[0])
    reader_options(parser, source)
    options: dict[str, Any] = parse(parser, words[1:]).as_dict()
    if options["out"] and not options["augment"]:
        raise ValueError("--out is the picture of --augment, which is not given: leave out --out")
    from margin.data.description import describe, lines
    from margin.data.open import open_data

    data = open_data(source, options.get("data", {}))
    if options["augment"]:
        changes = [word.strip() for word in options["augment"].strip("[]").split(",")]
        return augmentations(data, changes, Path(options["out"] or "augmented.png"))
    description = describe(data)
    return Output(description, tables.told("\n".join(lines(description))))


def augmentations(data: Any, words: Sequence[str], out: Path) -> Output:
    """Draw what random changes make of ten training examples."""
    from margin.data.transforms.augmentation_sheet import augmentation_sheet
    from margin.engine.plan import setting

    if out.suffix != ".png":
        raise ValueError(f"--out must be a .png file, which the picture is: got {out}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {out.parent}")
    path = augmentation_sheet(data.splits["train"], words, setting(data), out)
    return Output({"picture": str(path), "augment": list(words)}, f"{', '.join(words)}: drawn in {path}")
