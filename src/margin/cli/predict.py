"""``margin predict RUN DATA``."""

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from margin.cli.output import Output
from margin.cli.parsing import call


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(predict, words, "margin predict")


def predict(run: str, data: str, *, out: str = "", width: int = 1, longest: int = 100) -> Output:
    """Print a run's predictions for data, one row an example, as CSV.

    Args:
        run: The run's directory.
        data: A file or a name, read as the run's training data were; targets are not needed.
        out: A file that the rows go to instead, .csv or .json; it must not exist.
        width: Of a model that translates, the width of the beam; 1 takes the likeliest token each time.
        longest: Of a model that translates, tokens of a translation at most.
    """
    from margin.data.files.writing import write_whole
    from margin.engine.runs import Run
    from margin.runs.inference import predictions

    columns = predictions(Run(run), data, width=width, longest=longest, tell=noted)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if not out:
        return Output(rows, as_csv(columns, rows).rstrip("\n"))
    path = Path(out)
    if path.exists():
        raise FileExistsError(f"{path} exists: choose another --out")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such directory: {path.parent}")
    if path.suffix not in (".csv", ".json"):
        raise ValueError(f"--out ends in .csv or .json: got {path.name}")
    text = as_csv(columns, rows) if path.suffix == ".csv" else json.dumps(rows, indent=1)
    write_whole(path, text.encode())
    return Output({"rows": len(rows), "out": str(path)}, f"{len(rows)} predictions in {path}")


def noted(note: str) -> None:
    """Say on stderr what was assumed in reading new data."""
    print(f"note: {note}", file=sys.stderr, flush=True)


def as_csv(columns: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV text with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
