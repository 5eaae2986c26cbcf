"""Hand-made models to export: no estimator, no flax, a few weights worked by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.device_dtypes import Int64, Words
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export import CLASSIFY, Servable
from estimax.feature_columns import transforms
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import HostCall, Origin

AGE, SIZE = Origin("features", "age"), Origin("features", "size")
CITY, TAGS = Origin("features", "city"), Origin("features", "tags")


def linear(weights: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    raw = inputs.raw
    age = raw["features/age"].reshape(-1, 1)
    logits = age * weights["kernel"] + weights["bias"]
    outputs = {"logits": logits, "doubled": Int64(raw["features/size"] * 2)}
    return {"serving_default": outputs, "predict": outputs}


def numeric_servable() -> Servable:
    return Servable(
        function=linear,
        weights={
            "kernel": np.array([[2.0]], np.float32),
            "bias": np.array([0.5], np.float32),
        },
        plan=HostPlan(raw=(AGE, SIZE), calls=()),
        example={
            AGE: np.array([31.0, 46.0, 20.0]),
            SIZE: np.array([1, 2, 3], np.int64),
        },
    )


def wide(weights: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Embeddings of a hashed city and of any number of tags, and an age."""
    staged = inputs.staged
    city = _mean_rows(weights["city"], staged["city"].ids)
    tags = _mean_rows(weights["tags"], staged["tags"].ids)
    age = inputs.raw["features/age"].reshape(-1, 1)
    net = jnp.concatenate([city, tags, age / 50.0], axis=1)
    logits = net @ weights["kernel"]
    probabilities = jax.nn.softmax(logits)
    best = jnp.argmax(logits, axis=1, keepdims=True)
    every = jnp.broadcast_to(jnp.arange(2, dtype=jnp.int32), logits.shape)
    vocabulary = ("no", "yes")
    predict = {
        "logits": logits,
        "probabilities": probabilities,
        "class_ids": Int64(best.astype(jnp.int32)),
        "classes": Words(best.astype(jnp.int32), vocabulary),
    }
    classify = {"scores": probabilities, "classes": Words(every, vocabulary)}
    return {
        "serving_default": predict,
        "predict": predict,
        "head/classification": classify,
    }


def wide_servable() -> Servable:
    rng = np.random.default_rng(7)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    words = transforms.WordList.of(["red", "green", "blue"])
    hashed = transforms.pad_ids(transforms.HashBucket("city", 50), "drop")
    listed = transforms.pad_ids(transforms.Vocabulary("tags", words), "drop")
    return Servable(
        function=wide,
        weights={"city": normal(50, 4), "tags": normal(3, 4), "kernel": normal(9, 2)},
        plan=HostPlan(
            raw=(AGE,),
            calls=(
                HostCall("city", hashed, (CITY,)),
                HostCall("tags", listed, (TAGS,)),
            ),
        ),
        example=wide_example(),
        methods={"head/classification": CLASSIFY},
    )


def wide_example() -> dict[Origin, Any]:
    return {
        AGE: np.array([31.0, 46.0]),
        CITY: Strings.of(["Oslo", "Rome"]),
        TAGS: sparse_tags([["red"], ["blue", "green", "red"]]),
    }


def sparse_tags(rows: list[list[str]]) -> Sparse:
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    values = np.array([tag for row in rows for tag in row], dtype=object)
    widest = max(map(len, rows), default=0)
    flat = np.array(indices, np.int64).reshape(-1, 2)
    return Sparse(flat, Strings.of(values), (len(rows), widest))


def wide_request(rows: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    tags = ["red", "green", "blue", "pink"]
    return {
        "age": rng.uniform(18, 80, rows).astype(np.float32),
        "city": [f"city {n}" for n in rng.integers(0, 30, rows)],
        "tags": [
            [tags[n] for n in rng.integers(0, 4, length)]
            for length in rng.integers(0, 7, rows)
        ],
    }


def answer_directly(servable: Servable, features: dict[str, Any]) -> dict[str, Any]:
    """What the function itself says, run as a model would run it, unpadded."""
    batch = {
        AGE: np.asarray(features["age"]),
        CITY: Strings.of(np.array(features["city"], dtype=object)),
        TAGS: sparse_tags(features["tags"]),
    }
    prepared = servable.plan.prepare(batch)
    return servable.function(dict(servable.weights), prepared)


def _mean_rows(table: Any, ids: Any) -> Any:
    present = (ids >= 0)[..., None]
    rows = jnp.where(present, table[jnp.maximum(ids, 0)], 0.0)
    return rows.sum(axis=1) / jnp.maximum(present.sum(axis=1), 1)
