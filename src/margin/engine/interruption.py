"""Ctrl-C ends a training between two steps, so that what is saved is whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from margin.engine.state import Hook, State
from margin.types import Metrics

INTERRUPTED = "interrupted"


@contextmanager
def interruptible() -> Iterator[Hook]:
    """A hook that stops after the step in which Ctrl-C came; a second Ctrl-C stops at once.

    Outside the main thread, where Python hands over no signals, the hook never stops anything.
    """
    asked: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def hook(state: State, metrics: Metrics) -> str | None:
        return INTERRUPTED if asked else None

    if threading.current_thread() is not threading.main_thread():
        yield hook
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield hook
    finally:
        signal.signal(signal.SIGINT, before)
