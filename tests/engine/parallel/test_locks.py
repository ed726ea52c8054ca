"""A lock excludes other processes and other callers, says who holds it, and dies with its holder."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from margin.engine.parallel import locks
from margin.engine.parallel.locks import Holder, Lock, RunBusyError, holder_of

HOLD = (
    "import sys, time; from pathlib import Path; from margin.engine.parallel.locks import Lock\n"
    "lock = Lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen]:
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_named_and_its_kill_frees(tmp_path: Path, other: subprocess.Popen) -> None:
    who = holder_of(tmp_path)
    assert (who.process, who.host) == (other.pid, socket.gethostname())
    with pytest.raises(RunBusyError, match=f"{tmp_path} is being trained by process {other.pid} on"):
        Lock(tmp_path)
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (tmp_path / "lock").exists()  # left behind, and blocks nothing
    assert holder_of(tmp_path) is None
    Lock(tmp_path).release()
    assert not (tmp_path / "lock").exists()


def test_one_process_holds_a_run_once(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    assert json.loads((tmp_path / "lock").read_text())["process"] == os.getpid()
    with pytest.raises(RunBusyError, match=f"process {os.getpid()}"):
        Lock(tmp_path)
    lock.release()
    lock.release()
    again = Lock(tmp_path)
    assert holder_of(tmp_path) is not None
    del again  # nobody has it any more
    assert holder_of(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_the_end_of_a_fork_takes_nothing_away(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    words = [
        sys.executable,
        "-c",
        "import os, sys; from pathlib import Path; from margin.engine.parallel.locks import Lock, holder_of\n"
        "here = Path(sys.argv[1]); lock = Lock(here)\n"
        "if os.fork() == 0:\n    lock.release(); os._exit(0)\n"
        "os.wait(); assert holder_of(here).process == os.getpid()",
        str(tmp_path / "."),
    ]
    lock.release()
    subprocess.run(words, check=True)


@pytest.mark.parametrize(("left", "free"), [(2**22 + 1, True), (1, False)])
def test_without_locks_of_the_file_system_the_process_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, free: bool
) -> None:
    def lacking(descriptor: int, *, shared: bool) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(locks, "_take", lacking)
    text = json.dumps({"process": left, "host": socket.gethostname(), "since": "then"})
    (tmp_path / "lock").write_text(text)  # process 1 always runs, no number is above 2^22
    assert (holder_of(tmp_path) is None) == free
    if free:
        Lock(tmp_path).release()
    else:
        with pytest.raises(RunBusyError):
            Lock(tmp_path)
    (tmp_path / "lock").write_text(text.replace(socket.gethostname(), "elsewhere.example"))
    assert holder_of(tmp_path) == Holder(left, "elsewhere.example", "then")
