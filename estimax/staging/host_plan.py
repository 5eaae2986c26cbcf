"""What the input thread does to every batch before the compiled step sees it.

    plan = HostPlan(raw=…, calls=…, groups=…)           # from a recorded trace
    arrays = plan.prepare(flatten(features, labels))   # numbers only, fixed layout

The result is a `PreparedBatch`: the features that the model reads as they are, the
results of host transforms, and for tables that are updated by row the distinct ids of
the batch with the place of every id among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.core import device_dtypes
from estimax.core.errors import FeatureError, SpecError
from estimax.core.raw_values import as_raw, is_plain
from estimax.core.sparse import Ids, Sparse
from estimax.core.strings import Strings
from estimax.native.distinct import distinct_ids
from estimax.staging.row_stacks import RowStack, ids_of, stack_ids, stack_reads
from estimax.staging.trace import (
    HostCall,
    NestedKey,
    Origin,
    Raw,
    StackReads,
    wide_error,
)

RawBatch = Mapping[Origin, Raw]
Int32s = NDArray[np.int32]
IdsOfCalls = Mapping[str, Int32s]


class PreparedBatch(NamedTuple):
    """A batch as the compiled step takes it: NumPy arrays only, a pytree.

    Attributes:
      raw: Features and labels that the model reads as they are, by name.
      staged: Results of host transforms, by the name of the call.
      unique: Distinct ids of each row group, sorted and padded; see `make_unique`. The
        ids of stacked tables are rows of their stack; see `RowStack`.
      inverse: For each row group and call, the place of every id in `unique`. Calls
        whose places are in `reads` are left out.
      reads: For each stack, its reads of one id per example; see `StackReads`.
      mask: float32 [B], 1 for an example and 0 for a row of padding; see `pad_rows`.
        None in programs that take no padding.
    """

    raw: dict[str, Any]
    staged: dict[str, Any]
    unique: dict[str, Any] = {}  # noqa: RUF012 - never changed
    inverse: dict[str, dict[str, Any]] = {}  # noqa: RUF012
    reads: dict[str, StackReads] = {}  # noqa: RUF012
    mask: Any = None


class AccumulatedBatch(NamedTuple):
    """The batches whose gradients are averaged for one update.

    Ids are unique over all parts: the `inverse` of a part points into `unique` here,
    so that a row which several parts use is updated once.
    """

    parts: tuple[PreparedBatch, ...]
    unique: dict[str, Any]


Agree = Callable[[Sequence[PreparedBatch]], Mapping[str, int]]


@dataclass(frozen=True)
class RowGroup:
    """Calls whose ids are made unique together, for the tables that they index."""

    name: str
    calls: tuple[str, ...]
    vocabulary: int  # V of those tables: also the id that pads the unique list


@dataclass(frozen=True)
class HostPlan:
    """The work of a model on the host in one mode; runs in the input thread.

    Only the values in `raw` reach the device as they are, so only those must fit 32
    bits. Those in `forwarded` are predictions as they are and stay on the host. A model
    that runs eagerly may not use all of `raw`: with `is_eager`, a value that does not
    fit is left out of the batch and is no error. `defaults` has what columns use for a
    missing value of a feature, for the requests of a bundle. The number of distinct ids
    is rounded up to a multiple of `parts`, so that devices can share them.
    """

    # Tuples: a plan is compared by value, and threads share it.
    raw: tuple[Origin, ...]
    calls: tuple[HostCall, ...]
    groups: tuple[RowGroup, ...] = ()
    stacks: tuple[RowStack, ...] = ()
    is_eager: bool = False
    defaults: tuple[tuple[Origin, Any], ...] = ()
    forwarded: tuple[device_dtypes.Forwarded, ...] = ()
    parts: int = 1
    # Groups whose distinct ids the step reads by themselves, as no stack has them or
    # not for all of their tables.
    alone: frozenset[str] = frozenset()
    has_mask: bool = False  # whether the step takes a `mask`

    def prepare(
        self, batch: RawBatch, count: int = 1, agree: Agree | None = None
    ) -> PreparedBatch:
        """Turn a raw batch into the arrays that the compiled function takes.

        `batch` may be `count` batches of one size, concatenated. Then every array is
        the concatenation of the arrays of the batches. `agree` gets the batch before
        ids are made unique, and returns the width of padded ids by the name of their
        call.
        """
        prepared = self._arrays(batch)
        # Before ids are made unique: the number of distinct ids depends on the width,
        # and all processes of a cluster must have equally many.
        if agree is not None:
            _pad_alike([prepared.staged], agree([prepared]))
        if not self.groups:
            return prepared
        ids = {
            group.name: {name: ids_of(prepared.staged[name]) for name in group.calls}
            for group in self.groups
        }
        unique, inverse = make_unique(ids, self._vocabularies, count, self.parts)
        unique, prepared = self._stack(prepared, unique, inverse, count)
        return prepared._replace(unique=unique)

    def prepare_parts(
        self, batches: Sequence[RawBatch], agree: Agree | None = None
    ) -> AccumulatedBatch:
        """Prepare the batches whose gradients are averaged for one update."""
        parts = [self._arrays(batch) for batch in batches]
        staged = [part.staged for part in parts]
        _pad_alike(staged, widths_of(parts) if agree is None else agree(parts))
        # Unique over all parts, so that a row which several parts use is gathered and
        # updated once, by the sum of its gradients.
        ids = {
            group.name: {
                f"{index}/{name}": ids_of(part.staged[name])
                for index, part in enumerate(parts)
                for name in group.calls
            }
            for group in self.groups
        }
        unique, inverse = make_unique(ids, self._vocabularies, 1, self.parts)
        stacked = unique
        for index, part in enumerate(parts):
            of_part = {
                group.name: {
                    n: inverse[group.name][f"{index}/{n}"] for n in group.calls
                }
                for group in self.groups
            }
            stacked, parts[index] = self._stack(part, unique, of_part, 1)
        return AccumulatedBatch(tuple(parts), stacked)

    @cached_property
    def origins(self) -> frozenset[Origin]:
        """The raw values that the plan needs; a batch may hold others."""
        inputs = (call.inputs for call in self.calls)
        forwarded = (one.origin for one in self.forwarded)
        return frozenset(self.raw).union(forwarded, *inputs)

    def forward(self, batch: RawBatch) -> dict[device_dtypes.Forwarded, NDArray[Any]]:
        """Return the raw values that are predictions; text as bytes."""
        return {one: _dense(one, batch.get(one.origin)) for one in self.forwarded}

    @cached_property
    def _raw(self) -> tuple[tuple[str, Origin], ...]:
        return tuple((origin.name, origin) for origin in self.raw)

    def _stack(
        self,
        prepared: PreparedBatch,
        unique: dict[str, Int32s],
        inverse: dict[str, dict[str, Int32s]],
        count: int,
    ) -> tuple[dict[str, Int32s], PreparedBatch]:
        """Return the distinct ids by stack, and the batch with places in them.

        Groups that are in no stack keep their own.
        """
        found = {name: ids for name, ids in unique.items() if name in self.alone}
        reads = {}
        with_inverse = set(self.alone)
        for stack in self.stacks:
            found[stack.name] = stack_ids(stack, unique, self._vocabularies, count)
            lines = stack_reads(stack, prepared.staged, unique, inverse, count)
            if lines is None:
                with_inverse.update(stack.groups)
            else:
                reads[stack.name] = lines
        if not self.stacks:
            return unique, prepared._replace(inverse=inverse)
        kept = {name: of for name, of in inverse.items() if name in with_inverse}
        return found, prepared._replace(inverse=kept, reads=reads)

    @cached_property
    def _vocabularies(self) -> dict[str, int]:
        return {group.name: group.vocabulary for group in self.groups}

    def _arrays(self, batch: RawBatch) -> PreparedBatch:
        given = ((name, o, _numeric_value(batch, o)) for name, o in self._raw)
        return PreparedBatch(
            raw={
                name: as_device_dtype(origin, value)
                for name, origin, value in given
                if not self.is_eager or fits_device(value)
            },
            staged={call.name: call.run(batch) for call in self.calls},
            mask=np.ones(batch_size(batch), np.float32) if self.has_mask else None,
        )


def pad_rows(batch: PreparedBatch, size: int) -> PreparedBatch:
    """Repeat the last row until a batch with a mask has `size` rows.

    Copies of a real row, because zeros could make a NaN that weight 0 does not remove.
    """
    count = len(batch.mask)
    arrays = jax.tree.leaves(batch)
    if not 0 < count < size or any(np.shape(a)[:1] != (count,) for a in arrays):
        return batch
    rows = np.minimum(np.arange(size), count - 1)
    padded: PreparedBatch = jax.tree.map(lambda array: array[rows], batch)
    padded.mask[count:] = 0.0
    return padded


def flatten(features: Any, labels: Any) -> dict[Origin, Raw]:
    """Return every raw value of a batch by its origin."""
    flat: dict[Origin, Raw] = {}
    for part, value in (("features", features), ("labels", labels)):
        # Most values need no conversion, and no name for messages.
        if is_plain(value):
            flat[Origin(part, None)] = value
        elif isinstance(value, Mapping):
            for key, given in value.items():
                if is_plain(given) or type(given) is Strings:
                    flat[Origin(part, key)] = given
                elif _is_nested(given):
                    _add_nested(flat, part, NestedKey((key,)), given)
                else:
                    origin = Origin(part, key)
                    flat[origin] = as_raw(given, origin.name)
        elif _is_nested(value):
            _add_nested(flat, part, NestedKey(), value)
        elif value is not None:
            flat[Origin(part, None)] = as_raw(value, part)
    return flat


def _is_nested(value: Any) -> bool:
    """Return whether a value is a dict or tuple of others, and not a SparseTensor."""
    return isinstance(value, Mapping | tuple) and not hasattr(value, "dense_shape")


def _add_nested(
    flat: dict[Origin, Raw], part: str, path: NestedKey, value: Any
) -> None:
    if hasattr(value, "_fields"):
        raise SpecError(
            f"{Origin(part, path).name}: {type(value).__name__} is a named tuple. Give "
            "several values as a dict or a plain tuple."
        )
    pairs = (
        value.items()
        if isinstance(value, Mapping)
        else (((place,), item) for place, item in enumerate(value))
    )
    for step, item in pairs:
        inner = NestedKey((*path, step))
        if _is_nested(item):
            _add_nested(flat, part, inner, item)
        elif item is not None:
            origin = Origin(part, inner)
            # Batches on the device are dicts by name: {"a": {"b": …}} and {"a/b": …}
            # would be the same entry.
            if any(origin.name == other.name for other in flat):
                raise SpecError(f"two values of a batch are called {origin.name!r}.")
            flat[origin] = as_raw(item, origin.name)


def unflatten(part: str, values: Mapping[Origin, Any]) -> Any:
    """Return the features (or labels) of a flat batch, in the structure as given."""
    found = {o.key: value for o, value in values.items() if o.part == part}
    if not found:
        return {} if part == "features" else None
    if None in found:
        return found[None]
    if not any(isinstance(key, NestedKey) for key in found):
        return found
    tree: dict[Any, Any] = {}
    for key, value in found.items():
        path = key if isinstance(key, NestedKey) else (key,)
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = value
    return _as_given(tree)


def _as_given(tree: Any) -> Any:
    """Convert dicts whose keys are places, `(0,)` and so on, to tuples."""
    if type(tree) is not dict:
        return tree
    parts = {step: _as_given(value) for step, value in tree.items()}
    if not all(isinstance(step, tuple) for step in parts):
        return parts
    return tuple(parts.get((place,)) for place in range(max(parts)[0] + 1))


def batch_size(batch: RawBatch) -> int:
    """Return the number of examples; raise `SpecError` if values disagree."""
    sizes = {_length(value) for value in batch.values()}
    if len(sizes) > 1:
        named = {origin.name: _length(value) for origin, value in batch.items()}
        raise SpecError(
            "the first dimensions of a batch differ: "
            + ", ".join(f"{name} has {n}" for name, n in sorted(named.items()))
            + ". Every feature and label needs one row per example."
        )
    return sizes.pop() if sizes else 0


def as_device_dtype(origin: Origin, value: NDArray[Any]) -> NDArray[Any]:
    """Narrow 64-bit numbers to the 32 bits that devices compute with.

    Raise `FeatureError` for integers that do not fit; floats may become infinite.
    """
    dtype = device_dtypes.device_dtype(value.dtype)
    if dtype == value.dtype:
        return value
    if device_dtypes.is_wide(value.dtype):
        beyond = device_dtypes.beyond_int32(value)
        if beyond.size:
            raise wide_error(origin, beyond[0])
        return value.astype(dtype)  # they fit, so there is no warning to silence
    # Floats out of range become infinite, as they would on the device.
    return device_dtypes.cast(value, dtype)


def fits_device(value: NDArray[Any]) -> bool:
    """Return whether `as_device_dtype` accepts the values."""
    return not (
        device_dtypes.is_wide(value.dtype) and device_dtypes.beyond_int32(value).size
    )


def make_unique(
    groups: Mapping[str, IdsOfCalls],
    vocabularies: Mapping[str, int],
    count: int = 1,
    parts: int = 1,
) -> tuple[dict[str, Int32s], dict[str, dict[str, Int32s]]]:
    """Return each group's sorted distinct ids, and the place of every id among them.

    The length of the distinct ids depends on shapes alone, so that one compiled
    program serves every batch; they are padded with the vocabulary's size, which is no
    row. As in TensorFlow, an example without any id touches row 0 with a zero gradient;
    for some optimizers that makes a difference. Each of `count` concatenated batches
    gets distinct ids of its own, whose number is rounded up to a multiple of `parts`.

    >>> ids = {"wide": {"city": np.array([[7, -1], [-1, -1]], np.int32)}}
    >>> make_unique(ids, {"wide": 100})[0]["wide"]
    array([  0,   7, 100, 100], dtype=int32)
    """
    flat = {name: _flatten_ids(calls, count) for name, calls in groups.items()}
    by_size: dict[int, list[str]] = {}
    for name, ids in flat.items():
        by_size.setdefault(ids.shape[1], []).append(name)
    unique: dict[str, Int32s] = {}
    inverse: dict[str, dict[str, Int32s]] = {}
    for size, names in by_size.items():
        # Sort groups of one size in one call, to pay NumPy's overhead once.
        limits = np.array([vocabularies[name] for name in names], np.int32)
        distinct, places = distinct_ids(
            np.concatenate([flat[n] for n in names]), limits.repeat(count)
        )
        for first, name in zip(range(0, len(places), count), names, strict=True):
            mine = slice(first, first + count)
            # There are never more distinct ids than ids, nor than rows. Both bounds are
            # static, so that the length does not vary from batch to batch.
            kept = distinct[mine, : min(size, vocabularies[name])]
            unique[name] = _round_up(kept, parts, vocabularies[name]).reshape(-1)
            inverse[name] = _split_places(places[mine], groups[name])
    return unique, inverse


def _round_up(distinct: Int32s, parts: int, padding: int) -> Int32s:
    """Return ids [count, U] with padding, so that U is a multiple of `parts`."""
    missing = -distinct.shape[1] % parts
    if not missing:
        return distinct
    return np.pad(distinct, ((0, 0), (0, missing)), constant_values=padding)


def _flatten_ids(calls: IdsOfCalls, count: int) -> Int32s:
    """Return all ids of a group, [count, n]; 0 for one missing id if needed."""
    flat = np.concatenate([ids.reshape(count, -1) for ids in calls.values()], axis=1)
    # Most batches have an id for every example, and skip the search for empty ones.
    if flat.size and flat.min() < 0:
        start = 0
        for ids in calls.values():
            _put_row_0(flat[:, start : start + ids.size // count], ids, count)
            start += ids.size // count
    return flat


def _put_row_0(flat: Int32s, ids: Int32s, count: int) -> None:
    """Replace one missing id by 0, in batches that have an example without ids.

    Lookups mask such an example, so nothing reads row 0 for it: its gradient is zero.
    """
    rows = len(ids) // count
    empty = ids.reshape(count, rows, -1).max(axis=2, initial=-1) < 0
    batches = np.flatnonzero(empty.any(axis=1))
    width = flat.shape[1] // max(rows, 1)
    if width:
        flat[batches, empty[batches].argmax(axis=1) * width] = 0


def _split_places(places: Int32s, calls: IdsOfCalls) -> dict[str, Int32s]:
    result: dict[str, Int32s] = {}
    start = 0
    for name, ids in calls.items():
        width = ids.size // len(places)
        result[name] = places[:, start : start + width].reshape(ids.shape)
        start += width
    return result


def widths_of(parts: Sequence[PreparedBatch]) -> dict[str, int]:
    """Return the width of the widest padded ids of each call."""
    return {
        name: max(part.staged[name].ids.shape[1] for part in parts)
        for name, first in parts[0].staged.items()
        if isinstance(first, Ids)
    }


def _pad_alike(parts: Sequence[dict[str, Any]], widths: Mapping[str, int]) -> None:
    """Widen padded ids to these widths, so that one program serves all parts."""
    for name, width in widths.items():
        for part in parts:
            ids, weights = part[name].ids, part[name].weights
            if ids.shape[1] == width:
                continue
            more = ((0, 0), (0, width - ids.shape[1]))
            part[name] = Ids(
                # -1 is no id; lookups mask it, and a weight there is never read.
                np.pad(ids, more, constant_values=-1),
                None if weights is None else np.pad(weights, more),
            )


def _dense(forwarded: device_dtypes.Forwarded, value: Raw | None) -> NDArray[Any]:
    if value is None:
        raise FeatureError(
            f"{forwarded.origin.name} is missing in this batch, and the model predicts "
            "it as it is. Every batch must have the same features."
        )
    if not isinstance(value, Sparse):
        return np.asarray(value)
    values = np.asarray(value.values)
    default = forwarded.default
    if values.dtype == object and isinstance(default, str):
        default = default.encode()
    # On the host: a forwarded feature never enters the device, so text and 64-bit
    # integers come back as they were.
    filled = np.full(value.dense_shape, default, values.dtype)
    filled[tuple(value.indices.T)] = values
    return filled


def _numeric_value(batch: RawBatch, origin: Origin) -> NDArray[Any]:
    value = batch.get(origin)
    if isinstance(value, np.ndarray):
        return value
    found = "missing" if value is None else type(value).__name__
    raise FeatureError(
        f"{origin.name}: in the first batch this was a numeric array; in this batch it "
        f"is {found}. Every batch must have the same features."
    )


def _length(value: Raw) -> int:
    if isinstance(value, Strings | Sparse):
        return len(value)
    shape = np.shape(value)
    return shape[0] if shape else 0
