"""The host's part of a bundle: the plan as JSON, and its results as named arrays.

    record = plan_to_json(plan, assets_dir)        # vocabularies become files
    plan = plan_from_json(record, assets_dir)
    flat_inputs(plan.prepare(batch))   # {"raw/features/age": …, "staged/city/ids": …}

An exported function takes a flat dict of arrays and no classes of ours, so that its
file can be read by a process, or a jax, that does not know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax import transforms
from estimax.core.errors import BundleError, FeatureError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, concatenate
from estimax.staging import plan as plans
from estimax.staging.recording import Call, Origin, Raw
from estimax.wire import json_text

_PROBE_LENGTH = 5  # values added to each row: beyond the next power of two


def plan_to_json(plan: plans.Plan, assets_dir: Path) -> dict[str, Any]:
    """Describe a plan; the vocabularies of its transforms go to `assets_dir`."""
    return {
        "raw": [_origin_to_json(origin) for origin in plan.raw],
        "calls": [
            {
                "name": call.name,
                "inputs": [_origin_to_json(origin) for origin in call.inputs],
                # Any: a transform that is not of our room is refused there, by name.
                "transform": transforms.to_json(_as_any(call.transform), assets_dir),
            }
            for call in plan.calls
        ],
    }


def plan_from_json(record: Mapping[str, Any], assets_dir: Path) -> plans.Plan:
    """Build the plan that `plan_to_json` described."""
    raw = tuple(origin_from_json(r) for r in record["raw"])
    calls = tuple(
        Call(
            name=json_text.text(r, "name"),
            transform=transforms.from_json(r["transform"], assets_dir),
            inputs=tuple(origin_from_json(i) for i in r["inputs"]),
        )
        for r in record["calls"]
    )
    return plans.Plan(raw=raw, calls=calls)


def flat_inputs(prepared: plans.PreparedBatch) -> dict[str, Any]:
    """Name every array of a prepared batch by where it sits."""
    flat = {f"raw/{name}": array for name, array in prepared.raw.items()}
    for call, result in prepared.staged.items():
        for path, leaf in _leaves(result):
            name = _staged_name(call, path)
            if name in flat:
                raise BundleError(f"two arrays of a batch are both called {name!r}.")
            flat[name] = leaf
    return flat


def nested_inputs(
    flat: Mapping[str, Any], like: plans.PreparedBatch
) -> plans.PreparedBatch:
    """The way back from `flat_inputs`, for a batch of the same structure."""
    staged = {}
    for call, result in like.staged.items():
        leaves = [flat[_staged_name(call, path)] for path, _ in _leaves(result)]
        staged[call] = jax.tree.unflatten(jax.tree.structure(result), leaves)
    raw = {name: flat[f"raw/{name}"] for name in like.raw}
    return plans.PreparedBatch(raw, staged)


def symbolic_axes(plan: plans.Plan, batch: plans.RawBatch) -> dict[str, dict[int, str]]:
    """Flat name -> axis -> dimension name, for the axes that vary beside the batch."""
    varying = {call.name: variable_axes(call, batch) for call in plan.calls}
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
                named.setdefault(_staged_name(call.name, path), {})[axis] = of_axis[
                    axis
                ]
    return named


def _times(plan: plans.Plan, varying: dict[str, dict[str, set[int]]]) -> dict[str, str]:
    """Call -> name of its time axis: one for all features whose lengths are compared.

    The host refuses a batch whose features disagree about time, so that the program
    may count on it. A time that one of them fixes, being dense, is fixed for all: it
    is struck out of `varying`.
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


def _has_time(call: Call, group: set[Origin]) -> bool:
    timed = transforms.SequenceIds | transforms.SequenceNumbers
    return isinstance(call.transform, timed) and not group.isdisjoint(call.inputs)


def variable_axes(call: Call, batch: plans.RawBatch) -> dict[str, set[int]]:
    """Which axes of a call's results, the batch aside, change from batch to batch.

    Found by trying: with longer sparse rows, and with dense values taken away. A
    probe that the transform refuses tells nothing and is left out.
    """
    usual = dict(_leaves(call.run(batch)))
    varying: dict[str, set[int]] = {path: set() for path in usual}
    for change in (_lengthened, _blanked):
        try:
            changed = call.run({o: change(batch[o]) for o in call.inputs})
        except FeatureError:
            continue
        for path, leaf in _leaves(changed):
            shapes = zip(usual[path].shape, leaf.shape, strict=True)
            sizes = list(enumerate(shapes))[1:]
            varying[path] |= {axis for axis, (a, b) in sizes if a != b}
    return varying


def vocabulary_sizes(plan: plans.Plan) -> dict[str, int]:
    """Feature -> number of words, for every vocabulary among the transforms."""
    found: dict[str, int] = {}
    for call in plan.calls:
        for part in _parts(call.transform):
            if isinstance(part, transforms.Vocabulary):
                found[part.key] = len(part.words)
    return found


def _parts(transform: Any) -> Iterator[Any]:
    """A transform and those that it is made of."""
    yield transform
    inner = [getattr(transform, "source", None), *getattr(transform, "parts", ())]
    for part in inner:
        if part is not None:
            yield from _parts(part)


def _staged_name(call: str, path: str) -> str:
    return "/".join(filter(None, ("staged", call, path)))


def _leaves(result: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(result)
    return [(_path_name(path), leaf) for path, leaf in leaves]


def _path_name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _lengthened(value: Raw) -> Raw:
    """The same rows with more values in each, where a row may have any number."""
    if not isinstance(value, Sparse) or len(value.dense_shape) < 2:
        return value
    filler = _first_or_default(value.values)
    rank = len(value.dense_shape)
    indices = np.reshape(value.indices, (-1, rank))
    shape = list(value.dense_shape)
    for axis in range(1, rank):
        added = np.zeros((shape[0] * _PROBE_LENGTH, rank), np.int64)
        grid = np.indices((shape[0], _PROBE_LENGTH)).reshape(2, -1)
        added[:, 0], added[:, axis] = grid[0], grid[1] + shape[axis]
        indices = np.concatenate([indices, added])
        shape[axis] += _PROBE_LENGTH
    more = len(indices) - len(value.values)
    values = _joined(value.values, [filler] * more)
    order = np.lexsort(indices.T[::-1])
    return Sparse(indices[order], values[order], tuple(shape))


def _blanked(value: Raw) -> Raw:
    """The same shape with nothing in it: columns drop '', -1 and a weight of 0."""
    if isinstance(value, Sparse):
        return value
    if isinstance(value, Strings):
        return Strings.of(np.full(value.shape, b"", dtype=object))
    blank = -1 if value.dtype.kind == "i" else 0
    return np.full_like(value, blank)


def _first_or_default(values: NDArray[Any] | Strings) -> Any:
    if len(values):
        return values[0]
    return b"" if isinstance(values, Strings) else values.dtype.type(0)


def _joined(values: NDArray[Any] | Strings, added: list[Any]) -> NDArray[Any] | Strings:
    if isinstance(values, Strings):
        return concatenate([values, Strings.of(np.array(added, dtype=object))])
    return np.concatenate([values, np.array(added, values.dtype)])


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    return {"part": origin.part, "key": origin.key}


def origin_from_json(record: Mapping[str, Any]) -> Origin:
    """Return the feature that a record names."""
    key = record["key"]
    if not isinstance(key, str | int | None):  # numbers may be names, too
        raise ValueError(f"a feature cannot be called {key!r}")
    return Origin(json_text.text(record, "part"), key)  # type: ignore[arg-type]


def _as_any(value: Any) -> Any:
    return value
