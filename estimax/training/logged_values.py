"""Logged values, computed only at the steps at which a hook requests them.

    values = program.observe(state, batch, names={"accuracy"})  # before the step itself

`observe` is a forward pass of its own, and a second one with gradients for the norms of
layers. The train step does not compute these values, so they cost nothing at other
steps, and the bits of a step do not depend on what is observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from estimax.core.state import TrainState
from estimax.core.table_stacks import stack_arrays
from estimax.hooks.fetching import is_observed
from estimax.parallel import Placement
from estimax.staging.host_plan import PreparedBatch
from estimax.staging.packing import Packed, unpack
from estimax.training import gradients, steps
from estimax.training.model import Variables, apply, logged_arrays
from estimax.training.recording import Recording
from estimax.training.table_rows import Batch, segment_lengths
from estimax.training.updates import TableStack, UpdatePlan

# (state or variables, batch or stack of batches, place in the stack) -> values. That of
# training also has `names`, the values to compute.
Observe = Callable[..., dict[str, Any]]

GRADIENT, WEIGHT = "gradient_norm/", "weight_norm/"
_NORMS = "norms"


def names_to_observe(logged: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the values that the train step does not return."""
    return frozenset(name for name in logged if is_observed(name, logged))


def observe_training(
    updates: UpdatePlan, texts: Mapping[str, str], norms: frozenset[str]
) -> Observe:
    """Build observe(state, batches, place=None, *, names) -> values of a batch.

    `norms` are the names of the norms. They and the logged values are compiled apart:
    most requests are for the logged values, which need no gradients.
    """

    def observe(state: TrainState, batch: Batch) -> dict[str, Any]:
        applied = gradients.apply_in_training(updates, state, batch)
        computed = gradients.rates_of(applied)
        rates = learning_rates(updates, state.opt_state, state.step, computed)
        values = rates | logged_arrays(applied.logged)
        everywhere: dict[str, Any] = updates.placement.replicate(values)
        return everywhere

    # Without the optimizers: these are the gradients before clipping.
    def observe_norms(state: TrainState, batch: Batch) -> dict[str, Any]:
        found, _ = gradients.compute_gradients(updates, state, batch)
        stacks = {s.name: s for s in updates.stacks if not s.is_single}
        apart = {n: rows for n, rows in found.rows.items() if n not in stacks}
        grads = {**found.whole["params"], **found.whole["tables"], **apart}
        arrays = {**state.params, **stack_arrays(state.tables)}
        weights = {name: arrays[name] for name in grads}
        squares = [_squares_of(layers, grads), _squares_of(layers, weights)]
        for name, stack in stacks.items():
            assert updates.layout is not None, "it says where stacked tables are"
            sizes = segment_lengths(updates, batch, stack)
            squares[0] += _squares_in_stack(layers, found.rows[name], stack, sizes)
            sizes = [updates.layout[table].rows for table in stack.tables]
            squares[1] += _squares_in_stack(layers, arrays[name], stack, sizes)
        # One array: an output for each of 1,000 layers takes long to compile.
        both = jnp.sqrt(jnp.stack(squares))
        return {_NORMS: updates.placement.replicate(both)}

    layers = {layer: place for place, layer in enumerate(_trained_layers(updates))}
    logged = _compile(updates.placement, observe, texts)
    normed = _compile(updates.placement, observe_norms, {})

    def observe_named(*batch: Any, names: Set[str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if not norms.isdisjoint(names):
            both = np.asarray(normed(*batch)[_NORMS])
            for kind, of_layers in zip((GRADIENT, WEIGHT), both, strict=True):
                values |= {f"{kind}{n}": of_layers[i] for n, i in layers.items()}
        return values if names <= norms else {**values, **logged(*batch)}

    return observe_named


def norm_names(updates: UpdatePlan) -> list[str]:
    """Return the names of the norms of all layers that are trained."""
    layers = _trained_layers(updates)
    return [f"{kind}{layer}" for kind in (GRADIENT, WEIGHT) for layer in layers]


def _trained_layers(updates: UpdatePlan) -> list[str]:
    groups = updates.param_groups | {n: t.group for n, t in updates.tables.items()}
    trained = (name for name, group in groups.items() if group is not None)
    return list(dict.fromkeys(map(layer_of, trained)))


def layer_of(variable: str) -> str:
    """Return the layer of a variable, which is its scope.

    >>> layer_of("dnn/hiddenlayer_0/kernel"), layer_of("bias")
    ('dnn/hiddenlayer_0', 'bias')
    """
    return variable.rpartition("/")[0] or variable


def _squares_of(layers: Mapping[str, int], arrays: Mapping[str, Any]) -> jax.Array:
    """Return the sum of squares of the arrays of each layer, [layers]."""
    found = jnp.zeros(len(layers), jnp.float32)
    if not arrays:
        return found
    # In float32: a sum of squares in bfloat16 has two to three digits.
    sums = [jnp.sum(jnp.square(a.astype(jnp.float32))) for a in arrays.values()]
    return found.at[_places(layers, arrays)].add(jnp.stack(sums))


def _squares_in_stack(
    layers: Mapping[str, int], rows: jax.Array, stack: TableStack, sizes: Sequence[int]
) -> jax.Array:
    """Return the sum of squares of the tables of each layer, [layers].

    `sizes` is how many of the rows belong to each table.
    """
    of_rows = jnp.sum(jnp.square(rows.astype(jnp.float32)), axis=1)
    places = np.repeat(_places(layers, stack.tables), sizes)
    return jnp.zeros(len(layers), jnp.float32).at[places].add(of_rows)


def _places(layers: Mapping[str, int], variables: Iterable[str]) -> NDArray[np.int32]:
    return np.array([layers[layer_of(name)] for name in variables], np.int32)


def observe_evaluation(recording: Recording, placement: Placement) -> Observe:
    """Build observe(variables, batch) -> logged values of a batch."""

    def observe(variables: Variables, batch: PreparedBatch) -> dict[str, Any]:
        applied = apply(
            recording.model, variables, batch, recording.structure, placement
        )
        # On a mesh every device has the values, and so every process.
        everywhere: dict[str, Any] = placement.replicate(logged_arrays(applied.logged))
        return everywhere

    return _compile(placement, observe, recording.texts)


def learning_rates(
    updates: UpdatePlan,
    opt_state: Mapping[str, Any],
    step: jax.Array,
    computed: Mapping[str, jax.Array],
) -> dict[str, Any]:
    """Return the learning rate of each optimizer for the next update, by name.

    `computed` are the rates that the model computed, by the index of the group.
    An optax transformation is left out, unless it was made by
    `optax.inject_hyperparams`: its rate cannot be read from its state.
    """
    # Names must not depend on the values: they are known before the first step.
    groups = updates.train_op.with_rates(computed).groups
    parts = _parts(updates) if len(groups) > 1 else []
    rates: dict[str, Any] = {}
    for index, group in enumerate(groups):
        rate = _rate(group.optimizer, opt_state.get(str(index)), step)
        if rate is not None:
            rates["/".join(["learning_rate", *parts[index : index + 1]])] = rate
    return rates


def _parts(updates: UpdatePlan) -> list[str]:
    """Return a name for each group from its variables: "dnn", "linear"."""
    group_of = updates.param_groups | {n: t.group for n, t in updates.tables.items()}
    names = [
        [name for name, group in group_of.items() if group == index]
        for index in range(len(updates.train_op.groups))
    ]
    firsts = [Counter(n.split("/")[0] for n in mine).most_common(1) for mine in names]
    parts = [first[0][0] if first else "nothing" for first in firsts]
    if len(set(parts)) == len(parts):
        return parts
    return [f"{part}_{index}" for index, part in enumerate(parts)]


def _rate(optimizer: Any, opt_state: Any, step: jax.Array) -> Any:
    if optimizer.learning_rate is not None:
        return optimizer.learning_rate_at(step)
    if opt_state is None:
        return None
    found = optax.tree_utils.tree_get_all_with_path(opt_state, "learning_rate")
    return found[0][1] if len(found) == 1 else None


def _compile(
    placement: Placement,
    function: Callable[[Any, Any], Any],
    texts: Mapping[str, str],
) -> Observe:
    def call(first: Any, batch: Packed) -> Any:
        return function(first, unpack(batch))

    def call_at(first: Any, batches: Packed, place: jax.Array) -> Any:
        return call(first, steps.batch_at(batches, place))

    # Two programs: a stack is indexed on the device, where its batches are. Neither
    # donates its first argument, which the step uses next.
    of_batch, of_stack = placement.compile(call), placement.compile(call_at)

    def observe(first: Any, batches: Packed, place: int | None = None) -> Any:
        values = (
            of_batch(first, batches)
            if place is None
            else of_stack(first, batches, place)
        )
        return {**values, **texts}

    return observe
