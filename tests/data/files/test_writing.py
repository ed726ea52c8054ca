"""Files are replaced whole or not at all, and a full disk is told with file, need and place."""

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from margin.data.files.writing import DiskFullError, append_whole, clear_aside, whole_file, write_whole
from margin.data.formats.audio.wave import write_wave
from margin.data.transforms.sample_sheet import write_picture


def full(number: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full)


@pytest.mark.usefixtures("no_room")
def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("before")
    with pytest.raises(DiskFullError, match=r"no room for .*f: No space left on device; free at least 3 KiB"):
        write_whole(tmp_path / "f", b"x" * 2500)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"f": "before"}


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("images.png", lambda path: write_picture(path, torch.rand(2, 1, 4, 4))),
        ("points.png", lambda path: write_picture(path, torch.rand(5, 2))),
        ("sound.wav", lambda path: write_wave(path, torch.zeros(9), 8000)),
    ],
)
def test_pictures_and_sounds_leave_nothing_under_their_name(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    with pytest.raises(DiskFullError, match=name):
        write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_real_limit_of_the_system_is_told(tmp_path: Path) -> None:
    text = (
        "import resource, sys; from pathlib import Path; from margin.data.files.writing import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_whole(Path(sys.argv[1]), bytes(5000))"
    )
    words = [sys.executable, "-c", text, str(tmp_path / "f")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "DiskFullError: no room for" in done.stderr
    assert "free at least 5 KiB" in done.stderr
    assert not list(tmp_path.iterdir())


def test_ctrl_c_and_other_errors_leave_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(number: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "f", b"x")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "g") as file:
        file.write(bytes([1 // 0]))
    assert not list(tmp_path.iterdir())


class Half(io.FileIO):
    """A file that takes three bytes more and then finds no room."""

    def write(self, content: bytes) -> int:
        super().write(content[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    append_whole(path, b"first\n")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, mode: Half(self, "ab"))
        with pytest.raises(DiskFullError, match="rows"):
            append_whole(path, b"second\n")
    append_whole(path, b"third\n")
    assert path.read_text() == "first\nthird\n"


def test_what_a_kill_left_aside_is_cleared(tmp_path: Path) -> None:
    for name in ("a.new", "b", "c.safetensors.new"):
        (tmp_path / name).write_text("")
    clear_aside(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
