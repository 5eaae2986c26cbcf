"""Which sizes of the arrays of an exported function are free, besides the batch.

    free = find_free_axes(plan, example, is_traceable)   # axes of dense features
    symbolic_axes(plan, example, free)                   # free axes of all arrays

Rows of sparse features have any length, so the axes of padded ids are always free. A
dense feature [B, T] may be padded rows, of any length as well, or a vector of T
numbers. Which of these it is, the model tells: T is free if the model can be traced
with a symbol in its place. A layer over the T numbers needs their number and cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError, LabelError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, concatenate
from estimax.export.host_plan import leaves_of, staged_name
from estimax.export.signature import origins_of
from estimax.feature_columns import transforms
from estimax.staging import host_plan as plans
from estimax.staging.trace import HostCall, Origin, Raw

DenseAxis = tuple[Origin, int]
FreeAxes = Mapping[DenseAxis, str]  # the name of the size of each free axis
_NONE: FreeAxes = MappingProxyType({})


def find_free_axes(
    plan: plans.HostPlan,
    example: plans.RawBatch,
    is_traceable: Callable[[FreeAxes], bool],
) -> dict[DenseAxis, str]:
    """Return the axes of dense features that may have any size, with names.

    Args:
      plan: The host transforms.
      example: Rows of every raw feature.
      is_traceable: Returns whether the model can be traced with these axes free.
    """
    axes = _candidates(plan, example)
    if not axes:
        return {}
    own = {axis: f"w{place}" for place, axis in enumerate(axes)}
    if is_traceable(own):
        return own
    # Features that are used together, such as a sequence and its mask, have one size.
    found: dict[DenseAxis, str] = {}
    by_size: dict[int, list[DenseAxis]] = {}
    for origin, place in axes:
        by_size.setdefault(_shape_of(example[origin])[place], []).append(
            (origin, place)
        )
    for alike in by_size.values():
        together = found | dict.fromkeys(alike, own[alike[0]])
        if is_traceable(together):
            found = together
            continue
        for axis in alike:
            alone = found | {axis: own[axis]}
            if is_traceable(alone):
                found = alone
    return found


def _candidates(plan: plans.HostPlan, example: plans.RawBatch) -> list[DenseAxis]:
    # A numeric column has a fixed shape. So has a feature with one value in each row.
    fixed = {origin for origin, _ in plan.defaults}
    return [
        (origin, axis)
        for origin in origins_of(plan)
        if origin not in fixed and not isinstance(example[origin], Sparse)
        for axis, size in enumerate(_shape_of(example[origin]))
        if axis > 0 and size > 1
    ]


def _shape_of(value: Raw) -> tuple[int, ...]:
    return () if isinstance(value, Sparse) else value.shape


def symbolic_axes(
    plan: plans.HostPlan, batch: plans.RawBatch, dense: Mapping[DenseAxis, str] = _NONE
) -> dict[str, dict[int, str]]:
    """Return path -> axis -> dimension name, for the axes that vary, but the batch.

    The rows of sparse features have any length. `dense` names the axes of dense
    features that vary as well.
    """
    varying = {call.name: variable_axes(call, batch, dense) for call in plan.calls}
    times = _times(plan, varying)
    named: dict[str, dict[int, str]] = {}
    count = 0
    for call in plan.calls:
        # One length per call and axis: its ids and their weights are equally long.
        of_axis: dict[int, str] = {}
        for path, axes in varying[call.name].items():
            for axis in sorted(axes):
                if axis == transforms.TIME_AXIS and call.name in times:
                    of_axis[axis] = times[call.name]
                elif axis not in of_axis:
                    of_axis[axis] = f"l{count}"
                    count += 1
                named.setdefault(staged_name(call.name, path), {})[axis] = of_axis[axis]
    for (origin, axis), name in dense.items():
        if origin in plan.raw:
            named.setdefault(f"raw/{origin.name}", {})[axis] = name
    return named


def _times(
    plan: plans.HostPlan, varying: dict[str, dict[str, set[int]]]
) -> dict[str, str]:
    """Return call -> name of its time axis; features compared by length share one.

    The host refuses a batch in which the lengths of such features differ, so the
    program may rely on one length. If one of them is dense, its length is fixed, and
    with it the length of all: remove the axis from `varying`.
    """
    groups: list[set[Origin]] = []
    for call in plan.calls:
        if isinstance(call.transform, transforms.SequenceLengths):
            joined = set(call.inputs)
            apart = [group for group in groups if not group & joined]
            joined.update(*(group for group in groups if group & joined))
            groups = [*apart, joined]
    times: dict[str, str] = {}
    for index, group in enumerate(groups):
        calls = [call for call in plan.calls if _has_time(call, group)]
        axes = [axes for call in calls for axes in varying[call.name].values()]
        if all(transforms.TIME_AXIS in each for each in axes):
            times |= {call.name: f"t{index}" for call in calls}
        else:
            for each in axes:
                each.discard(transforms.TIME_AXIS)
    return times


def _has_time(call: HostCall, group: set[Origin]) -> bool:
    timed = transforms.SequenceIds | transforms.SequenceNumbers
    return isinstance(call.transform, timed) and not group.isdisjoint(call.inputs)


def variable_axes(
    call: HostCall, batch: plans.RawBatch, dense: Iterable[DenseAxis] = ()
) -> dict[str, set[int]]:
    """Return which axes of a call's results, but the batch, vary between batches.

    Run the call on changed batches to find out: one with longer sparse rows, one
    without dense values, one with more of them in the axes `dense`. Ignore a change
    that the transform refuses.
    """
    usual = dict(leaves_of(call.run(batch)))
    varying: dict[str, set[int]] = {path: set() for path in usual}
    changes = [
        {o: _lengthen(batch[o]) for o in call.inputs},
        {o: _blank_rows(batch[o]) for o in call.inputs},
        {o: _widen(batch[o], [a for d, a in dense if d == o]) for o in call.inputs},
    ]
    for change in changes:
        try:
            changed = call.run(change)
        except (FeatureError, LabelError):
            continue
        for path, leaf in leaves_of(changed):
            shapes = zip(usual[path].shape, leaf.shape, strict=True)
            sizes = list(enumerate(shapes))[1:]
            varying[path] |= {axis for axis, (a, b) in sizes if a != b}
    return varying


def _lengthen(value: Raw) -> Raw:
    """Return a sparse value with more entries in each row; others unchanged."""
    if not isinstance(value, Sparse) or len(value.dense_shape) < 2:
        return value
    filler = _first_or_default(value.values)
    rank = len(value.dense_shape)
    indices = np.reshape(value.indices, (-1, rank))
    shape = list(value.dense_shape)
    # Lengths are rounded up to a power of two, so more than double them: both the
    # number of entries in a row, and the place of the last one.
    longest = int(np.bincount(indices[:, 0]).max(initial=0)) + 1
    for axis in range(1, rank):
        added = np.zeros((shape[0] * longest, rank), np.int64)
        grid = np.indices((shape[0], longest)).reshape(2, -1)
        added[:, 0], added[:, axis] = grid[0], grid[1] + 2 * shape[axis]
        indices = np.concatenate([indices, added])
        shape[axis] = 2 * shape[axis] + longest
    more = len(indices) - len(value.values)
    values = _concat_values(value.values, [filler] * more)
    order = np.lexsort(indices.T[::-1])
    return Sparse(indices[order], values[order], tuple(shape))


def _blank_rows(value: Raw) -> Raw:
    """Return a dense value with no entries: columns drop '', -1 and a weight of 0."""
    if isinstance(value, Sparse):
        return value
    if isinstance(value, Strings):
        return Strings.of(np.full(value.shape, b"", dtype=object))
    blank = -1 if value.dtype.kind == "i" else 0
    return np.full_like(value, blank)


def _widen(value: Raw, axes: Iterable[int]) -> Raw:
    """Return a dense value with its first entry repeated at the end of some axes."""
    for axis in axes:
        array = np.asarray(value)
        # Lengths are rounded up to a power of two, so more than double this one.
        first = array.take([0] * (array.shape[axis] + 1), axis)
        wide = np.concatenate([array, first], axis)
        value = Strings.of(wide) if isinstance(value, Strings) else wide
    return value


def _first_or_default(values: NDArray[Any] | Strings) -> Any:
    if len(values):
        return values[0]
    return b"" if isinstance(values, Strings) else values.dtype.type(0)


def _concat_values(
    values: NDArray[Any] | Strings, added: list[Any]
) -> NDArray[Any] | Strings:
    if isinstance(values, Strings):
        return concatenate([values, Strings.of(np.array(added, dtype=object))])
    return np.concatenate([values, np.array(added, values.dtype)])
