"""Requests: what one process asks all processes of a cluster to do at the same step.

    requests.ask(STOP)             # a hook or a signal, in any process
    requests.take()                # the input thread sends them with its next batch

A process cannot stop or save alone: the others would wait for it in the next step. Its
input thread therefore sends the request with the next batch that it prepares, and all
processes act on it when they come to that batch, a few steps later.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

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
    _asked: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, request: str) -> None:
        """Ask all processes for something; may be called in any thread."""
        with self._lock:
            self._asked.add(request)

    def take(self) -> list[str]:
        """Return the requests that were not yet sent, and forget them.

        >>> requests = Requests()
        >>> requests.ask(SAVE)
        >>> requests.take(), requests.take()
        (['save'], [])
        """
        with self._lock:
            asked, self._asked = sorted(self._asked), set()
        return asked
