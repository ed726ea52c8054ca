"""``margin demo``: the whole path on real data that scikit-learn ships, scans of handwritten digits."""

from collections.abc import Sequence
from pathlib import Path

from margin.cli.output import Output
from margin.cli.parsing import call


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(demo, words, "margin demo")


def demo(*, out: str = "", seed: int = 0) -> Output:
    """Train LeNet-5 on scikit-learn's digits, audit it, and write one self-contained report.

    Args:
        out: Directory of the run; runs/lenet5-<number> if not given.
        seed: Seed of the training.
    """
    from margin.cli.audit import audit_model
    from margin.cli.progress import progress
    from margin.core.options import Training
    from margin.runs.training import finish, free_path, open_source, prepare

    path = Path(out) if out else free_path("lenet5")
    arguments = {"options": {}, "step": {}, "rule": ""}
    data = open_source("digits", {})
    finish(prepare("vision/lenet5", data, arguments, Training(seed=seed), path), progress=progress)
    return audit_model(str(path))
