"""kill -9 at any moment leaves a run that resumes to the bits of the unbroken one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from margin.engine.runs import Run
from margin.testing import check_same_run

SERVER = Path(__file__).with_name("kill_server.py")
KILLS = [
    ("start", 0),
    ("rename", 2),  # the first checkpoint is not in its place
    ("rename", 3),  # it is, and no mark names it
    ("rename", 60),
    ("step", 1),
    ("step", 148),
    ("step", 150),  # an evaluation and a checkpoint are due
    ("step", 298),
]
"""A few true kills; tests/contracts/test_resuming.py kills every row within its process."""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen]:
    with subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def request(server: subprocess.Popen, directory: Path, mode: str, number: int = 0) -> str:
    server.stdin.write(f"{directory} {mode} {number}\n")
    server.stdin.flush()
    return server.stdout.readline().strip()


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory where there is one: sixty checkpoints a run wait for no disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path_factory.mktemp("kill")
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def whole(server: subprocess.Popen, room: Path) -> Run:
    directory = room / "whole"
    assert request(server, directory, "plain") == "done"
    return Run(directory)


@pytest.mark.parametrize(("mode", "number"), KILLS)
def test_a_killed_run_resumes_to_the_same_bits(
    server: subprocess.Popen, whole: Run, room: Path, mode: str, number: int
) -> None:
    directory = room / "killed"
    ended = request(server, directory, mode, number)
    assert ended == "killed"
    before = Run(directory)
    assert before.checkpoints.get("ended", 300) == 300
    assert request(server, directory, "resume") == "done"
    check_same_run(whole, Run(directory))
    shutil.rmtree(directory)
