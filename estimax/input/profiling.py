"""Profile: how much time each stage of a dataset takes.

    print(dataset.profile())

    stage      seconds  share  elements  elements/s
    csv_files    0.410    62%    102400      249756
    …

Every `read` of a stage is timed; the time of its source is subtracted. A parallel map
is timed around its function, summed over all threads. A prefetch only waits for its
thread; that time is shown as "(wait)" and does not count as work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from estimax.input.ops.parallel_map import ParallelMap, Prefetch
from estimax.input.ops.sharding import rebuild_chain
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    DatasetNode,
    Stream,
    VerbStream,
    chain_of,
)


def profile(node: DatasetNode, elements: int, seconds: float) -> Profile:
    """Read up to `elements` elements or `seconds` seconds, and time every stage."""
    chain = [one for one in chain_of(node) if one.name]
    clocks = [_Clock() for _ in chain]
    timed: DatasetNode = _Timed(chain[0], clocks[0])
    for one, clock in zip(chain[1:], clocks[1:], strict=True):
        stage = rebuild_chain(timed, [one])
        if isinstance(stage, ParallelMap):
            stage = replace(stage, apply=clock.timed(stage.apply))
        timed = _Timed(stage, clock)
    stream = timed.open(Context(seed=0))
    start = time.perf_counter()
    for _ in range(elements):
        if stream.read(1) is None or time.perf_counter() - start > seconds:
            break
    took = time.perf_counter() - start
    stream.close()
    return Profile(tuple(_stages(chain, clocks)), took)


@dataclass(frozen=True)
class Profile:
    """The result of `Dataset.profile`. `print` shows it as a table.

    Attributes:
      stages: One `Stage` for the source and each verb, in order.
      seconds: Total time of the measurement.

    Example:
      >>> Profile((Stage("range", 0.5, 10), Stage("map", 1.5, 10)), 2.0).slowest
      'map'
    """

    stages: tuple[Stage, ...]
    seconds: float

    @property
    def slowest(self) -> str:
        """The name of the stage with the most time, not counting waits."""
        working = [stage for stage in self.stages if not stage.is_waiting]
        return max(working, key=lambda stage: stage.seconds).name

    def __str__(self) -> str:
        width = max(8, *(len(_short(stage.name)) for stage in self.stages))
        total = sum(s.seconds for s in self.stages if not s.is_waiting) or 1.0
        lines = [f"{'stage':<{width}}  seconds  share  elements  elements/s"]
        for stage in self.stages:
            share = "(wait)" if stage.is_waiting else f"{stage.seconds / total:6.0%}"
            rate = "-" if stage.is_waiting else f"{stage.rate:.0f}"
            lines.append(
                f"{_short(stage.name):<{width}}  {stage.seconds:7.3f} {share:>6}  "
                f"{stage.elements:8d}  {rate:>10}"
            )
        lines.append(
            f"slowest: {_short(self.slowest)}; {self.stages[-1].elements} elements in "
            f"{self.seconds:.3f} s"
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Stage:
    """The measurements of one source or verb of a dataset.

    Attributes:
      name: The method of `Dataset`, such as `"map"`.
      seconds: Time spent in this stage, without the stages before it.
      elements: Number of elements that it returned.
      is_waiting: Whether the time was spent waiting for a thread (prefetch).
    """

    name: str
    seconds: float
    elements: int
    is_waiting: bool = False

    @property
    def rate(self) -> float:
        """Elements per second of this stage's own time."""
        return self.elements / self.seconds if self.seconds > 0 else float("inf")


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:37] + "..."


@dataclass(eq=False)
class _Clock:
    """The time of all reads of one stage, including the reads of its source."""

    seconds: float = 0.0
    elements: int = 0
    threads: set[int] = field(default_factory=set)  # ids of the threads that read
    calls: float = 0.0  # seconds in the function of a parallel map, over all threads

    def timed(self, fn: Callable[[Chunk], Chunk]) -> Callable[[Chunk], Chunk]:
        """Return a function that adds the time of its calls, from any thread."""
        lock = threading.Lock()

        def call(chunk: Chunk) -> Chunk:
            start = time.perf_counter()
            try:
                return fn(chunk)
            finally:
                took = time.perf_counter() - start
                with lock:
                    self.calls += took

        return call


@dataclass(frozen=True, eq=False)
class _Timed:
    """A node that times the streams of another node."""

    node: DatasetNode
    clock: _Clock
    source = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def columnar(self) -> bool:
        return self.node.columnar

    def open(self, context: Context) -> Stream:
        return _TimedStream(self.node.open(context), self.clock)


class _TimedStream(VerbStream):
    def __init__(self, stream: Stream, clock: _Clock) -> None:
        super().__init__(stream)
        self._clock = clock

    def read(self, n: int) -> Chunk | None:
        start = time.perf_counter()
        try:
            chunk = self._source.read(n)
        finally:
            self._clock.seconds += time.perf_counter() - start
            self._clock.threads.add(threading.get_ident())
        self._clock.elements += len(chunk) if chunk is not None else 0
        return chunk


def _stages(chain: list[DatasetNode], clocks: list[_Clock]) -> list[Stage]:
    stages = []
    for i, (node, clock) in enumerate(zip(chain, clocks, strict=True)):
        source = clocks[i - 1] if i else None
        # Time of the source counts only if the same thread has read both. A source that
        # runs in other threads takes none of this stage's time.
        same = source is not None and bool(source.threads & clock.threads)
        below = source.seconds if source is not None and same else 0.0
        own = max(0.0, clock.seconds - below)
        if isinstance(node, ParallelMap):
            own = clock.calls
        is_waiting = isinstance(node, Prefetch) and not same
        stages.append(Stage(node.name, own, clock.elements, is_waiting))
    return stages
