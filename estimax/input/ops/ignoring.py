"""ignore_errors: skip elements whose reading fails, count them and report the count.

    IgnoreErrors(source, log_warning=True, max_errors=100)

After an error most streams can be read on: after a bad row of a CSV file, in the next
file after a damaged record. A stream that fails twice at the same position has ended.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from estimax.core.errors import TooManyErrorsError
from estimax.input.ops.batching import MapBlocks
from estimax.input.ops.caching import Cache
from estimax.input.ops.grouping import InMemory
from estimax.input.ops.mixing import Interleave
from estimax.input.ops.options import WithOptions
from estimax.input.ops.parallel_map import ParallelMap, Prefetch
from estimax.input.ops.selection import Repeat, Shard, Take
from estimax.input.ops.shuffle import WindowShuffle
from estimax.input.sources.arrays import Range, Slices, Table
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    Counters,
    DatasetNode,
    State,
    Stream,
    VerbNode,
    VerbStream,
    chain_of,
    elements_at_once,
)

_log = logging.getLogger(__name__)

# A fraction of fewer elements than this says little: one bad row among the first ten
# would end the run. It is compared at the end of the data in any case.
_FEWEST_FOR_A_FRACTION = 1000

# A read of these nodes either returns all its elements or fails before the first, and
# the next read continues after the failure. So they can be read many at a time; behind
# any other node, elements are read one by one once an error has occurred.
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
    Slices,
    Table,
    Take,
    WindowShuffle,
    WithOptions,
)


def _fails_cleanly(node: DatasetNode) -> bool:
    """Return whether all nodes of a chain can be read on after an error."""
    return all(
        isinstance(one, _CLEAN) or (isinstance(one, MapBlocks) and one.is_ours)
        for one in chain_of(node)
    )


@dataclass(frozen=True, eq=False)
class IgnoreErrors(VerbNode):
    """The elements of the source whose reading does not fail."""

    log_warning: bool = False
    # The limits are not part of the recipe: a run may resume with a higher one.
    max_errors: int | None = field(default=None, compare=False)
    max_fraction: float | None = field(default=None, compare=False)
    name = "ignore_errors"

    def open(self, context: Context) -> Stream:
        return _IgnoreErrorsStream(self, self.source.open(context), context.counters)


class _IgnoreErrorsStream(VerbStream):
    saved = ("ignored", "single", "read", "last")

    def __init__(self, node: IgnoreErrors, source: Stream, counters: Counters) -> None:
        super().__init__(source)
        self._node = node
        self._counters = counters
        self._is_clean = _fails_cleanly(node.source)
        self._reads_rows = elements_at_once(node) > 1
        self._ignored = 0  # errors of this stream
        self._read = 0  # elements that this stream returned
        self._single = 0  # elements to read one by one, because one of them fails
        self._failure: tuple[State, str] | None = None  # position and text of the last
        self._last = ""  # the text of the last error that was counted
        self._reported = False

    def read(self, n: int) -> Chunk | None:
        while True:
            at_once = n if self._is_clean or self._reads_rows else 1
            at_once = 1 if self._single else at_once
            before = self._source.get_state()
            try:
                chunk = self._source.read(at_once)
            except Exception as error:  # of any kind: the user asked to ignore them
                if at_once > 1 and not self._is_clean:
                    # Elements before the failing one may be lost: read them again.
                    self._source.set_state(before)
                    self._single = at_once
                    continue
                failure = (self._source.get_state(), str(error))
                if failure[0] != before or failure != self._failure:
                    self._failure = failure
                    self._count(error)
                    self._check_limits(_FEWEST_FOR_A_FRACTION)
                    continue
                chunk = None  # the same error at the same position: the stream ended
            self._failure = None
            self._single = max(0, self._single - 1)
            if chunk is None:
                self._report()
                self._check_limits(0)
            else:
                self._read += len(chunk)
            return chunk

    def _count(self, error: Exception) -> None:
        self._ignored += 1
        self._last = str(error)
        self._counters.ignored += 1
        level = logging.WARNING if self._node.log_warning else logging.DEBUG
        _log.log(level, "ignore_errors: %s", error)

    def _check_limits(self, fewest: int) -> None:
        """Raise if more was ignored than allowed.

        The fraction is compared only if there are at least `fewest` elements.
        """
        limits = []
        count, most = self._ignored, self._node.max_errors
        if most is not None and count > most:
            limits.append(f"max_errors={most:,}")
        share, seen = self._node.max_fraction, self._read + count
        if share is not None and seen >= fewest and count > share * seen:
            limits.append(f"max_fraction={share:g} of {seen:,} elements")
        if limits:
            raise TooManyErrorsError(
                f"{count:,} elements that cannot be read were skipped, more than "
                f"{' and '.join(limits)}. The last of them: {self._last}",
                self._last,
            )

    def _report(self) -> None:
        """Log the number of errors once, at the end of the data."""
        if self._ignored and not self._reported:
            self._reported = True
            _log.warning("ignore_errors: %d errors were ignored.", self._ignored)

    def set_state(self, state: State) -> None:
        # Positions of earlier versions have no "read".
        super().set_state({"read": 0, "last": "", **state})
        self._counters.ignored += self._ignored
