"""What a process of tests may do without, none of which a test could tell."""

import copy
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sklearn.datasets
import torch


@contextmanager
def quick() -> Iterator[None]:
    """Files are not waited for on the disk, which only a machine that fails could tell; git is asked once.

    A seed is not kept for devices that are not there: with each torch writes down the stack of calls.

    The text of scikit-learn's digits, which the smallest data of every model of images are made of, is read
    once, and handed out in copies.
    """
    import margin.engine.runs  # after the hook

    digits = functools.cache(sklearn.datasets.load_digits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.datasets, "load_digits", lambda **given: copy.deepcopy(digits(**given)))
        patch.setattr(os, "fsync", lambda file: None)
        for name in ("torch.cuda.random", "torch.xpu.random", "torch.mtia"):
            if not torch.get_device_module(name.split(".")[1]).is_available():
                patch.setattr(f"{name}._lazy_call", lambda *call, **kind: None)
        patch.setattr(margin.engine.runs, "git_state", functools.cache(margin.engine.runs.git_state))
        yield
