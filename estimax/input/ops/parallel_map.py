"""Verbs that run in threads: map with `num_parallel_calls`, and prefetch.

    ParallelMap(source, apply, threads=4, at_once=1)
    Prefetch(source, buffer_size=2)

Parallel map: each worker thread reads one chunk of the source and then maps it, so the
data is still in the processor's cache. One thread at a time reads the source; all map
at the same time. Results are returned in the order of the source, so threads change
when a result is computed and never its value or place.

Prefetch: one thread reads up to `buffer_size` elements ahead of the consumer.

Both save the source's position before the oldest element that was not yet returned;
results that were computed ahead are dropped and computed again after a resume.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from estimax.core.errors import InputError
from estimax.input.streams.background import (
    JOIN_SECONDS,
    Background,
    Lookahead,
    Workers,
)
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    State,
    Stream,
    VerbNode,
    VerbStream,
    check_at_least,
    discard,
    elements_at_once,
)

# Tasks per thread: one that runs, and two whose results may wait for the consumer.
_TASKS_PER_THREAD = 3


@dataclass(frozen=True, eq=False)
class ParallelMap(VerbNode):
    """The results of `apply`, called in `threads` threads with `at_once` elements."""

    apply: Callable[[Chunk], Chunk]
    threads: int
    at_once: int
    columnar: bool = False
    name: str = "map"

    @property
    def maps_blocks(self) -> bool:
        """Whether the function is called for blocks of rows, as far as is known."""
        is_row_map = elements_at_once(self.source) > 1
        return is_row_map and getattr(self.apply, "maps_blocks", False)

    def __post_init__(self) -> None:
        check_at_least(1, self.threads, f"{self.name}: num_parallel_calls")

    def open(self, context: Context) -> Stream:
        return Lookahead(
            _ParallelMapStream(self, self.source.open(context)), self.at_once
        )


@dataclass(eq=False)
class _Task:
    """A chunk to read and map; it begins `skip` elements after position `before`."""

    size: int
    result: Future[Chunk | None] = field(default_factory=Future)
    chunk: Chunk | None = None
    skip: int = 0
    before: State | None = None  # None: not read yet. Set after all other fields


class _ParallelMapStream(VerbStream):
    """A queue of tasks in the order of the source; worker threads read and map them.

    Threads: the consumer's thread calls `read`, `get_state`, `set_state` and `close`
    and owns `_tasks`. Workers run `_read_and_map`; while one of them holds `_reading`,
    it alone uses the source, `_unread` and `_position`. The consumer appends to
    `_unread` without the lock, which is safe because `deque.append` is atomic.
    """

    def __init__(self, node: ParallelMap, source: Stream) -> None:
        super().__init__(source)
        self._node = node
        self._workers = Workers(node.threads, node.name)  # start with the first read
        self._tasks: deque[_Task] = deque()  # not yet returned, oldest first
        self._unread: deque[_Task] = deque()  # the part of _tasks that was not read yet
        self._reading = threading.Lock()  # held by the thread that reads the source
        # Where the oldest unread task begins: (elements to skip, source's position).
        self._position: tuple[int, State] = (0, source.get_state())

    def read(self, n: int) -> Chunk | None:
        while len(self._tasks) < _TASKS_PER_THREAD * self._node.threads:
            task = _Task(min(n, self._at_once()))
            self._tasks.append(task)
            self._unread.append(task)
            self._workers.submit(self._read_and_map)
        task = self._tasks.popleft()
        try:
            return task.result.result()
        except Exception:
            if task.chunk is None or len(task.chunk) == 1:
                raise
        # One element of several failed. Map each by itself, so that ignore_errors loses
        # only that element.
        assert task.before is not None
        for i in reversed(range(len(task.chunk))):
            chunk = task.chunk.slice(i, i + 1)
            one = _Task(1, chunk=chunk, skip=task.skip + i, before=task.before)
            self._tasks.appendleft(one)
            self._workers.submit(self._map, one)
        return self.read(n)

    def _at_once(self) -> int:
        """Return how many elements a task has."""
        at_once = self._node.at_once
        # Once a function is called for blocks of rows, it takes more of them.
        return getattr(self._node.apply, "at_once", 1) if at_once > 1 else at_once

    def _read_and_map(self) -> None:
        """Read the oldest unread task, then map it; runs in a worker thread."""
        with self._reading:
            if not self._unread:  # `_drop` has cleared them
                return
            task = self._unread.popleft()
            try:
                self._read(task)
            except BaseException as error:
                task.result.set_exception(error)
                return
        self._map(task)

    def _read(self, task: _Task) -> None:
        # `task.before` is set before `_position` moves on. `get_state`, which takes no
        # lock, reads them in the opposite order: it never sees the later position
        # without the task.
        while task.before is None:
            task.skip, before = self._position
            try:
                chunk = self._source.read(task.size)
            except BaseException:
                task.before = before
                self._position = (task.skip, self._source.get_state())
                raise
            left = 0 if chunk is None else task.skip - len(chunk)
            if chunk is None or left < 0:
                task.chunk = chunk and chunk.slice(task.skip, len(chunk))
                task.before = before
            self._position = (max(left, 0), self._source.get_state())

    def _map(self, task: _Task) -> None:
        try:
            chunk = task.chunk
            task.result.set_result(None if chunk is None else self._node.apply(chunk))
        except BaseException as error:
            task.result.set_exception(error)

    def get_state(self) -> State:
        # Workers may be reading meanwhile, so `_position` comes first: see `_read`.
        skip, before = self._position
        task = self._tasks[0] if self._tasks else None
        if task is not None and task.before is not None:
            skip, before = task.skip, task.before
        return {"skip": skip, "source": before}

    def set_state(self, state: State) -> None:
        if not self._drop():
            raise InputError(
                f"{self._node.name}: cannot go to another position, because a read of "
                f"the source has not returned for {JOIN_SECONDS:.0f} s."
            )
        self._source.set_state(state["source"])
        self._position = (int(state["skip"]), self._source.get_state())

    def close(self) -> None:
        # Not while a thread is inside the source: closing it could crash the thread.
        if self._drop() and self._workers.close():
            self._source.close()

    def _drop(self) -> bool:
        """Wait for running tasks and drop all; return False if a read does not end."""
        if not self._reading.acquire(timeout=JOIN_SECONDS):
            return False
        self._unread.clear()
        self._reading.release()
        for task in self._tasks:
            if task.before is not None:
                task.result.exception()
        self._tasks.clear()
        return True


@dataclass(frozen=True, eq=False)
class Prefetch(VerbNode):
    """The same elements; a thread reads up to `buffer_size` of them ahead."""

    buffer_size: int
    name = "prefetch"

    def open(self, context: Context) -> Stream:
        # Rows are read many at a time: with one, switching threads would cost more than
        # reading.
        at_once = max(1, min(self.buffer_size, elements_at_once(self)))
        depth = max(1, self.buffer_size // at_once)
        source = self.source.open(context)
        return _PrefetchStream(source, at_once, depth, retries=not self.columnar)


class _PrefetchStream(VerbStream):
    """The chunk being returned, and a thread that reads the next ones.

    From the first read until `_stop`, the source belongs to that thread; positions come
    with the chunks, so `get_state` does not touch the source.
    """

    def __init__(
        self, source: Stream, at_once: int, depth: int, *, retries: bool
    ) -> None:
        super().__init__(source)
        self._at_once = at_once
        self._retries = retries
        self._depth = depth
        self._ahead: Background[tuple[Chunk, State, State]] | None = None
        self._chunk: Chunk | None = None
        self._given = 0  # elements of that chunk already returned
        self._before: State = {}  # the source's position before that chunk
        self._after: State = source.get_state()  # and after it

    def read(self, n: int) -> Chunk | None:
        if self._chunk is None:
            if self._ahead is None:
                chunks = _chunks(self._source, self._at_once, self._retries)
                self._ahead = Background(chunks, depth=self._depth, name="prefetch")
            try:
                self._chunk, self._before, self._after = self._ahead.next()
            except StopIteration:
                return None
            except Exception:
                # The thread has ended after the failed read. The next read starts a new
                # thread there.
                self._stop()
                self._after = self._source.get_state()
                raise
            self._given = 0
        out = self._chunk.slice(self._given, self._given + n)
        self._given += len(out)
        if self._given == len(self._chunk):
            self._chunk = None
        return out

    def get_state(self) -> State:
        if self._chunk is None:
            return {"given": 0, "source": self._after}
        return {"given": self._given, "source": self._before}

    def set_state(self, state: State) -> None:
        self._stop()
        self._source.set_state(state["source"])
        discard(self._source, int(state["given"]))
        self._chunk = None
        self._after = self._source.get_state()

    def close(self) -> None:
        # Not while the thread is still inside the source.
        if self._stop():
            self._source.close()

    def _stop(self) -> bool:
        """Stop the thread; return whether it has ended."""
        ahead, self._ahead = self._ahead, None
        return ahead is None or ahead.close()


def _chunks(
    source: Stream, n: int, retries: bool
) -> Iterator[tuple[Chunk, State, State]]:
    """Yield chunks, each with the source's position before and after it.

    With `retries`, elements of a failed read are read again one by one, because a map
    over rows fails as a whole: only the failing element is lost to ignore_errors.
    """
    before = source.get_state()
    singly = 0  # elements to read one by one
    while True:
        try:
            chunk = source.read(1 if singly else n)
        except Exception:
            if singly or n == 1 or not retries:
                raise
            source.set_state(before)
            singly = n
            continue
        if chunk is None:
            return
        singly = max(0, singly - 1)
        after = source.get_state()
        yield chunk, before, after
        before = after
