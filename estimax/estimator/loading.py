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
from estimax.feeding.packing import Packed
from estimax.parallel import Placement
from estimax.staging import plan as plans
from estimax.training.model import kind_of

_log = logging.getLogger("estimax")


class Loaded(NamedTuple):
    """The variables of a checkpoint, its step and its path."""

    variables: training.Variables
    step: int
    path: str


class Loader:
    """Load variables of checkpoints, and keep those of the last one."""

    def __init__(self, *, use_averages: bool) -> None:
        self._use_averages = use_averages
        self._key: Any = None
        self._stamp: int | None = None
        self._loaded: Loaded | None = None

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
        batch: plans.RawBatch,
        key: jax.Array,
        settings: checkpoints.WarmStartSettings,
        placement: Placement | None = None,
    ) -> Loaded:
        """Return the initial variables of an untrained model with a warm start."""
        structure = {origin: kind_of(value) for origin, value in batch.items()}
        cache_key = ("warm start", model.mode, frozenset(structure.items()), placement)
        if self._loaded is None or cache_key != self._key:
            arrays = jax.tree.map(jnp.asarray, plan.prepare(batch))
            init = jax.jit(lambda key, arrays: model.init(key, arrays, structure))
            state = warm_started(_state_of(init(key, arrays)), settings)
            path = os.fspath(settings.ckpt_to_initialize_from)
            variables = replace(training.variables_of(state), step=state.step)
            if placement is not None:
                variables = placement.put(variables)
            loaded = Loaded(variables, int(state.step), path)
            self._key, self._loaded = cache_key, loaded
        return self._loaded

    def _cached(
        self,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        placement: Placement | None,
    ) -> Loaded:
        names = tuple(shapes.params), tuple(shapes.tables), shapes.step is None
        key = (os.fspath(path), names, placement)
        stamp = _stamp_of(path)
        # A checkpoint that has been removed (stamp None) is still used if it is loaded;
        # one that was written again at the same step is not.
        is_known = key == self._key and stamp in (self._stamp, None)
        if self._loaded is None or not is_known:
            loaded = self._loaded_from(checkpoints.read(path), path, shapes, placement)
            self._key, self._stamp, self._loaded = key, stamp, loaded
        return self._loaded

    def _loaded_from(
        self,
        checkpoint: checkpoints.Checkpoint,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        placement: Placement | None,
    ) -> Loaded:
        arrays = checkpoint.arrays
        if self._use_averages:
            arrays = checkpoints.averaged(arrays)
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
    # A variable of `get_variable` may be a table in training only.
    trained = {**state.params, **state.tables}
    if use_averages and state.averages:
        trained |= state.averages
    variables = training.Variables(
        {name: trained[name] for name in shapes.params},
        {name: trained[name] for name in shapes.tables},
        {name: state.model_state[name] for name in shapes.model_state},
        None if shapes.step is None else state.step,
    )
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
