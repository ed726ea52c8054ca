"""The folder of real sets, where MARGIN_DATA names one, and the form that every refusal has."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    root = Path(os.environ.get("MARGIN_DATA", ""))
    if not (root / "tabular").is_dir():
        pytest.skip("MARGIN_DATA names no folder with the sets that this test reads")
    return root


@pytest.fixture
def refused() -> Callable:
    """A context in which the user's mistake must be refused in one line that holds every given text."""

    @contextmanager
    def context(*texts: str, error: type[Exception] = ValueError) -> Iterator[None]:
        with pytest.raises(error) as caught:
            yield
        message = str(caught.value)
        assert "\n" not in message
        assert type(caught.value) is error or error is ValueError
        for text in texts:
            assert text in message, message

    return context


@pytest.fixture
def csv(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of the given text."""

    def write(text: str | bytes, name: str = "file.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
