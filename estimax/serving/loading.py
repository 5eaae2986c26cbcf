"""Threads that load versions, and the signal that stops them.

    signal = StopSignal()
    run_in_thread(lambda: load(path, signal), "load")
    signal.check()          # in the load, between its parts: raises if stopped
    signal.stop()           # nobody wants the version any more

A thread cannot be ended from outside. A load that waits for a disk is therefore only
told to stop; whatever it returns later is freed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class LoadStoppedError(Exception):
    """A load was told to stop. Nobody waits for its result."""


class StopSignal:
    """Tells a load in another thread to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether the load was told to stop."""
        return self._event.is_set()

    def stop(self) -> None:
        """Tell the load to stop."""
        self._event.set()

    def check(self) -> None:
        """Raise `LoadStoppedError` if the load was told to stop."""
        if self._event.is_set():
            raise LoadStoppedError

    def wait(self, seconds: float) -> None:
        """Wait for some time, and raise `LoadStoppedError` as soon as told to stop."""
        self._event.wait(seconds)
        self.check()


def run_in_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Start `work` in a thread that does not keep the process from ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
