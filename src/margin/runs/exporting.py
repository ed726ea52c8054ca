"""Exporting a run to one file that other programs read: a plain state dict, torch.export or ONNX.

A file holds the run's model with its preprocessing, so it takes inputs in the user's units and returns
the model's own outputs: class scores before the softmax, a signed score, a value. A JSON description of
both, with the recipe of the model, is in the file's metadata. Nothing is pickled.
"""

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Generator, Tensor, nn

from margin.core.catalog import Entry, formats, resolve
from margin.core.tasks import DENSITY, PROBABILITY
from margin.data.examples import Data, InOrder, held_out_part
from margin.data.files.writing import write_whole
from margin.data.preprocess import Standardize
from margin.engine.checkpoints import in_order
from margin.engine.plan import cut_of
from margin.engine.runs import Run, load, run_of
from margin.figures.rows import html_text
from margin.nn.preprocessed import Preprocessed, core_of, dtype_of
from margin.runs.exporting_onnx import TRACED, check_onnx, onnx_bytes, quiet, tensors_of, texts
from margin.runs.run_data import reopen_data

ENDINGS = {"state": ".safetensors", "torch": ".pt2", "onnx": ".onnx"}
"""The formats, each with the ending of its files."""

WEIGHTS = ("best", "last", "initial")
EXAMPLES = 16
"""Inputs on which an ONNX file is compared with torch."""

BATCH = "N"
"""What a description calls the batch axis, whose length is free."""


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A file that was written, and what its model takes and returns.

    Args:
        path: The file.
        format: state, torch or onnx.
        size: Its bytes.
        description: What is in its metadata: recipe, inputs, outputs, names of features and classes.
        checked: On which inputs an ONNX file was compared with torch, else "".
        difference: The largest difference found, relative to max(1, abs(output)).
    """

    path: Path
    format: str
    size: int
    description: Mapping[str, Any]
    checked: str = ""
    difference: float | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        found = {"path": str(self.path), "format": self.format, "bytes": self.size}
        check = {"checked": self.checked, "difference": self.difference} if self.checked else {}
        return {**found, **self.description, **check}

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.format}, {self.size / 2**10:.1f} KiB, {self.description['weights']} weights",
            f"takes    {_taken(self.description)}",
            f"returns  {_returned(self.description)}",
        ]
        if self.checked:
            lines.append(f"checked  at most {self.difference:.1e} from torch's outputs, on {self.checked}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


def export(
    run: str | Path | Run,
    path: str | Path | None = None,
    *,
    format: str = "state",
    weights: str = "best",
    data: Any = None,
) -> Exported:
    """Write a run's model and its preprocessing to one file, whole or not at all.

    ``state`` is a safetensors file: the tensors of the model by its own names, those of the preprocessing
    under ``preprocess.``, those that bring its output to the user's units under ``outcome.``. ``torch`` is
    what ``torch.export.load`` reads, ``onnx`` what ONNX runtimes read; both take a batch of any length. An
    ONNX file is written only after onnxruntime has computed torch's outputs on a few inputs, to a relative
    difference of at most 1e-5.

    Args:
        run: The run or its directory.
        path: The file, which must not exist; ``model`` with the format's ending, in the run, if not given.
        format: state, torch or onnx.
        weights: best (the last where nothing was held out), last or initial.
        data: The data of a run that was trained on data in memory, whose examples are then the inputs of
            the check.

    Returns:
        The file and what its model takes and returns.

    Raises:
        FileExistsError: The file exists.
        ValueError: The format, the weights or the file's ending is unknown; a package for ONNX is missing.
        ArithmeticError: onnxruntime computes other outputs than torch.
    """
    run = run_of(run)
    for what, choice, choices in (("format", format, tuple(ENDINGS)), ("weights", weights, WEIGHTS)):
        if choice not in choices:
            raise ValueError(f"{what} must be one of {', '.join(choices)}: got {choice!r}")
    if format != "state":
        check_one_shape(run.record, format)
    path = free_place(run.path / f"model{ENDINGS[format]}" if path is None else Path(path), format)
    module: Any = load(run, weights).requires_grad_(False)
    if format != "state":
        check_one_pass(module, run.entry, format)
    inputs, origin = example_inputs(run, module, data, real=format == "onnx")
    description = describe(run, inputs, tensors_of(module(*inputs)), weights)
    checked, difference = "", None
    if format == "state":
        content = state_bytes(module, description)
    elif format == "torch":
        content = torch_bytes(module, inputs, description)
    else:
        content = onnx_bytes(module, inputs, description)
        checked, difference = origin, check_onnx(content, module, inputs, origin)
    write_whole(path, content)
    return Exported(path, format, len(content), description, checked, difference)


def free_place(path: Path, format: str) -> Path:
    """A path to which a file of that format can be written.

    Raises:
        FileExistsError: Something is there.
        FileNotFoundError: Its directory does not exist.
        ValueError: Its ending is not the format's.
    """
    if path.suffix != ENDINGS[format]:
        raise ValueError(f"a file of format {format} must end in {ENDINGS[format]}: got {path.name}")
    if path.exists():
        raise FileExistsError(f"{path} exists: choose another --out, or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such directory: {path.parent}")
    return path


# inputs and outputs


def example_inputs(
    run: Run, module: Preprocessed, data: Any, *, real: bool
) -> tuple[tuple[Tensor, ...], str]:
    """A few inputs in the user's units, and what to call them.

    Args:
        run: The run.
        module: Its module.
        data: Its data, where they lay in memory and are handed over; else None.
        real: Whether held-out examples are taken where its data can be opened. Where they lay in memory,
            are gone or have changed, normal inputs of the training part's mean and variance stand for them.

    Raises:
        ValueError: The data handed over are not the run's, or the record does not tell an input's shape.
    """
    record, dtype = run.record, dtype_of(module)
    if data is not None:
        return _examples(reopen_data(record, data), run, dtype)
    if not of_one_shape(record):
        return _examples(reopen_data(record), run, dtype)
    if real and record["arguments"]["data"]:
        with suppress(OSError, ValueError):
            return _examples(reopen_data(record), run, dtype)
    shape, generator = (EXAMPLES, *input_shape(record)), Generator().manual_seed(0)
    fitted = module.preprocess if isinstance(module.preprocess, Standardize) else None
    if record["arguments"]["training"].get("scale") in (None, "standard"):
        seen = torch.randn(shape, generator=generator, dtype=dtype)
        law = "the training part's mean and variance" if fitted else "mean 0 and variance 1"
        called = f"{EXAMPLES} normal inputs of {law}"
    else:
        seen = torch.rand(shape, generator=generator, dtype=dtype)
        called = f"{EXAMPLES} inputs that the model sees as even in [0, 1]"
    return (seen if fitted is None else fitted.inverse(seen),), called


def _examples(data: Data, run: Run, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], str]:
    part = held_out_part(data.splits) or "train"
    cut = cut_of(run.entry, run.record["recipe"]["options"])
    inputs = InOrder(cut(data.splits[part]), EXAMPLES, dtype=dtype)[0].inputs
    return inputs, f"{len(inputs[0])} examples of {data.name} ({part} part)"


def of_one_shape(record: Mapping[str, Any]) -> bool:
    """Whether a model takes one tensor of real numbers, its shape the same for every example."""
    encoding = record["data"]["encoding"]
    row = formats().get(encoding.get("format", encoding.get("kind", "")))
    real = (row is None or row.real) and encoding.get("kind") != "tokens"
    return real and 0 not in encoding.get("shape", ())  # where a length is free, the shape says 0


def check_one_pass(module: nn.Module, entry: Entry, format: str) -> None:
    """Refuse to write as a program an estimate that takes many passes of a network.

    Raises:
        ValueError: The model's output is such an estimate: a bound of a density, or one that follows a flow.
    """
    name, core = entry.name, core_of(module)
    stated = resolve(entry.task) in (DENSITY, PROBABILITY)
    if stated and (hasattr(core, "bound") or hasattr(core, "log_density")):
        raise ValueError(
            f"a file of format {format} holds one pass of a model: {name} estimates its density by many; "
            "--format state writes its weights"
        )


def _no_program(error: BaseException, description: Mapping[str, Any]) -> str:
    """Why a model cannot be written as a program: the first line of what torch says."""
    name = description["recipe"]["model"]
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"{TRACED}: {name} cannot be traced ({first.strip()})"


def check_one_shape(record: Mapping[str, Any], format: str) -> None:
    """Refuse to export a model of several inputs, of tokens, or of examples of several lengths.

    Raises:
        ValueError: It is such a model.
    """
    if not of_one_shape(record):
        kind = record["data"]["encoding"]["kind"]
        raise ValueError(
            f"a file of format {format} takes inputs of one shape: the run is on {kind} of several, or of "
            "no real numbers; --format state writes its weights"
        )


def input_shape(record: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one input, as a run's record has it.

    Raises:
        ValueError: It has none: the data were handed over as Data without an encoding.
    """
    encoding, spec = record["data"]["encoding"], record["recipe"]["spec"]
    if "shape" in encoding:
        return tuple(encoding["shape"])
    if "in_features" in spec:
        return (spec["in_features"],)
    raise ValueError("the run's record must tell the shape of an input: it does not; hand its data over")


def describe(
    run: Run, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], weights: str
) -> dict[str, Any]:
    """What a file says of its model, as JSON values."""
    record, encoding = run.record, run.record["data"]["encoding"]
    names: list[str] = []
    if encoding.get("format") == "table":
        from margin.data.formats.encodings import feature_names

        names = feature_names(encoding["columns"])
    return {
        "margin": version("margin"),
        "recipe": record["recipe"],
        "preprocess": record["preprocess"],
        "outcome": record.get("outcome"),
        "weights": weights,
        "data": record["data"]["name"],
        "inputs": [_described(tensor) for tensor in inputs],
        "features": names,
        "outputs": [_described(tensor) for tensor in outputs],
        "task": resolve(run.entry.task).name,
        "classes": [str(name) for name in encoding.get("classes", ())],
        "target": encoding.get("target", {}).get("name", ""),
    }


def _described(tensor: Tensor) -> dict[str, Any]:
    return {"shape": [BATCH, *tensor.shape[1:]], "dtype": str(tensor.dtype).removeprefix("torch.")}


def _taken(description: Mapping[str, Any]) -> str:
    features, shown = description["features"], _shapes(description["inputs"])
    columns = f": {listed(features)}" if features else ""
    return f"{shown}, in the units of {description['data']}, not standardized{columns}"


def _returned(description: Mapping[str, Any]) -> str:
    classes, shown = description["classes"], _shapes(description["outputs"])
    if description["task"] == "classes":
        return f"{shown}, a score (logit) for each class{f': {listed(classes)}' if classes else ''}"
    if description["task"] == "halfspace":
        return f"{shown}, a signed score, positive for {classes[1] if classes else 'class 1'}"
    return f"{shown}, {description['task']}{' of ' + description['target'] if description['target'] else ''}"


def _shapes(tensors: list[dict[str, Any]]) -> str:
    return ", ".join(f"{t['dtype']} ({', '.join(map(str, t['shape']))})" for t in tensors)


def listed(names: list[str], most: int = 10) -> str:
    """The names in one line, the first few of many."""
    return (
        ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"
    )


# formats


def state_bytes(module: Preprocessed, description: Mapping[str, Any]) -> bytes:
    """The tensors of a run's module as safetensors: the model's by its own names, then ``preprocess.``."""
    state = module.model.state_dict() | module.preprocess.state_dict(prefix="preprocess.")
    if module.outcome is not None:
        state |= module.outcome.state_dict(prefix="outcome.")
    # safetensors refuses tensors that share memory
    tensors = {name: tensor.contiguous().clone() for name, tensor in state.items()}
    return in_order(save(tensors, {"format": "pt"} | texts(description)))


def torch_bytes(module: nn.Module, inputs: tuple[Tensor, ...], description: Mapping[str, Any]) -> bytes:
    """The program that ``torch.export.load`` reads; its file ``margin.json`` is the description."""
    axes = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    try:
        with quiet():
            program = torch.export.export(module, inputs, dynamic_shapes=axes)
    except Exception as error:  # what cannot be traced raises nearly anything
        raise ValueError(_no_program(error, description)) from error
    program.example_inputs = None  # torch would pickle them
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"margin.json": json.dumps(description)})
    return file.getvalue()
