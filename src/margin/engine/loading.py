"""The trained module of a run."""

from pathlib import Path

from torch import nn

from margin.engine.checkpoints import load_module
from margin.engine.recipes import module_of
from margin.engine.runs import Run


def load(run: str | Path | Run, mark: str = "best") -> nn.Module:
    """The trained module of a run, in evaluation mode, taking inputs in the user's units.

    Args:
        run: The run or its directory.
        mark: Which weights: "best" (the last where nothing was held out), "last" or "initial".
    """
    run = run if isinstance(run, Run) else Run(run)
    record = run.record
    module = module_of(record)
    name = "average" if record["arguments"]["training"]["average"] else "model"
    load_module(run.checkpoint(mark), name, module)
    return module.eval()
