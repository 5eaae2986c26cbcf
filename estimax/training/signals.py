"""Signals: a run that receives SIGTERM or Ctrl-C saves before it ends.

    with stopping_on_signals(context):
        run(...)               # SIGTERM: the loop ends, hooks save, the process exits

The first SIGTERM or SIGINT (Ctrl-C) requests a stop after the current step, so that
`end` of the hooks writes a checkpoint. What must not delay that, such as the wait for
input, is called by `unless_interrupted` and ends at once: a preempted process has only
seconds, and its input may be stuck. When the block ends, the signal has its usual
effect. A second signal has it at once.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from estimax.hooks.hook import RunContext

_log = logging.getLogger("estimax")
_NAMES = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
_Handler = Callable[[int, Any], Any] | int | None
Result = TypeVar("Result")


class _Interrupted(BaseException):
    """Raised by the signal handler within `unless_interrupted`."""


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
        name = _NAMES[signal.Signals(number)]
        if received:
            _log.warning("%s again: stopping at once", name)
            _act(previous[number], number)
            return
        received.append(number)
        _log.warning(
            "%s: stopping after this step, and saving it. %s again stops at once.",
            name,
            name,
        )
        context.interrupted_by = name
        context.request_stop()
        if context.is_waiting:
            raise _Interrupted

    previous: dict[int, _Handler] = {n: signal.getsignal(n) for n in _NAMES}
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


def unless_interrupted(
    context: RunContext, function: Callable[[], Result]
) -> Result | None:
    """Return the result of a function; None if a signal arrived, which ends it."""
    try:
        context.is_waiting = True
        try:
            return function()
        finally:
            context.is_waiting = False
    except _Interrupted:  # the signal may arrive at any point above
        return None


def _act(handler: _Handler, number: int) -> None:
    """Do what the signal does without our handler."""
    if callable(handler):
        handler(number, None)
    else:
        # The default ends the process. An exception does too, but closes files first.
        raise SystemExit(128 + number)
