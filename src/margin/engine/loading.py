"""The trained module of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from margin.core.options import Training
from margin.engine.build import Room, memory_here, module_of
from margin.engine.checkpoints import load_module
from margin.engine.runs import Run
from margin.engine.schema import wrong
from margin.nn.preprocessed import Preprocessed

BROKEN = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What a constructor raises where a record holds other values than it was called with once."""


SPARE, TIMES = 2**28, 16
"""Bytes, and times the bytes of a checkpoint, that its model may take: what is no weight is in no file."""


def rebuilt(run: Run, record: Mapping[str, Any]) -> Preprocessed:
    """The module of a run's record before any training, no larger than its checkpoints let expect.

    Raises:
        ValueError: The record's recipe builds none.
    """
    try:
        return module_of(record, _room(run.path))
    except BROKEN as error:
        raise wrong(run.path / "run.yaml", "recipe", f"builds no model: {error}") from error


def _room(path: Path) -> Room:
    """The memory that a model may ask for whose weights are in the checkpoints of a run."""
    sizes = [file.stat().st_size for file in path.glob("*.safetensors")]
    if not sizes:
        return Room(memory_here())
    most = SPARE + TIMES * max(sizes)
    return Room(min(most, memory_here()), f"by the checkpoints of {path} it may be")


def load(run: str | Path | Run, mark: str = "best") -> nn.Module:
    """The trained module of a run, in evaluation mode, taking inputs in the user's units.

    Args:
        run: The run or its directory.
        mark: Which weights: "best" (the last where nothing was held out), "last" or "initial".
    """
    run = run if isinstance(run, Run) else Run(run)
    record = run.record
    module = rebuilt(run, record)
    name = "average" if Training.recorded(record["arguments"]["training"]).average else "model"
    load_module(run.checkpoint(mark), name, module)
    return module.eval()
