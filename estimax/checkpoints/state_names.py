"""The names of the arrays in a checkpoint: from a training state to names, and back.

    global_step                       the step counter
    dnn/logits/kernel                 variables of all collections
    training/<group>/<path>           optimizer state
    training/slots/<table>/<slot>     optimizer state of tables updated by row
    dnn/logits/kernel/ExponentialMovingAverage      averages, with average_decay
    random_key                        the random key, as uint32

Hyper-parameters that optax keeps in its state (`inject_hyperparams`) are not saved. A
learning rate changed in the code therefore applies when the run resumes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.tree_util import DictKey, GetAttrKey, keystr
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError
from estimax.core.state import TrainState
from estimax.core.table_stacks import Tables, TableStacks, on_host
from estimax.parallel.placement import put_on, table_of

STEP = "global_step"
KEY = "random_key"
AVERAGE = "ExponentialMovingAverage"
_TRAINING = "training"
_MOST_LISTED = 20

KeyPath = tuple[Any, ...]  # as in jax.tree_util, whose alias is generic


def flatten_state(state: TrainState) -> dict[str, Any]:
    """Return the arrays of a state by name, without copying them.

    >>> import jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> state = TrainState(jnp.int32(3), {"w": jnp.ones(2)}, {}, {}, {}, {}, key)
    >>> list(flatten_state(state))
    ['global_step', 'w', 'random_key']
    """
    named: dict[str, Any] = {}
    for name, leaf in _named_leaves(state):
        if name in named:
            raise CheckpointError(
                f"two variables are both named {name!r}: a checkpoint keeps variables "
                "of all collections by their name alone. Rename one."
            )
        named[name] = leaf
    return named


def row_counts(state: TrainState) -> dict[str, int]:
    """Return the number of rows of arrays that a mesh holds with padding, by name.

    A checkpoint holds these rows alone: tables that are sharded by row have up to n - 1
    more on n devices, and so have their slots and averages.
    """
    rows = dict(state.row_counts)
    if not rows:
        return {}
    variables = {**state.params, **state.tables}
    counts = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name, table = _name(path), table_of(path, rows)
        if name is None or table is None:
            continue
        # Slots may have another shape than their table, such as a scalar count. Only
        # leaves with the padded rows of the table are cut.
        if leaf.shape[:1] == variables[table].shape[:1]:
            counts[name] = rows[table]
    return counts


def is_slot(name: str) -> bool:
    """Return whether an array of a checkpoint is no variable of the model.

    >>> [is_slot(n) for n in ("dnn/kernel", "training/dnn/0/mu/kernel", "global_step")]
    [False, True, True]
    """
    if name in (STEP, KEY) or name.startswith(f"{_TRAINING}/"):
        return True
    return name.endswith(f"/{AVERAGE}")


def unflatten_state(
    template: TrainState, arrays: Mapping[str, NDArray[Any]]
) -> TrainState:
    """Return a state with the structure and placement of `template` and these arrays.

    The leaves of the template may be arrays or `jax.ShapeDtypeStruct`s. Raise
    CheckpointError unless names, shapes and dtypes are the same.
    """
    wanted = flatten_state(template)
    # Renaming is for models that were changed. It is skipped in the usual case, where
    # every name fits.
    if wanted.keys() != arrays.keys():
        arrays = _with_slots_renamed(arrays, wanted, variable_names(template))
    _check(_without_padding(wanted, template), arrays, extra_is_wrong=True)
    return fill_state(template, arrays)


def unflatten_variables(
    template: TrainState, arrays: Mapping[str, NDArray[Any]]
) -> TrainState:
    """Return the template with step and variables from `arrays`.

    For evaluation and prediction: optimizer state, slots and key are those of the
    template, and `arrays` may contain more.
    """
    bare = replace(template, opt_state={}, slots={}, averages={})
    wanted = {n: v for n, v in flatten_state(bare).items() if n != KEY}
    _check(_without_padding(wanted, template), arrays, extra_is_wrong=False)
    return fill_state(template, {name: arrays[name] for name in wanted})


def with_averages(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a checkpoint with averages in place of the variables.

    >>> import numpy as np
    >>> arrays = {"w": np.ones(1), "w/ExponentialMovingAverage": np.zeros(1)}
    >>> with_averages(arrays)["w"].tolist()
    [0.0]
    """
    suffix = f"/{AVERAGE}"
    averages = {n[: -len(suffix)]: a for n, a in arrays.items() if n.endswith(suffix)}
    return {**arrays, **averages}


def variable_names(state: TrainState) -> list[str]:
    """Return the names of the variables, without optimizer state, step and key."""
    bare = replace(state, opt_state={}, slots={}, averages={})
    return [name for name in flatten_state(bare) if name not in (STEP, KEY)]


def slots_of(
    names: Iterable[str], variables: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Return the names of optimizer state as a dict: variable -> slot -> name.

    A slot has the same label for variables updated as a whole and row by row, and for
    all optimizers of a model.

    >>> slots_of(["training/0/m/w", "training/slots/w/v", "training/0/0/count"], ["w"])
    {'w': {'m': 'training/0/m/w', 'v': 'training/slots/w/v'}}
    """
    known = set(variables)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        parts = name.split("/")
        if parts[0] != _TRAINING or len(parts) < 4:
            continue
        if parts[1] == "slots":
            variable, slot = "/".join(parts[2:-1]), parts[-1]
        else:
            variable, slot = _variable_at_end(parts[2:], known)
        if variable in known:
            found.setdefault(variable, {})[slot] = name
    return found


def fill_state(template: TrainState, arrays: Mapping[str, NDArray[Any]]) -> TrainState:
    """Return the template with those leaves replaced that `arrays` contains."""

    def fill(path: KeyPath, leaf: Any) -> Any:
        name = _name(path)
        if name is None or name not in arrays:
            return leaf
        # A checkpoint holds the key as uint32. Wrapped again with the implementation of
        # the template, because the numbers alone do not say which one made them.
        if name == KEY and _is_typed_key(leaf):
            data = _on_device(arrays[name], arrays[name].shape, _sharding(leaf))
            return jax.random.wrap_key_data(data, impl=_key_impl(leaf))
        return _on_device(arrays[name], leaf.shape, _sharding(leaf))

    alone: TrainState = jax.tree_util.tree_map_with_path(
        fill, replace(template, tables={}, slots={})
    )
    return replace(
        alone,
        tables=_fill_tables("tables", template.tables, arrays, fill),
        slots=_fill_tables("slots", template.slots, arrays, fill),
    )


def _fill_tables(
    field: str,
    tables: Tables,
    arrays: Mapping[str, NDArray[Any]],
    fill: Callable[[KeyPath, Any], Any],
) -> Tables:
    """Return tables, or their slots, with those replaced that `arrays` contains."""
    above = (GetAttrKey(field),)

    def fill_leaf(stack: str, path: KeyPath, leaf: Any) -> Any:
        assert isinstance(tables, TableStacks)
        members = tables.layout.tables[stack]
        # As if each table were an array of its own.
        names = {table: (*above, DictKey(table), *path) for table in members}
        if len(members) == 1:
            return fill(names[members[0]], leaf)
        known = {t: str(_name(p)) for t, p in names.items() if _name(p) in arrays}
        if not known:
            return leaf
        # One buffer, into which the rows of each table are read.
        joined = (
            np.empty(leaf.shape, leaf.dtype)
            if len(known) == len(members)
            else np.array(leaf)
        )
        for table, name in known.items():
            _, start, rows = tables.layout[table]
            joined[start : start + rows] = arrays[name]
        return _on_device(joined, leaf.shape, _sharding(leaf))

    if not isinstance(tables, TableStacks):
        filled: Tables = jax.tree_util.tree_map_with_path(
            lambda path, leaf: fill((*above, *path), leaf), dict(tables)
        )
        return filled
    return tables.with_arrays(
        {
            stack: jax.tree_util.tree_map_with_path(
                functools.partial(fill_leaf, stack), of_stack
            )
            for stack, of_stack in tables.arrays.items()
        }
    )


def _with_slots_renamed(
    arrays: Mapping[str, NDArray[Any]],
    wanted: Mapping[str, Any],
    variables: Iterable[str],
) -> Mapping[str, NDArray[Any]]:
    """Return the arrays with the slots of a variable named as the model names them.

    The name depends on whether the variable is updated by row. A change of the model
    that changes this, such as `table[ids]` to `embedding_lookup`, must not make its
    checkpoints unreadable.
    """
    known = list(variables)
    saved = slots_of(arrays, known)
    renamed = dict(arrays)
    for variable, slots in slots_of(wanted, known).items():
        for slot, name in slots.items():
            old = saved.get(variable, {}).get(slot)
            # Never take an array that the model wants under its saved name.
            if old is not None and name not in arrays and old not in wanted:
                renamed[name] = renamed.pop(old)
    return renamed


def _variable_at_end(parts: list[str], known: set[str]) -> tuple[str, str]:
    """Split the path of optimizer state into the variable at its end and the slot."""
    # The longest name first, from the left: "dnn/kernel" before "kernel", in case the
    # model has both.
    for start in range(1, len(parts)):
        variable = "/".join(parts[start:])
        if variable in known:
            return variable, "/".join(parts[:start])
    return "", ""


def _named_leaves(state: TrainState) -> Iterator[tuple[str, Any]]:
    # A checkpoint holds each table of a stack under its own name.
    state = replace(state, tables=on_host(state.tables), slots=on_host(state.slots))
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = _name(path)
        if name is not None:
            yield name, _key_data(leaf) if name == KEY else leaf


def _name(path: KeyPath) -> str | None:
    """Return the name of a leaf of a TrainState; None if it is not saved."""
    field, rest = path[0].name, path[1:]
    match field:
        case "step":
            return STEP
        case "key":
            return KEY
        case "opt_state":
            if GetAttrKey("hyperparams") in rest:
                return None
            return f"{_TRAINING}/{_path_name(rest)}"
        case "slots":
            return f"{_TRAINING}/slots/{_path_name(rest)}"
        case "model_state":
            return _path_name(rest[1:])  # without the collection's name
        case "averages":
            return f"{_path_name(rest)}/{AVERAGE}"
        case _:
            return _path_name(rest)


def _path_name(path: KeyPath) -> str:
    return keystr(path, simple=True, separator="/")


def _without_padding(wanted: Mapping[str, Any], template: TrainState) -> dict[str, Any]:
    """Return the arrays, or their shapes where they have padding on a mesh."""
    form: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
    counts = row_counts(template)
    return {
        name: form((counts[name], *leaf.shape[1:]), leaf.dtype)
        if name in counts
        else leaf
        for name, leaf in wanted.items()
    }


def _sharding(leaf: Any) -> Any:
    return getattr(leaf, "sharding", None)


def _on_device(array: NDArray[Any], shape: tuple[int, ...], sharding: Any) -> jax.Array:
    if isinstance(sharding, NamedSharding):
        return put_on(array, shape, sharding)
    # may_alias=False: the train step donates its state and overwrites that memory, so
    # the memory must not be NumPy's.
    placed: jax.Array = jax.device_put(array, sharding, may_alias=False)
    return placed


def _is_typed_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _key_data(leaf: Any) -> Any:
    """Return a random key as uint32 values, or their shape if the leaf is a shape."""
    if not _is_typed_key(leaf):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return _key_data_form(leaf)
    return jax.random.key_data(leaf)


@functools.cache  # jax keeps a trace for every eval_shape call, also of the same shape
def _key_data_form(key: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    form: jax.ShapeDtypeStruct = jax.eval_shape(jax.random.key_data, key)
    return form


def _key_impl(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.dtype._impl  # jax 0.10: key_impl takes arrays only
    return jax.random.key_impl(leaf)


def _check(
    wanted: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    extra_is_wrong: bool,
) -> None:
    missing = sorted(wanted.keys() - arrays.keys())
    extra = sorted(arrays.keys() - wanted.keys()) if extra_is_wrong else []
    changed = sorted(
        name
        for name in wanted.keys() & arrays.keys()
        if _form(wanted[name]) != _form(arrays[name])
    )
    if not (missing or extra or changed):
        return
    lines = [
        *(f"missing in the checkpoint: {n} {_form(wanted[n])}" for n in missing),
        *(f"not in the model: {n} {_form(arrays[n])}" for n in extra),
        *(
            f"changed: {n} is {_form(arrays[n])} in the checkpoint, "
            f"{_form(wanted[n])} in the model"
            for n in changed
        ),
    ]
    more = len(lines) - _MOST_LISTED
    if more > 0:
        lines = [*lines[:_MOST_LISTED], f"… and {more} more"]
    listed = "".join(f"\n  {line}" for line in lines)
    raise CheckpointError(
        "the checkpoint does not fit the model (or its optimizer):"
        f"{listed}\nTrain the changed model in a new model_dir. To start from the "
        "variables that still fit, use "
        "warm_start_from=ex.WarmStartSettings(old_model_dir, partial=True)."
    )


def _form(array: Any) -> str:
    return f"{array.dtype.name}{list(array.shape)}"
