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
import itertools
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Never

import jax
from numpy.typing import NDArray

from estimax import checkpoints, export, training
from estimax import hooks as stock
from estimax.calibration import FittedCalibration
from estimax.calibration.methods import CalibrationMethod
from estimax.checkpoints.warm_start import WarmStart
from estimax.core import device_dtypes
from estimax.core.display import format_path
from estimax.core.errors import SpecError
from estimax.core.migration import Retired
from estimax.core.spec import Mode, ModeKeys
from estimax.core.state import TrainState
from estimax.core.tracebacks import short_traceback
from estimax.estimator import (
    agreement,
    arguments,
    calibrating,
    exporting,
    small_tables,
)
from estimax.estimator import results as reports
from estimax.estimator.default_log import shown_by_default
from estimax.estimator.model_dir import REPLAY_SECS, mark_ended, training_in
from estimax.estimator.restore import (
    Loaded,
    Loader,
    latest_checkpoint,
    variables_of_state,
)
from estimax.estimator.run_config import RunConfig
from estimax.estimator.session import Session, join_cluster
from estimax.estimator.small_tables import TableDtype
from estimax.hooks import Hook, RunContext
from estimax.parallel import Placement
from estimax.parallel.cluster import check_alone, check_trains
from estimax.parallel.processes import Processes
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack
from estimax.storage.compilation_cache import keep_compiled_programs

_log = logging.getLogger("estimax")
InputFn = Callable[..., Any]


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
    # Whether `evaluate` may pad its last batch: every row is computed by itself, and
    # the head leaves out rows of padding. Of a user's `model_fn` nobody knows this.
    _masks_padding = False
    # Whether the programs of an evaluation are known before the first checkpoint.
    _can_compile_ahead = True
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
        # Caches, which threads may share. What belongs to one call is in its Session.
        self._programs: dict[Any, training.Program] = {}
        self._advised: set[str] = set()  # advice on batch sizes that was logged
        # Set by `CompileAhead`, while it compiles the programs of an evaluation.
        self._compiling: threading.Thread | None = None
        self._loader = Loader(
            self._config, self._warm_start, lambda: self.latest_checkpoint()
        )

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
        lines = [f"{type(self).__name__}(model_dir={format_path(self.model_dir)!r})"]
        if isinstance(self._params, Mapping) and self._params:
            lines.append(f"  params: {', '.join(map(str, self._params))}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the `repr` and the variables of the latest checkpoint."""
        return reports.variables_as_html(repr(self), self.latest_checkpoint())

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
        with (
            short_traceback(),
            shown_by_default(),
            join_cluster(self._config) as peers,
            training_in(self._config, "train"),
        ):
            share = arguments.describe_share(input_fn, self._config)
            agreement.compare_calls(
                peers, self._config, steps=steps, max_steps=max_steps, input_fn=share
            )
            seed = agreement.agree_on_seed(peers, self._config)
            checkpoint = checkpoints.restore_latest(self.model_dir, peers)
            if checkpoint is None:
                arguments.check_folder(self.model_dir)
            start = checkpoint.step if checkpoint else 0
            if max_steps is not None and start >= max_steps:
                reports.log_nothing_to_train(self.model_dir, start, max_steps)
                return self
            reports.log_start(self.model_dir, start, max_steps, steps)
            with self._open(
                ModeKeys.TRAIN, input_fn, peers=peers, checkpoint=checkpoint, seed=seed
            ) as session:
                if not session.has_data():
                    _log.warning(
                        "train: the input_fn gave no data; nothing was trained"
                    )
                    return self
                limit = steps or max_steps
                arguments.warn_if_endless(session.feed, "train", limit, hooks)
                session.advise(self._advised)
                program = self._program(session)
                explain = partial(
                    agreement.hints_of, self._model_fn, self._params, program
                )
                given = arguments.hooks_of(hooks)
                agreement.compare_models(
                    peers, program, session.first_batch(), given, explain
                )
                state = session.start_state(program, checkpoint, self._warm_start)
                checkpoint = None  # free its arrays
                start = int(state.step)  # a warm start may also set the step
                context = session.train(
                    program,
                    state,
                    given,
                    saving_listeners or (),
                    last_step=start + steps if steps else max_steps,
                    params=self._params,
                    explain=explain,
                    replay=lambda: self.replay(input_fn, REPLAY_SECS),
                )
                reports.log_training(context)
            saved = self.latest_checkpoint()
            # Without a save at this step, the next call continues at an earlier
            # checkpoint, with the mark of that one.
            is_saved = saved is not None and checkpoints.step_of(saved) == context.step
            if is_saved and self._config.is_chief:
                mark_ended(self.model_dir, int(context.step))
        return self

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
        self._loader.check_trained(checkpoint_path)
        with (
            short_traceback(),
            shown_by_default(),
            self._open(ModeKeys.EVAL, input_fn) as session,
            session.debugging(),
        ):
            first = arguments.first_batch(session.feed, "evaluate")
            arguments.check_ends(session.feed, steps, hooks)
            session.advise(self._advised)
            form = self._form_of(checkpoint_path)
            program = self._program(session, form=form)
            loaded = self._loader.load(program, first, checkpoint_path)
            return self._evaluate(session, program, loaded, steps, hooks, name, report)

    def evaluate_state(
        self,
        state: TrainState,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate variables in memory instead of a checkpoint.

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
        with self._open(ModeKeys.EVAL, input_fn) as session, session.debugging():
            arguments.first_batch(session.feed, "evaluate_state")
            arguments.check_ends(session.feed, steps, hooks)
            program = self._program(session, form=self._form_of_state(state))
            use_averages = self._config.use_averages
            loaded = variables_of_state(state, program, use_averages)
            return self._evaluate(session, program, loaded, steps, hooks, name)

    def _evaluate(
        self,
        session: Session,
        program: training.Program,
        loaded: Loaded,
        steps: int | None,
        hooks: Sequence[Hook] | None,
        name: str | None,
        report: bool = True,
    ) -> dict[str, Any]:
        results, measured, examples = session.evaluate(program, loaded, hooks, steps)
        if report:
            reports.write_evaluation(
                self.eval_dir(name), results, loaded.step, loaded.path, measured
            )
            reports.log_evaluation(results, examples, name)
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
        self._loader.check_trained(checkpoint_path)
        with short_traceback(), self._open(ModeKeys.PREDICT, input_fn) as session:
            if session.feed.first is None:
                return
            arguments.warn_if_endless(session.feed, "predict", None, hooks)
            session.advise(self._advised)
            form = self._form_of(checkpoint_path)
            program = self._program(session, form=form)
            loaded = self._loader.load(program, session.first_batch(), checkpoint_path)
            for predictions, forwarded in training.predict(
                program,
                loaded.variables,
                session.batches(program),
                (*arguments.hooks_of(hooks), *program.spec.prediction_hooks),
                RunContext(step=loaded.step),
                debugging=session.debugging,
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
        explain: bool = False,
        calibration: CalibrationMethod | FittedCalibration | None = None,
        table_dtype: TableDtype | None = None,
        max_table_error: float = 0.01,
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
          explain: Whether the bundle gets a signature "explain" as well, which returns
            the part of each feature in the output, as
            `ex.inspection.integrated_gradients` computes it with 64 steps.
          calibration: The last step of the bundle, which adds
            `calibrated_probabilities` to its predictions: one of `ex.calibration`, such
            as `Isotonic(eval_input_fn)`, which is fitted to the checkpoint, or one that
            was fitted before. None: probabilities are those of the model.
          table_dtype: "float16" or "int8" to store the embedding tables of feature
            columns in a half or about a quarter of the space, on disk and in the memory
            of servers. int8 has a scale for each row; rows of fewer than 4 numbers are
            float16. None: float32.
          max_table_error: By how much an output may change by `table_dtype`, as a share
            of its largest value on the example rows.

        Returns:
          The path of the bundle.

        Raises:
          MissingFileError: There is no checkpoint.
          SpecError: `experimental_mode` is not PREDICT; the model cannot be explained:
            see `ex.inspection.integrated_gradients`; the model to calibrate predicts no
            probabilities of classes; or with `table_dtype` the model has no tables, an
            output changes by more than `max_table_error`, or `explain` is given too.
          InputError: There are no rows to fit the calibration on.
          LabelError: The rows to fit it on are not of every class.
        """
        exporting.check_mode(experimental_mode)
        small_tables.check_options(table_dtype, max_table_error, explain=explain)
        about: dict[str, Any] = {}
        with short_traceback():
            servable, step, program = self._servable(
                serving_input_receiver_fn, checkpoint_path, explain=explain
            )
            if table_dtype is not None:
                servable, about["tables"] = small_tables.with_small_tables(
                    servable, program, table_dtype, max_table_error
                )
            if calibration is not None:
                fitted = self._fit_calibration(calibration, checkpoint_path)
                servable = exporting.calibrated(servable, fitted)
                about["calibration"] = fitted.report
            bundle = export.write_bundle(
                servable,
                export_dir_base,
                assets_extra=assets_extra,
                step=step,
                metrics=metrics,
                about=about,
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
        with short_traceback():
            serving_fn = receivers[ModeKeys.PREDICT]
            servable, step, _ = self._servable(serving_fn, checkpoint_path)
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

    def _fit_calibration(
        self,
        given: CalibrationMethod | FittedCalibration,
        checkpoint_path: str | os.PathLike[str] | None,
    ) -> FittedCalibration:
        if isinstance(given, FittedCalibration):
            return given
        if given.input_fn is None:
            raise SpecError(
                f"export: calibration={type(given).__name__}() has no rows to fit on. "
                f"Write ex.calibration.{type(given).__name__}(eval_input_fn)."
            )
        batches = self._predict_with_labels(
            given.input_fn, given.weight, given.steps, checkpoint_path
        )
        return calibrating.fit(given, batches)

    def _predict_with_labels(
        self,
        input_fn: InputFn,
        weight: str | None,
        steps: int | None,
        checkpoint_path: str | os.PathLike[str] | None,
    ) -> calibrating.Batches:
        """Yield the predictions of each batch with its raw labels and weights."""
        with self._open(ModeKeys.EVAL, input_fn) as session:
            if session.feed.first is None:
                return
            arguments.check_ends(session.feed, steps, None)
            first = session.first_batch()
            rows = calibrating.RawRows.find(first, weight)
            # The program of `predict`, and its feed with labels.
            features = {o: value for o, value in first.items() if o.part == "features"}
            predicting = Session(self._config, ModeKeys.PREDICT)
            form = self._form_of(checkpoint_path)
            program = self._program(predicting, features, form)
            loaded = self._loader.load(program, features, checkpoint_path)
            plan = replace(program.plan, forwarded=rows.forwarded)
            depth = self._config.prefetch_batches
            for predictions, forwarded in training.predict(
                program,
                loaded.variables,
                itertools.islice(session.feed.batches(plan, depth=depth), steps),
                (),
                RunContext(step=loaded.step),
                debugging=session.debugging,
            ):
                kept = calibrating.needed(predictions)
                yield device_dtypes.materialize(jax.device_get(kept)), forwarded, rows

    def _evaluation(
        self,
        receiver_fn: Callable[[], Any],
        checkpoint_path: str | os.PathLike[str] | None,
    ) -> export.Servable:
        example = exporting.supervised_example(receiver_fn)
        session = Session(self._config, ModeKeys.EVAL, is_eager=False)
        program = self._program(session, example, self._form_of(checkpoint_path))
        loaded = self._loader.load(program, example, checkpoint_path, Placement())
        return exporting.evaluation_servable(program, loaded.variables, example)

    def _servable(
        self,
        receiver_fn: Callable[[], Any] | None,
        checkpoint_path: str | os.PathLike[str] | None,
        *,
        explain: bool = False,
    ) -> tuple[export.Servable, int, training.Program]:
        """Return what a bundle that predicts is written from, its step and program."""
        self._loader.check_trained(checkpoint_path)
        program, example, parse = self._serving_program(receiver_fn, checkpoint_path)
        loaded = self._loader.load(program, example, checkpoint_path, Placement())
        servable = exporting.servable(
            program, loaded.variables, example, parse, explain=explain
        )
        return servable, loaded.step, program

    def _serving_program(
        self,
        receiver_fn: Callable[[], Any] | None,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> tuple[training.Program, plans.RawBatch, exporting.RequestParsing]:
        """Return the program that a bundle has, an example, and how it is parsed."""
        example, parse = exporting.serving_example(receiver_fn, self.model_dir)
        # Traced also where the model is debugged: an eager model is asked for every
        # feature of the data, and so would be the clients of the bundle.
        session = Session(self._config, ModeKeys.PREDICT, is_eager=False)
        program = self._program(session, example, self._form_of(checkpoint_path))
        return program, example, parse

    def explainer(
        self,
        features: Mapping[str, Any],
        *,
        explained: training.Explained | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> Callable[[Mapping[str, Any]], dict[str, NDArray[Any]]]:
        """Return a function of features that computes the part of each in the output.

        `ex.inspection.integrated_gradients` calls it for all rows of an input.

        Args:
          features: The features of some rows, which give the dtypes and shapes.
          explained: Which output is explained, and how exactly; None is
            `training.Explained()`.
          checkpoint_path: The checkpoint to explain; None is the latest one.

        Returns:
          A function of features, compiled for each number of rows. It returns arrays
          with a number for each row: `contributions/<feature>`, `baseline`, `output`
          and `residual`, and `class_id` for a model with several classes.

        Raises:
          MissingFileError: There is no checkpoint.
          SpecError: The output depends on a feature other than through the layers of
            feature columns.
        """
        explained = explained or training.Explained()
        self._loader.check_trained(checkpoint_path)
        example = plans.flatten(features, None)
        session = Session(self._config, ModeKeys.PREDICT, is_eager=False)
        program = self._program(session, example, self._form_of(checkpoint_path))
        loaded = self._loader.load(program, example, checkpoint_path, Placement())
        if explained not in program.exported:
            made = training.make_explainer(
                program, program.plan.prepare(example), explained
            )
            program.exported[explained] = jax.jit(made.explain)
        explain = program.exported[explained]

        def explain_rows(rows: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
            prepared = program.plan.prepare(plans.flatten(rows, None))
            found: dict[str, NDArray[Any]] = device_dtypes.materialize(
                explain(loaded.variables, prepared)
            )
            return found

        return explain_rows

    def describe_training(
        self, input_fn: InputFn
    ) -> tuple[Mapping[str, training.VariableUpdate], TrainState]:
        """Return how each variable is updated, without training.

        `ex.inspection.variable_table` shows it as a table.

        Args:
          input_fn: A function that returns the training data; see `train`.

        Returns:
          How each param and table is updated, by its name, and the training state with
          shapes in place of arrays.
        """
        with self._open(ModeKeys.TRAIN, input_fn) as session:
            first = arguments.first_batch(session.feed, "describe_training")
            program = self._program(session)
            arrays = pack(program.plan.prepare(first))
        # Shapes of variables, without the padding that they may have on a mesh.
        key = jax.random.key(0)
        return program.updates, jax.eval_shape(program.init_unplaced, key, arrays)

    def latest_checkpoint(self) -> str | None:
        """Return the path of the newest readable checkpoint, or None."""
        return latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Return the names of all arrays in the latest checkpoint, sorted."""
        return sorted(checkpoints.names(self._loader.checkpoint(None)))

    def get_variable_value(self, name: str) -> NDArray[Any]:
        """Return one array of the latest checkpoint.

        Args:
          name: A name of `get_variable_names`, such as "dnn/logits/kernel".
        """
        return checkpoints.read_array(self._loader.checkpoint(None), name)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder in which evaluations write their summaries.

        Args:
          name: The `name` that was given to `evaluate`.
        """
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def _open(
        self,
        mode: Mode,
        input_fn: InputFn,
        *,
        peers: Processes | None = None,
        checkpoint: checkpoints.Checkpoint | None = None,
        seed: int | None = None,
    ) -> Session:
        """Open the input of a call, at the position of `checkpoint` if one is given."""

        def call() -> Any:
            return arguments.call_input_fn(
                input_fn, mode=mode, params=self.params, config=self._config
            )

        has_share = peers is not None and arguments.reads_share(input_fn, self._config)
        return Session(
            self._config,
            mode,
            call,
            peers=peers,
            has_share=has_share,
            checkpoint=checkpoint,
            seed=seed,
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

    def _form_of(self, checkpoint_path: str | os.PathLike[str] | None) -> Hashable:
        """Return what the program depends on besides the input, of a checkpoint.

        None for most models: the shapes of their variables do not change in training.
        A subclass whose shapes do returns them.
        """
        return None

    def _form_of_state(self, state: TrainState) -> Hashable:
        """Return the same as `_form_of`, of a training state in memory."""
        return None

    def prediction_spec(
        self, features: Any, checkpoint_path: str | os.PathLike[str] | None = None
    ) -> Any:
        """Return the PREDICT spec, to use inside the `model_fn` of another model.

        Use it to combine trained models in one program. Unlike `model_fn`, it declares
        the variables with the shapes that they have in a checkpoint: those of trees
        depend on it.

        Args:
          features: The features of a batch.
          checkpoint_path: The checkpoint whose variables the program will have; None is
            the latest one.

        Returns:
          The `EstimatorSpec` of the `model_fn`.
        """
        form = self._form_of(checkpoint_path)
        return self._function_of(ModeKeys.PREDICT, form)(features, None)

    def _program(
        self,
        session: Session,
        batch: plans.RawBatch | None = None,
        form: Hashable = None,
    ) -> training.Program:
        """Return the program for mode, devices and structure of input, built once.

        `batch` is what the model is recorded on; None is the first of the session.
        """
        mode, is_eager = session.mode, session.is_eager
        thread = self._compiling
        if thread is not None and thread is not threading.current_thread():
            # It traces and compiles what this call needs: at once, both would do it.
            thread.join()
        batch = session.first_batch() if batch is None else batch
        key = (mode, training.structure_of(batch), is_eager, session.placement, form)
        if key not in self._programs:
            keep_compiled_programs(self._config.compilation_cache_dir)
            with jax.disable_jit() if is_eager else nullcontext():
                program = self._compile(session, batch, form)
            # Two threads may have compiled it. Both go on with the first: XLA compiles
            # when a program is called, and then only once.
            self._programs.setdefault(key, program)
        if mode == ModeKeys.TRAIN and self._config.is_chief:
            exporting.remember_example(self.model_dir, batch)
        return self._programs[key]

    def _function_of(self, mode: Mode, form: Hashable) -> Callable[[Any, Any], Any]:
        """Return the function of features and labels that is compiled."""
        return lambda features, labels: self._call_model_fn(features, labels, mode)

    def _compile(
        self, session: Session, batch: plans.RawBatch, form: Hashable
    ) -> training.Program:
        mode, precision = session.mode, self._config.precision
        recording = training.record(
            self._function_of(mode, form),
            batch,
            mode,
            compute_dtype=None if precision == "float32" else precision,
            eager=session.is_eager,
            reads_by_row=session.placement.is_one_device,
        )
        program = training.compile(
            recording,
            session.placement,
            average_decay=self._config.average_decay,
            checks_values=self._config.debug == "nan",
            has_mask=self._masks_padding and not session.is_eager,
        )
        for sentence in program.advice:
            _log.warning("%s", sentence)
        return program

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
        with self._open(ModeKeys.TRAIN, input_fn, checkpoint=checkpoint) as session:
            if session.feed.first is None:
                return None
            with session.debugging():
                program = self._program(session)
                state = session.start_state(program, checkpoint, self._warm_start)
                batches = (batch.arrays for batch in session.batches(program))
                return program.find_nonfinite(state, batches, max_secs=max_secs)
