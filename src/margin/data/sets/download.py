"""Fetching the files of a set: whole and right, or not at all.

The SHA-256 is that of what is in a packed file: packing the same bytes again changes the file.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from margin.data.files.writing import naming_the_full

BASE = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
"""Where Xiao, Rasul and Vollgraf publish Fashion-MNIST."""

CONTENTS = {
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""The files of Fashion-MNIST and the SHA-256 of what each holds, unpacked."""

TIMEOUT = 30.0
"""Seconds without an answer after which a server is given up."""

Told = Callable[[str, int, int], None]
"""``(file, bytes so far, bytes in all or 0)``: called as a file comes."""


def fetch(folder: Path, told: Told, *, base: str = BASE) -> dict[str, str]:
    """Fashion-MNIST's four files in a folder: those that lie there are checked, the others fetched.

    A file is written under another name and renamed once it is found right.

    Args:
        folder: The folder; made if it does not exist.
        told: Hears how a file comes.
        base: The address in front of the files' names.

    Returns:
        ``kept`` or ``fetched`` for each file.

    Raises:
        ValueError: A file there, or what came, is not the published one.
        OSError: The server does not answer, or the connection breaks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done: dict[str, str] = {}
    for name, sha256 in CONTENTS.items():
        path = folder / name
        if path.exists():
            if _content(path) != sha256:
                raise ValueError(f"{path}: the file is not the published one: remove it, and get it again")
            done[name] = "kept"
            continue
        begun = folder / f".{name}.{os.getpid()}.part"
        try:
            with naming_the_full(path):
                _download(f"{base}/{name}", begun, partial(told, name))
            if (got := _content(begun)) != sha256:
                what = "no whole gzip file" if got is None else f"SHA-256 {got[:16]}... of its content"
                raise ValueError(f"{base}/{name}: must hold what was published, {sha256[:16]}...: got {what}")
            begun.replace(path)
        finally:
            begun.unlink(missing_ok=True)
        done[name] = "fetched"
    return done


def _content(path: Path) -> str | None:
    """The SHA-256 of what a gzip file holds; None where it is none, or not whole."""
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return digest.hexdigest()


def _download(url: str, path: Path, told: Callable[[int, int], None]) -> None:
    import pooch  # type: ignore[import-untyped]
    import requests

    bar = _Bar(told)
    load = pooch.HTTPDownloader(progressbar=bar, chunk_size=2**16, timeout=TIMEOUT)
    try:
        load(url, str(path), None)
    except requests.HTTPError as error:
        status = "an error" if error.response is None else error.response.status_code
        raise OSError(f"{url}: the server must have the file: it answers {status}") from None
    except requests.Timeout:
        raise OSError(f"{url}: the server must answer within {TIMEOUT:g} s: it did not") from None
    except requests.RequestException as error:
        if bar.so_far or isinstance(error, requests.exceptions.ChunkedEncodingError):
            size = path.stat().st_size
            raise OSError(f"{url}: the connection broke after {size} bytes: get it again") from None
        raise OSError(f"{url}: no connection to the server ({type(error).__name__})") from None


@dataclass(slots=True, eq=False)
class _Bar:
    """What pooch takes for a progress bar."""

    told: Callable[[int, int], None]
    total: int = 0
    so_far: int = 0

    def update(self, more: int) -> None:
        """Hear of ``more`` bytes; in the end pooch says all of them once more."""
        so_far = min(self.so_far + more, self.total or self.so_far + more)
        if so_far > self.so_far:
            self.so_far = so_far
            self.told(so_far, self.total)

    def reset(self) -> None:
        """What came is not forgotten."""

    def close(self) -> None:
        """Nothing is left open."""
