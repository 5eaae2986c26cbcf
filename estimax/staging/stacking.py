"""Stacks of small batches that are read, transformed and sent to the device together.

    for stack in stack_batches(batches, plan, length=None): ...

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
from typing import Any

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

RawBatches = Sequence[tuple[plans.RawBatch, Any]]  # each with the position behind it


def stack_batches(
    batches: Iterator[tuple[plans.RawBatch, Any]],
    plan: plans.HostPlan,
    *,
    length: int | None,
    placement: Placement = ONE_DEVICE,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[BatchStack]:
    """Read batches in groups, and yield their stacks, packed and still on the host.

    Groups start with one batch and grow only while the input is fast, so that the
    batches of a slow input are not held back.

    Args:
      batches: Raw batches, each with the position behind it.
      plan: The transforms that the model asks for.
      length: The number of batches in a stack; None chooses it by their size.
      placement: The devices of the batches.
      clock: Returns the time in seconds.
    """
    size, most = 1, length or _STACK_LENGTH
    most_bytes = math.inf if length else _GROUP_BYTES
    end: Exception | None = None
    while end is None:
        start = clock()
        size = min(size, most)
        group, end = _read_group(batches, size, most_bytes)
        # Only reading is timed. The time of the transforms and of a full queue says
        # nothing about how long the next batch would wait for its neighbours.
        seconds = max(clock() - start, 1e-9)
        in_time = _power_of_two(len(group) * _PATIENCE_SECONDS / seconds)
        size = min(2 * size, in_time)
        for stack in stack_group(group, plan, length, placement):
            most = stack.capacity  # known only when a batch has been prepared
            yield stack
    if not isinstance(end, StopIteration):
        raise end


def _read_group(
    batches: Iterator[tuple[plans.RawBatch, Any]], size: int, most_bytes: float
) -> tuple[RawBatches, Exception | None]:
    """Return up to `size` batches, and what ended the input, or None.

    An error is returned and not raised, because the batches before it are trained on
    first: which batches are lost must not depend on how they were grouped.
    """
    group: list[tuple[plans.RawBatch, Any]] = []
    read_bytes = 0
    while len(group) < size and read_bytes < most_bytes:
        try:
            batch, position = next(batches)
        except Exception as end:  # StopIteration, or an error
            return group, end
        group.append((batch, position))
        read_bytes += sum(value.nbytes for value in batch.values())
    return group, None


def stack_group(
    group: RawBatches,
    plan: plans.HostPlan,
    length: int | None,
    placement: Placement = ONE_DEVICE,
) -> Iterator[BatchStack]:
    """Prepare the batches of a group, and stack neighbours whose shapes agree.

    A stack has the full capacity even if fewer batches fill it, so that one program
    serves every stack of the same shapes.
    """
    for _, members in itertools.groupby(group, key=lambda item: _raw_shapes(item[0])):
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
        if alike and _array_shapes(prepared) != _array_shapes(alike[0]):
            yield _concat_batches(alike), same[first:place]
            alike, first = [], place
        alike.append(prepared)
    if alike:
        yield _concat_batches(alike), same[first : first + len(alike)]
    if error is not None:
        raise error


def _concat_batches(alike: Sequence[plans.PreparedBatch]) -> plans.PreparedBatch:
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


def _array_shapes(prepared: plans.PreparedBatch) -> tuple[Any, ...]:
    leaves, treedef = jax.tree.flatten(prepared)
    return treedef, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _raw_shapes(batch: plans.RawBatch) -> list[tuple[Any, ...]]:
    """Return what must agree for batches to be joined; Sparse values never are."""
    return [
        (origin, value.shape, getattr(value, "dtype", None))
        for origin, value in batch.items()
        if not isinstance(value, Sparse)
    ]
