"""Which value was the first that is not a number: by name, and at which step.

    found = program.find_nonfinite(state, batches)
    print(found)     # step 7: features/age holds NaN (1 of 8 values), then …

Steps are run one by one and nothing is donated, so that when one goes wrong the state
before it and its batch are still there. Those are then looked through in the order in
which values come about: input, variables, layers, loss, gradients, updated variables.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax.core.errors import NanLossError
from estimax.core.state import TrainState
from estimax.feature_columns.transforms import NumberMatrix
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch
from estimax.staging.packing import Packed, unpack
from estimax.training import gradients, steps
from estimax.training.gradients import Outputs
from estimax.training.table_rows import Batch, rows_by_table
from estimax.training.updates import UpdatePlan

_MOST_TOLD = 6


@dataclass(frozen=True)
class Finding:
    """One array that holds NaN or infinite values.

    Attributes:
      kind: "input", "variable", "layer", "loss", "gradient" or "updated variable".
      name: The name of the feature, variable or layer.
      bad: How many of its values are not finite.
      size: How many values it has.
      what: "NaN" or "inf".
    """

    kind: str
    name: str
    bad: int
    size: int
    what: str

    def __str__(self) -> str:
        many = f" ({self.bad} of {self.size} values)" if self.size > 1 else ""
        named = (
            self.name if self.kind in ("input", "loss") else f"{self.kind} {self.name}"
        )
        return f"{named} holds {self.what}{many}"


@dataclass(frozen=True)
class NonFinite:
    """The first step with values that are not finite.

    Attributes:
      step: The step, counted from 1.
      findings: The arrays that are not finite, in the order of computation.

    >>> found = Finding("input", "features/age", bad=1, size=8, what="NaN")
    >>> print(NonFinite(7, (found,)))
    step 7: features/age holds NaN (1 of 8 values)
    """

    step: int
    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The first of the findings: where the values most probably come from."""
        return self.findings[0]

    def __str__(self) -> str:
        told = [str(finding) for finding in self.findings[:_MOST_TOLD]]
        more = len(self.findings) - len(told)
        tail = f", and {more} more" if more else ""
        return f"step {self.step}: {', then '.join(told)}{tail}"


def first_nonfinite(
    updates: UpdatePlan,
    state: TrainState,
    batches: Iterable[Packed],
    *,
    max_secs: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> NonFinite | None:
    """Train on batches until a loss or a variable is not finite.

    Returns:
      What was found, or None if the batches or `max_secs` seconds ended first.
    """
    # Not the step of the program: that one donates the state, which is needed when the
    # step goes wrong.
    step = _jit_step(updates)
    started = clock()
    for packed in batches:
        new, outputs = step(state, packed)
        if not _is_sound(outputs, new):
            return examine(updates, state, unpack(packed))
        # After the test of this step, which has waited for the device already.
        if max_secs is not None and clock() - started > max_secs:
            return None
        state = new
    return None


def make_checked_step(updates: UpdatePlan) -> steps.TrainStep:
    """Build a step that raises `NanLossError` with all findings."""
    step = _jit_step(updates)

    def step_or_raise(state: TrainState, packed: Packed) -> tuple[TrainState, Outputs]:
        new, outputs = step(state, packed)
        if not _is_sound(outputs, new):
            raise NanLossError(
                f"{examine(updates, state, unpack(packed))}. No checkpoint holds it; "
                "training again goes on from the latest one."
            )
        return new, outputs

    return step_or_raise


def examine(updates: UpdatePlan, state: TrainState, batch: Batch) -> NonFinite:
    """Check all values of one step in the order of computation."""
    found = [f for f in _values(updates, state, batch) if f is not None]
    if not found:
        # The compiled step may add in another order, and overflow where this does not.
        found = [Finding("loss", "the compiled step", 1, 1, "inf or NaN")]
    return NonFinite(int(state.step) + 1, tuple(found))


def _jit_step(updates: UpdatePlan) -> Any:
    step = steps.make_train_step(updates)
    return jax.jit(lambda state, packed: step(state, unpack(packed)))


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]).all()


def _is_sound(outputs: Mapping[str, Any], state: TrainState) -> bool:
    # `model_state` is not checked: statistics may hold NaN on purpose.
    return bool(_all_finite((outputs["loss"], state.params, state.tables)))


def _values(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> Iterator[Finding | None]:
    """Yield a finding or None for each value of a step, in order of computation."""
    parts = batch.parts if isinstance(batch, AccumulatedBatch) else (batch,)
    for part in parts:
        yield from (_finding("input", n, v) for n, v in _inputs(updates, part))
    variables = {**state.params, **state.tables}
    yield from (_finding("variable", n, v) for n, v in variables.items())
    for place in range(len(parts)):
        outputs, loss = _layer_outputs(updates, state, batch, place)
        yield from (_finding("layer", n, v) for n, v in outputs)
        yield _finding("loss", "the loss", loss)
    found, _ = jax.jit(lambda s, b: gradients.compute_gradients(updates, s, b))(
        state, batch
    )
    rows = jax.jit(lambda rows, b: rows_by_table(updates, b, rows))(found.rows, batch)
    grads = {**found.whole["params"], **found.whole["tables"], **rows}
    yield from (_finding("gradient", n, v) for n, v in grads.items())
    new, _ = jax.jit(steps.make_train_step(updates))(state, batch)
    updated = {**new.params, **new.tables}
    for name, value in updated.items():
        yield _finding("updated variable", name, value)


def _inputs(updates: UpdatePlan, part: PreparedBatch) -> Iterator[tuple[str, Any]]:
    yield from part.raw.items()
    transforms_of = {call.name: call for call in updates.plan.calls}
    for name, staged in part.staged.items():
        call = transforms_of[name]
        if isinstance(call.transform, NumberMatrix):
            ends = list(itertools.accumulate(call.transform.widths))
            columns = np.split(np.asarray(staged), ends[:-1], axis=1)
            names = (origin.name for origin in call.inputs)
            yield from zip(names, columns, strict=True)
            continue
        for leaf in jax.tree.leaves(staged):
            yield f"column {name}", leaf


def _layer_outputs(
    updates: UpdatePlan, state: TrainState, batch: Batch, place: int
) -> tuple[list[tuple[str, Any]], Any]:
    """Return the outputs of all layers in the order of computation, and the loss."""
    outputs: list[tuple[str, Any]] = []

    def note(
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: nn.module.InterceptorContext,
    ) -> Any:
        result = function(*args, **kwargs)
        if context.method_name == "__call__" and context.module.path:
            name = "/".join(context.module.path)
            outputs.extend((name, leaf) for leaf in jax.tree.leaves(result))
        return result

    # Without jit, so that `note` sees arrays with values and not tracers. For the same
    # reason tables are indexed as the model says, which gives the same numbers.
    as_written = replace(updates.model, indexed=frozenset())
    updates = replace(updates, model=as_written)
    with nn.intercept_methods(note):
        applied = gradients.apply_in_training(updates, state, batch, place)
    return outputs, applied.spec.loss


def _finding(kind: str, name: str, value: Any) -> Finding | None:
    if not _is_float(value):
        return None
    # In one dtype: float32 holds all values of bfloat16 and float16.
    array = np.asarray(jnp.asarray(value, jnp.float32))
    bad = int(array.size - np.count_nonzero(np.isfinite(array)))
    what = "NaN" if np.isnan(array).any() else "inf"
    return Finding(kind, name, bad, array.size, what) if bad else None


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and bool(jnp.issubdtype(value.dtype, jnp.floating))
