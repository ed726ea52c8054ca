"""``margin predict RUN DATA``, ``margin sample RUN``, ``margin export RUN``, ``margin compare RUN RUN``."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from margin.cli.output import Output, say
from margin.cli.parsing import HELP, explanations, new_parser, parse
from margin.cli.tables import columns, told


def predict(run: str, data: str, *, out: str = "", width: int = 1, longest: int = 100) -> Output:
    """Print predictions of a run for data as CSV, one row an example.

    Args:
        run: Directory of the run.
        data: Data, a file or a name, read as the run's training data were; targets are not needed.
        out: Output file, .csv or .json, in place of the terminal; must not exist. Of a model that tells a
            class for every pixel, the folder to which its masks are written as PNG.
        width: Beam width of a model that translates; 1 is greedy decoding, the likeliest token each time.
        longest: Maximum length in tokens of a translation.
    """
    from margin.data.files.writing import write_whole
    from margin.engine.runs import Run
    from margin.runs.inference import predictions
    from margin.runs.masks import mask_shares, predicts_masks

    if predicts_masks(one := Run(run)):
        columns = mask_shares(one, data, out)
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return Output(rows, f"{len(rows)} masks in {out}" if out else as_csv(columns, rows).rstrip("\n"))
    columns = predictions(one, data, width=width, longest=longest, tell=lambda note: say(f"note: {note}"))
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


def as_csv(columns: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV text with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def sample_run(words: Sequence[str]) -> Output:
    """Draw samples, with what the user typed: the run first, whose model says which options there are."""
    from margin.engine.runs import Run
    from margin.runs.sampling import OWN, options_of, sampler_of

    asked = [k for k, word in enumerate(words) if word in HELP]
    place = next((word for word in words[: min(asked, default=None)] if not word.startswith("-")), "")
    if not place and not asked:
        raise ValueError("margin sample needs a run: margin sample RUN -n 4")
    parser = new_parser("margin sample", "Sample from a run's generative model.")
    parser.add_argument("run", help="Directory of the run.")
    parser.add_argument("-n", "--count", type=int, default=1, help="Number of samples.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed of the samples.")
    parser.add_argument(
        "--prefix", "--prompt", type=str, default="", help="Prompt: the text that a sample continues."
    )
    parser.add_argument(
        "--interpolate", action="store_true", help="Interpolation: the path between two samples."
    )
    parser.add_argument("--out", type=str, default="", help="Output file: .npy, .png, .txt or .wav.")
    if place:
        sampler = sampler_of(Run(place), "interpolate" if "--interpolate" in words else "sample")
        known = options_of(sampler)
        skipped: set[str | int] = {"self", "count", *explanations(sampler), *OWN}
        skipped -= set(known)
        parser.add_function_arguments(sampler, "sample", skip=skipped)
    return drawn(parse(parser, words).as_dict())


def drawn(options: dict[str, Any]) -> Output:
    """Draw what was asked for, and show or write it."""
    from margin.runs.sampling import interpolate, sample

    path = Path(options["out"]) if options["out"] else None
    if path is not None and path.exists():
        raise FileExistsError(f"{path} exists: choose another --out")
    run, count, seed, own = options["run"], options["count"], options["seed"], options.get("sample") or {}
    if options["interpolate"]:
        if options["prefix"]:
            raise ValueError("a path between two samples continues no text: leave out the prefix")
        found = interpolate(run, count, seed=seed, options=own)
    else:
        found = sample(run, count, seed=seed, prefix=options["prefix"], options=own)
    if path is not None:
        return Output(
            {"samples": len(found.values), "out": str(found.write(path))},
            f"{len(found.values)} sample{'s' * (len(found.values) != 1)} in {path}",
        )
    if found.texts:
        return Output(list(found.texts), found.text)
    shown = found.values.tolist()
    return Output(shown, "\n".join(map(str, shown)))


def export_run(
    run: str,
    *,
    format: Literal["state", "torch", "onnx"] = "state",
    out: str = "",
    weights: Literal["best", "last", "initial"] = "best",
) -> Output:
    """Export a run's model to one file. Its outputs are the model's own: class scores before the softmax.

    Args:
        run: Directory of the run.
        format: File format: a plain state dict (safetensors), torch.export, or ONNX, checked against torch.
        out: Output file, which must not exist; model.safetensors, .pt2 or .onnx in the run if not given.
        weights: Weights: best, last or initial; best is the last where nothing was held out.
    """
    from margin.runs.exporting import export

    if format != "state" and (said := written_out(run)):
        say(said)
    exported = export(run, out or None, format=format, weights=weights)
    return Output(exported.as_json(), told(str(exported)))


LONG = 200
"""Steps from which writing out a recurrence takes more than a few seconds."""


def written_out(run: str) -> str:
    """What is said before a long wait: a program has no loop, every step of a recurrence is written out."""
    from margin.engine.runs import Run, load
    from margin.nn.recurrence import Recurrence

    record = Run(run).record
    encoding = record["data"]["encoding"]
    steps = encoding["shape"][0] if encoding.get("kind") in ("sequences", "series") else 0
    if steps < LONG or not any(isinstance(part, Recurrence) for part in load(Run(run)).modules()):
        return ""
    return (
        f"{record['recipe']['model']} is written out step by step, {steps:,} of them: this may take minutes; "
        "--format state writes its weights at once"
    )


def compare(first: str, others: tuple[str, ...]) -> Output:
    """Compare runs by paired differences on the same held-out examples, or audits finding by finding.

    Args:
        first: Baseline: the run or audit with which the others are compared.
        others: Further runs or audits.
    """
    from margin.auditing.asking.comparing import compare as compared

    found = compared(first, *others)
    tables = "\n\n".join(columns(rows, lead=found.lead) for rows in found.tables)
    return Output(found.document, f"{tables}\n{told(found.note)}" if found.note else tables)
