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


class _Mapped:
    """What is being computed, oldest first, each with the position before it."""

    def __init__(self, node: ParallelMap, source: Stream) -> None:
        self._node = node
        self._source = source
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[State, Future[Chunk]]] = deque()

    def read(self, n: int) -> Chunk | None:
        """The oldest result, waited for."""
        if self._pool is None:
            name = f"estimax-input-{self._node.name}"
            self._pool = ThreadPoolExecutor(self._node.threads, name)
        while len(self._pending) < _WAITING * self._node.threads:
            before = self._source.get_state()
            chunk = self._source.read(self._node.at_once)
            if chunk is None:
                break
            future = self._pool.submit(self._node.apply, chunk)
            self._pending.append((before, future))
        if not self._pending:
            return None
        _, future = self._pending.popleft()
        return future.result()

    def get_state(self) -> State:
        """The position before the oldest result."""
        return self._pending[0][0] if self._pending else self._source.get_state()

    def set_state(self, state: State) -> None:
        """Drop what is being computed and go there."""
        self._drop()
        self._source.set_state(state)

    def close(self) -> None:
        """Stop the threads, then close the source."""
        self._drop()
        if self._pool is not None:
            self._pool.shutdown()
        self._source.close()

    def _drop(self) -> None:
        while self._pending:
            _, future = self._pending.pop()
            if not future.cancel():
                future.exception()
