"""Shapes and types are enforced while the tests run; each worker computes on one thread.

``MARGIN_CHECK_SHAPES=0`` leaves the hook out, for the tests in ``unhooked``: those of torch.compile, which it
would stop, and of our own checks of types, which it would forestall.
"""

import copy
import functools
import gc
import os
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from typechecking import checked

CHECKED = os.environ.get("MARGIN_CHECK_SHAPES", "1") == "1"
if CHECKED:
    jaxtyping.install_import_hook("margin", "typechecking.checked")
    jaxtyping.jaxtyped = checked  # what the hook decorates with

collect_ignore = ["unhooked"] if CHECKED else []
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Weights that a test draws without a seed are the same in every run, in whatever order."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed writes down the stack for each absent device


@pytest.fixture(autouse=True, scope="session")
def _quick() -> Iterator[None]:
    """Files are not waited for on the disk, which only a machine that fails could tell; git is asked once.

    So is the text of scikit-learn's digits, which the smallest data of every model of images are made of: it
    is read once, and handed out in copies.
    """
    import sklearn.datasets

    import margin.engine.runs  # after the hook

    digits = functools.cache(sklearn.datasets.load_digits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.datasets, "load_digits", lambda **given: copy.deepcopy(digits(**given)))
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(margin.engine.runs, "git_state", functools.cache(margin.engine.runs.git_state))
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
