"""Work ahead in threads: the one place where this room starts them.

    ahead = Background(generator, depth=2)
    item = ahead.next()        # waits if need be; raises what the thread raised
    ahead.close()              # stops and joins the thread

    workers = Workers(4, "map")
    found = workers.submit(parse, records)       # a Future
    workers.close()

The threads never refer to these objects, so a consumer who merely forgets one lets its
threads stop. Nobody polls. A thread that is stuck does not keep the program alive, as
those of a ThreadPoolExecutor would.
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

# A source stuck in a read cannot be interrupted: better to leave it than to hang.
JOIN_SECONDS = 30.0


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
        return _join([self.thread])


class Workers:
    """Threads that do what is submitted, in that order; they start when needed."""

    def __init__(self, threads: int, name: str) -> None:
        self._crew = _Crew(threads, f"estimax-input-{name}")
        atexit.register(self._crew.stop)
        weakref.finalize(self, _dismiss, self._crew).atexit = False

    def submit(self, fn: Callable[..., T], *args: Any) -> Future[T]:
        """Call it in one of the threads."""
        result: Future[T] = Future()
        self._crew.tasks.put((result, fn, args))
        self._crew.grow()
        return result

    def close(self) -> bool:
        """Finish what was submitted, and stop; whether all threads have ended."""
        atexit.unregister(self._crew.stop)
        return self._crew.stop()


class _Crew:
    """The threads and their tasks, which outlive forgotten Workers for a moment."""

    def __init__(self, size: int, name: str) -> None:
        self.tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None]
        self.tasks = SimpleQueue()
        self._size, self._name = size, name
        self._threads: list[threading.Thread] = []

    def grow(self) -> None:
        """One more thread with each of the first tasks."""
        if len(self._threads) < self._size:
            name = f"{self._name}-{len(self._threads)}"
            args = (self.tasks,)
            thread = threading.Thread(target=_serve, args=args, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def dismiss(self) -> None:
        for _ in self._threads:
            self.tasks.put(None)

    def stop(self) -> bool:
        self.dismiss()
        return _join(self._threads)


def _dismiss(crew: _Crew) -> None:
    # As in `_abandon`: nobody is waited for.
    atexit.unregister(crew.stop)
    crew.dismiss()


def _serve(tasks: SimpleQueue[Any]) -> None:
    while (task := tasks.get()) is not None:
        result, fn, args = task
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(fn(*args))
            except BaseException as error:  # whoever asks for the result hears of it
                result.set_exception(error)
        del task, result, fn, args  # while it waits, it must keep nothing alive


def _join(threads: list[threading.Thread]) -> bool:
    """Wait for threads that were asked to stop; whether all have ended."""
    deadline = time.monotonic() + JOIN_SECONDS
    others = [one for one in threads if one is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            logging.getLogger(__name__).warning(
                "%s has not stopped %.0f s after it was asked to; its source is stuck "
                "in a read. It is left behind.",
                thread.name,
                JOIN_SECONDS,
            )
    return len(others) == len(threads) and not any(one.is_alive() for one in others)


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


# Rows are cheap by the thousand; anything else may be a batch, and is taken singly.
ROWS_AT_ONCE = 1024


class Lookahead:
    """The chunk in hand; with workers, the next one is already being read."""

    def __init__(
        self, source: Stream, at_once: int, *, workers: Workers | None = None
    ) -> None:
        self._source = source
        self._at_once = at_once
        self._next_size = at_once
        self._workers = workers
        self._chunk: Chunk | None = None
        self._given = 0  # of the chunk in hand, or to be dropped of the next
        self._before: State = {}
        self._next: tuple[State, int, Future[Chunk | None]] | None = None
        self._singly = 0  # so many elements to be read one by one

    def fill(self, wanted: int = 0) -> int:
        """Have at least one element in hand; how many there are, 0 at the end.

        `wanted` rows may be read at once where rows are what is read.
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
        """Let a worker read the next chunk, if there are any."""
        if self._workers is not None and self._next is None:
            before = self._source.get_state()
            size = 1 if self._singly else self._next_size
            future = self._workers.submit(self._source.read, size)
            self._next = before, size, future

    def _fetch(self) -> tuple[State, Chunk | None]:
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
        # One of many cannot be made: the others singly, so that only that one is lost.
        self._source.set_state(before)
        self._singly = size - 1
        return before, self._source.read(1)

    def give(self, n: int) -> Chunk:
        """The next n of the elements in hand."""
        assert self._chunk is not None
        out = self._chunk.slice(self._given, self._given + n)
        self._given += len(out)
        if self._given >= len(self._chunk):
            self._chunk, self._given = None, 0
        return out

    def read(self, n: int) -> Chunk | None:
        """What is in hand, up to n, or None at the end."""
        have = self.fill(n)
        return self.give(min(n, have)) if have else None

    def get_state(self) -> State:
        """The position of the next element to be given."""
        if self._chunk is not None:
            before = self._before
        else:
            before = self._next[0] if self._next else self._source.get_state()
        return {"given": self._given, "source": before}

    def set_state(self, state: State) -> None:
        """Go there; the chunk is read again when needed."""
        self._settle()
        self._chunk = None
        self._source.set_state(state["source"])
        self._given = int(state["given"])

    def close(self) -> None:
        """Wait for the read under way and close the source."""
        self._settle()
        self._chunk = None
        self._source.close()

    def _settle(self) -> None:
        ahead, self._next = self._next, None
        if ahead is not None and not ahead[2].cancel():
            ahead[2].exception()  # waited for and dropped: nobody wants it any more
