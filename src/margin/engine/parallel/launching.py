"""Starting processes on one machine, and being told how they ended.

They are spawned, never forked: a process that has run a threaded kernel of torch leaves its copies
waiting for threads that they do not have.
"""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch.multiprocessing

from margin.engine.parallel.processes import group, wait

GRACE = 10.0
"""Seconds that the others get to end after one has failed."""


class WorkerDiedError(ChildProcessError):
    """One of several processes ended without saying why."""


def launch(work: Callable[..., None], size: int, device: str, arguments: Sequence[Any]) -> None:
    """Run ``work(stop, *arguments)`` in ``size`` new processes that form a group, and wait for them.

    Args:
        work: A function of a module's top level; ``stop()`` tells it whether it was asked to stop.
        size: Number of processes.
        device: Where the model goes.
        arguments: Sent to each process; tensors on the CPU are shared, not copied.

    Raises:
        WorkerDiedError: A process was killed, or ended before it began to work.
        KeyboardInterrupt: Ctrl-C.
        Exception: What ``work`` raised first in any process; a note holds where.
    """
    context = torch.multiprocessing.get_context("spawn")
    told, stop = context.SimpleQueue(), context.Event()
    with tempfile.TemporaryDirectory(prefix="margin-") as directory:
        place = (size, f"file://{Path(directory) / 'meeting'}", device)
        processes = [
            context.Process(target=_enter, args=(rank, place, told, stop, work, arguments))
            for rank in range(size)
        ]
        with _stoppable(stop, processes):
            for process in processes:
                process.start()
            killed = _join(processes)
    done, errors = set(), []
    while not told.empty():
        rank, error = told.get()
        if error is None:
            done.add(rank)
        else:
            errors.append(error)
    if errors and stop.is_set():
        raise errors[0]
    _check_alive([process.exitcode for process in processes], {*killed, *done})
    if errors:
        raise errors[0]  # the others only miss the one that raised it
    if len(done) < size:
        raise WorkerDiedError(
            "a process ended before it began to work; a script that trains by several processes must "
            "begin under: if __name__ == '__main__':"
        )


def _enter(
    rank: int,
    place: tuple[int, str, str],
    told: Any,
    stop: Any,
    work: Callable[..., None],
    arguments: Sequence[Any],
) -> None:
    """What a new process does: join, work, and tell what went wrong."""
    size, address, device = place
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    sys.stdout = sys.stderr  # the result is the parent's to print, and a user's own module may print too
    with group(rank, size, address, device):
        try:
            work(stop.is_set, *arguments)
            wait()
        except (Exception, KeyboardInterrupt) as error:
            # told before this process leaves the group: the others' errors about that come later
            told.put((rank, _sendable(error)))
            raise SystemExit(1) from None
        told.put((rank, None))  # what happens while the connections are taken down is no failure


def _end_with_parent() -> None:
    """End this process as soon as the one that started it has ended, however: nobody would hear of it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # on a pipe that the parent's end closes
        os._exit(1)  # the main thread may wait in a kernel or for another process


def _sendable(error: BaseException) -> BaseException:
    """The error with a note of where it was raised, as something that another process can read."""
    where = "".join(traceback.format_exception(error))
    error.add_note(where)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # any error may refuse to be pickled
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(where)
    return error


def _join(processes: Sequence[BaseProcess]) -> list[int]:
    """Wait for all; once one has failed, the others get a little time, then an end.

    Returns:
        The ranks that were ended here.
    """
    killed: list[int] = []
    while left := [process for process in processes if process.exitcode is None]:
        failed = any(process.exitcode for process in processes)
        ended = multiprocessing.connection.wait([p.sentinel for p in left], GRACE if failed else None)
        for rank, process in enumerate(processes):
            if process in left and not ended:
                process.kill()
                killed.append(rank)
            elif process in left and process.sentinel in ended:
                process.join()
    return killed


def _check_alive(codes: Sequence[int | None], excused: Container[int]) -> None:
    dead = [(rank, -code) for rank, code in enumerate(codes) if code and code < 0 and rank not in excused]
    if dead:  # a process that has lost another may abort: the other is the cause
        rank, number = min(dead, key=lambda one: (one[1] == signal.SIGABRT, one[0]))
        raise WorkerDiedError(f"process {rank} of {len(codes)} was ended by {signal.Signals(number).name}")


@contextmanager
def _stoppable(stop: Any, processes: Sequence[BaseProcess]) -> Iterator[None]:
    """The first Ctrl-C asks the processes to stop after their step, the second ends them at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            return
        for process in processes:
            process.kill()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
