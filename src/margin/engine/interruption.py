"""Ctrl-C ends a training between two steps, so that what is saved is whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from torch import Tensor

from margin.engine.processes import share, summed_later
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

    pending: list[Callable[[], Tensor]] = []

    def hook(state: State, metrics: Metrics) -> str | None:
        wanted = bool(asked) or stop()
        if share().size == 1:
            return INTERRUPTED if wanted else None
        # every process must end after the same step: they agree while the next one is computed
        pending.append(summed_later(torch.tensor(float(wanted), device=device_of(state.model))))
        return INTERRUPTED if len(pending) > 1 and bool(pending.pop(0)()) else None

    if threading.current_thread() is not threading.main_thread():
        yield hook
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield hook
        for wait_for_flag in pending:
            wait_for_flag()
    finally:
        signal.signal(signal.SIGINT, before)
