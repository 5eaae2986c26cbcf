"""map in several threads, in order, with the position of the element last given out.

    ParallelMap(source, apply, threads=4, at_once=1)

A thread reads a chunk of the source, one at a time, and then maps it, side by side with
the others: what was read is still in its processor's cache. Results are taken in the
order of the source: threads change when something is computed, never what comes.
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
    Node,
    State,
    Stream,
    check_at_least,
    discard,
)

# Results may wait while the consumer is busy: twice as many as are being computed.
_WAITING = 3


@dataclass(frozen=True, eq=False)
class ParallelMap:
    """`apply` on chunks of `at_once` elements, in `threads` threads."""

    source: Node
    apply: Callable[[Chunk], Chunk]
    threads: int
    at_once: int
    columnar: bool
    name: str = "map"

    def __post_init__(self) -> None:
        check_at_least(1, self.threads, f"{self.name}: num_parallel_calls")

    def open(self, context: Context) -> Stream:
        """Threads start with the first read."""
        return Lookahead(_Mapped(self, self.source.open(context)), self.at_once)


@dataclass(eq=False)
class _Task:
    """A chunk to be read and mapped, and its place: `skip` elements behind `before`."""

    size: int
    result: Future[Chunk | None] = field(default_factory=Future)
    chunk: Chunk | None = None
    skip: int = 0
    before: State | None = None  # set last: None says that it is not read yet


class _Mapped:
    """What is being computed, oldest first."""

    def __init__(self, node: ParallelMap, source: Stream) -> None:
        self._node = node
        self._source = source
        self._workers = Workers(node.threads, node.name)
        self._tasks: deque[_Task] = deque()
        self._unread: deque[_Task] = deque()  # the last of these
        self._reading = threading.Lock()  # held by who reads the source
        # Before the oldest unread task: elements to leave out there, and the source's.
        self._position: tuple[int, State] = (0, source.get_state())

    def read(self, n: int) -> Chunk | None:
        """The oldest result, waited for."""
        while len(self._tasks) < _WAITING * self._node.threads:
            task = _Task(min(n, self._node.at_once))
            self._tasks.append(task)
            self._unread.append(task)
            self._workers.submit(self._read_and_map)
        task = self._tasks.popleft()
        try:
            return task.result.result()
        except Exception:
            if task.chunk is None or len(task.chunk) == 1:
                raise
        # One of several has failed: each by itself, so that the others are not lost.
        assert task.before is not None
        for i in reversed(range(len(task.chunk))):
            chunk = task.chunk.slice(i, i + 1)
            one = _Task(1, chunk=chunk, skip=task.skip + i, before=task.before)
            self._tasks.appendleft(one)
            self._workers.submit(self._map, one)
        return self.read(n)

    def _read_and_map(self) -> None:
        """In a worker: whoever comes first reads for the oldest task."""
        with self._reading:
            if not self._unread:  # they were dropped
                return
            task = self._unread.popleft()
            try:
                self._read(task)
            except BaseException as error:
                task.result.set_exception(error)
                return
        self._map(task)

    def _read(self, task: _Task) -> None:
        # The task first, then the position behind it: `get_state` relies on that.
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
        """The position before the oldest result, while others are being read."""
        skip, before = self._position
        task = self._tasks[0] if self._tasks else None
        if task is not None and task.before is not None:
            skip, before = task.skip, task.before
        return {"skip": skip, "source": before}

    def set_state(self, state: State) -> None:
        """Drop what is being computed and go there."""
        if not self._drop():
            raise InputError(
                f"{self._node.name}: cannot go to another position, the source is "
                "stuck in a read."
            )
        self._source.set_state(state["source"])
        self._position = (int(state["skip"]), self._source.get_state())

    def close(self) -> None:
        """Stop the threads, then close the source, unless it is stuck in a read."""
        if self._drop() and self._workers.close():
            self._source.close()

    def _drop(self) -> bool:
        """Forget all tasks, once none is being read or mapped; whether that is so."""
        if not self._reading.acquire(timeout=JOIN_SECONDS):
            return False
        self._unread.clear()
        self._reading.release()
        for task in self._tasks:
            if task.before is not None:
                task.result.exception()
        self._tasks.clear()
        return True


# Rows before batch() are moved this many at a time: one at a time would cost more in
# thread switches than the reading.
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Prefetch:
    """Up to `buffer_size` elements ahead."""

    source: Node
    buffer_size: int
    name = "prefetch"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> PrefetchStream:
        """The thread starts with the first read."""
        at_once = min(self.buffer_size, _ROWS_AT_ONCE) if self.columnar else 1
        depth = max(1, self.buffer_size // at_once)
        return PrefetchStream(self.source.open(context), at_once, depth)


class PrefetchStream:
    """The chunk being handed out, and a thread that makes the next ones."""

    def __init__(self, source: Stream, at_once: int, depth: int) -> None:
        self._source = source
        self._at_once = at_once
        self._depth = depth
        self._ahead: Background[tuple[Chunk, State, State]] | None = None
        self._chunk: Chunk | None = None
        self._given = 0  # of that chunk
        self._before: State = {}
        self._after: State = source.get_state()

    def read(self, n: int) -> Chunk | None:
        """What is ready, or wait for it."""
        if self._chunk is None:
            if self._ahead is None:
                chunks = _chunks(self._source, self._at_once)
                self._ahead = Background(chunks, depth=self._depth, name="prefetch")
            try:
                self._chunk, self._before, self._after = self._ahead.next()
            except StopIteration:
                return None
            except Exception:
                # The thread has ended, behind what failed; the next read goes on there.
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
        """The source's position when this chunk was read, and how much is given."""
        if self._chunk is None:
            return {"given": 0, "source": self._after}
        return {"given": self._given, "source": self._before}

    def set_state(self, state: State) -> None:
        """Stop the thread, go there, drop the part of a chunk that was given."""
        self._stop()
        self._source.set_state(state["source"])
        discard(self._source, int(state["given"]))
        self._chunk = None
        self._after = self._source.get_state()

    def close(self) -> None:
        """Stop the thread, then close what it read from."""
        if self._stop():
            self._source.close()

    def _stop(self) -> bool:
        ahead, self._ahead = self._ahead, None
        return ahead is None or ahead.close()


def _chunks(source: Stream, n: int) -> Iterator[tuple[Chunk, State, State]]:
    before = source.get_state()
    while (chunk := source.read(n)) is not None:
        after = source.get_state()
        yield chunk, before, after
        before = after
