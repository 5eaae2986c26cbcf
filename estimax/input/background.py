"""Work ahead in a thread: the one place where this room starts threads.

    ahead = Background(generator, depth=2)
    item = ahead.next()        # waits if need be; raises what the thread raised
    ahead.close()              # stops and joins the thread

The thread never refers to the `Background`, so a consumer who merely forgets it lets
the thread stop. Waiting is on a condition: nobody polls.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

# A source stuck in a read cannot be interrupted: better to leave it than to hang.
_JOIN_SECONDS = 30.0


class Background(Generic[T]):
    """Runs an iterator in a thread, at most `depth` items ahead of its consumer."""

    def __init__(self, items: Iterator[T], *, depth: int, name: str = "input") -> None:
        self._worker = _Worker(items, depth, f"estimax-input-{name}")
        # Collected or not, at exit the thread must be joined: a daemon thread that
        # is inside native code while the interpreter ends can crash it.
        atexit.register(self._worker.stop)
        weakref.finalize(self, _abandon, self._worker).atexit = False

    @property
    def waited_seconds(self) -> float:
        """How long `next` has waited for the thread, in all."""
        return self._worker.channel.waited

    def next(self) -> T:
        """The next item; StopIteration at the end, or what the thread raised."""
        return self._worker.channel.get()

    def close(self) -> bool:
        """Stop the thread and wait for it; whether it has ended."""
        atexit.unregister(self._worker.stop)
        return self._worker.stop()


class _Worker(Generic[T]):
    """The thread and its channel, which outlive a forgotten Background for a moment."""

    def __init__(self, items: Iterator[T], depth: int, name: str) -> None:
        self.channel: _Channel[T] = _Channel(depth)
        self.thread = threading.Thread(
            target=_work, args=(items, self.channel), name=name, daemon=True
        )
        self.thread.start()

    def stop(self) -> bool:
        self.channel.close()
        if self.thread is threading.current_thread():
            return False
        self.thread.join(_JOIN_SECONDS)
        if self.thread.is_alive():
            logging.getLogger(__name__).warning(
                "%s has not stopped %.0f s after it was asked to; its source is stuck "
                "in a read. It is left behind.",
                self.thread.name,
                _JOIN_SECONDS,
            )
        return not self.thread.is_alive()


def _abandon(worker: _Worker[T]) -> None:
    # Runs in the garbage collector, maybe inside a lock the thread wants: never join.
    atexit.unregister(worker.stop)
    worker.channel.close()


def _work(items: Iterator[T], channel: _Channel[T]) -> None:
    try:
        for item in items:
            if not channel.put(item):
                break
        channel.finish(None)
    except BaseException as error:  # whatever it is, the consumer must hear of it
        channel.finish(error)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


class _Channel(Generic[T]):
    """A bounded queue that can be ended from both sides."""

    def __init__(self, depth: int) -> None:
        # Reentrant (a Condition's own lock is): closing may happen in the garbage
        # collector while this very thread is inside put or get.
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._depth = depth
        self._ended = False  # by the producer
        self._error: BaseException | None = None
        self._closed = False  # by the consumer
        self.waited = 0.0

    def put(self, item: T) -> bool:
        """Wait for room; whether the consumer still wants items."""
        with self._changed:
            while len(self._items) >= self._depth and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def finish(self, error: BaseException | None) -> None:
        """No more items will come."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def get(self) -> T:
        """Wait for an item or the end."""
        with self._changed:
            if not self._items and not self._ended and not self._closed:
                self._wait_for_item()
            if self._items and not self._closed:
                self._changed.notify_all()
                return self._items.popleft()
            if self._error is not None and not self._closed:
                raise self._error  # every time: an error must not look like the end
            raise StopIteration

    def _wait_for_item(self) -> None:
        start = time.monotonic()
        while not self._items and not self._ended and not self._closed:
            self._changed.wait()
        self.waited += time.monotonic() - start

    def close(self) -> None:
        """The consumer wants no more; what waits is dropped."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
