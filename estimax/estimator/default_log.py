"""Show the log while a model trains, if the program has not configured logging.

    with shown_by_default():
        train(...)       # "12:30:01 INFO loss = 0.693, step = 0"

estimax logs to the logger "estimax" of Python's `logging`, whose default shows warnings
only. tf.estimator showed its progress without any setting, and so does estimax: while
a model trains or is evaluated, the logger gets a handler of its own, on standard error;
in a notebook, which shows that in red, on standard output. A program that has
configured logging sees exactly what it configured.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_LINES = 1.0  # of one hook

_logger = logging.getLogger("estimax")
_lock = threading.Lock()
_calls = 0  # now inside of `shown_by_default`, in all threads


@contextmanager
def shown_by_default() -> Iterator[None]:
    """Show the log within the block, unless logging is configured.

    It counts as configured if the logger "estimax" or the root logger has a handler or
    a level of its own.
    """
    global _calls
    with _lock:
        if _calls == 0 and _is_configured():
            handler = None
        else:
            handler = _shown_handler()
            _calls += 1
    try:
        yield
    finally:
        if handler is not None:
            with _lock:
                _calls -= 1
                if _calls == 0:
                    _logger.removeHandler(handler)
                    _logger.setLevel(logging.NOTSET)


def _is_configured() -> bool:
    root = logging.getLogger()
    return bool(
        _logger.handlers
        or _logger.level
        or root.handlers
        or root.level != logging.WARNING
    )


def _shown_handler() -> logging.Handler:
    """Return the handler of all present calls; add it for the first of them."""
    if _calls:
        return next(h for h in _logger.handlers if isinstance(h, DefaultHandler))
    handler = DefaultHandler()
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    return handler


class DefaultHandler(logging.StreamHandler):  # type: ignore[type-arg]  # not at run time
    """Write lines with the time of day, at most one line per second and hook.

    A small model runs thousands of steps a second. A line for every 100 of them, the
    default of `RunConfig.log_step_count_steps`, would be too many to read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        in_notebook = type(sys.stdout).__module__.startswith("ipykernel.")
        super().__init__(sys.stdout if in_notebook else sys.stderr)
        line = "%(asctime)s %(levelname)s %(message)s"
        self.setFormatter(logging.Formatter(line, datefmt="%H:%M:%S"))
        self._clock = clock
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out lines that follow too soon, or that a later root handler shows."""
        if logging.getLogger().handlers:
            return False
        hook = getattr(record, "hook", None)
        if hook is None:
            return True
        now = self._clock()
        if now - self._last.get(hook, -_SECONDS_BETWEEN_LINES) < _SECONDS_BETWEEN_LINES:
            return False
        self._last[hook] = now
        return True
