"""Shapes and types are enforced while the tests run; each worker computes on one thread.

``MARGIN_CHECK_SHAPES=0`` leaves the hook out, for the tests in ``unhooked``: those of torch.compile, which it
would stop, and of our own checks of types, which it would forestall.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch

from quick import quick
from typechecking import checked

CHECKED = os.environ.get("MARGIN_CHECK_SHAPES", "1") == "1"
if CHECKED:
    jaxtyping.install_import_hook("margin", "typechecking.checked")
    jaxtyping.jaxtyped = checked  # what the hook decorates with

collect_ignore = ["unhooked"] if CHECKED else []
torch.set_num_threads(1)
gc.set_threshold(20_000, 20, 50)  # torch's exporter makes millions of objects that live: a tenth of its time
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background, for all that is started
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Weights that a test draws without a seed are the same in every run, in whatever order."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed writes down the stack for each absent device


@pytest.fixture(autouse=True)
def _own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test writes and imports is not found by the next one that has another of its name."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        file = Path(getattr(sys.modules[name], "__file__", None) or "/")
        if file.is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]


@pytest.fixture(autouse=True, scope="session")
def _quick() -> Iterator[None]:
    with quick():
        yield


def pytest_collection_finish() -> None:
    """What is collected lives as long as the session: the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def finding():
    """A finding of one number, but for what a test says of it."""
    from margin.core.findings import Finding  # after the hook

    def made(**changes):
        fields = {
            "statement": "A statement.",
            "value": torch.tensor(0.5, dtype=torch.float64),
            "unit": "1",
            "range": (0.0, 1.0),
            "premises": (),
            "reference": "Author 2000, theorem 1",
        }
        return Finding(**(fields | changes))

    return made
