"""Stacks of small batches that are read, transformed and sent to the device together.

    groups = Groups(batches, flatten, length=None)     # of (raw batch, position)s
    for stack in stacks_from(groups, plan, length=None): ...

For a small model, calling Python and the device once per batch costs more than the
batch itself. Host transforms work row by row, so they can transform many batches in one
call. With a `length` of None a stack holds up to 32 batches or 8 MB, whichever is
reached first. Its capacity depends only on the shape of a batch, never on its
neighbours, so that a batch always runs in the same program and gives the same bits.
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
from estimax.input.streams import columns
from estimax.parallel import Placement
from estimax.staging import host_plan as plans
from estimax.staging.batches import BatchStack
from estimax.staging.packing import ONE_DEVICE, pack, pack_stack

# The largest stack. With a fourth of the bytes, a step of a medium-sized model takes
# 5 % longer; with twice as many, no less.
_STACK_BYTES = 8 * 1024 * 1024
_STACK_LENGTH = 32
_STACK_LEAST = 4  # fewer batches than this are not stacked
# A group holds the batches that the input delivers in this time.
_PATIENCE_SECONDS = 0.05
# The largest group: raw batches may hold features that no model reads.
_GROUP_BYTES = 64 * 1024 * 1024

RawBatches = Sequence[tuple[plans.RawBatch, Any]]


class Positioned(Protocol):
    """An iterator of batches that knows its position."""

    def __next__(self) -> Any:
        """Return the next `(features, labels)`."""

    def get_state(self) -> Any:
        """Return the position behind the last batch."""


class Groups:
    """An iterator of lists of consecutive batches with their positions.

    Groups start with one batch and grow only while the input is fast, so that the
    batches of a slow input are not held back.

    Attributes:
      most: The most batches in a group: `length`, or else the capacity of the last
        stack, which `stacks_from` sets.
    """

    def __init__(
        self,
        batches: Positioned,
        flatten: Callable[[Any], plans.RawBatch],
        length: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batches = batches
        self._clock = clock
        self._flatten = flatten
        self._most_bytes = math.inf if length else _GROUP_BYTES
        self.most = length or _STACK_LENGTH
        self._next = 1  # batches in the next group
        self._end: BaseException | None = None  # StopIteration or an error

    def __iter__(self) -> Iterator[RawBatches]:
        return self

    def __next__(self) -> RawBatches:
        start = self._clock()
        group = self._read()
        if not group:
            assert self._end is not None
            raise self._end
        seconds = max(self._clock() - start, 1e-9)
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
        """Yield batches; keep an error until the batches before it were used."""
        while self._end is None:
            try:
                batch = self._flatten(next(self._batches))
            except Exception as end:
                self._end = end
            else:
                yield batch, self._batches.get_state()


def stacks_from(
    groups: Groups,
    plan: plans.HostPlan,
    length: int | None,
    placement: Placement = ONE_DEVICE,
) -> Iterator[BatchStack]:
    """Yield the stacks of all groups, and tell the groups the capacity of a stack."""
    for group in groups:
        for stack in stacks_of(group, plan, length, placement):
            groups.most = stack.capacity
            yield stack


def stacks_of(
    group: RawBatches,
    plan: plans.HostPlan,
    length: int | None,
    placement: Placement = ONE_DEVICE,
) -> Iterator[BatchStack]:
    """Prepare the batches of a group, and stack neighbours whose shapes agree.

    A stack has the full capacity even if fewer batches fill it, so that one program
    serves every stack of the same shapes.
    """
    for _, members in itertools.groupby(group, key=lambda item: _shapes(item[0])):
        for prepared, same in _prepare(list(members), plan):
            capacity = length or _capacity(prepared, len(same))
            for start in range(0, len(same), capacity):
                yield _stack(prepared, same, start, capacity, placement)


def _prepare(
    same: RawBatches, plan: plans.HostPlan
) -> Iterator[tuple[plans.PreparedBatch, RawBatches]]:
    together = _prepare_together([batch for batch, _ in same], plan)
    if together is not None:
        yield together, same
    else:
        yield from _prepare_apart(same, plan)


def _prepare_together(
    batches: Sequence[plans.RawBatch], plan: plans.HostPlan
) -> plans.PreparedBatch | None:
    """Prepare all batches in one call; return None if each must be prepared alone."""
    needed = [origin for origin in batches[0] if origin in plan.origins]
    if any(isinstance(batches[0][origin], Sparse) for origin in needed):
        # Sparse features are padded to the longest row of their batch. The shapes of a
        # step, and so its bits, must not depend on which batches are read together.
        return None
    together = {
        origin: columns.join([batch[origin] for batch in batches]) for origin in needed
    }
    try:
        prepared = plan.prepare(together, len(batches))
    except ValueError:
        # One batch is bad. Prepared alone, it raises an error with its own rows.
        return None
    rows = plans.batch_size(batches[0]) * len(batches)
    staged = jax.tree.leaves(prepared.staged)
    return prepared if all(leaf.shape[:1] == (rows,) for leaf in staged) else None


def _prepare_apart(
    same: RawBatches, plan: plans.HostPlan
) -> Iterator[tuple[plans.PreparedBatch, RawBatches]]:
    """Prepare each batch alone, then join neighbours with the same shapes."""
    error: Exception | None = None
    alike: list[plans.PreparedBatch] = []
    first = 0
    for place, (batch, _) in enumerate(same):
        try:
            prepared = plan.prepare(batch)
        except Exception as bad:
            error = bad  # raised after the good batches before it
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


def _capacity(prepared: plans.PreparedBatch, count: int) -> int:
    """Return how many batches of this size to send to the device in one call.

    A power of two, like the size of a group, so that a group makes full stacks.
    """
    size = sum(int(leaf.nbytes) for leaf in jax.tree.leaves(prepared)) // count
    fitting = min(_STACK_LENGTH, _STACK_BYTES // max(size, 1))
    return 1 if fitting < _STACK_LEAST else _power_of_two(fitting)


def _power_of_two(number: float) -> int:
    """Return the largest power of two that is at most `number`, or 1."""
    return 1 << max(int(number).bit_length() - 1, 0)


def _stack(
    prepared: plans.PreparedBatch,
    same: RawBatches,
    start: int,
    capacity: int,
    placement: Placement,
) -> BatchStack:
    """Stack up to `capacity` of the prepared batches, from `start` on."""
    members = same[start : start + capacity]
    if len(members) < len(same):
        stop = start + len(members)

        def cut(leaf: Any) -> Any:
            rows = leaf.shape[0] // len(same)
            return leaf[start * rows : stop * rows]

        prepared = jax.tree.map(cut, prepared)
    arrays = (
        pack(prepared, placement)
        if capacity == 1
        else pack_stack(prepared, len(members), capacity, placement)
    )
    sizes = [plans.batch_size(members[0][0])] * len(members)
    return BatchStack(arrays, sizes, [at for _, at in members], capacity)


def _forms(prepared: plans.PreparedBatch) -> tuple[Any, ...]:
    leaves, treedef = jax.tree.flatten(prepared)
    return treedef, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _shapes(batch: plans.RawBatch) -> list[tuple[Any, ...]]:
    """Return what must agree for batches to be joined; Sparse values never are."""
    return [
        (origin, value.shape, getattr(value, "dtype", None))
        for origin, value in batch.items()
        if not isinstance(value, Sparse)
    ]
