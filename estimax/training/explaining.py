"""Integrated gradients: the part of each feature in the output of a model.

    explainer = make_explainer(program, prepared_batch, Explained(steps=64))
    parts = jax.jit(explainer.explain)(variables, prepared_batch)
    parts["contributions/age"], parts["baseline"]                   # [B] each

The path leads from a baseline, where all numbers that enter the model are zero, to the
numbers of a row, in a straight line (`staging/model_inputs.py` says which numbers). The
part of a number is its value times the mean of its gradient along the path; the parts
of all numbers of a feature are summed. The paper:

    Sundararajan et al., "Axiomatic Attribution for Deep Networks"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax import staging
from estimax.core.device_dtypes import Int64
from estimax.core.errors import SpecError, did_you_mean
from estimax.core.explanation import (
    BASELINE,
    CLASS_ID,
    CONTRIBUTIONS,
    OUTPUT,
    RESIDUAL,
)
from estimax.core.spec import EstimatorSpec, PredictOutput
from estimax.feature_columns import transforms
from estimax.staging.host_plan import PreparedBatch
from estimax.staging.model_inputs import InputPart
from estimax.staging.trace import HostCall
from estimax.training.model import Variables, apply
from estimax.training.programs import Program

STEPS = 64


@dataclass(frozen=True)
class Explained:
    """What is explained of a model, and how exactly.

    Attributes:
      steps: The number of points on the path at which the gradient is computed.
      output: The name of the prediction; None is "logits", or else "predictions".
      index: Which of several outputs, such as the logit of a class; None is the
        predicted class.
    """

    steps: int = STEPS
    output: str | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        steps: Any = self.steps
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise SpecError(
                f"explain: steps must be a positive whole number, such as {STEPS}; "
                f"found {steps!r}."
            )


class Explainer(NamedTuple):
    """The features that have a part, and the function that computes the parts.

    `explain(variables, batch)` returns arrays [B] by name: `CONTRIBUTIONS` with the
    name of each feature, `BASELINE`, `OUTPUT`, `RESIDUAL`, and `CLASS_ID` for classes.
    """

    features: tuple[str, ...]
    explain: Callable[[Variables, PreparedBatch], dict[str, Any]]


def make_explainer(
    program: Program, batch: PreparedBatch, explained: Explained
) -> Explainer:
    """Return the explainer of a program in mode PREDICT.

    Args:
      program: The program; its `model_fn` is traced anew.
      batch: A batch with the shapes of those that will be explained.
      explained: What is explained.

    Raises:
      SpecError: The model has no such output, or one that depends on a feature other
        than through the layers of feature columns.
    """
    run = _runner(program, explained)
    entries: list[staging.ModelInput] = []

    def trace(variables: Variables, prepared: PreparedBatch) -> list[Any]:
        entries[:] = run(variables, prepared, None)[1]
        return [entry.array for entry in entries]

    arrays = jax.eval_shape(trace, program.shapes, batch)
    outside = _read_outside(run, program, batch, arrays)
    if outside or not arrays:
        raise SpecError(_refusal(outside))
    parts = [entry.parts for entry in entries]
    axes = [entry.axis for entry in entries]
    names = tuple(sorted({n for group in parts for p in group for n in p.features}))

    def explain(variables: Variables, prepared: PreparedBatch) -> dict[str, Any]:
        outputs, found = run(variables, prepared, None)
        ends = [entry.array for entry in found]
        chosen = _chosen(outputs, explained.index)

        def output_at(given: Sequence[Any]) -> jax.Array:
            return _take(run(variables, prepared, given)[0], chosen)

        start = output_at([jnp.zeros_like(end) for end in ends])
        means = _mean_gradients(output_at, ends, explained.steps)
        value = _take(outputs, chosen)
        contributions = jnp.zeros((value.shape[0], len(names)), jnp.float32)
        for end, mean, group, axis in zip(ends, means, parts, axes, strict=True):
            others = tuple(n for n in range(1, end.ndim) if n != axis)
            of_numbers = jnp.sum(end * mean, axis=others)  # [B, W]
            contributions += jnp.matmul(
                *(of_numbers, _shares(group, names)),
                precision=jax.lax.Precision.HIGHEST,
            )
        total = jnp.sum(contributions, axis=1)
        answer = {
            f"{CONTRIBUTIONS}{name}": contributions[:, place]
            for place, name in enumerate(names)
        }
        answer |= {BASELINE: start, OUTPUT: value, RESIDUAL: value - start - total}
        return answer | ({} if outputs.shape[1] == 1 else {CLASS_ID: Int64(chosen)})

    return Explainer(names, explain)


def _runner(program: Program, explained: Explained) -> Callable[..., Any]:
    """Return run(variables, batch, given) -> outputs [B, K], and what enters."""
    recording = program.recording
    # An export, and a loop over the path, always trace.
    model = replace(recording.model, eager=False)

    def run(
        variables: Variables, batch: PreparedBatch, given: Sequence[Any] | None
    ) -> tuple[jax.Array, list[staging.ModelInput]]:
        entering = staging.ModelInputs(given)
        applied = apply(model, variables, batch, recording.structure, inputs=entering)
        return _outputs(applied.spec, explained), entering.found

    return run


def _outputs(spec: EstimatorSpec, explained: Explained) -> jax.Array:
    """Return the prediction that is explained, [B, K]."""
    found = PredictOutput(spec.predictions).as_outputs()
    usual = ("logits", "predictions", "output")
    name = explained.output or next((n for n in usual if n in found), "logits")
    if name not in found:
        near = did_you_mean(name, found, listed_as="predictions")
        raise SpecError(
            "explain: `output` names the prediction to explain in Python; a bundle "
            f"explains 'logits' or 'predictions'. The model predicts no {name!r}{near}"
        )
    value = found[name]
    is_number = isinstance(value, jax.Array) and jnp.issubdtype(
        value.dtype, jnp.floating
    )
    if not is_number or value.ndim not in (1, 2):
        raise SpecError(
            f"explain: the prediction {name!r} must be floats of shape [B] or [B, K], "
            f"found {_form(value)}. Name another one with `output`."
        )
    outputs: jax.Array = value.astype(jnp.float32)
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    _check_index(outputs.shape[1], name, explained.index, found)
    return outputs


def _check_index(
    count: int, name: str, index: int | None, found: Mapping[str, Any]
) -> None:
    if index is not None and not 0 <= index < count:
        raise SpecError(
            f"explain: the prediction {name!r} has {count} numbers, 0 to {count - 1}; "
            f"found the index {index}."
        )
    # Of classes the predicted one is explained; of other numbers none is "the" output.
    of_classes = name.removesuffix("logits") + "probabilities" in found
    if count > 1 and index is None and not of_classes:
        raise SpecError(
            f"explain: the prediction {name!r} has {count} numbers; say which is "
            "explained, such as output_index=0."
        )


def _form(value: Any) -> str:
    shape = list(getattr(value, "shape", ()))
    return f"{getattr(value, 'dtype', type(value).__name__)} {shape}"


def _chosen(outputs: jax.Array, index: int | None) -> jax.Array:
    """Return which output of each row is explained, int32 [B]."""
    if index is None:
        return jnp.argmax(outputs, axis=1).astype(jnp.int32)
    return jnp.full(outputs.shape[0], index, jnp.int32)


def _take(outputs: jax.Array, chosen: jax.Array) -> jax.Array:
    # Compared, not indexed: the gradient of a comparison is no scatter.
    is_chosen = chosen[:, None] == jnp.arange(outputs.shape[1])
    return jnp.sum(jnp.where(is_chosen, outputs, 0.0), axis=1)


def _mean_gradients(
    output_at: Callable[[Sequence[Any]], jax.Array], ends: Sequence[Any], steps: int
) -> list[Any]:
    """Return the mean gradient of the output along the path from zeros to `ends`."""
    points, weights = np.polynomial.legendre.leggauss(steps)

    def total(given: Sequence[Any]) -> jax.Array:
        return jnp.sum(output_at(given))  # a row depends on its own numbers only

    def add(sums: list[Any], node: tuple[Any, Any]) -> tuple[list[Any], None]:
        point, weight = node
        grads = jax.grad(total)([point * end for end in ends])
        return [s + weight * g for s, g in zip(sums, grads, strict=True)], None

    # A loop: one compiled gradient, and memory for one batch, for any number of steps.
    nodes = (
        np.asarray((points + 1) / 2, np.float32),  # from [-1, 1] to [0, 1]
        np.asarray(weights / 2, np.float32),
    )
    sums, _ = jax.lax.scan(add, [jnp.zeros_like(end) for end in ends], nodes)
    return sums


def _shares(parts: Sequence[InputPart], names: Sequence[str]) -> Any:
    """Return the share of each feature in each number, [W, F].

    The features that a number was computed from, as in a cross, have equal shares.
    """
    place = {name: index for index, name in enumerate(names)}
    shares = np.zeros((sum(part.width for part in parts), len(names)), np.float32)
    start = 0
    for part in parts:
        columns = [place[name] for name in part.features]
        shares[start : start + part.width, columns] = 1 / len(columns)
        start += part.width
    return shares


def _read_outside(
    run: Callable[..., Any], program: Program, batch: PreparedBatch, arrays: list[Any]
) -> list[str]:
    """Return the features that the output depends on, apart from the given arrays."""

    def output(given: Any, raw: Any, staged: Any, variables: Variables) -> Any:
        return run(variables, PreparedBatch(raw, staged), given)[0]

    jaxpr = jax.make_jaxpr(output)(arrays, batch.raw, batch.staged, program.shapes)
    read = _needed(jaxpr.jaxpr)
    calls = {call.name: call for call in program.plan.calls}
    places = jax.tree_util.tree_leaves_with_path((arrays, batch.raw, batch.staged))
    found: list[str] = []
    for (path, _), variable in zip(places, jaxpr.jaxpr.invars, strict=False):
        kind, name = path[0].idx, path[1]
        if kind == 0 or variable not in read:
            continue
        if kind == 1:
            found.append(str(name.key))
        elif not _keeps_lengths(calls[name.key]):
            found += [origin.name for origin in calls[name.key].inputs]
    return sorted(set(found))


def _keeps_lengths(call: HostCall) -> bool:
    # The lengths of sequences stay those of the row all along the path.
    return isinstance(call.transform, transforms.SequenceLengths)


def _needed(jaxpr: Any) -> set[Any]:
    """Return the variables of a jaxpr that its results depend on."""
    needed = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(equation.outvars):
            needed.update(v for v in equation.invars if not hasattr(v, "val"))
    return needed


def _refusal(outside: Sequence[str]) -> str:
    layers = "input_layer, linear_model or sequence_input_layer"
    if not outside:
        return f"explain: no feature enters this model through {layers}."
    listed = ", ".join(outside[:5]) + (", …" if len(outside) > 5 else "")
    return (
        f"explain: the output depends on {listed} other than through feature columns. "
        "An explanation needs a path from a baseline to the row, which only numbers of "
        f"{layers} have. Read these features through feature columns. Trees have no "
        "gradients: they, and averages with them, are not explained."
    )
