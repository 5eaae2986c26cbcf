"""The Estimator: trains, evaluates, predicts with and exports what a `model_fn` says.

    est = ex.Estimator(model_fn, model_dir="runs/a", params={"units": 64})
    est.train(input_fn, max_steps=10_000)
    est.evaluate(eval_input_fn)

It holds no weights: they live in `model_dir`, so a second Estimator on the same folder,
here or in another process, continues the first. What it holds on to are compiled
programs, so that switching between training and evaluation compiles nothing twice.
"""

from __future__ import annotations

import copy
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax import checkpoints, export, training
from estimax import hooks as stock
from estimax.checkpoints.warm_start import WarmStart
from estimax.core import numbers
from estimax.core.errors import MissingFileError
from estimax.core.spec import Mode, ModeKeys
from estimax.core.state import TrainState
from estimax.estimator import calling, exporting, reports
from estimax.estimator.cluster import check_trains
from estimax.estimator.loading import Loaded, Loader, live, restored, warm_started
from estimax.estimator.model_dir import (
    REPLAY_SECS,
    ended_at,
    explaining_nan,
    keep_compiled_programs,
    mark_ended,
    training_in,
)
from estimax.estimator.run_config import RunConfig
from estimax.estimator.training_hooks import finishing_saves, training_hooks
from estimax.feeding.feed import Feed
from estimax.feeding.large_pages import ask_for_large_pages
from estimax.feeding.packing import pack
from estimax.hooks import Hook, RunContext
from estimax.staging import plan as plans
from estimax.staging.recording import Origin
from estimax.training.signals import stopping_on_signals

_log = logging.getLogger("estimax")
InputFn = Callable[..., Any]


class Estimator:
    """A model, its folder and its settings.

    `model_fn(features, labels, mode, params, config)` returns an `EstimatorSpec`; it
    may take any of these arguments, and is called with those it takes. A subclass may
    define `model_fn` as a method instead. `warm_start_from`, a checkpoint, a model_dir
    or `WarmStartSettings`, is where a model_dir without a checkpoint starts from.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        calling.check_subclass(type(self), Estimator)
        own = getattr(type(self), "model_fn", None)
        if model_fn is None and own is not Estimator.model_fn:
            model_fn = self.model_fn
        calling.check_model_fn(model_fn, has_params=params is not None)
        assert model_fn is not None
        self._model_fn = model_fn
        self._params = copy.deepcopy(params) if params is not None else {}
        self._config = calling.with_model_dir(config, model_dir)
        self._warm_start = checkpoints.as_settings(warm_start_from)
        self._programs: dict[Any, Any] = {}
        self._loader = Loader(use_averages=self._config.use_averages)

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints, summaries and exports."""
        return str(self._config.model_dir)

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return self._config

    @property
    def params(self) -> Any:
        """A copy of the params that the `model_fn` gets."""
        return copy.deepcopy(self._params)

    @property
    def warm_start_from(self) -> checkpoints.WarmStartSettings | None:
        """Where a model_dir without a checkpoint starts from."""
        return self._warm_start

    def model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Call the `model_fn` with its params bound, to build on this estimator."""
        return self._call_model_fn(features, labels, mode)

    def train(
        self,
        input_fn: InputFn,
        hooks: Sequence[Hook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[stock.CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train until the data ends, `steps` more steps, or up to `max_steps` in all.

        Starts from the latest checkpoint, and from the place in the data that it was
        saved at: a run that was killed continues as if nothing had happened.

        Raises:
          ChangedInputError: The last call was interrupted, and the data is not what it
            was. `RunConfig(resume_input="restart")` starts the data over,
            "unchecked" continues all the same.
          InUseError: Another process or thread is training in the same `model_dir`.
          MissingFileError: `model_dir` was deleted while it was trained in.
        """
        calling.check_steps(steps=steps, max_steps=max_steps)
        check_trains(self._config)
        with training_in(self._config, "train"):
            self._train(input_fn, hooks, steps, max_steps, saving_listeners)
        return self

    def _train(
        self,
        input_fn: InputFn,
        hooks: Sequence[Hook] | None,
        steps: int | None,
        max_steps: int | None,
        saving_listeners: Sequence[stock.CheckpointSaverListener] | None,
    ) -> None:
        checkpoint = checkpoints.restore_latest(self.model_dir)
        if checkpoint is None:
            calling.check_folder(self.model_dir)
        start = checkpoint.step if checkpoint else 0
        if max_steps is not None and start >= max_steps:
            _log.info("already trained to step %d of %d", start, max_steps)
            return
        position = _input_position(checkpoint)
        has_ended = ended_at(self.model_dir) == start
        with self._feed(input_fn, ModeKeys.TRAIN, position, has_ended) as feed:
            if feed.first is None:
                _log.warning("train: the input_fn gave no data; nothing was trained")
                return
            feed.warn_if_endless("train", steps or max_steps)
            program = self._program(ModeKeys.TRAIN, feed.first)
            state = self._start_state(program, feed.first, checkpoint)
            ask_for_large_pages((state.tables, state.slots))
            start = int(state.step)  # a warm start may have been told to take it, too
            checkpoint = None  # its arrays would stay as long as the training
            last = start + steps if steps else max_steps
            context = RunContext(
                step=start, input_state=feed.position, logged=program.logged
            )
            every_hook = training_hooks(
                self._config,
                program.spec,
                calling.checked_hooks(hooks),
                saving_listeners or (),
                last_step=last,
            )
            with (
                self._debugging(),
                explaining_nan(lambda: self._explanation(input_fn)),
                stopping_on_signals(context),
                finishing_saves(every_hook),
            ):
                training.run(
                    program,
                    state,
                    feed.placed_loops(
                        program.plan,
                        depth=self._config.prefetch_batches,
                        length=self._loop_length(),
                    ),
                    every_hook,
                    context,
                    waited=lambda: feed.waited_seconds,
                )
            reports.log_training(context)
        if self.latest_checkpoint() is not None:
            mark_ended(self.model_dir, int(context.step))

    def evaluate(
        self,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        name: str | None = None,
        *,
        report: bool = True,
    ) -> dict[str, Any]:
        """Evaluate the latest checkpoint on up to `steps` batches (None: all).

        Returns the model's metrics with `loss` (mean over batches) and `global_step`,
        and unless `report` is False logs them and writes them for TensorBoard under
        `eval_dir(name)`; where that cannot be written, it warns. A damaged checkpoint
        is passed over for the one before it, with a warning; `global_step` tells which
        it was. One that `checkpoint_path` names is used or refused.
        """
        calling.check_steps(steps=steps)
        self._check_trained(checkpoint_path)
        with self._feed(input_fn, ModeKeys.EVAL) as feed, self._debugging():
            first = calling.needed(feed, "evaluate")
            feed.warn_if_endless("evaluate", steps)
            program = self._program(ModeKeys.EVAL, first)
            loaded = self._load(
                checkpoint_path, ModeKeys.EVAL, program.plan, program.shapes, first
            )
            return self._evaluated(program, loaded, feed, steps, hooks, name, report)

    def evaluate_state(
        self,
        state: TrainState,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate variables in memory, as `evaluate` does those of a checkpoint.

        For hooks, whose `context.state` is the state of the training under way.
        """
        calling.check_steps(steps=steps)
        with self._feed(input_fn, ModeKeys.EVAL) as feed, self._debugging():
            program = self._program(
                ModeKeys.EVAL, calling.needed(feed, "evaluate_state")
            )
            loaded = live(state, program.shapes, self._config.use_averages)
            return self._evaluated(program, loaded, feed, steps, hooks, name)

    def _evaluated(
        self,
        program: training.EvalProgram,
        loaded: Loaded,
        feed: Feed,
        steps: int | None,
        hooks: Sequence[Hook] | None,
        name: str | None,
        report: bool = True,
    ) -> dict[str, Any]:
        context = RunContext(step=loaded.step)
        results = training.evaluate(
            program,
            loaded.variables,
            feed.placed(program.plan, depth=self._config.prefetch_batches),
            (*calling.checked_hooks(hooks), *program.spec.evaluation_hooks),
            context,
            steps=steps,
        )
        results["global_step"] = np.int64(loaded.step)
        if report:
            folder = self.eval_dir(name)
            reports.write_evaluation(folder, results, loaded.step, loaded.path)
            reports.log_evaluation(results, context.examples, name)
        return results

    def predict(
        self,
        input_fn: InputFn,
        predict_keys: Sequence[str] | str | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield predictions, one example (or batch) at a time, in the input's order.

        A generator: nothing happens until the first value is asked for.
        """
        self._check_trained(checkpoint_path)
        with self._feed(input_fn, ModeKeys.PREDICT) as feed:
            if feed.first is None:
                return
            feed.warn_if_endless("predict", None)
            program = self._program(ModeKeys.PREDICT, feed.first)
            shapes = program.recording.shapes
            variables, step, _ = self._load(
                checkpoint_path, ModeKeys.PREDICT, program.plan, shapes, feed.first
            )
            spec = program.recording.spec
            context = RunContext(step=step)
            every_hook = (*calling.checked_hooks(hooks), *spec.prediction_hooks)
            training.begin(every_hook, context)
            batches = feed.placed(program.plan, depth=self._config.prefetch_batches)
            for batch in batches:
                wanted = [hook.before_run(context) for hook in every_hook]
                # Not around the loop: it would hold for the caller, between two values.
                with self._debugging():
                    predictions = program.step(variables, batch.arrays)
                training.tell(every_hook, wanted, context, {})
                kept = reports.only_keys(predictions, predict_keys)
                values = numbers.materialize(jax.device_get(kept))
                if yield_single_examples:
                    yield from reports.single_examples(values)
                else:
                    yield values
                if context.stop_requested:
                    break
            for hook in every_hook:
                hook.end(context)

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> str:
        """Write a bundle: what predicts, as data, needing none of this model's code.

        The features that a request carries are those of the training data, unless a
        `serving_input_receiver_fn` says otherwise. Returns the bundle's folder.
        A bundle's manifest is text already, so `as_text` changes nothing, and a bundle
        predicts: there are none of the other modes.
        """
        exporting.check_mode(experimental_mode)
        self._check_trained(checkpoint_path)
        example = exporting.serving_example(serving_input_receiver_fn, self.model_dir)
        program = self._program(ModeKeys.PREDICT, example)
        shapes = program.recording.shapes
        variables, step, _ = self._load(
            checkpoint_path, ModeKeys.PREDICT, program.plan, shapes, example
        )
        servable = exporting.servable(
            self._model(ModeKeys.PREDICT), program.recording, variables, example
        )
        bundle = export.write_bundle(
            servable, export_dir_base, assets_extra=assets_extra, step=step
        )
        return str(bundle)

    def describe_training(
        self, input_fn: InputFn
    ) -> tuple[training.Training, TrainState]:
        """What trains each variable, and the shapes of a state; nothing is computed.

        `ex.inspection.variable_table` shows it as a table.
        """
        with self._feed(input_fn, ModeKeys.TRAIN) as feed:
            first = calling.needed(feed, "describe_training")
            program = self._program(ModeKeys.TRAIN, first)
            arrays = pack(program.plan.prepare(first))
        key = jax.random.key(0)
        return program.training, jax.eval_shape(program.init, key, arrays)

    def latest_checkpoint(self) -> str | None:
        """The path of the newest readable checkpoint, or None."""
        path = checkpoints.latest(self.model_dir)
        return None if path is None else str(path)

    def get_variable_names(self) -> list[str]:
        """The names of everything in the latest checkpoint, sorted."""
        return sorted(checkpoints.names(self._checkpoint(None)))

    def get_variable_value(self, name: str) -> NDArray[Any]:
        """One array of the latest checkpoint."""
        return checkpoints.read_array(self._checkpoint(None), name)

    def eval_dir(self, name: str | None = None) -> str:
        """Where evaluations of this name write their summaries."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def _feed(
        self,
        input_fn: InputFn,
        mode: Mode,
        position: Any = None,
        has_ended: bool = False,
    ) -> Feed:
        resume = self._config.resume_input

        def call() -> Any:
            return calling.call_input_fn(
                input_fn, mode=mode, params=self.params, config=self._config
            )

        return Feed(
            call,
            position=None if resume == "restart" else position,
            is_checked=resume != "unchecked",
            has_ended=has_ended,
            may_start_over=resume != "refuse",
            seed=self._config.tf_random_seed,
            with_labels=mode != ModeKeys.PREDICT,
            parts=self._config.accumulate_steps if mode == ModeKeys.TRAIN else 1,
        )

    def _model(self, mode: Mode) -> training.Model:
        def function(features: Any, labels: Any) -> Any:
            return self._call_model_fn(features, labels, mode)

        narrow = self._config.precision != "float32"
        return training.Model(
            function,
            mode,
            compute_dtype=self._config.precision if narrow else None,
            eager=self._config.debug is True,
        )

    def _call_model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        return calling.call_model_fn(
            self._model_fn,
            features,
            labels,
            mode=mode,
            params=self.params,
            config=self._config,
        )

    def _program(self, mode: Mode, batch: dict[Origin, Any]) -> Any:
        """The compiled program for this mode and structure of input."""
        key = (mode, training.structure_of(batch))
        if key not in self._programs:
            keep_compiled_programs(self._config.compilation_cache_dir)
            self._programs[key] = self._build(mode, batch)
        if mode == ModeKeys.TRAIN:
            exporting.remember_example(self.model_dir, batch)
        return self._programs[key]

    def _build(self, mode: Mode, batch: dict[Origin, Any]) -> Any:
        model = self._model(mode)
        with self._debugging():
            if mode == ModeKeys.EVAL:
                return training.eval_program(model, batch)
            if mode == ModeKeys.PREDICT:
                return training.predict_program(model, batch)
            program = training.train_program(model, batch, self._config.average_decay)
        return training.checked(program) if self._config.debug == "nan" else program

    def _start_state(
        self,
        program: training.TrainProgram,
        batch: dict[Origin, Any],
        checkpoint: checkpoints.Checkpoint | None,
    ) -> TrainState:
        """What a checkpoint holds; without one a new state, warm-started if asked."""
        arrays = pack(program.plan.prepare(batch))
        seed = self._config.tf_random_seed
        key = jax.random.key(secrets.randbits(31) if seed is None else seed)
        if checkpoint is None:
            with self._debugging():
                state = program.init(key, arrays)
            return warm_started(state, self._warm_start) if self._warm_start else state
        if self._warm_start:
            _log.info("no warm start: %s has a checkpoint", self.model_dir)
        with self._debugging():
            return restored(program, key, arrays, checkpoint)

    def _checkpoint(self, given: str | os.PathLike[str] | None) -> str:
        path = given if given is not None else checkpoints.latest(self.model_dir)
        if path is None:
            raise MissingFileError(
                f"no checkpoint in {self.model_dir!r}: this model has not been "
                "trained. Call train first, or give checkpoint_path."
            )
        return os.fspath(path)

    def _check_trained(self, given: str | os.PathLike[str] | None) -> None:
        """Refuse at once to use a model that has learned nothing."""
        if self._warm_start is None:
            self._checkpoint(given)

    def _load(
        self,
        given: str | os.PathLike[str] | None,
        mode: Mode,
        plan: plans.Plan,
        shapes: training.Variables,
        batch: dict[Origin, Any],
    ) -> Loaded:
        """The variables of a checkpoint; without one, those of the warm start."""
        if given is None and self._warm_start and not self.latest_checkpoint():
            key = jax.random.key(self._config.tf_random_seed or 0)
            return self._loader.warm_start(
                self._model(mode), plan, batch, key, self._warm_start
            )
        path = self._checkpoint(given)
        return self._loader.load(path, shapes, or_earlier=given is None)

    def _loop_length(self) -> int | None:
        if self._config.debug or self._config.accumulate_steps > 1:
            # A step that is looked into, or made of many batches, runs by itself.
            return 1
        return self._config.iterations_per_loop

    def _debugging(self) -> Any:
        return jax.disable_jit() if self._config.debug is True else nullcontext()

    def _explanation(self, input_fn: InputFn) -> training.NonFinite | None:
        """What made the loss NaN; None where the step has said it already."""
        if self._config.debug == "nan":
            return None
        return self._replay(input_fn, REPLAY_SECS)

    def _replay(
        self, input_fn: InputFn, max_secs: float | None
    ) -> training.NonFinite | None:
        """Train on from the latest checkpoint, writing nothing, until it goes wrong."""
        checkpoint = checkpoints.restore_latest(self.model_dir)
        position = _input_position(checkpoint)
        with (
            self._debugging(),
            self._feed(input_fn, ModeKeys.TRAIN, position) as feed,
        ):
            if feed.first is None:
                return None
            program = self._program(ModeKeys.TRAIN, feed.first)
            state = self._start_state(program, feed.first, checkpoint)
            placed = feed.placed(program.plan, depth=self._config.prefetch_batches)
            batches = (batch.arrays for batch in placed)
            return training.first_nonfinite(
                program.training, state, batches, max_secs=max_secs
            )


def _input_position(checkpoint: checkpoints.Checkpoint | None) -> Any:
    """Return the place in the data that a checkpoint was saved at, if it has one."""
    return (checkpoint.extra or {}).get("input") if checkpoint else None
