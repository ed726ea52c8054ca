"""Ctrl-C: the first is remembered, the second stops at once, and the handler is put back."""

import signal
import threading

import pytest
from torch import nn

from margin.engine.hooks import INTERRUPTED, interruptible
from margin.engine.loop import State

STATE = State({"model": nn.Identity()})


def test_the_first_is_remembered_and_the_second_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as hook:
        assert hook(STATE, {}) is None
        signal.raise_signal(signal.SIGINT)
        assert hook(STATE, {}) == INTERRUPTED
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_handler_is_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), interruptible():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_stops() -> None:
    found = []

    def work() -> None:
        with interruptible() as hook:
            found.append(hook(STATE, {}))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]
