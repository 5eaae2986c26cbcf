"""Read all rows of an input once, as the table that LightGBM trains on.

    rows = read_rows(session, table, head, "BoostedTreesClassifier")
    rows.matrix, rows.labels, rows.weights, rows.digest

Rows are put in an order that depends on their content alone. So a shuffled input gives
the same trees as one that is not, and a killed run resumes exactly although its input
is shuffled anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import heads, training
from estimax.canned.trees.table import TreeColumns, check_single
from estimax.core.errors import FeatureError, InputError, LabelError
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator.session import Session
from estimax.heads.labels import labels_for
from estimax.heads.weights import weights_for
from estimax.input import Dataset
from estimax.input.ops.selection import Repeat


@dataclass(frozen=True)
class TreeRows:
    """All rows of an input.

    Attributes:
      matrix: Numbers, then ids; NaN if missing, float32 [N, F + K].
      labels: The labels as the head reads them, float32 [N].
      weights: The weights, float32 [N]; None if all are 1.
      digest: A checksum of all of it.
    """

    matrix: NDArray[np.float32]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32] | None
    digest: int


def one_pass(input_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `input_fn` whose `Dataset` does not repeat."""

    @wraps(input_fn)
    def call(*args: Any, **named: Any) -> Any:
        returned = input_fn(*args, **named)
        if isinstance(returned, Dataset):
            return Dataset(_without_repeats(returned.node))
        return returned

    return call


def _without_repeats(node: Any) -> Any:
    if isinstance(node, Repeat):
        return _without_repeats(node.source)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    if "source" not in {field.name for field in fields(node) if field.init}:
        return node
    source = node.source  # type: ignore[attr-defined]  # it is one of the fields
    plain = _without_repeats(source)
    return node if plain is source else replace(node, source=plain)


def reader(
    session: Session, table: TreeColumns, head: Any, model: str
) -> training.Program:
    """Return the program that reads the rows of a session that has data."""
    recording = training.record(
        _reader(table, head, model), session.first_batch(), ModeKeys.PREDICT
    )
    return training.compile(recording, session.placement)


def read_rows(
    session: Session, program: training.Program, table: TreeColumns, model: str
) -> TreeRows:
    """Return the rows of a session that has data, each once.

    Raises:
      FeatureError: A row has several ids of a category, or a weight is negative, NaN or
        infinite.
      InputError: There is no row, or no row with a weight above 0.
      LabelError: A label is NaN or infinite.
    """
    variables = training.Variables({}, {}, {})
    parts = []
    for batch in session.batches(program):
        found = jax.device_get(program.step(variables, batch.arrays))
        check_single(found["counts"], table.categories, model)
        parts.append(found)
        if session.feed.endless:  # one batch of arrays, which is all of the data
            break
    dense = np.concatenate([part["dense"] for part in parts])
    ids = np.concatenate([part["ids"] for part in parts])
    if not len(dense):
        raise InputError(f"{model}: the input_fn gave no rows to train on.")
    order, digest = _order_by_content(dense, ids)
    dense, ids = dense[order], ids[order]
    labels, weights = dense[:, -2].copy(), dense[:, -1].copy()
    _check(labels, weights, model)
    known = np.where(ids < 0, np.float32(np.nan), ids.astype(np.float32))
    return TreeRows(
        np.concatenate([dense[:, :-2], known], axis=1),
        labels,
        None if (weights == 1).all() else weights,
        digest,
    )


def _reader(
    table: TreeColumns, head: Any, model: str
) -> Callable[[Any, Any], EstimatorSpec]:
    """Return a model whose predictions are what it reads."""

    def read(features: Any, labels: Any) -> EstimatorSpec:
        numbers, ids = table.read(features)
        logits = jnp.zeros((numbers.shape[0], head.logits_dimension))
        ready = labels_for(head.label_rule, labels, logits, head.label_dimension)
        weights = weights_for(model, head.weight_column, features, logits)
        if weights is None:
            weights = jnp.ones((numbers.shape[0], 1))
        if isinstance(head, heads.BinaryClassHead | heads.MultiClassHead):
            own = head.example_class_weights(ready)
            weights = weights if own is None else weights * own
        if isinstance(head, heads.RegressionHead):
            ready = (ready - head.label_mean) / head.label_std
        # Numbers, labels and weights in one new array: a feature that is an output as
        # it is would stay on the host.
        dense = [numbers, ready.astype(jnp.float32), weights]
        counts = jnp.zeros((numbers.shape[0], 0), jnp.int32)
        if table.categories:
            counts = table.count_ids(features)
        return EstimatorSpec(
            ModeKeys.PREDICT,
            predictions={
                "dense": jnp.concatenate(dense, axis=1),
                "ids": ids,
                "counts": counts,
            },
        )

    return read


def _order_by_content(
    dense: NDArray[np.float32], ids: NDArray[np.int32]
) -> tuple[NDArray[np.intp], int]:
    """Return the order of rows by a hash of their values, and a checksum."""
    # 0.0 and -0.0 are equal, and so are all NaN.
    plain = np.where(np.isnan(dense), np.float32(np.nan), dense + np.float32(0))
    hashes = np.zeros(len(dense), np.uint64)
    for block in (plain.view(np.uint32), ids.view(np.uint32)):
        for column in block.T:
            # FNV's multiplication, and a shift that mixes the high bits into the low.
            hashes = (hashes ^ column) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
    order = np.argsort(hashes, kind="stable")
    return order, zlib.crc32(hashes[order].tobytes())


def _check(
    labels: NDArray[np.float32], weights: NDArray[np.float32], model: str
) -> None:
    bad = np.flatnonzero(~np.isfinite(labels))
    if bad.size:
        raise LabelError(
            f"{model}: {bad.size:,} of {len(labels):,} labels are NaN or infinite. "
            "Leave these rows out."
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        raise FeatureError(
            f"{model}: weights must be numbers of at least 0, got "
            f"{weights[bad[0]]:g} in one of {bad.size:,} such rows."
        )
    if not weights.any():
        raise InputError(f"{model}: no row has a weight above 0.")
