"""Ctrl-C ends a training between two steps, or an evaluation between two batches; what is saved is whole."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import torch
from torch import Tensor

from margin.core.types import Batch, Metrics
from margin.engine.loop import State
from margin.engine.parallel.processes import summed, summed_later, world
from margin.nn.preprocessed import device_of

INTERRUPTED = "interrupted"


class EvaluationLeftError(Exception):
    """An evaluation was left before its end, because the training is to stop."""


class Interruption:
    """A hook that stops the training after the step in which it was asked to.

    Args:
        stop: Asked after each step whether someone else wants the training to stop.
    """

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop = stop
        self.asked = False
        self.left = False
        self._pending: list[Callable[[], Tensor]] = []

    def __call__(self, state: State, metrics: Metrics) -> str | None:
        """Why to stop, or None."""
        if world().size == 1:
            return INTERRUPTED if self._wanted() else None
        if self.left:  # all processes have left the evaluation of this step
            return INTERRUPTED
        # every process must end after the same step: they agree while the next one is computed
        self._pending.append(summed_later(self._vote(device_of(state.model))))
        return INTERRUPTED if len(self._pending) > 1 and bool(self._pending.pop(0)()) else None

    def until_asked(self, batches: Sequence[Batch]) -> Iterator[Batch]:
        """The batches of an evaluation, left before the next one once the training is to stop.

        Raises:
            EvaluationLeftError: It is to stop; of several processes all leave before the same batch.
        """
        self.left = False
        for batch in batches:
            self.left = bool(summed(self._vote(batch.inputs[0].device)))
            if self.left:
                raise EvaluationLeftError
            yield batch

    def settle(self) -> None:
        """Wait for what the processes still tell each other."""
        for wait_for_flag in self._pending:
            wait_for_flag()

    def _wanted(self) -> bool:
        return self.asked or self.stop()

    def _vote(self, device: torch.device) -> Tensor:
        return torch.tensor(float(self._wanted()), device=device)


@contextmanager
def interruptible(stop: Callable[[], bool] = lambda: False) -> Iterator[Interruption]:
    """A hook that stops after the step in which Ctrl-C came; a second Ctrl-C stops at once.

    Outside the main thread, where Python hands over no signals, only ``stop`` is asked.

    Args:
        stop: Asked after each step whether someone else wants the training to stop.
    """
    hook = Interruption(stop)

    def remember(number: int, frame: FrameType | None) -> None:
        if hook.asked:
            raise KeyboardInterrupt
        hook.asked = True

    if threading.current_thread() is not threading.main_thread():
        yield hook
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield hook
        hook.settle()
    finally:
        signal.signal(signal.SIGINT, before)
