"""Embedding tables of a bundle in float16 or int8, and what that changes.

    servable, report = with_small_tables(servable, program, "int8", max_error=0.01)

A table keeps its shape. Rows are read as they are stored and become float32 after the
lookup, so that no process that serves the bundle holds a table in float32. In int8,
each row has a scale: its largest number divided by 127.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import export, training
from estimax.core.device_dtypes import materialize
from estimax.core.errors import SpecError, did_you_mean
from estimax.estimator import exporting
from estimax.export import selftest
from estimax.export.signature import origins_of
from estimax.staging import RowReaders

_log = logging.getLogger("estimax")

TableDtype = Literal["float16", "int8"]
_DTYPES = ("float16", "int8")
_LEAST_WIDTH = 4  # narrower rows than these would be no smaller with a scale
_SCALES = "/scales"  # what follows the name of a table


def check_options(table_dtype: Any, max_table_error: Any, *, explain: bool) -> None:
    """Raise SpecError for an unknown dtype, or a bound that is no share."""
    if explain and table_dtype is not None:
        raise SpecError(
            "export: explain and table_dtype cannot be given together: the signature "
            "that explains reads tables in float32. Leave one out."
        )
    if table_dtype not in (None, *_DTYPES):
        near = did_you_mean(str(table_dtype), _DTYPES)
        raise SpecError(f"export: unknown table_dtype {table_dtype!r}{near}")
    is_number = isinstance(max_table_error, int | float)
    if isinstance(max_table_error, bool) or not is_number or not max_table_error > 0:
        raise SpecError(
            "export: max_table_error must be a number above 0, such as 0.01, got "
            f"{max_table_error!r}."
        )


def with_small_tables(
    servable: export.Servable,
    program: training.Program,
    dtype: TableDtype,
    max_error: float,
) -> tuple[export.Servable, dict[str, Any]]:
    """Return a servable whose tables are of another dtype, and a report as JSON values.

    Args:
      servable: What is exported, with tables in float32.
      program: Its program, whose tables are meant.
      dtype: The dtype of the tables.
      max_error: By how much an output may change, as a share of its largest value.

    Raises:
      SpecError: The model has no tables, or an output changes by more.
    """
    names = [n for n in program.shapes.tables if servable.weights[n].ndim == 2]
    if not names:
        raise SpecError(
            f"export: table_dtype={dtype!r}: the model has no embedding tables of "
            "feature columns. Leave it out."
        )
    weights = dict(servable.weights)
    for name in names:
        weights |= _smaller(name, np.asarray(weights[name]), dtype)
    scaled = frozenset(name for name in names if name + _SCALES in weights)

    def readers(given: Mapping[str, Any]) -> RowReaders:
        found = {name: given[name + _SCALES] for name in scaled}
        return {name: partial(_read_rows, found.get(name)) for name in names}

    # Kept between exports: jax then traces and compiles once.
    kept = servable.exported.setdefault(("tables", dtype), {})
    if "function" not in kept:
        kept["function"] = exporting.signatures_function(program, readers)
    small = replace(servable, function=kept["function"], weights=weights, exported=kept)
    sizes = [
        sum(np.asarray(w[n]).nbytes for n in w if n.removesuffix(_SCALES) in names)
        for w in (servable.weights, weights)
    ]
    errors = _errors(servable, small)
    worst = max(errors, key=lambda name: errors[name], default="")
    largest = errors.get(worst, 0.0)
    if not largest <= max_error:
        advice = "raise max_table_error, or leave table_dtype out"
        advice = f'use "float16", {advice}' if dtype == "int8" else advice
        raise SpecError(
            f"export: with tables in {dtype}, the output {worst} changes by "
            f"{largest:.2%} of its largest value on the example rows; at most "
            f"{max_error:.2%} is allowed. To go on, {advice}."
        )
    report = {
        "dtype": dtype,
        "tables": len(names),
        "bytes": {"before": sizes[0], "after": sizes[1]},
        "rows": len(next(iter(_first_rows(servable).values()))),
        "errors": errors,
        "max_error": max_error,
    }
    _log.info(
        "%s tables in %s: %s bytes instead of %s; outputs change by at most %.2g%% of "
        "their largest value on %s example rows",
        f"{len(names):,}",
        dtype,
        f"{sizes[1]:,}",
        f"{sizes[0]:,}",
        100 * largest,
        report["rows"],
    )
    return small, report


def _smaller(name: str, table: NDArray[Any], dtype: str) -> dict[str, NDArray[Any]]:
    """Return a table [V, D] in another dtype, and the scales of its rows if it has."""
    if not np.isfinite(table).all():
        raise SpecError(
            f"export: the table {name} has values that are NaN or infinite; train the "
            "model anew before it is exported."
        )
    if dtype == "int8" and table.shape[1] >= _LEAST_WIDTH:
        scales = np.abs(table).max(axis=1) / 127
        rounded = np.rint(table / np.where(scales > 0, scales, 1)[:, None])
        return {name: rounded.astype(np.int8), name + _SCALES: scales}
    if np.abs(table).max(initial=0) > np.finfo(np.float16).max:
        raise SpecError(
            f"export: the table {name} has values above 65,504, which float16 does not "
            "have. Leave table_dtype out."
        )
    return {name: table.astype(np.float16)}


def _read_rows(scales: Any, table: Any, ids: Any) -> Any:
    """Look up rows, and make them float32 only then."""
    places = jnp.maximum(ids, 0)
    rows = jnp.take(table, places, axis=0, mode="clip").astype(jnp.float32)
    if scales is None:
        return rows
    return rows * jnp.take(scales, places, axis=0, mode="clip")[..., None]


def _first_rows(servable: export.Servable) -> dict[Any, Any]:
    return selftest.first_rows(
        {o: servable.example[o] for o in origins_of(servable.plan)}
    )


def _errors(before: export.Servable, after: export.Servable) -> dict[str, float]:
    """Return by how much each output of floats changes, as a share of its largest."""
    rows = _first_rows(before)
    prepared, forwarded = before.plan.prepare(rows), before.plan.forward(rows)
    exact, small = (
        materialize(jax.jit(one.function)(dict(one.weights), prepared), forwarded)
        for one in (before, after)
    )
    errors: dict[str, float] = {}
    for signature, outputs in exact.items():
        for name, wanted in outputs.items():
            if wanted.dtype.kind != "f" or not wanted.size:
                continue
            gap = np.abs(small[signature][name] - wanted).max()
            largest = np.abs(wanted).max()
            change = float(gap / largest) if gap > 0 else 0.0
            errors[f"{signature}/{name}"] = float("inf") if np.isnan(gap) else change
    return errors
