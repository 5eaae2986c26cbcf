"""`TreesEstimator`: an Estimator whose training is LightGBM's and whose rest is XLA's.

    model.train(input_fn)        # one step is one iteration: a tree for each output
    model.evaluate(input_fn)     # the trees of the checkpoint, compiled by XLA

A checkpoint has the trees twice: as arrays, which are the variables of the `model_fn`,
and as LightGBM's text, from which training continues. Hooks, checkpoints, summaries and
`train_and_evaluate` are those of any Estimator: growing trees is the step of the
ordinary training loop.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax import checkpoints, optimizers, training
from estimax import hooks as stock
from estimax.canned import defaults
from estimax.canned.hints import python_hint
from estimax.canned.trees import growing, reading
from estimax.canned.trees.arrays import Arrays, TreeLayout, arrays_of, layout_of
from estimax.canned.trees.scores import raw_scores
from estimax.canned.trees.table import table_of
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import CheckpointError, SpecError
from estimax.core.spec import EstimatorSpec, Mode, ModeKeys
from estimax.core.state import TrainState
from estimax.estimator import Estimator, RunConfig, arguments, exporting
from estimax.estimator import results as reports
from estimax.estimator.default_log import shown_by_default
from estimax.estimator.estimator import InputFn
from estimax.estimator.model_dir import ended_at, mark_ended, training_in
from estimax.estimator.training_hooks import finishing_saves, training_hooks
from estimax.formats import lightgbm_models
from estimax.formats.lightgbm_models import Forest
from estimax.hooks import Hook, RunContext
from estimax.input import ChangedInputError
from estimax.parallel import Placement
from estimax.parallel.cluster import check_alone, check_trains
from estimax.staging import variables
from estimax.staging.batches import BatchStack
from estimax.staging.variables.declare import UNTRAINED
from estimax.training.signals import stopping_on_signals

_log = logging.getLogger("estimax")
_SCOPE = "trees"
_TEXT = "training/lightgbm"  # the name of LightGBM's text in a checkpoint


class TreesEstimator(Estimator):
    """What boosted trees and random forests share; made by their subclasses."""

    _can_compile_ahead = False  # a program depends on the size of the trees

    def __init__(
        self,
        head: Any,
        feature_columns: Any,
        model_dir: defaults.ModelPath | None,
        config: RunConfig | None,
        warm_start_from: WarmStart,
        *,
        n_trees: int,
        parameters: Mapping[str, Any],
        per_row: Mapping[str, float],
        early_stopping_rounds: int | None = None,
        is_forest: bool = False,
    ) -> None:
        model = type(self).__name__
        defaults.check_head(head, model)
        objective = growing.objective_of(head, model)
        defaults.check_count(n_trees, model, "n_trees")
        if early_stopping_rounds is not None:
            name = "early_stopping_rounds"
            defaults.check_count(early_stopping_rounds, model, name)
        self._head = head
        self._table = table_of(feature_columns, model)
        self._n_trees = n_trees
        self._patience = early_stopping_rounds

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            return self._spec(features, labels, mode, self._form_of(None))

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self._settings = growing.Settings(
            model,
            objective,
            outputs=head.logits_dimension,
            parameters=parameters,
            per_row=per_row,
            is_forest=is_forest,
            seed=self._config.tf_random_seed or 0,
        )
        self.not_learning_hint = python_hint(head)
        self._masks_padding = defaults.is_by_row(head, self._table)

    # ------------------------------------------------------------------------ training
    def train(
        self,
        input_fn: InputFn,
        hooks: Sequence[Hook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[stock.CheckpointSaverListener] | None = None,
    ) -> TreesEstimator:
        """Grow trees on all rows of the input, and save checkpoints to `model_dir`.

        A step grows a tree for each output. Training ends at `n_trees` steps, or
        earlier at `steps` or `max_steps`. It continues from the latest checkpoint; one
        that was killed ends with the same trees as one that was not.

        Args:
          input_fn: A function that returns the training data; see `Estimator.train`.
            The rows are read once and kept in memory. A `Dataset` that repeats is read
            for one epoch. The order of the rows has no effect.
          hooks: Hooks that are called during training.
          steps: How many trees to grow in this call.
          max_steps: The total number of trees after which training ends.
          saving_listeners: Called before and after each checkpoint is saved.

        Returns:
          This estimator, so that calls can be chained.

        Raises:
          ImportError: LightGBM is not installed.
          ChangedInputError: The last call was interrupted, and the rows have changed.
          InputError: There are no rows.
          FeatureError: A row has several values of a category, or a weight is not a
            number of at least 0.
          LabelError: A label is NaN or infinite.
          CheckpointError: The checkpoint has trees for other columns or another head.
        """
        arguments.check_steps(steps=steps, max_steps=max_steps)
        check_trains(self._config)
        check_alone(self._config, f"{self._settings.model}.train")
        growing.import_lightgbm(self._settings.model)
        with shown_by_default(), training_in(self._config, "train"):
            checkpoint = checkpoints.restore_latest(self.model_dir)
            if checkpoint is None:
                arguments.check_folder(self.model_dir)
            start = checkpoint.step if checkpoint else 0
            progress = _progress_of(checkpoint)
            wanted = [self._n_trees, max_steps, start + steps if steps else None]
            last = min(step for step in wanted if step is not None)
            if start >= last or (progress.get("stopped") and steps is None):
                reports.log_nothing_to_train(self.model_dir, start, last)
                return self
            given = arguments.hooks_of(hooks)
            rows = self._read(input_fn, ModeKeys.TRAIN)
            self._check_same(progress, rows, start)
            run = _Run(
                growing.Grower(
                    self._settings,
                    rows,
                    self._table.names,
                    len(self._table.categories),
                    self._start_text(checkpoint),
                    self._validation(given),
                ),
                self._arrays,
                progress | {"rows": rows.digest, "columns": list(self._table.names)},
                len(rows.labels),
                self._patience,
            )
            reports.log_start(self.model_dir, start, last, None)
            context = self._run(run, start, last, given, saving_listeners or ())
            if context is not None and self.latest_checkpoint() is not None:
                mark_ended(self.model_dir, int(context.step))
        return self

    def _run(
        self,
        run: _Run,
        start: int,
        last: int,
        hooks: Sequence[Hook],
        listeners: Sequence[stock.CheckpointSaverListener],
    ) -> RunContext | None:
        """Grow trees up to a step; return None if a signal ended it."""
        context = RunContext(step=start, input_state=run.progress)
        spec = EstimatorSpec(
            ModeKeys.TRAIN, loss=jnp.zeros(()), train_op=optimizers.SGD(0.0)
        )
        every = [
            _StopWhenDone(run),
            *training_hooks(self._config, spec, hooks, listeners, last_step=last),
        ]
        program = _program_of(run)
        with stopping_on_signals(context), finishing_saves(every):
            training.run(program, run.state(start), run.stacks(), every, context)
            if context.interrupted_by:
                saved = self.latest_checkpoint()
                reports.log_interruption(context, saved)
                return None
        reports.log_training(context)
        return context

    def _read(self, input_fn: InputFn, mode: Mode) -> reading.TreeRows:
        model = self._settings.model
        with self._open(ModeKeys.TRAIN, reading.one_pass(input_fn)) as session:
            first = arguments.first_batch(session.feed, f"{model}.train")
            if mode == ModeKeys.TRAIN and self._config.is_chief:
                exporting.remember_example(self.model_dir, first)
            # Rows for training and rows for validation mostly have one structure.
            key = "rows", training.structure_of(first), session.placement
            if key not in self._programs:
                made = reading.reader(session, self._table, self._head, model)
                self._programs[key] = made
            return reading.read_rows(session, self._programs[key], self._table, model)

    def _validation(self, hooks: Sequence[Hook]) -> reading.TreeRows | None:
        """Return the rows of the first evaluation of `train_and_evaluate`."""
        if self._patience is None:
            return None
        found = [spec for hook in hooks for spec in getattr(hook, "eval_specs", ())]
        if not found:
            _log.warning(
                "%s: early_stopping_rounds has no effect, because train has no "
                "evaluation data. Use train_and_evaluate.",
                self._settings.model,
            )
            return None
        return self._read(found[0].input_fn, ModeKeys.EVAL)

    def _start_text(self, checkpoint: checkpoints.Checkpoint | None) -> str:
        """Return the model to continue: of the checkpoint, or else the warm start."""
        if checkpoint is not None:
            return self._checked(_text_of(checkpoint.arrays.get(_TEXT), self.model_dir))
        if self._warm_start is None:
            return ""
        path = _checkpoint_in(self._warm_start.ckpt_to_initialize_from)
        return self._checked(_text_of(checkpoints.read_array(path, _TEXT), path))

    def _checked(self, text: str) -> str:
        """Return a model; raise CheckpointError if it has other columns or outputs."""
        if not text:
            return text
        forest = lightgbm_models.parse(text)
        if len(forest.features) != len(self._table.names):
            raise CheckpointError(
                f"{self._settings.model}: the checkpoint has trees for "
                f"{len(forest.features)} columns, and feature_columns give "
                f"{len(self._table.names)}. Use the same columns, or a new model_dir."
            )
        if forest.outputs != self._settings.outputs:
            raise CheckpointError(
                f"{self._settings.model}: the checkpoint has {forest.outputs} outputs, "
                f"and the head has {self._settings.outputs}."
            )
        return text

    def _check_same(
        self, progress: Mapping[str, Any], rows: reading.TreeRows, start: int
    ) -> None:
        """Raise if the checkpoint is of other columns, or of other rows."""
        columns = progress.get("columns")
        if columns is not None and columns != list(self._table.names):
            raise CheckpointError(
                f"{self._settings.model}: the checkpoint in {self.model_dir} has trees "
                f"for the columns {', '.join(columns)}; feature_columns give "
                f"{', '.join(self._table.names)}. Use the same columns, or a new "
                "model_dir."
            )
        before = progress.get("rows")
        if before in (None, rows.digest) or ended_at(self.model_dir) == start:
            return
        if self._config.resume_input in ("exact", "refuse", True):
            raise ChangedInputError(
                f"{self._settings.model}: training was interrupted at step {start}, "
                "and the rows of the input have changed since. "
                'RunConfig(resume_input="restart") grows the further trees on the new '
                "rows."
            )

    # ---------------------------------------------------------------------- evaluation
    def _spec(self, features: Any, labels: Any, mode: str, form: Any) -> EstimatorSpec:
        """Return the spec of the trees whose arrays have this form."""
        if mode == ModeKeys.TRAIN:
            raise SpecError(
                f"{self._settings.model}: LightGBM trains the trees, so its model_fn "
                "has no train mode. Call train of the estimator itself."
            )
        defaults.check_features(features, self._settings.model)
        numbers, ids = self._table.read(features)
        arrays = variables.scoped(_SCOPE, _declare)(form)
        sizes, outputs = self._table.sizes, self._settings.outputs
        logits = raw_scores(arrays, numbers, ids, sizes, outputs)
        spec: EstimatorSpec = self._head.create_estimator_spec(
            features, mode, logits, labels
        )
        return spec

    def _function_of(self, mode: Mode, form: Hashable) -> Callable[[Any, Any], Any]:
        return lambda features, labels: self._spec(features, labels, mode, form)

    def _form_of(self, checkpoint_path: Any) -> TreeLayout:
        """Return the layout of the arrays of a checkpoint."""
        path = checkpoint_path
        if path is None and self.latest_checkpoint() is None and self._warm_start:
            path = _checkpoint_in(self._warm_start.ckpt_to_initialize_from)
        if path is None:
            self._loader.checkpoint(None)  # raises if there is none
            # If the latest one is damaged, `Loader` also takes the one before it.
            sound = checkpoints.restore_latest(self.model_dir)
            assert sound is not None, "it would have raised"
            path = checkpoints.path_of(self.model_dir, sound.step)
        manifest = checkpoints.read_manifest(path)
        prefix = f"{_SCOPE}/"
        forms = {
            name.removeprefix(prefix): (entry.shape, entry.dtype.name)
            for name, entry in manifest.arrays.items()
            if name.startswith(prefix)
        }
        if not forms:
            raise CheckpointError(f"{path} is no checkpoint of trees.")
        return layout_of(forms)

    def _form_of_state(self, state: TrainState) -> TreeLayout:
        arrays = state.model_state[UNTRAINED][_SCOPE]
        return layout_of({n: (a.shape, a.dtype.name) for n, a in arrays.items()})

    def _arrays(self, text: str, iterations: int | None) -> Arrays:
        forest = self._forest(text)
        return arrays_of(forest, self._table.width, self._table.sizes, iterations)

    def _forest(self, text: str) -> Forest:
        if text:
            return lightgbm_models.parse(text)
        return Forest((), self._settings.outputs, False, self._table.names, "")

    # --------------------------------------------------------------------- importances
    def experimental_feature_importances(
        self, normalize: bool = False, kind: str = "gain"
    ) -> dict[str, float]:
        """Return how important each feature is to the trees of the latest checkpoint.

        Args:
          normalize: Whether to divide the values by their sum.
          kind: "gain": how much the splits on a feature lowered the loss. "split": the
            number of splits.

        Returns:
          The importance by the name of the feature, most important first.

        Raises:
          SpecError: `kind` is unknown.
          MissingFileError: There is no checkpoint.
        """
        if kind not in ("gain", "split"):
            raise SpecError(f"kind must be 'gain' or 'split', got {kind!r}.")
        text = _text_of(self.get_variable_value(_TEXT), self.model_dir)
        total = np.zeros(len(self._table.names))
        for tree in self._forest(text).trees:
            amount = tree.gain if kind == "gain" else np.ones(len(tree.feature))
            np.add.at(total, tree.feature, amount)
        if normalize and total.sum() > 0:
            total /= total.sum()
        order = np.argsort(-total, kind="stable")
        return {self._table.names[i]: float(total[i]) for i in order}

    def model_to_string(self) -> str:
        """Return the latest checkpoint in LightGBM's text format.

        Its features are numbered in the order of the table: numbers by name, then
        categories by name, whose values are ids.
        """
        return _text_of(self.get_variable_value(_TEXT), self.model_dir)


class _Run:
    """One training: the trees so far, and what is known about their progress."""

    def __init__(
        self,
        grower: growing.Grower,
        arrays: Callable[[str, int | None], Arrays],
        progress: dict[str, Any],
        rows: int,
        patience: int | None,
    ) -> None:
        self.grower = grower
        self.progress = progress
        self.rows = rows
        self.is_done = False
        self._arrays = arrays
        self._patience = patience
        self._validates = grower.validates

    def grow(self, state: TrainState, _: Any) -> tuple[TrainState, dict[str, Any]]:
        """Grow one iteration: the step of the training loop."""
        step = int(state.step)
        if not self.grower.grow(step):
            self.is_done = True
        if self._validates:
            self._note(step + 1, self.grower.validation_loss())
        loss = np.float32(self.grower.loss())
        return self.state(step + 1), {"loss": loss}

    def _note(self, step: int, loss: float) -> None:
        """Note the best iteration, and stop if it was too long ago."""
        assert self._patience is not None, "there is validation data to stop early"
        best = self.progress.get("best")
        if best is None or loss < best["loss"]:
            iterations = self.grower.iterations
            best = {"step": step, "loss": loss, "iterations": iterations}
            self.progress["best"] = best
        if step - best["step"] >= self._patience:
            _log.info(
                "stopping early at step %d: the loss of the evaluation data was best "
                "at step %d, %.6g, whose trees are used",
                step,
                best["step"],
                best["loss"],
            )
            self.progress["stopped"] = self.is_done = True

    def state(self, step: int) -> TrainState:
        """Return the state after a step; its arrays are made when they are read."""
        best = self.progress.get("best")
        iterations = None if best is None else int(best["iterations"])
        grower, arrays = self.grower, self._arrays

        def make() -> tuple[Any, Any]:
            text = grower.text
            # Not `jnp.asarray`, which is a program of its own for each shape.
            made = arrays(text, iterations)
            trees = {name: jax.device_put(array) for name, array in made.items()}
            saved = jax.device_put(np.frombuffer(text.encode(), np.uint8))
            return {UNTRAINED: {_SCOPE: trees}}, {"lightgbm": saved}

        return TreesState.after(step, make)

    def stacks(self) -> Iterator[BatchStack]:
        """Yield what the training loop reads: nothing, once for each step."""
        nothing: Any = ()  # all rows are with LightGBM
        while True:
            yield BatchStack(nothing, [self.rows], _LaterProgress(self.progress))


class _LaterProgress(Sequence[Any]):
    """The progress behind a step, which is known when the step is done."""

    def __init__(self, progress: Mapping[str, Any]) -> None:
        self._progress = progress

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return copy.deepcopy(dict(self._progress))


class _StopWhenDone(Hook):
    """Stops training when no further tree can or should be grown."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def after_run(self, context: RunContext, values: Any) -> None:
        """Request the end of training."""
        if self._run.is_done:
            context.request_stop()


class TreesState(TrainState):
    """A training state whose arrays are made when they are first read.

    Hooks see a state after every step, and only some of them save or evaluate it.
    """

    @classmethod
    def after(cls, step: int, make: Callable[[], tuple[Any, Any]]) -> TreesState:
        """Return the state after a step, whose variables `make` returns."""
        state = object.__new__(cls)
        state.__dict__.update(
            step=jnp.int32(step),
            params={},
            tables={},
            slots={},
            key=jax.random.key(0),
            averages={},
            row_counts=(),
            _make=make,
        )
        return state

    @cached_property
    def _made(self) -> tuple[Any, Any]:
        made: tuple[Any, Any] = self.__dict__["_make"]()
        return made

    @cached_property
    def model_state(self) -> Any:
        """The trees as arrays."""
        return self._made[0]

    @cached_property
    def opt_state(self) -> Any:
        """The trees as text."""
        return self._made[1]


jax.tree_util.register_dataclass(
    TreesState,
    [field.name for field in fields(TrainState) if field.name != "row_counts"],
    ["row_counts"],
)


def _program_of(run: _Run) -> training.Program:
    """Return a program whose step grows trees."""
    nothing: Any = None  # there is no model_fn to train
    return training.Program(nothing, nothing, Placement(), run.grow, nothing)


def _declare(form: TreeLayout) -> dict[str, jax.Array]:
    """Declare the variables of a model; they are always read from a checkpoint."""
    return {
        name: variables.get_variable(
            name, shape, np.dtype(dtype), initializer=0, trainable=False
        )
        for name, shape, dtype in form.shapes
    }


def _progress_of(checkpoint: checkpoints.Checkpoint | None) -> dict[str, Any]:
    if checkpoint is None:
        return {}
    return dict((checkpoint.extra or {}).get("input") or {})


def _checkpoint_in(given: Any) -> Any:
    """Return a checkpoint: the path itself, or the latest one of a model_dir."""
    return checkpoints.latest(given) or given


def _text_of(array: Any, where: Any) -> str:
    if array is None:
        raise CheckpointError(f"{where} has no trees of LightGBM.")
    return bytes(np.asarray(array, np.uint8)).decode()
