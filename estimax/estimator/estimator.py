"""The Estimator: trains, evaluates, predicts with and exports a `model_fn`.

    est = ex.Estimator(model_fn, model_dir="runs/a", params={"units": 64})
    est.train(input_fn, max_steps=10_000)
    est.evaluate(eval_input_fn)

An Estimator holds no weights: they are in `model_dir`, so a second Estimator with the
same folder, also in another process, continues where the first one stopped. It keeps
its compiled programs, so that train and evaluate in turn compile nothing twice.
"""

from __future__ import annotations

import copy
import logging
import os
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Never, TypeVar

import jax
from numpy.typing import NDArray

from estimax import checkpoints, export, training
from estimax import hooks as stock
from estimax.checkpoints.warm_start import WarmStart
from estimax.core import device_dtypes
from estimax.core.display import shown_path
from estimax.core.errors import InputError, MissingFileError
from estimax.core.migration import Retired
from estimax.core.spec import Mode, ModeKeys
from estimax.core.state import TrainState
from estimax.estimator import agreement, arguments, exporting
from estimax.estimator import results as reports
from estimax.estimator.default_log import shown_by_default
from estimax.estimator.devices import Devices
from estimax.estimator.model_dir import (
    REPLAY_SECS,
    ended_at,
    explaining_nan,
    mark_ended,
    training_in,
)
from estimax.estimator.restore import Loaded, Loader, live, restored, warm_started
from estimax.estimator.run_config import RunConfig
from estimax.estimator.training_hooks import (
    board_hook,
    finishing_saves,
    training_hooks,
)
from estimax.hooks import Hook, RunContext
from estimax.hooks.guards import OutOfRangeIdsHook
from estimax.parallel import Placement
from estimax.parallel.cluster import check_alone, check_trains
from estimax.parallel.processes import Processes
from estimax.staging import host_plan as plans
from estimax.staging.feed import Feed
from estimax.staging.large_pages import ask_for_large_pages
from estimax.staging.packing import pack
from estimax.storage import forks
from estimax.storage.compilation_cache import keep_compiled_programs
from estimax.training.signals import stopping_on_signals

_log = logging.getLogger("estimax")
InputFn = Callable[..., Any]
Program = TypeVar("Program")


class Estimator:
    """A model that is defined by a `model_fn`, with its folder and its settings.

    Use it for models of your own. For common tabular models, classes such as
    `ex.DNNClassifier` are shorter. A subclass may define `model_fn` as a method instead
    of passing one.

    Args:
      model_fn: A function that returns an `EstimatorSpec`. It is called with those of
        the arguments `features`, `labels`, `mode`, `params` and `config` that it has.
      model_dir: The folder of checkpoints, summaries and exports. None uses
        `config.model_dir`, or else a temporary folder.
      config: Settings of the run; see `ex.RunConfig`.
      params: Hyper-parameters for the `model_fn`, usually a dict.
      warm_start_from: Where a `model_dir` without a checkpoint takes its first values
        from: a checkpoint, another `model_dir`, or `ex.WarmStartSettings`.
      **unknown: There are no other arguments. For those of `TPUEstimator`, the error
        says what to write.

    Raises:
      TypeError: `model_fn` has an argument that is not in the list above, or another
        argument is given.

    Example:
      >>> import numpy as np, jax.numpy as jnp, estimax as ex
      >>> def model_fn(features, labels, mode):
      ...     w = ex.get_variable("w", (1,), initializer=0.0)
      ...     y = features["x"] * w
      ...     if mode == ex.ModeKeys.PREDICT:
      ...         return ex.EstimatorSpec(mode, predictions={"y": y})
      ...     loss = jnp.mean((y - labels) ** 2)
      ...     sgd = ex.optimizers.SGD(0.1)
      ...     return ex.EstimatorSpec(mode, loss=loss, train_op=sgd)
      >>> x = np.array([1.0, 2.0, 3.0], np.float32)
      >>> model = ex.Estimator(model_fn)
      >>> _ = model.train(lambda: ({"x": x}, 2 * x), steps=20)
      >>> float(model.evaluate(lambda: ({"x": x}, 2 * x), steps=1)["loss"]) < 1e-6
      True
      >>> (row,) = model.predict(lambda: iter([{"x": x[:1]}]))
      >>> round(float(row["y"]), 3)
      2.0
    """

    # What `evaluate` advises, once, if the model is no better than a constant answer.
    not_learning_hint: str | None = None
    export_savedmodel = Retired(
        "write export_saved_model(export_dir_base, serving_input_receiver_fn)"
    )

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: WarmStart = None,
        **unknown: Never,
    ) -> None:
        arguments.check_no_more_arguments(unknown)
        arguments.check_subclass(type(self), Estimator)
        own = getattr(type(self), "model_fn", None)
        if model_fn is None and own is not Estimator.model_fn:
            model_fn = self.model_fn
        arguments.check_model_fn(model_fn, has_params=params is not None)
        assert model_fn is not None
        self._model_fn = model_fn
        self._params = copy.deepcopy(params) if params is not None else {}
        self._config = arguments.with_model_dir(config, model_dir)
        self._warm_start = checkpoints.as_settings(warm_start_from)
        self._training_devices = Devices(self._config)
        self._own_devices = Devices(self._config, is_alone=True)
        self._programs: dict[Any, Any] = {}
        self._peers: Processes | None = None  # during `train` in a cluster
        self._loader = Loader(use_averages=self._config.use_averages)

    @property
    def model_dir(self) -> str:
        return str(self._config.model_dir)

    @property
    def config(self) -> RunConfig:
        return self._config

    @property
    def params(self) -> Any:
        """A copy of the params, as the `model_fn` gets them."""
        return copy.deepcopy(self._params)

    @property
    def warm_start_from(self) -> checkpoints.WarmStartSettings | None:
        """The settings of the warm start, or None."""
        return self._warm_start

    def model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Call the `model_fn` with its params, to build another model on this one.

        Args:
          features: The features of a batch.
          labels: The labels of a batch; None in PREDICT mode.
          mode: One of `ex.ModeKeys`.
          config: Ignored; tf.estimator's signature has it.

        Returns:
          The `EstimatorSpec` of the `model_fn`.
        """
        return self._call_model_fn(features, labels, mode)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}(model_dir={shown_path(self.model_dir)!r})"]
        if isinstance(self._params, Mapping) and self._params:
            lines.append(f"  params: {', '.join(map(str, self._params))}")
        return "\n".join(lines)

    def train(
        self,
        input_fn: InputFn,
        hooks: Sequence[Hook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[stock.CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train the model, and save checkpoints to `model_dir`.

        Training continues from the latest checkpoint. If the last call was interrupted,
        the data continues at its position, and the run ends with the same bits as one
        that was not interrupted. If it ended normally, the same `Dataset` continues
        where the last call stopped and starts again at its end; any other input is read
        from its beginning.

        Args:
          input_fn: A function that returns the training data: an `ex.input.Dataset`, an
            iterable of `(features, labels)` batches, or one such pair. It may have the
            arguments `mode`, `params`, `config` and `input_context`.
          hooks: Hooks that are called during training.
          steps: How many steps to train in this call; two calls with 100 train 200.
          max_steps: The total number of steps after which training ends. A second call
            with the same number trains nothing. Give `steps` or `max_steps`, not both;
            without either, training ends when the data does.
          saving_listeners: Called before and after each checkpoint is saved.

        Returns:
          This estimator, so that calls can be chained.

        Raises:
          ChangedInputError: The last call was interrupted, and the data has changed
            since. `RunConfig(resume_input="restart")` reads it from its beginning,
            "unchecked" continues at the saved position.
          ClusterError: The other processes of the cluster cannot be reached.
          InputError: The `input_fn` gave data in some processes of the cluster only.
          InUseError: Another process or thread is training in the same `model_dir`.
          MissingFileError: `model_dir` was deleted while it was trained in.
          NanLossError: The loss became NaN or infinite.
        """
        arguments.check_steps(steps=steps, max_steps=max_steps)
        check_trains(self._config)
        with shown_by_default(), self._together(), training_in(self._config, "train"):
            self._train(input_fn, hooks, steps, max_steps, saving_listeners)
        return self

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Train with the other processes of the cluster, if there is one."""
        forks.check("train")
        self._peers = self._config.connect()
        try:
            with self._peers.together() if self._peers else nullcontext():
                yield
        finally:
            self._peers = None

    def _train(
        self,
        input_fn: InputFn,
        hooks: Sequence[Hook] | None,
        steps: int | None,
        max_steps: int | None,
        saving_listeners: Sequence[stock.CheckpointSaverListener] | None,
    ) -> None:
        peers = self._peers
        agreement.compare_calls(
            peers,
            self._config,
            steps=steps,
            max_steps=max_steps,
            input_fn=arguments.describe_share(input_fn, self._config),
        )
        seed = agreement.shared_seed(peers, self._config)
        checkpoint = checkpoints.restore_latest(self.model_dir, peers)
        if checkpoint is None:
            arguments.check_folder(self.model_dir)
        start = checkpoint.step if checkpoint else 0
        if max_steps is not None and start >= max_steps:
            reports.log_nothing_to_train(self.model_dir, start, max_steps)
            return
        reports.log_start(self.model_dir, start, max_steps, steps)
        with self._feed(input_fn, ModeKeys.TRAIN, checkpoint, seed) as feed:
            if not self._has_data(feed):
                _log.warning("train: the input_fn gave no data; nothing was trained")
                return
            assert feed.first is not None, "as all have data"
            arguments.warn_if_endless(feed, "train", steps or max_steps, hooks)
            self._training_devices.advise(feed.first)
            program = self._train_program(feed.first)
            explain = partial(agreement.hints_of, self._model_fn, self._params, program)
            given = arguments.checked_hooks(hooks)
            agreement.compare_models(peers, program, feed.first, given, explain)
            state = self._start_state(program, feed.first, checkpoint, seed)
            ask_for_large_pages((state.tables, state.slots))
            start = int(state.step)  # a warm start may also set the step
            checkpoint = None  # free its arrays
            last = start + steps if steps else max_steps
            context = RunContext(
                step=start,
                input_advice=lambda: feed.advice,
                input_state=feed.position,
                logged=program.logged,
                peers=peers,
                requests=feed.requests,
            )
            every_hook = training_hooks(
                self._config,
                program.spec,
                given,
                saving_listeners or (),
                last_step=last,
                board=board_hook(self._config, program, self._params),
            )
            with (
                self._debugging(),
                explaining_nan(lambda: self._explanation(input_fn)),
                stopping_on_signals(context),
                finishing_saves(every_hook),
            ):
                stacks = feed.stacks(
                    program.plan,
                    depth=self._config.prefetch_batches,
                    length=self._loop_length(program),
                    limit=None if last is None else last - start,
                )
                training.run(
                    program,
                    state,
                    agreement.comparing_steps(peers, program, context, stacks, explain),
                    every_hook,
                    context,
                    waited=lambda: feed.waited_seconds,
                )
                if context.interrupted_by:
                    reports.log_interruption(context, self.latest_checkpoint())
                if peers is not None:
                    peers.end_together()
            if peers is not None and context.interrupted_by:
                # The signal arrived in another process, and ends this one as well.
                raise SystemExit(128 + signal.SIGTERM)
            reports.log_training(context)
        saved = self.latest_checkpoint()
        # Without saves the next call continues at an earlier checkpoint, and its mark.
        is_saved = saved is not None and checkpoints.step_of(saved) == context.step
        if is_saved and self._config.is_chief:
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
        """Evaluate a checkpoint, and write the metrics for TensorBoard.

        Args:
          input_fn: A function that returns the evaluation data; see `train`.
          steps: How many batches to evaluate; None evaluates all of the data.
          hooks: Hooks that are called around every batch.
          checkpoint_path: The checkpoint to evaluate. None is the latest one; if that
            is damaged, the one before it is used, with a warning.
          name: Evaluations with different names write to different folders, such as
            `eval_test` for "test".
          report: Whether to log the metrics and write them to `eval_dir(name)`. If the
            folder cannot be written to, a warning is logged.

        Returns:
          The metrics by name, with "loss", its mean over batches, and "global_step",
          the step of the checkpoint. Values are Python numbers, and lists of them for
          metrics that are arrays, so that `json.dumps` takes the dict.

        Raises:
          MissingFileError: There is no checkpoint.
          InputError: The `input_fn` returned no batch; or data that repeats without
            end, and neither `steps` nor `hooks` are given.
        """
        arguments.check_steps(steps=steps)
        self._check_trained(checkpoint_path)
        with (
            shown_by_default(),
            self._feed(input_fn, ModeKeys.EVAL) as feed,
            self._debugging(),
        ):
            first = arguments.needed(feed, "evaluate")
            arguments.check_ends(feed, steps, hooks)
            self._own_devices.advise(first)
            program = self._eval_program(first)
            loaded = self._load(
                checkpoint_path,
                ModeKeys.EVAL,
                program.plan,
                program.shapes,
                first,
                program.placement,
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
        """Evaluate variables in memory instead of those of a checkpoint.

        Use it in a hook, whose `context.state` is the current state of the training.

        Args:
          state: The state to evaluate.
          input_fn: A function that returns the evaluation data; see `train`.
          steps: How many batches to evaluate; None evaluates all of the data.
          hooks: Hooks that are called around every batch.
          name: The name of the evaluation; see `evaluate`.

        Returns:
          The metrics by name, as `evaluate` does.
        """
        arguments.check_steps(steps=steps)
        check_alone(self._config, "evaluate_state")
        with self._feed(input_fn, ModeKeys.EVAL) as feed, self._debugging():
            first = arguments.needed(feed, "evaluate_state")
            arguments.check_ends(feed, steps, hooks)
            program = self._eval_program(first)
            loaded = live(
                state, program.shapes, self._config.use_averages, program.placement
            )
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
        results, measured = training.evaluate(
            program,
            loaded.variables,
            feed.batches(program.plan, depth=self._config.prefetch_batches),
            (
                *arguments.checked_hooks(hooks),
                *program.spec.evaluation_hooks,
                OutOfRangeIdsHook(),
            ),
            context,
            steps=steps,
        )
        results = reports.plain_numbers(results) | {"global_step": loaded.step}
        if report:
            folder = self.eval_dir(name)
            reports.write_evaluation(
                folder, results, loaded.step, loaded.path, measured
            )
            reports.log_evaluation(results, context.examples, name)
            if self.not_learning_hint and reports.has_not_learned(results, measured):
                reports.log_not_learned(results, measured, self.not_learning_hint)
                self.not_learning_hint = None  # once is enough
        return results

    def predict(
        self,
        input_fn: InputFn,
        predict_keys: Sequence[str] | str | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield predictions, one example or batch at a time, in the order of the input.

        This is a generator: nothing is loaded before the first value is requested.

        Args:
          input_fn: A function that returns the features; see `train`. Labels are
            ignored.
          predict_keys: The predictions to yield, one name or several; None yields all.
          hooks: Hooks that are called around every batch.
          checkpoint_path: The checkpoint to predict with; None is the latest one.
          yield_single_examples: Whether to yield a dict for each example. False yields
            a dict of arrays for each batch, which is faster.

        Yields:
          The predictions of the model as NumPy arrays, usually in a dict. Text, such as
          the names of classes, is `bytes` as in tf.estimator; a bundle returns `str`.

        Raises:
          MissingFileError: There is no checkpoint.
        """
        self._check_trained(checkpoint_path)
        with self._feed(input_fn, ModeKeys.PREDICT) as feed:
            if feed.first is None:
                return
            arguments.warn_if_endless(feed, "predict", None, hooks)
            self._own_devices.advise(feed.first)
            program = self._predict_program(feed.first)
            variables, step, _ = self._load(
                checkpoint_path,
                ModeKeys.PREDICT,
                program.plan,
                program.recording.shapes,
                feed.first,
                program.placement,
            )
            spec = program.recording.spec
            for predictions, forwarded in training.predict(
                program,
                variables,
                feed.batches(program.plan, depth=self._config.prefetch_batches),
                (*arguments.checked_hooks(hooks), *spec.prediction_hooks),
                RunContext(step=step),
                debugging=self._debugging,
            ):
                kept = reports.only_keys(predictions, predict_keys)
                values = device_dtypes.materialize(jax.device_get(kept), forwarded)
                if yield_single_examples:
                    yield from reports.single_examples(values)
                else:
                    yield values

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
        *,
        metrics: Mapping[str, Any] | None = None,
    ) -> str:
        """Write a bundle: a folder that predicts without any code of this model.

        `ex.export.load` reads it, in a process that imports no training code.

        Args:
          export_dir_base: The folder in which the bundle gets a numbered folder.
          serving_input_receiver_fn: A function that returns the features of a request;
            see `ex.export.build_raw_serving_input_receiver_fn` and
            `ex.export.build_parsing_serving_input_receiver_fn`. None takes those
            features of the training data that the model reads to predict.
          assets_extra: Files to copy into the bundle: name in `assets.extra` -> path.
          as_text: Ignored: the manifest of a bundle is always text.
          checkpoint_path: The checkpoint to export; None is the latest one.
          experimental_mode: Must be `ex.ModeKeys.PREDICT`.
          metrics: The result of `evaluate`, which the manifest of the bundle then holds
            and `estimax show` prints. Exporters pass it.

        Returns:
          The path of the bundle.

        Raises:
          MissingFileError: There is no checkpoint.
          SpecError: `experimental_mode` is not PREDICT.
        """
        exporting.check_mode(experimental_mode)
        servable, step = self._servable(serving_input_receiver_fn, checkpoint_path)
        bundle = export.write_bundle(
            servable,
            export_dir_base,
            assets_extra=assets_extra,
            step=step,
            metrics=metrics,
        )
        return str(bundle)

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> str:
        """Write a bundle that predicts, and one beside it that evaluates batches.

        Use it to measure a model where neither its code nor estimax's training is
        installed. `ex.export.load(path)` loads the bundle that predicts, as
        `export_saved_model` writes it. `ex.export.load(f"{path}/eval")` loads the other
        one: its signature "eval" takes features and labels and returns "loss",
        "predictions/<name>" and "metrics/<name>/value", all of the given batch alone.

        Args:
          export_dir_base: The folder in which the bundle gets a numbered folder.
          input_receiver_fn_map: `ex.ModeKeys.PREDICT` to a function that returns the
            features of a request, and, if wanted, `ex.ModeKeys.EVAL` to one that
            returns features and labels, as
            `ex.export.build_raw_supervised_input_receiver_fn` makes it.
          assets_extra: Files to copy into the bundle: name in `assets.extra` -> path.
          as_text: Ignored: the manifest of a bundle is always text.
          checkpoint_path: The checkpoint to export; None is the latest one.

        Returns:
          The path of the bundle.

        Raises:
          MissingFileError: There is no checkpoint.
          SpecError: The map lacks PREDICT, or has TRAIN or an unknown mode: a bundle
            does not change its weights, so it cannot train.
        """
        exporting.check_modes(input_receiver_fn_map)
        receivers = dict(input_receiver_fn_map)
        servable, step = self._servable(receivers[ModeKeys.PREDICT], checkpoint_path)
        evaluation = None
        if ModeKeys.EVAL in receivers:
            evaluation = self._evaluation(receivers[ModeKeys.EVAL], checkpoint_path)
        bundle = export.write_bundle(
            servable,
            export_dir_base,
            assets_extra=assets_extra,
            step=step,
            evaluation=evaluation,
        )
        return str(bundle)

    def _evaluation(
        self,
        receiver_fn: Callable[[], Any],
        checkpoint_path: str | os.PathLike[str] | None,
    ) -> export.Servable:
        example = exporting.supervised_example(receiver_fn)
        model = self._model(ModeKeys.EVAL, is_eager=False)
        recording = model.record(example)
        loaded = self._load(
            checkpoint_path, ModeKeys.EVAL, recording.plan, recording.shapes, example
        )
        return exporting.evaluation_servable(
            model, recording, loaded.variables, example
        )

    def _servable(
        self,
        receiver_fn: Callable[[], Any] | None,
        checkpoint_path: str | os.PathLike[str] | None,
    ) -> tuple[export.Servable, int]:
        """Return what a bundle that predicts is written from, and the training step."""
        self._check_trained(checkpoint_path)
        example, parse = exporting.serving_example(receiver_fn, self.model_dir)
        # Traced also where the model is debugged: an eager model is asked for every
        # feature of the data, and so would be the clients of the bundle.
        program = self._predict_program(example, is_eager=False)
        shapes = program.recording.shapes
        variables, step, _ = self._load(
            checkpoint_path, ModeKeys.PREDICT, program.plan, shapes, example
        )
        model = self._model(ModeKeys.PREDICT, is_eager=False)
        servable = exporting.servable(
            model, program.recording, variables, example, parse, program.exported
        )
        return servable, step

    def describe_training(
        self, input_fn: InputFn
    ) -> tuple[training.UpdatePlan, TrainState]:
        """Return how each variable is updated, without training.

        `ex.inspection.variable_table` shows it as a table.

        Args:
          input_fn: A function that returns the training data; see `train`.

        Returns:
          The update plan, and the training state with shapes in place of arrays.
        """
        with self._feed(input_fn, ModeKeys.TRAIN) as feed:
            first = arguments.needed(feed, "describe_training")
            program = self._train_program(first)
            arrays = pack(program.plan.prepare(first))
        # Shapes of variables, without the padding that they may have on a mesh.
        init = training.unplaced_init(program)
        return program.updates, jax.eval_shape(init, jax.random.key(0), arrays)

    def latest_checkpoint(self) -> str | None:
        """Return the path of the newest readable checkpoint, or None."""
        path = checkpoints.latest(self.model_dir)
        return None if path is None else str(path)

    def get_variable_names(self) -> list[str]:
        """Return the names of all arrays in the latest checkpoint, sorted."""
        return sorted(checkpoints.names(self._checkpoint(None)))

    def get_variable_value(self, name: str) -> NDArray[Any]:
        """Return one array of the latest checkpoint.

        Args:
          name: A name of `get_variable_names`, such as "dnn/logits/kernel".
        """
        return checkpoints.read_array(self._checkpoint(None), name)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder in which evaluations write their summaries.

        Args:
          name: The `name` that was given to `evaluate`.
        """
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def _has_data(self, feed: Feed) -> bool:
        """Return whether there is a first batch.

        In a cluster all processes have one, or none has.
        """
        has_first = feed.first is not None
        if self._peers is None:
            return has_first
        found = self._peers.gather("data", has_first)
        if any(found) and not all(found):
            empty = [i for i, has_data in enumerate(found) if not has_data]
            raise InputError(
                "train: the input_fn gave no data in "
                f"{', '.join(map(self._peers.name_of, empty))}; "
                f"{len(found) - len(empty)} of {len(found)} processes have data. A "
                "step needs a part of the batch from every process: give each some "
                "files or rows, or use fewer processes."
            )
        return has_first

    def _feed(
        self,
        input_fn: InputFn,
        mode: Mode,
        checkpoint: checkpoints.Checkpoint | None = None,
        seed: int | None = None,
    ) -> Feed:
        """Open the input; it continues at the position of `checkpoint`, if given.

        `seed` is that of the `train` call, if it is not the one of the RunConfig.
        """
        forks.check(f"the Estimator, in mode {mode!r}")
        resume = self._config.resume_input
        is_train = mode == ModeKeys.TRAIN
        peers = self._peers if is_train else None
        devices = self._training_devices if is_train else self._own_devices
        has_share = peers is not None and arguments.reads_share(input_fn, self._config)
        position, has_ended, epochs_of = None, False, ()
        if checkpoint is not None and resume != "restart":
            readers = (peers.index, peers.count) if peers and has_share else (0, 1)
            position, epochs_of = arguments.saved_position(checkpoint.extra, *readers)
            has_ended = ended_at(self.model_dir) == checkpoint.step
            if peers is not None:  # others may see an older file on a network drive
                has_ended = bool(peers.broadcast("ended", has_ended))

        def call() -> Any:
            return arguments.call_input_fn(
                input_fn, mode=mode, params=self.params, config=self._config
            )

        return Feed(
            call,
            position=position,
            is_checked=resume != "unchecked",
            has_ended=has_ended,
            may_start_over=resume != "refuse",
            seed=self._config.tf_random_seed if seed is None else seed,
            with_labels=mode != ModeKeys.PREDICT,
            parts=self._config.accumulate_steps if is_train else 1,
            placing=devices.placing,
            peers=peers,
            has_share=has_share,
            epochs_of=epochs_of,
        )

    def _model(self, mode: Mode, *, is_eager: bool) -> training.Model:
        def function(features: Any, labels: Any) -> Any:
            return self._call_model_fn(features, labels, mode)

        narrow = self._config.precision != "float32"
        return training.Model(
            function,
            mode,
            compute_dtype=self._config.precision if narrow else None,
            eager=is_eager,
        )

    def _call_model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        return arguments.call_model_fn(
            self._model_fn,
            features,
            labels,
            mode=mode,
            params=self.params,
            config=self._config,
        )

    def _train_program(self, batch: plans.RawBatch) -> training.TrainProgram:
        def build(model: training.Model) -> training.TrainProgram:
            decay = self._config.average_decay
            place = self._training_devices.place
            program = training.train_program(model, batch, decay, place)
            for sentence in program.advice:
                _log.warning("%s", sentence)
            return training.checked(program) if self._config.debug == "nan" else program

        program = self._program(ModeKeys.TRAIN, batch, build)
        if self._config.is_chief:
            exporting.remember_example(self.model_dir, batch)
        return program

    def _eval_program(self, batch: plans.RawBatch) -> training.EvalProgram:
        return self._program(
            ModeKeys.EVAL,
            batch,
            lambda model: training.eval_program(model, batch, self._own_devices.place),
        )

    def _predict_program(
        self, batch: plans.RawBatch, *, is_eager: bool | None = None
    ) -> training.PredictProgram:
        return self._program(
            ModeKeys.PREDICT,
            batch,
            lambda model: training.predict_program(
                model, batch, self._own_devices.place
            ),
            is_eager=is_eager,
        )

    def _program(
        self,
        mode: Mode,
        batch: plans.RawBatch,
        build: Callable[[training.Model], Program],
        *,
        is_eager: bool | None = None,
    ) -> Program:
        """Return the program for this mode and structure of input, built once.

        `is_eager` is whether to run the model without jit; None follows the config.
        """
        forks.check(f"the Estimator, in mode {mode!r}")
        is_eager = self._config.debug is True if is_eager is None else is_eager
        key = (mode, training.structure_of(batch), is_eager)
        if key not in self._programs:
            keep_compiled_programs(self._config.compilation_cache_dir)
            with jax.disable_jit() if is_eager else nullcontext():
                self._programs[key] = build(self._model(mode, is_eager=is_eager))
        program: Program = self._programs[key]
        return program

    def _start_state(
        self,
        program: training.TrainProgram,
        batch: plans.RawBatch,
        checkpoint: checkpoints.Checkpoint | None,
        seed: int | None,
    ) -> TrainState:
        """Return the state of the checkpoint, or else a new or warm-started state."""
        arrays = pack(program.plan.prepare(batch))
        key = jax.random.key(secrets.randbits(31) if seed is None else seed)
        placement = program.updates.model.placement
        if checkpoint is None:
            if self._warm_start and placement is not None:
                state = training.unplaced_init(program)(key, arrays)
                state = warm_started(state, self._warm_start)
                agreement.compare_warm_starts(self._peers, state)
                placed: TrainState = placement.put(state)
                return replace(placed, row_counts=placement.row_counts)
            with self._debugging():
                state = program.init(key, arrays)
            return warm_started(state, self._warm_start) if self._warm_start else state
        if self._warm_start:
            where = shown_path(self.model_dir)
            _log.info("no warm start: %s has a checkpoint", where)
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
        """Raise if there is neither a checkpoint nor a warm start."""
        if self._warm_start is None:
            self._checkpoint(given)

    def _load(
        self,
        given: str | os.PathLike[str] | None,
        mode: Mode,
        plan: plans.Plan,
        shapes: training.Variables,
        batch: plans.RawBatch,
        placement: Placement | None = None,
    ) -> Loaded:
        """Return the variables of a checkpoint, or else those of the warm start."""
        if given is None and self._warm_start and not self.latest_checkpoint():
            key = jax.random.key(self._config.tf_random_seed or 0)
            return self._loader.warm_start(
                self._model(mode, is_eager=False),
                plan,
                shapes,
                batch,
                key,
                self._warm_start,
                placement,
            )
        path = self._checkpoint(given)
        return self._loader.load(
            path, shapes, or_earlier=given is None, placement=placement
        )

    def _loop_length(self, program: training.TrainProgram) -> int | None:
        if self._config.debug or self._config.accumulate_steps > 1:
            # Steps that are debugged, or made of several batches, run one at a time.
            return 1
        length = self._config.iterations_per_loop
        return 1 if length is None and program.is_slow_in_loops else length

    def _debugging(self) -> Any:
        return jax.disable_jit() if self._config.debug is True else nullcontext()

    def _explanation(self, input_fn: InputFn) -> training.NonFinite | None:
        """Return what made the loss NaN; None if the step has reported it already."""
        if self._config.debug == "nan" or self._peers is not None:
            return None
        return self.replay(input_fn, REPLAY_SECS)

    def replay(
        self, input_fn: InputFn, max_secs: float | None = None
    ) -> training.NonFinite | None:
        """Train from the latest checkpoint, writing nothing, until a value is NaN.

        Use it to find out why a loss became NaN; `ex.inspection.find_nonfinite` calls
        it. Steps run one at a time, from the position in the data at which the
        checkpoint was saved.

        Args:
          input_fn: The `input_fn` of the training.
          max_secs: Stop after this many seconds; None replays all of the data.

        Returns:
          The step and the values that are NaN or infinite, in the order of computation;
          None if there are none.
        """
        check_alone(self._config, "replay")
        checkpoint = checkpoints.restore_latest(self.model_dir)
        with (
            self._debugging(),
            self._feed(input_fn, ModeKeys.TRAIN, checkpoint) as feed,
        ):
            if feed.first is None:
                return None
            program = self._train_program(feed.first)
            seed = self._config.tf_random_seed
            state = self._start_state(program, feed.first, checkpoint, seed)
            placed = feed.batches(program.plan, depth=self._config.prefetch_batches)
            batches = (batch.arrays for batch in placed)
            return training.first_nonfinite(
                program.updates, state, batches, max_secs=max_secs
            )
