"""What a process of tests may do without, none of which a test could tell."""

import copy
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sklearn.datasets


@contextmanager
def quick() -> Iterator[None]:
    """Files are not waited for on the disk, which only a machine that fails could tell; git is asked once.

    So is the text of scikit-learn's digits, which the smallest data of every model of images are made of: it
    is read once, and handed out in copies.
    """
    import margin.engine.runs  # after the hook

    digits = functools.cache(sklearn.datasets.load_digits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.datasets, "load_digits", lambda **given: copy.deepcopy(digits(**given)))
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(margin.engine.runs, "git_state", functools.cache(margin.engine.runs.git_state))
        yield
