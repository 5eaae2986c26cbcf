"""map in several threads, in order, with the position of the element last given out.

    ParallelMap(source, apply, threads=4, at_once=1)

The source is read by the consumer, the function runs in a pool, results are taken in
the order of the source: threads change when something is computed, never what comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from estimax.input.chunks import Chunk
from estimax.input.lookahead import Lookahead
from estimax.input.stream import Context, Node, State, Stream, check_at_least

# Results may wait while the consumer is busy: as many again as are being computed.
_WAITING = 2


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


@dataclass(frozen=True, eq=False)
class _Task:
    """A chunk being mapped, and its place: `skip` elements behind `before`."""

    before: State
    skip: int
    chunk: Chunk
    result: Future[Chunk]


class _Mapped:
    """What is being computed, oldest first."""

    def __init__(self, node: ParallelMap, source: Stream) -> None:
        self._node = node
        self._source = source
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: deque[_Task] = deque()
        self._skip = 0  # of the next chunk, after a position was set

    def read(self, n: int) -> Chunk | None:
        """The oldest result, waited for."""
        while len(self._tasks) < _WAITING * self._node.threads:
            before = self._source.get_state()
            chunk = self._source.read(self._node.at_once)
            if chunk is None:
                break
            skip, self._skip = self._skip, max(0, self._skip - len(chunk))
            if skip < len(chunk):
                rest = chunk.slice(skip, len(chunk))
                self._tasks.append(self._start(before, skip, rest))
        if not self._tasks:
            return None
        task = self._tasks.popleft()
        try:
            return task.result.result()
        except Exception:
            if len(task.chunk) == 1:
                raise
        # One of several has failed: each by itself, so that the others are not lost.
        for i in reversed(range(len(task.chunk))):
            one = task.chunk.slice(i, i + 1)
            self._tasks.appendleft(self._start(task.before, task.skip + i, one))
        return self.read(n)

    def _start(self, before: State, skip: int, chunk: Chunk) -> _Task:
        if self._pool is None:
            name = f"estimax-input-{self._node.name}"
            self._pool = ThreadPoolExecutor(self._node.threads, name)
        result = self._pool.submit(self._node.apply, chunk)
        return _Task(before, skip, chunk, result)

    def get_state(self) -> State:
        """The position before the oldest result."""
        if self._tasks:
            return {"skip": self._tasks[0].skip, "source": self._tasks[0].before}
        return {"skip": self._skip, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Drop what is being computed and go there."""
        self._drop()
        self._source.set_state(state["source"])
        self._skip = int(state["skip"])

    def close(self) -> None:
        """Stop the threads, then close the source."""
        self._drop()
        if self._pool is not None:
            self._pool.shutdown()
        self._source.close()

    def _drop(self) -> None:
        while self._tasks:
            result = self._tasks.pop().result
            if not result.cancel():
                result.exception()
