"""The host part of a bundle: the plan as JSON, its results as named arrays.

    record = plan_to_json(plan, assets_dir)        # vocabularies become files
    plan = plan_from_json(record, assets_dir)
    flat_inputs(plan.prepare(batch))   # {"raw/features/age": …, "staged/city/ids": …}
    HashedColumns(plan).prepare(batch)  # the same as plan.prepare(batch), faster

An exported function takes a flat dict of arrays and none of our classes, so a process
without estimax, or another version of jax, can read its file.

A request of one row has a few words in each of dozens of columns. Looking at a column
takes 7 microseconds and hashing its word 0.1, so columns that are hashed alike are
looked at together: 26 of them take 25 microseconds in place of 190.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from estimax.core.device_dtypes import Forwarded
from estimax.core.errors import BundleError
from estimax.core.sparse import Ids
from estimax.core.strings import Strings
from estimax.feature_columns import transforms
from estimax.feature_columns.transforms import HashBucket, PadIds
from estimax.native import hashing
from estimax.staging import host_plan as plans
from estimax.staging.trace import HostCall, NestedKey, Origin
from estimax.storage import json_text


def plan_to_json(plan: plans.HostPlan, assets_dir: Path) -> dict[str, Any]:
    """Return a plan as JSON; write the vocabularies of its transforms as files."""
    return {
        "raw": [_origin_to_json(origin) for origin in plan.raw],
        "calls": [
            {
                "name": call.name,
                "inputs": [_origin_to_json(origin) for origin in call.inputs],
                # Any, since `to_json` itself refuses transforms of other packages.
                "transform": transforms.to_json(_as_any(call.transform), assets_dir),
            }
            for call in plan.calls
        ],
        "forwarded": [
            {**_origin_to_json(one.origin), "default": one.default}
            for one in plan.forwarded
        ],
    }


def plan_from_json(record: Mapping[str, Any], assets_dir: Path) -> plans.HostPlan:
    """Build the plan that `plan_to_json` described."""
    raw = tuple(origin_from_json(r) for r in record["raw"])
    calls = tuple(
        HostCall(
            name=json_text.text(r, "name"),
            transform=transforms.from_json(r["transform"], assets_dir),
            inputs=tuple(origin_from_json(i) for i in r["inputs"]),
        )
        for r in record["calls"]
    )
    # Bundles of earlier versions forward nothing.
    forwarded = tuple(_forwarded_from_json(r) for r in record.get("forwarded", ()))
    return plans.HostPlan(raw=raw, calls=calls, forwarded=forwarded)


def _forwarded_from_json(record: Mapping[str, Any]) -> Forwarded:
    default = record["default"]
    if not isinstance(default, str | int | float | None):
        raise ValueError(f"a sparse feature cannot be filled with {default!r}")
    return Forwarded(origin_from_json(record), default)


def flat_inputs(prepared: plans.PreparedBatch) -> dict[str, Any]:
    """Return the arrays of a prepared batch by their path."""
    flat = {f"raw/{name}": array for name, array in prepared.raw.items()}
    for call, result in prepared.staged.items():
        for path, leaf in leaves_of(result):
            name = staged_name(call, path)
            if name in flat:
                raise BundleError(f"two arrays of a batch are both called {name!r}.")
            flat[name] = leaf
    return flat


def forwarded_name(one: Forwarded) -> str:
    """Return the name of a forwarded feature; it begins with "forwarded/".

    >>> forwarded_name(Forwarded(Origin("features", "tags"), 0))
    'forwarded/features/tags, default 0'
    """
    filled = "" if one.default is None else f", default {one.default!r}"
    return f"forwarded/{one.origin.name}{filled}"


def nest_inputs(
    flat: Mapping[str, Any], like: plans.PreparedBatch
) -> plans.PreparedBatch:
    """Undo `flat_inputs`, for a batch of the same structure as `like`."""
    staged = {}
    for call, result in like.staged.items():
        leaves = [flat[staged_name(call, path)] for path, _ in leaves_of(result)]
        staged[call] = jax.tree.unflatten(jax.tree.structure(result), leaves)
    raw = {name: flat[f"raw/{name}"] for name in like.raw}
    return plans.PreparedBatch(raw, staged)


def vocabulary_sizes(plan: plans.HostPlan) -> dict[str, int]:
    """Return feature -> number of words, for every vocabulary of a plan."""
    found: dict[str, int] = {}
    for call in plan.calls:
        for part in _parts(call.transform):
            if isinstance(part, transforms.Vocabulary):
                found[part.key] = len(part.words)
    return found


def is_only_ids(origin: Origin, plan: plans.HostPlan) -> bool:
    """Return whether only categorical columns read a feature: a -1 is missing there."""
    # A str is a raw feature of a cross.
    ids = transforms.HashBucket | transforms.Vocabulary | transforms.Identity | str
    readers = _readers(origin, plan)
    return origin not in plan.raw and all(isinstance(part, ids) for part in readers)


def declared_default(origin: Origin, plan: plans.HostPlan) -> Any:
    """Return what the columns of a feature use for a missing value, or None.

    NaN means that every column replaces NaN itself.
    """
    declared = dict(plan.defaults)
    if origin in declared:
        return declared[origin]
    # A bucketized column inside of a cross declares nothing, but may have a fill value.
    scalings = [getattr(p, "normalizer", None) for p in _readers(origin, plan)]
    fills = all(
        isinstance(s, transforms.Scaling) and s.fill is not None for s in scalings
    )
    return math.nan if fills and origin not in plan.raw else None


def _readers(origin: Origin, plan: plans.HostPlan) -> list[Any]:
    """Return the parts of transforms that read a feature, each by its key."""
    found = []
    for call in plan.calls:
        keys = dict(zip(call.inputs, call.transform.keys, strict=True))
        if origin in keys:
            key = keys[origin]
            found += [part for part in _parts(call.transform) if _reads(part, key)]
    return found


def _reads(part: Any, key: str) -> bool:
    return key in (part, getattr(part, "key", None), getattr(part, "weight_key", None))


def _parts(transform: Any) -> Iterator[Any]:
    """Yield a transform and the transforms inside it."""
    yield transform
    inner = [getattr(transform, "source", None), *getattr(transform, "parts", ())]
    for part in inner:
        if part is not None:
            yield from _parts(part)


def staged_name(call: str, path: str) -> str:
    """Return the name of an array in the result of a call."""
    return "/".join(filter(None, ("staged", call, path)))


def leaves_of(result: Any) -> list[tuple[str, Any]]:
    """Return the arrays in the result of a call, each with its path."""
    # The usual results, without the time that jax takes for any tree.
    if isinstance(result, Ids) and result.weights is None:
        return [("ids", result.ids)]
    if isinstance(result, np.ndarray):
        return [("", result)]
    leaves = jax.tree_util.tree_leaves_with_path(result)
    return [(_path_name(path), leaf) for path, leaf in leaves]


def _path_name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    return {"part": origin.part, "key": origin.key}


def origin_from_json(record: Mapping[str, Any]) -> Origin:
    """Return the feature that a record names."""
    key: Any = record["key"]
    if isinstance(key, list):  # a place in a tuple is a list of one number
        key = NestedKey(tuple(step) if isinstance(step, list) else step for step in key)
        steps = [step[0] if isinstance(step, tuple) and step else step for step in key]
    else:
        steps = [key]
    # A number may be a key as well.
    if not all(isinstance(step, str | int | None) for step in steps):
        raise ValueError(f"a feature cannot be called {key!r}")
    return Origin(json_text.text(record, "part"), key)


def _as_any(value: Any) -> Any:
    return value


_FEWEST = 2  # columns that are worth it


class HashedColumns:
    """Prepares the batches of a plan whose text columns may be hashed together.

    Args:
      plan: The host transforms of a bundle.
    """

    def __init__(self, plan: plans.HostPlan) -> None:
        self._plan = plan
        sources = {
            call.name: source
            for call in plan.calls
            if (source := _hash_source(call.transform)) is not None
        }
        self._calls = [call for call in plan.calls if call.name in sources]
        rest = tuple(call for call in plan.calls if call.name not in sources)
        self._rest = dataclasses.replace(plan, calls=rest)
        self._sizes = [sources[call.name].num_buckets for call in self._calls]

    def prepare(self, batch: plans.RawBatch) -> plans.PreparedBatch:
        """Return what `plan.prepare(batch)` returns."""
        if len(self._calls) < _FEWEST:
            return self._plan.prepare(batch)
        columns = [batch[call.inputs[0]] for call in self._calls]
        if not _are_alike(columns):
            return self._plan.prepare(batch)
        offsets = np.concatenate([column.offsets for column in columns])
        rows = len(columns[0])
        lengths = np.diff(offsets.reshape(len(columns), rows + 1))
        found = np.concatenate(hashing.hash_columns(columns, self._sizes))
        ids = found.reshape(len(columns), rows, 1).astype(np.int32)
        ids[lengths == 0] = -1  # no word
        prepared = self._rest.prepare(batch)
        staged = dict(prepared.staged)
        for call, own in zip(self._calls, ids, strict=True):
            staged[call.name] = Ids(own)
        return prepared._replace(staged=staged)


def _hash_source(transform: Any) -> HashBucket | None:
    """Return how a transform hashes text, whose ids are never out of range, or None."""
    if type(transform) is not PadIds or type(transform.source) is not HashBucket:
        return None
    source = transform.source
    return None if source.is_integer or source.strip else source


def _are_alike(columns: list[Any]) -> bool:
    """Return whether all columns have one word in each row."""
    first = columns[0]
    if not isinstance(first, Strings):
        return False
    rows = len(first)
    return all(
        type(column) is Strings and column.shape in ((rows,), (rows, 1))
        for column in columns
    )
