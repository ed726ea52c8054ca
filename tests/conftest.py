"""Shapes and types are enforced while the tests run; each worker computes on one thread.

``MARGIN_CHECK_SHAPES=0`` leaves the hook out, for the tests in ``unhooked``: those of torch.compile, which it
would stop, and of our own checks of types, which it would forestall.
"""

import os

import torch
from jaxtyping import install_import_hook

CHECKED = os.environ.get("MARGIN_CHECK_SHAPES", "1") == "1"
if CHECKED:
    install_import_hook("margin", "typechecking.checked")

collect_ignore = ["unhooked"] if CHECKED else []
torch.set_num_threads(1)
