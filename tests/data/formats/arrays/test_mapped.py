"""An array that stays in its file gives what it gives in memory, and its file's size is not asked for."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from margin.data.formats.arrays import mapped, sources
from margin.data.formats.arrays.mapped import Mapped
from margin.data.formats.arrays.sources import read_arrays


def saved(folder: Path, x: np.ndarray) -> Path:
    np.save(folder / "a.npy", x)
    np.save(folder / "a_y.npy", np.arange(len(x)) % 2)
    return folder / "a.npy"


@pytest.mark.parametrize("shape", [(60, 5), (60, 4, 3), (60, 3, 4, 5)])
@pytest.mark.parametrize("kind", ["u1", "<f4", ">f8", "<i2"])
def test_in_the_file_and_in_memory_are_one(tmp_path, monkeypatch, shape, kind) -> None:
    monkeypatch.setattr(mapped, "BLOCK", 512)  # several blocks
    x = np.random.default_rng(0).integers(0, 200, shape).astype(kind)
    path = saved(tmp_path, x)
    here, there = read_arrays(path, memory="always"), read_arrays(path, memory="never")
    assert isinstance(there.splits["train"], Mapped)
    assert (here.spec, here.encoding) == (there.spec, there.encoding)
    assert (here.domain is None) == (there.domain is None)
    for part, examples in here.splits.items():
        index = torch.arange(len(examples)).flip(0)
        one, other = (data.splits[part].take(index, Generator()) for data in (here, there))
        assert torch.equal(one.inputs[0], other.inputs[0])
        assert one.inputs[0].dtype == other.inputs[0].dtype
        assert torch.equal(one.targets, other.targets)
    for name, buffer in here.preprocess.named_buffers():
        assert torch.allclose(buffer, getattr(there.preprocess, name), rtol=1e-12)


def test_a_number_that_is_not_finite_is_named_in_its_block(tmp_path, monkeypatch, refused) -> None:
    monkeypatch.setattr(mapped, "BLOCK", 512)
    x = np.ones((60, 8))
    x[41, 3] = np.nan
    with refused("a.npy, rows 40 .. 47: every input must be finite: got nan at index (1, 3)"):
        read_arrays(saved(tmp_path, x), memory="never")


def test_another_number_is_another_fingerprint(tmp_path) -> None:
    x = np.ones((60, 8))
    one = read_arrays(saved(tmp_path, x), memory="never").fingerprint
    assert read_arrays(saved(tmp_path, x), memory="never").fingerprint == one
    x[59, 7] = 2
    assert read_arrays(saved(tmp_path, x), memory="never").fingerprint != one


def test_new_arrays_stay_in_their_file_too(tmp_path, monkeypatch) -> None:
    x = np.random.default_rng(0).normal(size=(60, 8))
    data = read_arrays(saved(tmp_path, x))
    monkeypatch.setattr(sources, "MOST_BYTES", 100)
    found = sources.encode_file(tmp_path / "a.npy", data.encoding)
    assert isinstance(found, Mapped)
    batch = found.take(torch.tensor([3, 1]), Generator())
    assert torch.equal(batch.inputs[0], torch.from_numpy(x[[3, 1]]))
    assert batch.targets.tolist() == [1, 1]
    monkeypatch.setattr(sources, "MOST_BYTES", 100)
    assert isinstance(read_arrays(tmp_path / "a.npy").splits["train"], Mapped)


PROBE = """
import resource, sys
sys.path[:0] = {path!r}
import torch
from margin.data.formats.arrays.sources import read_arrays
from margin.data.examples import InOrder
torch.zeros(4).isfinite().all(), torch.ones(9, 9) @ torch.ones(9, 9)
rows = dict(line.split(":") for line in open("/proc/self/status"))
held = 1024 * int(rows["VmData"].split()[0])
resource.setrlimit(resource.RLIMIT_DATA, (held + {room}, resource.getrlimit(resource.RLIMIT_DATA)[1]))
data = read_arrays({file!r}, memory={memory!r})
print(sum(float(batch.inputs[0].sum()) for part in data.splits.values() for batch in InOrder(part, 512)))
"""


def test_reading_200_megabytes_takes_less_than_half_of_them(tmp_path) -> None:
    """The limit is on data alone, which mapped pages are no part of; in memory the same file does not fit."""
    x = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float32, (51_200, 1024))
    x[:] = np.arange(1024) % 7
    x.flush()
    np.save(tmp_path / "a_y.npy", np.arange(len(x)) % 2)
    size = (tmp_path / "a.npy").stat().st_size

    def run(memory: str) -> subprocess.CompletedProcess[str]:
        given = {"path": sys.path, "room": 2 * size // 5, "file": str(tmp_path / "a.npy"), "memory": memory}
        code = PROBE.format(**given)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
        )

    found = run("never")
    assert found.returncode == 0, found.stderr[-500:]
    assert float(found.stdout) == pytest.approx(float((np.arange(1024) % 7).sum()) * 51_200)
    assert "memory" in run("always").stderr.lower()
