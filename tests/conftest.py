"""Shapes and types are enforced while the tests run; each worker computes on one thread.

``MARGIN_CHECK_SHAPES=0`` leaves the hook out, for the tests in ``unhooked``: those of torch.compile, which it
would stop, and of our own checks of types, which it would forestall.
"""

import os

import pytest
import torch
from jaxtyping import install_import_hook

CHECKED = os.environ.get("MARGIN_CHECK_SHAPES", "1") == "1"
if CHECKED:
    install_import_hook("margin", "typechecking.checked")

collect_ignore = ["unhooked"] if CHECKED else []
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Weights that a test draws without a seed are the same in every run, in whatever order."""
    torch.manual_seed(0)


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
