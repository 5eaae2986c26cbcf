"""Which value was the first that is not a number: by name, and at which step.

    found = first_nonfinite(training, state, batches)
    print(found)     # step 7: features/age holds NaN (1 of 8 values), then …

Steps are run one by one and nothing is donated, so that when one goes wrong the state
before it and its batch are still there. Those are then looked through in the order in
which values come about: input, variables, layers, loss, gradients, updated variables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax.core.errors import NanLossError
from estimax.core.state import TrainState
from estimax.feeding.packing import Packed, unpack
from estimax.staging.plan import PreparedBatch
from estimax.training import steps
from estimax.training.updates import Training

_MOST_TOLD = 6


@dataclass(frozen=True)
class Finding:
    """One value that is not finite: what it is, its name, and how bad it is."""

    kind: str  # "input", "variable", "layer", "loss", "gradient" or "updated variable"
    name: str
    bad: int
    size: int
    what: str  # "NaN" or "inf"

    def __str__(self) -> str:
        many = f" ({self.bad} of {self.size} values)" if self.size > 1 else ""
        named = (
            self.name if self.kind in ("input", "loss") else f"{self.kind} {self.name}"
        )
        return f"{named} holds {self.what}{many}"


@dataclass(frozen=True)
class NonFinite:
    """The step at which training went wrong, and what did, in order.

    >>> found = Finding("input", "features/age", bad=1, size=8, what="NaN")
    >>> print(NonFinite(7, (found,)))
    step 7: features/age holds NaN (1 of 8 values)
    """

    step: int
    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """Where it began, as far as can be told."""
        return self.findings[0]

    def __str__(self) -> str:
        told = [str(finding) for finding in self.findings[:_MOST_TOLD]]
        more = len(self.findings) - len(told)
        tail = f", and {more} more" if more else ""
        return f"step {self.step}: {', then '.join(told)}{tail}"


def first_nonfinite(
    training: Training,
    state: TrainState,
    batches: Iterable[Packed],
    *,
    max_secs: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> NonFinite | None:
    """Step through batches until a loss or a variable is not finite; None if all are.

    Gives up, and returns None, after `max_secs` seconds.
    """
    step = _jitted_step(training)
    started = clock()
    for packed in batches:
        new, outputs = step(state, packed)
        if not _is_sound(outputs, new):
            return examine(training, state, unpack(packed))
        if max_secs is not None and clock() - started > max_secs:
            return None
        state = new
    return None


def checked_step(training: Training) -> steps.TrainStep:
    """Build a step that raises when it goes wrong, and tells what went wrong first."""
    step = _jitted_step(training)

    def checked(state: TrainState, packed: Packed) -> tuple[TrainState, steps.Outputs]:
        new, outputs = step(state, packed)
        if not _is_sound(outputs, new):
            raise NanLossError(
                f"{examine(training, state, unpack(packed))}. No checkpoint holds it; "
                "training again goes on from the latest one."
            )
        return new, outputs

    return checked


def examine(training: Training, state: TrainState, batch: PreparedBatch) -> NonFinite:
    """Look through one step, all that comes about in it, in order."""
    found = [f for f in _values(training, state, batch) if f is not None]
    if not found:
        # Compiled, the same sums may be taken in another order, and overflow.
        found = [Finding("loss", "the compiled step", 1, 1, "inf or NaN")]
    return NonFinite(int(state.step) + 1, tuple(found))


def _jitted_step(training: Training) -> Any:
    step = steps.make_train_step(training)
    return jax.jit(lambda state, packed: step(state, unpack(packed)))


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]).all()


def _is_sound(outputs: Mapping[str, Any], state: TrainState) -> bool:
    # Statistics that a model keeps for itself may hold NaN on purpose.
    return bool(_all_finite((outputs["loss"], state.params, state.tables)))


def _values(
    training: Training, state: TrainState, batch: PreparedBatch
) -> Iterator[Finding | None]:
    """Every value of a step in the order in which it comes about, if it is bad."""
    for part in batch.get("parts", [batch]):
        yield from (_finding("input", n, v) for n, v in _inputs(part))
    variables = {**state.params, **state.tables}
    yield from (_finding("variable", n, v) for n, v in variables.items())
    for place in range(len(batch.get("parts", [batch]))):
        outputs, loss = _layer_outputs(training, state, batch, place)
        yield from (_finding("layer", n, v) for n, v in outputs)
        yield _finding("loss", "the loss", loss)
    found, _ = jax.jit(lambda s, b: steps.gradients(training, s, b))(state, batch)
    grads = {**found.whole["params"], **found.whole["tables"], **found.rows}
    yield from (_finding("gradient", n, v) for n, v in grads.items())
    new, _ = jax.jit(steps.make_train_step(training))(state, batch)
    updated = {**new.params, **new.tables}
    for name, value in updated.items():
        yield _finding("updated variable", name, value)


def _inputs(part: PreparedBatch) -> Iterator[tuple[str, Any]]:
    yield from part["raw"].items()
    for name, staged in part["staged"].items():
        for leaf in jax.tree.leaves(staged):
            yield f"column {name}", leaf


def _layer_outputs(
    training: Training, state: TrainState, batch: PreparedBatch, place: int
) -> tuple[list[tuple[str, Any]], Any]:
    """What every layer returned, in the order of their return, and the loss."""
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

    with nn.intercept_methods(note):
        applied = steps.apply_in_training(training, state, batch, place)
    return outputs, applied.spec.loss


def _finding(kind: str, name: str, value: Any) -> Finding | None:
    if not _is_float(value):
        return None
    array = np.asarray(jnp.asarray(value, jnp.float32))
    bad = int(array.size - np.count_nonzero(np.isfinite(array)))
    what = "NaN" if np.isnan(array).any() else "inf"
    return Finding(kind, name, bad, array.size, what) if bad else None


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and bool(jnp.issubdtype(value.dtype, jnp.floating))
