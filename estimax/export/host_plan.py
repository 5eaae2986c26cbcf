"""The host part of a bundle: the plan as JSON, and its results as named arrays.

    record = plan_to_json(plan, assets_dir)        # vocabularies become files
    plan = plan_from_json(record, assets_dir)
    flat_inputs(plan.prepare(batch))   # {"raw/features/age": …, "staged/city/ids": …}

An exported function takes a flat dict of arrays and none of our classes, so a process
without estimax, or another version of jax, can read its file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from estimax.core.device_dtypes import Forwarded
from estimax.core.errors import BundleError
from estimax.core.sparse import Ids
from estimax.feature_columns import transforms
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


def nested_inputs(
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
