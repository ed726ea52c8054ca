"""A compiled model trains to the weights of the eager one; the shape hook would stop the compiler."""

import shutil
from pathlib import Path

import pytest
import torch

from margin import Training, load, train


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_training_ends_where_the_eager_one_does(tmp_path: Path) -> None:
    found = []
    for compiled in (False, True):
        training = Training(max_steps=4, compile=compiled, optimizer="SGD", lr=0.1)
        run = train("mlp", "iris", {"hidden": (8,)}, training, out=tmp_path / str(compiled))
        found.append(torch.cat([p.detach().flatten() for p in load(run, "last").parameters()]))
    assert torch.allclose(*found, rtol=0, atol=1e-5)
