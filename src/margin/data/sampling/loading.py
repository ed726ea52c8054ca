"""Reading ahead: batches made by a thread or by other processes while the training computes.

The order stays a function of the step, so any number of workers gives the same batches.
"""

import pickle
import signal
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from torch import Generator
from torch.utils.data import DataLoader, Dataset

from margin.core.types import Batch
from margin.data.examples import Batches


def reads_files(examples: Any) -> bool:
    """Whether examples say, by a number of ``readers``, that taking them waits for files and decodes them."""
    return getattr(examples, "readers", 0) > 0


AHEAD = 2
"""Batches that a thread holds ready, at most."""


class Prefetched:
    """The batches of another, read ahead by a thread or by processes; called with a step, as the other is.

    Consecutive steps are read on from the same workers; any other step starts new ones.

    Args:
        shuffled: What makes the batch of a step, as a function of the step; sent to the workers by pickle.
        workers: Number of processes; with 0 each batch is made when it is asked for, or by the thread.
        total: The step at which the training ends: nothing is read beyond.
        ahead: Whether, without processes, a thread makes the next batches: where that waits for files or
            decodes them, it takes no time of the training.
    """

    def __init__(self, shuffled: Batches, workers: int, total: int, *, ahead: bool = False) -> None:
        if workers < 0:
            raise ValueError(f"workers must be at least 0: got {workers}")
        self.shuffled = shuffled
        self.workers = workers
        self.total = total
        self.per_epoch = shuffled.per_epoch
        self.batch_size = shuffled.batch_size
        self._ahead: Iterator[Batch] | None = None
        self._thread = ThreadPoolExecutor(1) if ahead and workers == 0 else None
        self._coming: deque[Future[Batch]] = deque()
        self._next = -1

    @property
    def threaded(self) -> bool:
        """Whether a thread makes the batches."""
        return self._thread is not None

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        if self._thread is not None and step < self.total:
            return self._of_thread(self._thread, step)
        if self.workers == 0 or step >= self.total:
            return self.shuffled(step)
        if self._ahead is None or step != self._next:
            self._ahead = self._begin(step)
        failure = None
        try:
            batch = next(self._ahead)
        except Exception as error:
            failure = error.with_traceback(None)  # a traceback would keep the workers alive
        if failure is not None:
            self.close()
            self.shuffled(step)  # a worker's error comes wrapped; here the same mistake has its own words
            raise failure
        self._next = step + 1
        if self._next == self.total:
            self.close()
        return batch

    def close(self) -> None:
        """Stop the workers; the next call starts new ones."""
        self._ahead = None
        self._drop()

    def _drop(self) -> None:
        """Forget what the thread has made or is to make, and wait until it makes nothing."""
        for future in self._coming:
            future.cancel()
        wait(self._coming)
        self._coming.clear()

    def _of_thread(self, thread: ThreadPoolExecutor, step: int) -> Batch:
        """The batch of a step, as one thread makes them in order; what it raised is raised here."""
        if step != self._next:
            self._drop()
        for later in range(step + len(self._coming), min(step + 1 + AHEAD, self.total)):
            self._coming.append(thread.submit(self.shuffled, later))
        batch = self._coming.popleft().result()
        self._next = step + 1
        return batch

    def _begin(self, step: int) -> Iterator[Batch]:
        loader: DataLoader[Batch] = DataLoader(
            _Steps(self.shuffled),
            batch_size=None,
            sampler=range(step, self.total),
            num_workers=self.workers,
            collate_fn=_as_it_is,
            worker_init_fn=_leave_interruption,
            generator=Generator(),  # its seed would else be drawn from the global one
            multiprocessing_context="spawn",  # a fork would inherit the locks of torch's threads
        )
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Got pickle error")  # it is raised, too
                return iter(loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"examples must be picklable to be read by workers: {error}; set workers to 0"
            ) from None


class _Steps(Dataset[Batch]):
    """Batches as the items of a dataset."""

    def __init__(self, shuffled: Batches) -> None:
        self.shuffled = shuffled

    def __getitem__(self, step: int) -> Batch:
        return self.shuffled(step)


def _as_it_is(batch: Any) -> Any:
    return batch


def _leave_interruption(worker: int) -> None:
    """Ctrl-C reaches every process of a terminal: the training alone decides when its workers end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
