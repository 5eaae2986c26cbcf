"""Background threads: the only place where the input package starts threads.

    ahead = Background(generator, depth=2)
    item = ahead.next()        # waits if necessary; raises what the thread raised
    ahead.close()              # stops and joins the thread

    workers = Workers(4, "map")
    future = workers.submit(parse, records)
    workers.close()

    rows = Lookahead(stream, 1024, workers=workers)     # a stream with a buffer
    have = rows.fill()         # elements in the buffer, 0 at the end
    chunk = rows.give(have)

Threads hold no reference to a `Background` or `Workers` object. If the consumer drops
the object without closing it, the garbage collector stops its threads. Threads wait on
conditions and queues and never poll. They are daemon threads: one that is stuck in a
read does not keep the program alive, unlike the threads of a ThreadPoolExecutor.
"""

from __future__ import annotations

import atexit
import functools
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import State, Stream

T = TypeVar("T")

# The longest wait for a thread to stop. A read that does not return cannot be
# interrupted; after this time the thread is left behind.
JOIN_SECONDS = 30.0


class Background(Generic[T]):
    """Runs an iterator in a thread, at most `depth` items ahead of the consumer."""

    def __init__(self, items: Iterator[T], *, depth: int, name: str = "input") -> None:
        self._worker = _Worker(items, depth, f"estimax-input-{name}")
        # At exit the thread must be joined even if this object is still alive: a daemon
        # thread inside native code can crash the interpreter while it shuts down.
        atexit.register(self._worker.stop)
        weakref.finalize(self, _abandon, self._worker).atexit = False

    @property
    def waited_seconds(self) -> float:
        """Total time that `next` has waited for the thread, in seconds."""
        return self._worker.channel.waited

    def next(self) -> T:
        """Return the next item; raise StopIteration at the end, or the error."""
        return self._worker.channel.get()

    def __iter__(self) -> Background[T]:
        return self

    __next__ = next

    def close(self) -> bool:
        """Stop the thread and wait for it; return whether it has ended."""
        atexit.unregister(self._worker.stop)
        return self._worker.stop()


class Workers:
    """A pool of threads that run submitted calls in order; they start when needed."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = _Pool(threads, f"estimax-input-{name}")
        atexit.register(self._pool.stop)
        weakref.finalize(self, _abandon_pool, self._pool).atexit = False

    def submit(self, fn: Callable[..., T], *args: Any) -> Future[T]:
        """Call `fn(*args)` in one of the threads."""
        result: Future[T] = Future()
        self._pool.tasks.put((result, fn, args))
        self._pool.grow()
        return result

    def close(self) -> bool:
        """Finish the submitted calls and stop; return whether all threads ended."""
        atexit.unregister(self._pool.stop)
        return self._pool.stop()


class Lookahead:
    """A stream with a buffer of one chunk; a worker may read the next chunk ahead.

    The caller can see how many elements are in the buffer (`fill`) before it takes them
    (`give`). The position is that of the buffered chunk in the source, and how many of
    its elements were given: `{"given": 3, "source": …}`. After a resume the chunk is
    read again and `given` elements are dropped.

    Threads: while a worker reads ahead, the source belongs to that worker. `_fetch` and
    `_cancel_read` wait for it before they touch the source again.
    """

    def __init__(
        self, source: Stream, at_once: int, *, workers: Workers | None = None
    ) -> None:
        self._source = source
        self._at_once = at_once
        self._next_size = at_once
        self._workers = workers
        self._chunk: Chunk | None = None
        # Elements already given of the buffered chunk; without one, elements to drop
        # from the next chunk.
        self._given = 0
        self._before: State = {}  # the source's position before the buffered chunk
        # The read ahead: (position before it, its size, the future).
        self._next: tuple[State, int, Future[Chunk | None]] | None = None
        self._singly = 0  # elements to read one by one, because one of them fails

    def fill(self, wanted: int = 0) -> int:
        """Fill an empty buffer; return the number of elements in it, 0 at the end.

        If the source is read in rows (`at_once` > 1), up to `wanted` of them are read.
        """
        if self._at_once > 1:
            self._next_size = max(self._at_once, wanted)
        while self._chunk is None:
            before, chunk = self._fetch()
            if chunk is None:
                return 0
            if self._given >= len(chunk):
                self._given -= len(chunk)
            else:
                self._before, self._chunk = before, chunk
        self.start()
        return len(self._chunk) - self._given

    def start(self) -> None:
        """Let a worker read the next chunk, if there are workers."""
        if self._workers is not None and self._next is None:
            before = self._source.get_state()
            size = 1 if self._singly else self._next_size
            future = self._workers.submit(self._source.read, size)
            self._next = before, size, future

    def _fetch(self) -> tuple[State, Chunk | None]:
        """Return the next chunk and the source's position before it."""
        if self._next is not None:
            (before, size, future), self._next = self._next, None
            read = future.result
        else:
            before = self._source.get_state()
            size = 1 if self._singly else self._next_size
            read = functools.partial(self._source.read, size)
        self._singly = max(0, self._singly - 1)
        try:
            return before, read()
        except Exception:
            if size == 1:
                raise
        # One of several elements failed. Read them again one by one, so that only the
        # failing one is lost to ignore_errors.
        self._source.set_state(before)
        self._singly = size - 1
        return before, self._source.read(1)

    def give(self, n: int) -> Chunk:
        """Take the next n elements out of the buffer."""
        assert self._chunk is not None
        out = self._chunk.slice(self._given, self._given + n)
        self._given += len(out)
        if self._given >= len(self._chunk):
            self._chunk, self._given = None, 0
        return out

    def read(self, n: int) -> Chunk | None:
        """Return up to n elements of the buffer, or None at the end."""
        have = self.fill(n)
        return self.give(min(n, have)) if have else None

    def get_state(self) -> State:
        """Return the position of the next element to be given."""
        if self._chunk is not None:
            before = self._before
        else:
            before = self._next[0] if self._next else self._source.get_state()
        return {"given": self._given, "source": before}

    def set_state(self, state: State) -> None:
        """Go to a position; the next `fill` reads its chunk again."""
        self._cancel_read()
        self._chunk = None
        self._source.set_state(state["source"])
        self._given = int(state["given"])

    def close(self) -> None:
        """Wait for the read ahead and close the source."""
        self._cancel_read()
        self._chunk = None
        self._source.close()

    def _cancel_read(self) -> None:
        ahead, self._next = self._next, None
        if ahead is not None and not ahead[2].cancel():
            ahead[2].exception()  # already running: wait for it and ignore the result


class _Worker(Generic[T]):
    """The thread and its channel; separate, so that a Background can be collected."""

    def __init__(self, items: Iterator[T], depth: int, name: str) -> None:
        self.channel: _Channel[T] = _Channel(depth)
        self.thread = threading.Thread(
            target=_work, args=(items, self.channel), name=name, daemon=True
        )
        self.thread.start()

    def stop(self) -> bool:
        self.channel.close()
        return _join([self.thread])


def _abandon(worker: _Worker[T]) -> None:
    # Runs in the garbage collector, possibly while this thread holds a lock that the
    # worker needs. Joining could therefore deadlock.
    atexit.unregister(worker.stop)
    worker.channel.close()


def _work(items: Iterator[T], channel: _Channel[T]) -> None:
    try:
        for item in items:
            if not channel.put(item):
                break
        channel.finish(None)
    except BaseException as error:  # of any kind: `get` raises it in the consumer
        channel.finish(error)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


class _Channel(Generic[T]):
    """A bounded queue that both the producer and the consumer can end."""

    def __init__(self, depth: int) -> None:
        # The lock must be reentrant, as that of a Condition is: the garbage collector
        # may call `close` while this same thread is inside `put` or `get`.
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._depth = depth
        self._ended = False  # by the producer
        self._error: BaseException | None = None
        self._closed = False  # by the consumer
        self.waited = 0.0

    def put(self, item: T) -> bool:
        """Wait for space and append; return False if the consumer has closed."""
        with self._changed:
            while len(self._items) >= self._depth and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def finish(self, error: BaseException | None) -> None:
        """Mark the end of the items, with the error that ended them if any."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def get(self) -> T:
        """Wait for an item; raise the error or StopIteration at the end."""
        with self._changed:
            if not self._items and not self._ended and not self._closed:
                self._wait_for_item()
            if self._items and not self._closed:
                self._changed.notify_all()
                return self._items.popleft()
            if self._error is not None and not self._closed:
                raise self._error  # on every call: it must not look like the end
            raise StopIteration

    def _wait_for_item(self) -> None:
        start = time.monotonic()
        while not self._items and not self._ended and not self._closed:
            self._changed.wait()
        self.waited += time.monotonic() - start

    def close(self) -> None:
        """Drop waiting items and let the producer stop."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _Pool:
    """The threads and their tasks; separate, so that Workers can be collected."""

    def __init__(self, size: int, name: str) -> None:
        self.tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None]
        self.tasks = SimpleQueue()
        self._size, self._name = size, name
        self._threads: list[threading.Thread] = []

    def grow(self) -> None:
        """Start one more thread, unless all are running."""
        if len(self._threads) < self._size:
            name = f"{self._name}-{len(self._threads)}"
            args = (self.tasks,)
            thread = threading.Thread(
                target=_run_tasks, args=args, name=name, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def request_stop(self) -> None:
        """Let every thread end after the tasks that are in the queue."""
        for _ in self._threads:
            self.tasks.put(None)

    def stop(self) -> bool:
        self.request_stop()
        return _join(self._threads)


def _abandon_pool(pool: _Pool) -> None:
    # Never join here, as in `_abandon`.
    atexit.unregister(pool.stop)
    pool.request_stop()


def _run_tasks(tasks: SimpleQueue[Any]) -> None:
    while (task := tasks.get()) is not None:
        result, fn, args = task
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(fn(*args))
            except BaseException as error:  # `result.result()` raises it
                result.set_exception(error)
        del task, result, fn, args  # keep nothing alive while waiting for a task


def _join(threads: list[threading.Thread]) -> bool:
    """Wait for threads that were asked to stop; return whether all have ended."""
    deadline = time.monotonic() + JOIN_SECONDS
    others = [one for one in threads if one is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            logging.getLogger(__name__).warning(
                "Thread %s has not stopped within %.0f s, because its source is stuck "
                "in a read. The program continues without waiting for it.",
                thread.name,
                JOIN_SECONDS,
            )
    return len(others) == len(threads) and not any(one.is_alive() for one in others)
