"""Signals: a run that receives SIGTERM or Ctrl-C saves before it ends.

    with stopping_on_signals(context):
        run(...)               # SIGTERM: the loop ends, hooks save, the process exits

The first SIGTERM or SIGINT (Ctrl-C) requests a stop after the current step, so that
`end` of the hooks writes a checkpoint. If the loop is waiting for input it is
interrupted: a preempted process has only seconds, and its input may be stuck. When the
block ends, the signal has its usual effect. A second signal has it at once.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from estimax.hooks.hook import RunContext

_log = logging.getLogger("estimax")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_Handler = Callable[[int, Any], Any] | int | None


class WaitingEnded(BaseException):
    """Raised by the signal handler while the training loop waits for input."""


@contextmanager
def stopping_on_signals(context: RunContext) -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT inside the block into a request to stop.

    Only the main thread can receive signals; in another thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        if received:
            _log.warning("received %s again: stopping at once", name)
            _act(previous[number], number)
            return
        received.append(number)
        _log.warning(
            "received %s: stopping after this step and saving; again to stop at once",
            name,
        )
        context.request_stop()
        if context.is_waiting:
            raise WaitingEnded

    previous: dict[int, _Handler] = {n: signal.getsignal(n) for n in _SIGNALS}
    # Leave signals alone that are ignored (nohup) or handled outside of Python.
    ours = [n for n, old in previous.items() if old not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, previous[number])
    if received:
        _act(previous[received[0]], received[0])


def _act(handler: _Handler, number: int) -> None:
    """Do what the signal does without our handler."""
    if callable(handler):
        handler(number, None)
    else:
        # The default ends the process. An exception does too, but closes files first.
        raise SystemExit(128 + number)
