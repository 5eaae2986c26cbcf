"""Variables and states from checkpoints, for evaluation, prediction and training.

`Loader` keeps the variables of the last checkpoint on the device, so that repeated
`evaluate` and `predict` calls read it once.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax import checkpoints, training
from estimax.core.errors import CheckpointError, MissingFileError
from estimax.core.state import TrainState
from estimax.parallel import Placement
from estimax.staging import host_plan as plans
from estimax.staging.packing import Packed
from estimax.training.model import (
    BatchStructure,
    structure_of,
    variables_from_names,
    variables_to_names,
)

_log = logging.getLogger("estimax")


class Loaded(NamedTuple):
    """The variables of a checkpoint, its step and its path."""

    variables: training.Variables
    step: int
    path: str


class _Kept(NamedTuple):
    """What was loaded last, for which key, and when its checkpoint was written."""

    key: Any
    stamp: int | None
    loaded: Loaded | None


class Loader:
    """Load variables of checkpoints, and keep those of the last one."""

    def __init__(self, *, use_averages: bool) -> None:
        self._use_averages = use_averages
        self._last = _Kept(None, None, None)  # one value: threads replace it at once

    def load(
        self,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        *,
        or_earlier: bool,
        placement: Placement | None = None,
    ) -> Loaded:
        """Return the variables that a model needs from a checkpoint.

        With `or_earlier`, a damaged checkpoint is replaced by the newest intact one in
        the same folder. With `placement`, they are placed on its mesh.
        """
        try:
            return self._cached(path, shapes, placement)
        except (CheckpointError, MissingFileError):
            if not or_earlier:
                raise
            folder, step = Path(path).parent, checkpoints.step_of(path)
            # Logs a warning for each damaged checkpoint, and raises if all are.
            sound = checkpoints.restore_latest(folder)
            if sound is None or sound.step == step:
                raise  # the checkpoint is intact, but does not fit the model
            path = checkpoints.path_of(folder, sound.step)
            return self._loaded_from(sound, path, shapes, placement)

    def warm_start(
        self,
        model: training.Model,
        plan: plans.Plan,
        shapes: training.Variables,
        batch: plans.RawBatch,
        key: jax.Array,
        settings: checkpoints.WarmStartSettings,
        placement: Placement | None = None,
    ) -> Loaded:
        """Return the initial variables of an untrained model with a warm start."""
        structure = BatchStructure.of(batch, plan.calls)
        cache_key = ("warm start", model.mode, structure_of(batch), placement)
        last = self._last
        if last.loaded is None or cache_key != last.key:
            arrays = jax.tree.map(jnp.asarray, plan.prepare(batch))
            init = jax.jit(lambda key, arrays: model.init(key, arrays, structure))
            state = warm_started(_state_of(init(key, arrays)), settings)
            path = os.fspath(settings.ckpt_to_initialize_from)
            variables = training.variables_of(state)
            if shapes.step is not None:
                variables = replace(variables, step=state.step)
            if placement is not None:
                variables = placement.put(variables)
            loaded = Loaded(variables, int(state.step), path)
            self._last = _Kept(cache_key, None, loaded)
            return loaded
        return last.loaded

    def _cached(
        self,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        placement: Placement | None,
    ) -> Loaded:
        key = (os.fspath(path), _form_of(shapes), placement)
        stamp = _stamp_of(path)
        # A checkpoint that has been removed (stamp None) is still used if it is loaded;
        # one that was written again at the same step is not.
        last = self._last
        is_known = key == last.key and stamp in (last.stamp, None)
        if last.loaded is None or not is_known:
            loaded = self._loaded_from(checkpoints.read(path), path, shapes, placement)
            self._last = _Kept(key, stamp, loaded)
            return loaded
        return last.loaded

    def _loaded_from(
        self,
        checkpoint: checkpoints.Checkpoint,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        placement: Placement | None,
    ) -> Loaded:
        arrays = checkpoint.arrays
        if self._use_averages:
            arrays = checkpoints.with_averages(arrays)
        template = _state_of(shapes)
        if placement is not None:
            template = replace(
                _state_of(placement.forms(shapes)), row_counts=placement.row_counts
            )
        state = checkpoints.unflatten_variables(template, arrays)
        variables = training.variables_of(state)
        if shapes.step is not None:
            variables = replace(variables, step=jnp.int32(checkpoint.step))
        if placement is not None and shapes.step is not None:
            variables = replace(variables, step=placement.put(variables.step))
        return Loaded(variables, checkpoint.step, os.fspath(path))


def _form_of(shapes: training.Variables) -> Any:
    """Return a hashable key: names, shapes and dtypes of all variables.

    A model may declare some of its variables in one mode only.
    """
    leaves, names = jax.tree.flatten(shapes)
    return names, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def _stamp_of(path: str | os.PathLike[str]) -> int | None:
    """Return the time at which a checkpoint was written; None if it is removed.

    A step can be saved again under the same path, and another process that trains may
    remove a checkpoint while this one evaluates it.
    """
    try:
        return (Path(path) / "manifest.json").stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None


def live(
    state: TrainState,
    shapes: training.Variables,
    use_averages: bool,
    placement: Placement | None = None,
) -> Loaded:
    """Return the variables that a model needs from a training state in memory."""
    # By name: a variable of `get_variable` may be a table in training only.
    named = replace(training.variables_of(state), step=state.step)
    trained = variables_to_names(named)
    if use_averages and state.averages:
        trained |= state.averages
    missing = sorted(variables_to_names(shapes).keys() - trained.keys())
    if missing:
        raise CheckpointError(
            f"the model that is evaluated has {', '.join(missing)}, and the state that "
            "was given does not. Declare these variables in mode 'train' as well."
        )
    variables = variables_from_names(shapes, trained)
    if placement is not None:
        variables = _moved(variables, dict(state.row_counts), placement)
    return Loaded(variables, int(state.step), "")


def _moved(
    variables: training.Variables, rows: dict[str, int], placement: Placement
) -> training.Variables:
    """Return variables as evaluation places them; usually as training does.

    A variable of `get_variable` may be sharded in one of the two only.
    """

    def of_group(group: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value
            if placement.rows.get(name) == rows.get(name)
            else placement.put({name: np.asarray(value)[: rows.get(name)]})[name]
            for name, value in group.items()
        }

    return replace(
        variables, params=of_group(variables.params), tables=of_group(variables.tables)
    )


def restored(
    program: training.TrainProgram,
    key: jax.Array,
    batch: Packed,
    checkpoint: checkpoints.Checkpoint,
) -> TrainState:
    """Return the training state of a checkpoint; raise if it does not fit."""
    state = checkpoints.unflatten_state(program.form(key, batch), checkpoint.arrays)
    is_whole = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    if is_whole:
        return state
    # Checkpoints leave out hyper-parameters that optax keeps in its state (see
    # `state_names`), so their values come from a fresh state.
    return checkpoints.unflatten_state(program.init(key, batch), checkpoint.arrays)


def warm_started(
    state: TrainState, settings: checkpoints.WarmStartSettings
) -> TrainState:
    """Return a new state with arrays from another checkpoint; log which ones."""
    state, report = checkpoints.warm_start(state, settings)
    _log.info("%s", report)
    return state


def _state_of(variables: training.Variables) -> TrainState:
    """Return a training state that holds variables only."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=variables.params,
        tables=variables.tables,
        model_state=variables.model_state,
        opt_state={},
        slots={},
        key=jax.random.key(0),
    )
