"""``margin export RUN``."""

import sys
from collections.abc import Sequence
from typing import Literal

from margin.cli.output import Output
from margin.cli.parsing import call


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(export_run, words, "margin export")


def export_run(
    run: str,
    *,
    format: Literal["state", "torch", "onnx"] = "state",
    out: str = "",
    weights: Literal["best", "last", "initial"] = "best",
) -> Output:
    """Write a run's model to one file. Its outputs are the model's own: class scores before the softmax.

    Args:
        run: The run's directory.
        format: A plain state dict (safetensors), torch.export, or ONNX, checked against torch.
        out: The file, which must not exist; model.safetensors, .pt2 or .onnx in the run if not given.
        weights: Which weights; best is the last where nothing was held out.
    """
    from margin.runs.exporting import export

    if format != "state" and (told := written_out(run)):
        print(told, file=sys.stderr, flush=True)
    exported = export(run, out or None, format=format, weights=weights)
    return Output(exported.as_json(), str(exported))


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
