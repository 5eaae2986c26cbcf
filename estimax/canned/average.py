"""`AverageEstimator`: members trained on one input, whose predictions are averaged.

    model = ex.AverageEstimator(
        ex.heads.BinaryClassHead(),
        {"network": ex.TabularClassifier(columns), "linear": ex.LinearClassifier(wide)},
        held_out_fn=valid_fn,
    )
    model.train(train_fn, max_steps=3_000).evaluate(test_fn)

Each member trains in its own `model_dir`. The variables of its best checkpoint are then
copied into one checkpoint of the average, under the name of the member, so evaluation,
prediction and export are those of any `Estimator`: one program, one bundle.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax import checkpoints, heads, metrics, staging
from estimax.canned import defaults
from estimax.canned.average_choice import (
    KeepBest,
    keep_variables,
    steady_weights,
    stop_if_overfitting,
    weight_candidates,
)
from estimax.canned.member_predictions import average_logits, logits_of
from estimax.canned.per_head import separate_trace
from estimax.checkpoints.state_names import STEP
from estimax.core.errors import MissingFileError, SpecError
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import (
    Estimator,
    EvalSpec,
    RunConfig,
    TrainSpec,
    train_and_evaluate,
)
from estimax.estimator.arguments import call_input_fn, check_steps, hooks_of
from estimax.estimator.default_log import shown_by_default
from estimax.estimator.exporting import copy_example
from estimax.estimator.model_dir import training_in
from estimax.estimator.train_evaluate import EvaluateEveryFewSteps
from estimax.hooks import Hook, stop_if_no_decrease_hook
from estimax.parallel.cluster import check_alone
from estimax.staging import variables

_log = logging.getLogger("estimax")
_FOLDER = "average"  # in the model_dir: what is needed until all members are trained


class AverageEstimator(Estimator):
    """An average of several models of one label, with weights found on held-out rows.

    Use it for the best prediction of a table: trees and a network make different
    mistakes, and their average is usually better than either. The members are trained
    one after the other. With `held_out_fn`, each is evaluated on the held-out rows
    whenever it saves a checkpoint, and its best checkpoint is kept. Of a
    `TabularEstimator` with `train_steps`, whose learning rate ends at 0, the last one
    is kept if its loss is above the smallest by at most 1/sqrt(n) of it for n rows: on
    few rows an early minimum is mostly luck. Such a network also stops if its loss was
    above the smallest by more than that, and 2 %, at five evaluations in a row. Then
    the weights are chosen for which the
    average has the smallest loss on these rows, in steps of 1/20 for two members, 1/10
    for three and 1/5 for four, and drawn towards equal weights as if 100 rows more had
    preferred these. A weight below 0.1 becomes 0, which removes the member from
    evaluation, prediction and export.

    Probabilities and numbers are averaged, not logits. The average is evaluated after
    training only: an `EvalSpec` with `every_steps` has no effect on it.

    Args:
      head: What the members predict; sets loss, metrics and signatures of the average.
      members: Estimators of the same label by name, each with a `model_dir` of its own.
        A member evaluates as often as its `RunConfig` saves checkpoints.
      held_out_fn: Returns the rows on which checkpoints and weights are chosen: rows
        that the members do not train on, and not those of the final test. None: the
        last checkpoints and equal weights.
      patience_steps: A member stops if its loss on the held-out rows has not decreased
        for this many steps. None: it trains to its end.
      model_dir: Folder for the checkpoint of the average and its summaries. None: that
        of `config`, or a new temporary folder.
      config: How to run. None: `RunConfig()`. Seed and checkpoints of a member are set
        in its own config.

    Raises:
      SpecError: There is no member, a member is no `Estimator`, a name is empty or has
        other characters than letters, digits and `_.-`, two members have the same
        `model_dir`, `head` is a `MultiHead`, or `patience_steps` is given without
        `held_out_fn`.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.linspace(-1, 1, 64, dtype=np.float32)
      >>> labels = (x > 0).astype(np.int32)
      >>> rows = ex.input.Dataset.from_tensor_slices(({"x": x}, labels))
      >>> column = ex.feature_columns.numeric_column("x")
      >>> members = {
      ...     "linear": ex.LinearClassifier([column]),
      ...     "constant": ex.BaselineClassifier(),
      ... }
      >>> head = ex.heads.BinaryClassHead()
      >>> model = ex.AverageEstimator(head, members, lambda: rows.batch(64))
      >>> model = model.train(lambda: rows.repeat().batch(64), max_steps=50)
      >>> weights = model.member_weights
      >>> weights["linear"] > weights["constant"]
      True
    """

    _can_compile_ahead = False  # the weights are constants of a program

    def __init__(
        self,
        head: heads.Head,
        members: Mapping[str, Estimator],
        held_out_fn: Callable[..., Any] | None = None,
        patience_steps: int | None = None,
        model_dir: defaults.ModelPath | None = None,
        config: RunConfig | None = None,
    ) -> None:
        model = type(self).__name__
        defaults.check_head(head, model)
        if isinstance(head, heads.MultiHead):
            raise SpecError(
                f"{model}: head must have one label; make an average for each head of "
                "the MultiHead."
            )
        _check_members(members)
        if patience_steps is not None:
            defaults.check_count(patience_steps, model, "patience_steps")
            if held_out_fn is None:
                raise SpecError(
                    f"{model}: patience_steps needs held_out_fn, which returns the "
                    "rows on which a member stops to improve."
                )
        self._head = head
        self._members = dict(members)
        self._held_out_fn = held_out_fn
        self._held_out_rows: int | None = None
        self._patience = patience_steps

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            if mode == ModeKeys.TRAIN:
                raise SpecError(
                    f"{model}: the members are trained one by one; call train, or "
                    "describe the training of a member."
                )
            kept = {n: w for n, w in self.member_weights.items() if w > 0}
            logits = self._member_logits(features, kept)
            average = average_logits(head, logits, jnp.asarray(list(kept.values())))
            return head.create_estimator_spec(features, mode, average, labels)

        super().__init__(model_fn, model_dir, config)
        is_by_row = all(member._masks_padding for member in members.values())
        self._masks_padding = is_by_row and defaults.is_by_row(head)
        self._check_folders()

    @property
    def members(self) -> dict[str, Estimator]:
        """The members by name."""
        return dict(self._members)

    @property
    def member_weights(self) -> dict[str, float]:
        """The weight of each member in the average, by name; they sum to 1.

        Raises:
          MissingFileError: The average has not been trained.
        """
        path = self._loader.checkpoint(None)
        found = checkpoints.read_manifest(path).extra["weights"]
        return {name: float(found.get(name, 0.0)) for name in self._members}

    def member_checkpoint(self, name: str) -> str:
        """Return the checkpoint of a member that is averaged, to evaluate it alone.

        Args:
          name: The name of the member.

        Returns:
          A path for `checkpoint_path` of the member's `evaluate`, `predict` and
          `export_saved_model`. It has no optimizer state.

        Raises:
          MissingFileError: The member has not been trained.
        """
        path = checkpoints.latest(self._kept(name)) if name in self._members else None
        if path is None:
            raise MissingFileError(
                f"AverageEstimator: member {name!r} has no checkpoint in "
                f"{self.model_dir!r}; the members are {', '.join(self._members)}."
            )
        return str(path)

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Hook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> AverageEstimator:
        """Train the members, choose the weights and save the average.

        A call that was interrupted continues where it stopped: members that have ended
        are not trained again.

        Args:
          input_fn: A function that returns the training data; see `Estimator.train`.
          hooks: Hooks that are called in the training of every member.
          steps: How many steps each member trains in this call.
          max_steps: The total number of steps of each member. A second call with the
            same number trains nothing. Give `steps` or `max_steps`, not both.
          saving_listeners: Called before and after the average is saved.

        Returns:
          This estimator, so that calls can be chained.

        Raises:
          InUseError: Another process or thread is training in the same `model_dir`.
          ClusterError: The `RunConfig` describes a cluster.
        """
        check_steps(steps=steps, max_steps=max_steps)
        check_alone(self.config, "AverageEstimator.train")
        hooks = [h for h in hooks_of(hooks) if not _evaluates(h)]
        with shown_by_default(), training_in(self.config, "train"):
            before = self._trained_steps()
            goal = before + steps if steps else max_steps
            if goal is not None and before >= goal:
                _log.info("train: the average has %d steps already", before)
                return self
            for name, member in self._members.items():
                self._train_member(name, member, input_fn, hooks, goal)
            self._save(goal, saving_listeners or ())
        return self

    def _trained_steps(self) -> int:
        path = self.latest_checkpoint()
        if path is None:
            return 0
        return int(checkpoints.read_manifest(path).extra["trained_steps"])

    def _train_member(
        self,
        name: str,
        member: Estimator,
        input_fn: Callable[..., Any],
        hooks: Sequence[Hook],
        goal: int | None,
    ) -> None:
        kept = self._kept(name)
        ended = checkpoints.read_finished(kept) if kept.is_dir() else None
        if ended is not None and ended.reason == _reason(goal):
            return
        _log.info("member %r of the average:", name)
        if self._held_out_fn is None:
            member.train(input_fn, hooks, max_steps=goal)
        else:
            hooks = [*hooks, *self._stopping(member)]
            train_and_evaluate(
                member,
                TrainSpec(input_fn, max_steps=goal, hooks=hooks),
                EvalSpec(
                    self._held_out_fn,
                    exporters=KeepBest(kept, self._tolerance(member)),
                    start_delay_secs=0,
                    throttle_secs=0,
                ),
            )
        latest = member.latest_checkpoint()
        if latest is None:
            raise SpecError(
                f"AverageEstimator: member {name!r} has no checkpoint after its "
                "training; was there any data, and does its RunConfig save?"
            )
        if self._held_out_fn is None:
            keep_variables(latest, kept, {}, averages=member.config.use_averages)
        checkpoints.mark_finished(kept, checkpoints.step_of(latest), _reason(goal))

    def _tolerance(self, member: Estimator) -> float:
        """Return by what share of its loss the last checkpoint may be above the best.

        The standard error of a mean over n rows is about its value / sqrt(n).
        """
        if not getattr(member, "settles", False):
            return 0.0
        return 1 / math.sqrt(max(1, self._count_held_out()))

    def _count_held_out(self) -> int:
        if self._held_out_rows is None:
            self._held_out_rows = _count_rows(self._held_out_fn, self.config)
        return self._held_out_rows

    def _stopping(self, member: Estimator) -> list[Hook]:
        """Return the hook that stops a member, if there is one."""
        every = member.config.save_checkpoints_steps
        if self._patience is not None:
            hook = stop_if_no_decrease_hook(
                member,
                "average_loss",
                self._patience,
                run_every_secs=60 if every is None else None,
                run_every_steps=every,
            )
            return [hook]
        tolerance = self._tolerance(member)
        if not tolerance or every is None:
            return []
        return [stop_if_overfitting(member, tolerance, every)]

    def _save(self, goal: int | None, listeners: Sequence[Any]) -> None:
        arrays, steps = self._collect()
        equal = dict.fromkeys(self._members, 1 / len(self._members))
        weights = equal
        if self._held_out_fn is not None and len(self._members) > 1:
            # A checkpoint of the average without weights is in a folder of its own, so
            # that a process that is killed meanwhile leaves none that looks complete.
            unweighted = Path(self.model_dir, _FOLDER, "unweighted")
            path = checkpoints.path_of(unweighted, max(steps.values()))
            checkpoints.write(path, arrays, max(steps.values()))
            weights = self._choose_weights(str(path))
            shutil.rmtree(unweighted)
        for name, weight in weights.items():
            _log.info("weight of %r: %.2f (its step %d)", name, weight, steps[name])
        first = next(iter(self._members.values()))
        copy_example(first.model_dir, self.model_dir)
        extra = {"weights": weights, "steps": steps, "trained_steps": goal or 0}
        self._programs.clear()  # they have the earlier weights
        # Afterwards listeners evaluate and export, with programs that are kept.
        self._write(arrays, max(steps.values()), extra, listeners)

    def _write(
        self,
        arrays: Mapping[str, Any],
        step: int,
        extra: Mapping[str, Any],
        listeners: Sequence[Any],
    ) -> None:
        path = checkpoints.path_of(self.model_dir, step)
        for listener in listeners:
            listener.begin()
            listener.before_save(step)
        # The weights of one checkpoint must not be used with another, so there is one.
        saver = checkpoints.Saver(self.model_dir, keep_max=1)
        saver.save(step, dict(arrays), dict(extra))
        saver.close()
        for listener in listeners:
            listener.after_save(step, str(path))
            listener.end(step)

    def _kept(self, name: str) -> Path:
        """Return the folder of the best checkpoint of a member."""
        return Path(self.model_dir, _FOLDER, name)

    def _collect(self) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the variables of all members, and the step of each."""
        arrays: dict[str, Any] = {}
        steps = {}
        for name in self._members:
            saved = checkpoints.restore_latest(self._kept(name))
            if saved is None:
                raise SpecError(
                    f"AverageEstimator: no evaluation of member {name!r} on the held-"
                    "out rows has a loss; were there any rows?"
                )
            steps[name] = saved.step
            found = {k: v for k, v in saved.arrays.items() if k != STEP}
            arrays |= {f"{name}/{key}": value for key, value in found.items()}
        return {**arrays, STEP: np.int32(max(steps.values()))}, steps

    def _choose_weights(self, path: str) -> dict[str, float]:
        """Return the weights whose average has the smallest loss on held-out rows."""
        candidates = weight_candidates(len(self._members))
        head = self._head

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            logits = self._member_logits(features, dict.fromkeys(self._members, 1.0))

            def loss_of(weights: jax.Array) -> jax.Array:
                average = average_logits(head, logits, weights)
                return head.loss(labels, average, features=features, mode=mode)

            # One computation for all weights: the program does not grow with them.
            losses = jax.vmap(loss_of)(jnp.asarray(candidates, jnp.float32))
            # The head has left out rows of padding, which are no rows here either.
            trace = staging.current()
            mask = None if trace is None else trace.mask
            rows = jnp.float32(logits.shape[0]) if mask is None else jnp.sum(mask)
            found = {
                str(i): metrics.mean(losses[i], rows) for i in range(len(candidates))
            }
            return EstimatorSpec(mode, loss=losses[0], eval_metric_ops=found)

        assert self._held_out_fn is not None
        config = self.config.replace(model_dir=str(Path(path).parent))
        chooser = Estimator(model_fn, config=config)
        chooser._masks_padding = self._masks_padding
        measured = chooser.evaluate(
            self._held_out_fn, checkpoint_path=path, report=False
        )
        losses = np.array([measured[str(i)] for i in range(len(candidates))])
        if not np.any(np.isfinite(losses)):
            raise SpecError(
                "AverageEstimator: the loss of every average of the members is NaN on "
                "the held-out rows."
            )
        best = candidates[int(np.nanargmin(losses))]
        weights = steady_weights(best, self._count_held_out())
        return dict(zip(self._members, weights, strict=True))

    def _member_logits(self, features: Any, names: Mapping[str, float]) -> Any:
        """Return the logits of the members, [B, M, K]."""
        found = []
        for name in names:
            member = self._members[name]
            with variables.model_scope(name), separate_trace(name):
                path = self.member_checkpoint(name)
                spec = member.prediction_spec(dict(features), path)
            found.append(logits_of(self._head, spec.predictions, name))
        return jnp.stack(found, axis=1)

    def _check_folders(self) -> None:
        folders = {"the average": os.path.realpath(self.model_dir)}
        for name, member in self._members.items():
            folder = os.path.realpath(member.model_dir)
            for other, taken in folders.items():
                if folder == taken:
                    raise SpecError(
                        f"AverageEstimator: member {name!r} and {other} have the same "
                        f"model_dir {member.model_dir!r}. Give each a folder."
                    )
            folders[f"member {name!r}"] = folder


def _count_rows(input_fn: Any, config: RunConfig) -> int:
    """Return the number of rows of an input, from its labels."""
    data = call_input_fn(input_fn, mode=ModeKeys.EVAL, params={}, config=config)
    batches = [data] if isinstance(data, tuple) else data
    return sum(len(jax.tree.leaves(labels)[0]) for _, labels in batches)


def _reason(goal: int | None) -> str:
    return "trained to its end" if goal is None else f"trained for {goal} steps"


def _evaluates(hook: Hook) -> bool:
    # It evaluates the state of a member as if it was the state of the average.
    return isinstance(hook, EvaluateEveryFewSteps)


def _check_members(members: Any) -> None:
    if not isinstance(members, Mapping) or not members:
        raise SpecError(
            "AverageEstimator: members must be a dict from name to Estimator, with at "
            f"least one, got {members!r}."
        )
    for name, member in members.items():
        if not isinstance(member, Estimator):
            raise SpecError(
                f"AverageEstimator: members[{name!r}] must be an Estimator, got "
                f"{type(member).__name__}."
            )
        if not isinstance(name, str) or not re.fullmatch(r"[\w.\-]+", name):
            raise SpecError(
                f"AverageEstimator: {name!r} is no name for a member; use letters, "
                "digits and _ . - only. It is part of the names of its variables."
            )
