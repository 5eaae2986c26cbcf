"""Variables and states from checkpoints, for evaluation, prediction and training.

`Loader` keeps the variables of the last checkpoint on the device, so that repeated
`evaluate` and `predict` calls read it once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax import checkpoints, training
from estimax.core.errors import CheckpointError, MissingFileError
from estimax.core.state import TrainState
from estimax.estimator.run_config import RunConfig
from estimax.parallel import Placement
from estimax.staging import host_plan as plans
from estimax.staging.packing import Packed
from estimax.training.model import (
    init,
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
    """Load variables of checkpoints, and keep the variables of the last checkpoint.

    `latest` is the method of the Estimator, which a subclass may override: if it
    returns None, the warm start is loaded.
    """

    def __init__(
        self,
        config: RunConfig,
        warm_start: checkpoints.WarmStartSettings | None,
        latest: Callable[[], str | None],
    ) -> None:
        self._config = config
        self._warm_start = warm_start
        self._latest = latest
        self._last = _Kept(None, None, None)  # one value: threads replace it at once

    def checkpoint(self, given: str | os.PathLike[str] | None) -> str:
        """Return the given checkpoint or the latest one; raise if there is none."""
        path = given if given is not None else latest_checkpoint(self._model_dir)
        if path is None:
            raise MissingFileError(
                f"no checkpoint in {self._model_dir!r}: this model has not been "
                "trained. Call train first, or give checkpoint_path."
            )
        return os.fspath(path)

    def check_trained(self, given: str | os.PathLike[str] | None) -> None:
        """Raise if there is neither a checkpoint nor a warm start."""
        if self._warm_start is None:
            self.checkpoint(given)

    def load(
        self,
        program: training.Program,
        batch: plans.RawBatch,
        given: str | os.PathLike[str] | None,
        placement: Placement | None = None,
    ) -> Loaded:
        """Return the variables of a checkpoint, or else of the warm start.

        They are placed as the program needs them, or else by `placement`. If no
        checkpoint is given and the latest one is damaged, the newest intact one is
        read.
        """
        placement = program.placement if placement is None else placement
        is_latest = given is None
        if is_latest and self._warm_start and not self._latest():
            return self._load_warm_start(program, batch, self._warm_start, placement)
        path, shapes = self.checkpoint(given), program.shapes
        try:
            return self._load_cached(path, shapes, placement)
        except (CheckpointError, MissingFileError):
            if not is_latest:
                raise
            folder, step = Path(path).parent, checkpoints.step_of(path)
            # Logs a warning for each damaged checkpoint, and raises if all are.
            sound = checkpoints.restore_latest(folder)
            if sound is None or sound.step == step:
                raise  # the checkpoint is intact, but does not fit the model
            earlier = checkpoints.path_of(folder, sound.step)
            return self._load_from(sound, earlier, shapes, placement)

    @property
    def _model_dir(self) -> str:
        return str(self._config.model_dir)

    def _load_warm_start(
        self,
        program: training.Program,
        batch: plans.RawBatch,
        settings: checkpoints.WarmStartSettings,
        placement: Placement,
    ) -> Loaded:
        """Return the initial variables of an untrained model with a warm start."""
        recording = program.recording
        mode = recording.model.mode
        cache_key = ("warm start", mode, structure_of(batch), placement)
        last = self._last
        if last.loaded is None or cache_key != last.key:
            arrays = jax.tree.map(jnp.asarray, program.plan.prepare(batch))
            model = replace(recording.model, eager=False)  # traced here
            make = jax.jit(
                lambda key, arrays: init(model, key, arrays, recording.structure)
            )
            key = jax.random.key(self._config.tf_random_seed or 0)
            state = warm_start_state(_state_of(make(key, arrays)), settings)
            path = os.fspath(settings.ckpt_to_initialize_from)
            variables = training.variables_of(state)
            if program.shapes.step is not None:
                variables = replace(variables, step=state.step)
            loaded = Loaded(placement.put(variables), int(state.step), path)
            self._last = _Kept(cache_key, None, loaded)
            return loaded
        return last.loaded

    def _load_cached(
        self,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        placement: Placement,
    ) -> Loaded:
        key = (os.fspath(path), _form_of(shapes), placement)
        stamp = _stamp_of(path)
        # A checkpoint that has been removed (stamp None) is still used if it is loaded;
        # one that was written again at the same step is not.
        last = self._last
        is_known = key == last.key and stamp in (last.stamp, None)
        if last.loaded is None or not is_known:
            loaded = self._load_from(checkpoints.read(path), path, shapes, placement)
            self._last = _Kept(key, stamp, loaded)
            return loaded
        return last.loaded

    def _load_from(
        self,
        checkpoint: checkpoints.Checkpoint,
        path: str | os.PathLike[str],
        shapes: training.Variables,
        placement: Placement,
    ) -> Loaded:
        arrays = checkpoint.arrays
        if self._config.use_averages:
            arrays = checkpoints.with_averages(arrays)
        template = replace(
            _state_of(placement.forms(shapes)), row_counts=placement.row_counts
        )
        state = checkpoints.unflatten_variables(template, arrays)
        variables = training.variables_of(state)
        if shapes.step is not None:
            step = placement.put(jnp.int32(checkpoint.step))
            variables = replace(variables, step=step)
        return Loaded(variables, checkpoint.step, os.fspath(path))


def latest_checkpoint(model_dir: str) -> str | None:
    """Return the path of the newest readable checkpoint, or None."""
    path = checkpoints.latest(model_dir)
    return None if path is None else str(path)


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


def variables_of_state(
    state: TrainState, program: training.Program, use_averages: bool
) -> Loaded:
    """Return the variables that a program needs from a training state in memory."""
    shapes = program.shapes
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
    variables = _move_tables(variables, dict(state.row_counts), program.placement)
    return Loaded(variables, int(state.step), "")


def _move_tables(
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


def restore_state(
    program: training.Program,
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


def warm_start_state(
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
