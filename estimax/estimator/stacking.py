"""Several small batches as one: read, transformed and sent to the device together.

    for group in Groups(batches, flatten, length=16):      # (raw batch, position)s
        yield from stacks_of(group, plan, room=16)         # one for each shape

A batch of a small model is worth less than what its own call would cost, in Python and
on the device. The host's transforms work row by row, so what they make of many batches
is what they make of each.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from estimax.core import plan as plans
from estimax.core.packing import Packed, pack_stack
from estimax.core.sparse import Sparse
from estimax.input import columns
from estimax.training import PlacedLoop

# Batches are stacked until they fill this much, or number this many: below it a call
# costs more than its steps, above it nothing is gained any more.
_STACK_BYTES = 512 * 1024
_STACK_LENGTH = 32
# An input that takes longer than this for a group is slow, and gets smaller ones.
_PATIENCE_SECONDS = 0.05

RawBatches = Sequence[tuple[plans.RawBatch, Any]]


class Positioned(Protocol):
    """An iterator of batches that knows its position."""

    def __next__(self) -> Any:
        """The next `(features, labels)`."""

    def get_state(self) -> Any:
        """The position behind it."""


def loop_length(batch: Packed) -> int:
    """How many batches of this size to give to the device in one call."""
    return max(1, min(_STACK_LENGTH, _STACK_BYTES // max(batch.nbytes, 1)))


class Groups:
    """Lists of consecutive batches with their positions, up to `length` in each.

    A slow input's batches are not held back for their neighbours: groups begin with
    one batch and grow only while the input is fast.
    """

    def __init__(
        self,
        batches: Positioned,
        flatten: Callable[[Any], plans.RawBatch],
        length: int,
    ) -> None:
        self._batches = batches
        self._flatten = flatten
        self._length = length
        self._room = 1
        self._end: BaseException | None = None  # StopIteration, or what went wrong

    def __iter__(self) -> Iterator[RawBatches]:
        return self

    def __next__(self) -> RawBatches:
        start = time.monotonic()
        group = list(itertools.islice(self._to_the_end(), self._room))
        if not group:
            assert self._end is not None
            raise self._end
        is_fast = time.monotonic() - start < _PATIENCE_SECONDS
        self._room = min(2 * self._room, self._length) if is_fast else 1
        return group

    def _to_the_end(self) -> Iterator[tuple[plans.RawBatch, Any]]:
        """An error waits until the batches before it, which are good, were used."""
        while self._end is None:
            try:
                batch = self._flatten(next(self._batches))
            except Exception as end:
                self._end = end
            else:
                yield batch, self._batches.get_state()


def stacks_of(group: RawBatches, plan: plans.Plan, room: int) -> Iterator[PlacedLoop]:
    """Prepare the batches of a group together, as far as their shapes agree.

    A stack always has room for `room` batches: one program serves whatever fills it.
    """
    for _, members in itertools.groupby(group, key=lambda item: _shapes(item[0])):
        same = list(members)
        together = _prepare_together([batch for batch, _ in same], plan)
        if together is not None:
            yield _stack(together, same, room)
            continue
        for one in same:
            yield _stack(plan.prepare(one[0]), [one], room)


def _prepare_together(
    batches: Sequence[plans.RawBatch], plan: plans.Plan
) -> plans.PreparedBatch | None:
    """One preparation for all, or None where each batch needs its own."""
    if any(isinstance(value, Sparse) for value in batches[0].values()):
        # Padded to the longest row of its batch: a step's shapes, and so its bits,
        # must not depend on which batches were read together.
        return None
    together = {
        origin: columns.join([batch[origin] for batch in batches])
        for origin in batches[0]
    }
    try:
        prepared = plan.prepare(together, len(batches))
    except ValueError:
        # What is wrong belongs to one batch, which will say it in its own rows.
        return None
    rows = plans.batch_size(together)
    staged = jax.tree.leaves(prepared["staged"])
    return prepared if all(leaf.shape[:1] == (rows,) for leaf in staged) else None


def _stack(prepared: plans.PreparedBatch, group: RawBatches, room: int) -> PlacedLoop:
    sizes = [plans.batch_size(group[0][0])] * len(group)
    arrays = pack_stack(prepared, len(group), room)
    return PlacedLoop(arrays, sizes, [at for _, at in group], is_stack=True)


def _shapes(batch: plans.RawBatch) -> list[tuple[Any, ...]]:
    """What must agree for batches to be joined; a Sparse one never is."""
    return [
        (origin, np.shape(value), getattr(value, "dtype", None))
        for origin, value in batch.items()
        if not isinstance(value, Sparse)
    ]
