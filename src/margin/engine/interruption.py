"""Ctrl-C ends a training between two steps, so that what is saved is whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from margin.engine.processes import any_of
from margin.engine.state import Hook, State, device_of
from margin.types import Metrics

INTERRUPTED = "interrupted"


@contextmanager
def interruptible(stop: Callable[[], bool] = lambda: False) -> Iterator[Hook]:
    """A hook that stops after the step in which Ctrl-C came; a second Ctrl-C stops at once.

    Outside the main thread, where Python hands over no signals, only ``stop`` is asked.

    Args:
        stop: Asked after each step whether someone else wants the training to stop.
    """
    asked: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def hook(state: State, metrics: Metrics) -> str | None:
        # every process must end after the same step
        return INTERRUPTED if any_of(bool(asked) or stop(), device_of(state.model)) else None

    if threading.current_thread() is not threading.main_thread():
        yield hook
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield hook
    finally:
        signal.signal(signal.SIGINT, before)
