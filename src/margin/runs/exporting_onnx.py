"""A module as an ONNX file, and what onnxruntime computes of it beside torch."""

import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from margin.nn.preprocessed import dtype_of

TOLERANCE = 1e-5
"""Largest difference of an ONNX file's outputs from torch's, relative to max(1, abs(output))."""


def tensors_of(outputs: Any) -> tuple[Tensor, ...]:
    """A model's outputs as a tuple."""
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def texts(description: Mapping[str, Any]) -> dict[str, str]:
    """The description as the texts that metadata can hold: each value as JSON."""
    return {name: json.dumps(value) for name, value in description.items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's own remarks: that torchvision is missing, that it calls itself in a deprecated way.

    Its recurrent layers keep a list of their own parameters, which needs no buffer.
    """
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The tensor attributes .*_flat_weights", UserWarning)
            warnings.filterwarnings("ignore", "_check_is_size will be removed", FutureWarning)
            warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.` is deprecated", FutureWarning)
            yield
    finally:
        logger.setLevel(before)


def onnx_bytes(module: nn.Module, inputs: tuple[Tensor, ...], description: Mapping[str, Any]) -> bytes:
    """The ONNX model, checked by its own rules; its ``metadata_props`` hold the description.

    Raises:
        ValueError: A package is missing.
    """
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(f"format onnx needs {error.name}: pip install 'margin[onnx]'") from None
    try:
        with quiet():
            program: Any = torch.onnx.export(
                module,
                inputs,
                dynamic_shapes=tuple({0: "batch"} for _ in inputs),
                input_names=[f"input_{i}" for i in range(len(inputs))] if len(inputs) > 1 else ["input"],
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise ValueError(_no_onnx(error, description)) from None
    model = program.model_proto
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        del node.metadata_props[:]  # paths of this machine
    onnx.helper.set_model_props(model, texts(description))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


TRACED = "a program must not depend on the values it is given"
"""What a model has to keep to be written as a program, of whatever format."""


def _no_onnx(error: BaseException, description: Mapping[str, Any]) -> str:
    """Why a model cannot be written as ONNX: the operator that ONNX does not have."""
    found = re.search(r"torch\.ops\.aten\.(\w+)", str(error))
    what = f"aten::{found[1]}, for which there is none" if found else " ".join(str(error).split())
    name = description["recipe"]["model"]
    if "Failed to export the model with torch.export" in str(error):
        return f"{TRACED}: {name} cannot be traced; set --format state"
    return f"a model must use what ONNX has an operator for: {name} uses {what}; use --format torch"


def check_onnx(content: bytes, module: nn.Module, inputs: tuple[Tensor, ...], called: str) -> float:
    """The largest difference of onnxruntime's outputs from torch's, on one input and on all.

    Raises:
        ValueError: onnxruntime lacks an operator in the model's type.
        ArithmeticError: The difference exceeds TOLERANCE, relative to max(1, abs(output)), or is NaN.
    """
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Lacking  # type: ignore[import-untyped]

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Lacking as error:
        reason = str(error).rpartition("NOT_IMPLEMENTED : ")[2]
        remedy = (
            "train with --precision float32" if dtype_of(module) == torch.float64 else "use --format torch"
        )
        raise ValueError(f"onnxruntime must be able to run the model: {reason}; {remedy}") from None
    names = [node.name for node in session.get_inputs()]
    gaps = []
    for count in (1, len(inputs[0])):
        part = tuple(x[:count] for x in inputs)
        found = session.run(None, {name: x.numpy() for name, x in zip(names, part, strict=True)})
        for value, expected in zip(found, tensors_of(module(*part)), strict=True):
            gaps.append((torch.from_numpy(value) - expected).abs() / expected.abs().clamp(min=1))
    gap = float(torch.cat([gap.flatten() for gap in gaps]).max())
    if not gap <= TOLERANCE:
        raise ArithmeticError(
            f"an ONNX file must give torch's outputs to {TOLERANCE:g}: got a difference of {gap:.1e} "
            f"on {called}; nothing was written"
        )
    return gap
