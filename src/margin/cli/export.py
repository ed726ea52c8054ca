"""``margin export RUN``."""

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
    from margin.exporting import export

    exported = export(run, out or None, format=format, weights=weights)
    return Output(exported.as_json(), str(exported))
