"""Several small batches as one: read, transformed and sent to the device together.

    groups = Groups(batches, flatten, length=None)     # of (raw batch, position)s
    for loop in stacks_from(groups, plan, length=None): ...

A batch of a small model is worth less than what its own call would cost, in Python and
on the device. The host's transforms work row by row, so what they make of many batches
is what they make of each. A `length` of None means as many batches as pay. That, and so
the program that a batch is run by, depends on its own shape and not on its neighbours.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from estimax.core.sparse import Sparse
from estimax.feeding.batches import BatchStack
from estimax.feeding.packing import pack, pack_stack
from estimax.input.streams import columns
from estimax.staging import plan as plans

# Batches are stacked until they fill this much, or number this many. With a fourth of
# the bytes a step of a medium model takes 5 % longer, with twice as many just as long.
_STACK_BYTES = 8 * 1024 * 1024
_STACK_LENGTH = 32
_STACK_LEAST = 4
# A group holds what the input gives in this time: a slow one has small groups.
_PATIENCE_SECONDS = 0.05
# A group of raw batches is no larger than this: they may hold what no model asks for.
_GROUP_BYTES = 64 * 1024 * 1024

RawBatches = Sequence[tuple[plans.RawBatch, Any]]


class Positioned(Protocol):
    """An iterator of batches that knows its position."""

    def __next__(self) -> Any:
        """The next `(features, labels)`."""

    def get_state(self) -> Any:
        """The position behind it."""


class Groups:
    """Lists of consecutive batches with their positions, up to `length` in each.

    A slow input's batches are not held back for their neighbours: groups begin with
    one batch and grow only while the input is fast. Without a length they have as many
    as the last stack had room for: that of the first batch, which is alone, at first.
    """

    def __init__(
        self,
        batches: Positioned,
        flatten: Callable[[Any], plans.RawBatch],
        length: int | None,
    ) -> None:
        self._batches = batches
        self._flatten = flatten
        self._most_bytes = math.inf if length else _GROUP_BYTES
        self.most = length or _STACK_LENGTH
        self._next = 1  # so many batches
        self._end: BaseException | None = None  # StopIteration, or what went wrong

    def __iter__(self) -> Iterator[RawBatches]:
        return self

    def __next__(self) -> RawBatches:
        start = time.monotonic()
        group = self._read()
        if not group:
            assert self._end is not None
            raise self._end
        seconds = max(time.monotonic() - start, 1e-9)
        in_time = _power_of_two(len(group) * _PATIENCE_SECONDS / seconds)
        self._next = min(2 * self._next, in_time)
        return group

    def _read(self) -> RawBatches:
        group = []
        size = 0
        length = self._next = min(self._next, self.most)
        for batch, position in itertools.islice(self._to_the_end(), length):
            group.append((batch, position))
            size += sum(value.nbytes for value in batch.values())
            if size >= self._most_bytes:
                break
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


def stacks_from(
    groups: Groups, plan: plans.Plan, length: int | None
) -> Iterator[BatchStack]:
    """The stacks of all groups; these are told what a stack holds."""
    for group in groups:
        for loop in stacks_of(group, plan, length):
            groups.most = loop.room
            yield loop


def stacks_of(
    group: RawBatches, plan: plans.Plan, length: int | None
) -> Iterator[BatchStack]:
    """Prepare the batches of a group, and stack those whose shapes agree.

    A stack has room for `length` batches, or for as many as pay, however many there
    are: one program serves whatever fills it.
    """
    for _, members in itertools.groupby(group, key=lambda item: _shapes(item[0])):
        for prepared, same in _prepare(list(members), plan):
            room = length or _room(prepared, len(same))
            for start in range(0, len(same), room):
                yield _stack(prepared, same, start, room)


def _prepare(
    same: RawBatches, plan: plans.Plan
) -> Iterator[tuple[plans.PreparedBatch, RawBatches]]:
    together = _prepare_together([batch for batch, _ in same], plan)
    if together is not None:
        yield together, same
    else:
        yield from _prepare_apart(same, plan)


def _prepare_together(
    batches: Sequence[plans.RawBatch], plan: plans.Plan
) -> plans.PreparedBatch | None:
    """One preparation for all, or None where each batch needs its own."""
    needed = [origin for origin in batches[0] if origin in plan.origins]
    if any(isinstance(batches[0][origin], Sparse) for origin in needed):
        # Padded to the longest row of its batch: a step's shapes, and so its bits,
        # must not depend on which batches were read together.
        return None
    together = {
        origin: columns.join([batch[origin] for batch in batches]) for origin in needed
    }
    try:
        prepared = plan.prepare(together, len(batches))
    except ValueError:
        # What is wrong belongs to one batch, which will say it in its own rows.
        return None
    rows = plans.batch_size(batches[0]) * len(batches)
    staged = jax.tree.leaves(prepared["staged"])
    return prepared if all(leaf.shape[:1] == (rows,) for leaf in staged) else None


def _prepare_apart(
    same: RawBatches, plan: plans.Plan
) -> Iterator[tuple[plans.PreparedBatch, RawBatches]]:
    """Prepare each batch by itself, then join neighbours that came out alike."""
    error: Exception | None = None
    alike: list[plans.PreparedBatch] = []
    first = 0
    for place, (batch, _) in enumerate(same):
        try:
            prepared = plan.prepare(batch)
        except Exception as bad:
            error = bad  # after the batches before it, which are good
            break
        if alike and _forms(prepared) != _forms(alike[0]):
            yield _joined(alike), same[first:place]
            alike, first = [], place
        alike.append(prepared)
    if alike:
        yield _joined(alike), same[first : first + len(alike)]
    if error is not None:
        raise error


def _joined(alike: Sequence[plans.PreparedBatch]) -> plans.PreparedBatch:
    if len(alike) == 1:
        return alike[0]
    together: plans.PreparedBatch = jax.tree.map(
        lambda *leaves: np.concatenate(leaves), *alike
    )
    return together


def _room(prepared: plans.PreparedBatch, count: int) -> int:
    """How many batches of this size to give to the device in one call.

    A power of two: groups are as well, and come out as full stacks.
    """
    size = sum(int(leaf.nbytes) for leaf in jax.tree.leaves(prepared)) // count
    fitting = min(_STACK_LENGTH, _STACK_BYTES // max(size, 1))
    return 1 if fitting < _STACK_LEAST else _power_of_two(fitting)


def _power_of_two(number: float) -> int:
    """The largest that is not above the number, or 1."""
    return 1 << max(int(number).bit_length() - 1, 0)


def _stack(
    prepared: plans.PreparedBatch, same: RawBatches, start: int, room: int
) -> BatchStack:
    """Those of the prepared batches that fit from `start` on."""
    members = same[start : start + room]
    if len(members) < len(same):
        stop = start + len(members)

        def cut(leaf: Any) -> Any:
            rows = leaf.shape[0] // len(same)
            return leaf[start * rows : stop * rows]

        prepared = jax.tree.map(cut, prepared)
    arrays = pack(prepared) if room == 1 else pack_stack(prepared, len(members), room)
    sizes = [plans.batch_size(members[0][0])] * len(members)
    return BatchStack(arrays, sizes, [at for _, at in members], room)


def _forms(prepared: plans.PreparedBatch) -> tuple[Any, ...]:
    leaves, treedef = jax.tree.flatten(prepared)
    return treedef, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _shapes(batch: plans.RawBatch) -> list[tuple[Any, ...]]:
    """What must agree for batches to be joined; a Sparse one never is."""
    return [
        (origin, value.shape, getattr(value, "dtype", None))
        for origin, value in batch.items()
        if not isinstance(value, Sparse)
    ]
