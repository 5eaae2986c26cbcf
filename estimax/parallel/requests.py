"""Requests: what one process asks all processes of a cluster to do at the same step.

    requests.ask(STOP)             # a hook or a signal, in any process
    requests.take()                # the input thread sends them with its next batch

A process cannot stop or save alone: the others would wait for it in the next step. Its
input thread therefore sends the request with the next batch that it prepares, and all
processes act on it when they come to that batch, a few steps later.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

STOP = "stop"
SAVE = "save"
INTERRUPTED = "interrupted: "  # by the signal whose name follows


def interruption(signal_name: str) -> str:
    """Return the request to stop because this process received a signal."""
    return f"{INTERRUPTED}{signal_name}"


@dataclass
class Requests:
    """Requests of this process, and the interruption that all have agreed on.

    Attributes:
      interrupted_by: The signal that ends training in all processes, with the process
        that received it; None if there is none.
    """

    interrupted_by: str | None = None
    # No lock: a signal handler that waits for one which its own thread holds would
    # wait for ever. `put` of this queue may be interrupted by another `put`.
    _asked: SimpleQueue[str] = field(default_factory=SimpleQueue)

    def ask(self, request: str) -> None:
        """Ask all processes for something, in any thread or signal handler."""
        self._asked.put(request)

    def take(self) -> list[str]:
        """Return the requests that were not yet sent, and forget them.

        >>> requests = Requests()
        >>> requests.ask(SAVE)
        >>> requests.take(), requests.take()
        (['save'], [])
        """
        asked = set()
        with contextlib.suppress(Empty):
            while True:
                asked.add(self._asked.get_nowait())
        return sorted(asked)
