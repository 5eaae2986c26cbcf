"""ignore_errors: elements that cannot be made are left out, counted and reported.

    IgnoreErrors(source, log_warning=True)

Every stream goes on behind an element that failed, if it can: behind a bad row of a CSV
file, in the next file after a damaged record. One that cannot has ended.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from estimax.input.sources.arrays import Range, Slices, Table
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    Counters,
    Node,
    State,
    Stream,
    chain_of,
)
from estimax.input.verbs.batching import MapBlocks
from estimax.input.verbs.caching import Cache
from estimax.input.verbs.grouping import InMemory
from estimax.input.verbs.mixing import Interleave
from estimax.input.verbs.options import WithOptions
from estimax.input.verbs.ordering import Repeat, Shard, Take
from estimax.input.verbs.parallel_map import ParallelMap, Prefetch
from estimax.input.verbs.shuffle import Shuffle

_log = logging.getLogger(__name__)


# Their reads fail only before they have given anything: the next one goes on behind.
_CLEAN = (
    Cache,
    FileBlocks,
    InMemory,
    Interleave,
    ParallelMap,
    Prefetch,
    Range,
    Repeat,
    Shard,
    Shuffle,
    Slices,
    Table,
    Take,
    WithOptions,
)


def _fails_cleanly(node: Node) -> bool:
    return all(
        isinstance(one, _CLEAN) or (isinstance(one, MapBlocks) and one.is_ours)
        for one in chain_of(node)
    )


@dataclass(frozen=True, eq=False)
class IgnoreErrors:
    """The elements of the source that can be made."""

    source: Node
    log_warning: bool = False
    name = "ignore_errors"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> IgnoreErrorsStream:
        """Start with the source's first element."""
        return IgnoreErrorsStream(self, self.source.open(context), context.counters)


class IgnoreErrorsStream:
    """The source, and how many errors it has made."""

    def __init__(self, node: IgnoreErrors, source: Stream, counters: Counters) -> None:
        self._node = node
        self._source = source
        self._counters = counters
        self._is_clean = _fails_cleanly(node.source)
        self._ignored = 0
        self._one_by_one = 0  # elements to be read singly, as one of them is bad
        self._failure: tuple[State, str] | None = None  # the last one
        self._reported = False

    def read(self, n: int) -> Chunk | None:
        """The next good elements."""
        while True:
            at_once = n if self._is_clean or self._node.columnar else 1
            at_once = 1 if self._one_by_one else at_once
            before = self._source.get_state()
            try:
                chunk = self._source.read(at_once)
            except Exception as error:  # whatever it is: that is what was asked for
                if at_once > 1 and not self._is_clean:
                    self._source.set_state(before)
                    self._one_by_one = at_once
                    continue
                failure = (self._source.get_state(), str(error))
                if failure[0] != before or failure != self._failure:
                    self._failure = failure
                    self._count(error)
                    continue
                chunk = None  # the same again at the same place: it cannot go on
            self._failure = None
            self._one_by_one = max(0, self._one_by_one - 1)
            if chunk is None:
                self._report()
            return chunk

    def _count(self, error: Exception) -> None:
        self._ignored += 1
        self._counters.ignored += 1
        level = logging.WARNING if self._node.log_warning else logging.DEBUG
        _log.log(level, "ignore_errors: %s", error)

    def _report(self) -> None:
        """Say at the end how much was left out: never in silence."""
        if self._ignored and not self._reported:
            self._reported = True
            _log.warning("ignore_errors: %d errors were ignored.", self._ignored)

    def get_state(self) -> State:
        """The count, and the source's position."""
        state = self._source.get_state()
        return {"ignored": self._ignored, "single": self._one_by_one, "source": state}

    def set_state(self, state: State) -> None:
        """Go there."""
        self._ignored = int(state["ignored"])
        self._counters.ignored += self._ignored
        self._one_by_one = int(state["single"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()
