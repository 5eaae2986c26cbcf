"""The spec of a head for each mode; any class with a head's members can use it.

class MyHead:
    ...
    create_estimator_spec = heads.make_spec
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from estimax import optimizers, staging
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.heads.head import Features, Head, Labels, Logits, Losses
from estimax.heads.scoring import named, total_regularization


def make_spec(
    head: Head,
    features: Features,
    mode: str,
    logits: Logits,
    labels: Labels = None,
    optimizer: Any = None,  # whatever optimizers.as_optimizer accepts
    trainable_variables: str | Sequence[str] | None = None,
    train_op_fn: Callable[[jax.Array], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    regularization_losses: Losses = None,
) -> EstimatorSpec:
    """What a `model_fn` returns: predictions, and what the mode needs besides.

    TRAIN takes either an `optimizer` or a `train_op_fn(loss)` that returns a train op.
    `trainable_variables` are regexes for the names of variables to train; None trains
    all. `update_ops` is accepted for likeness with TensorFlow: batch statistics are
    variables of the model here and update themselves.

    >>> from estimax.heads import RegressionHead
    >>> spec = make_spec(RegressionHead(), {}, "infer", [[1.5]])
    >>> sorted(spec.export_outputs)
    ['predict', 'regression', 'serving_default']
    """
    training = Training(optimizer, trainable_variables, train_op_fn, update_ops)
    spec = build_spec(
        head, features, mode, logits, labels, training, regularization_losses
    )
    if mode == ModeKeys.TRAIN:
        log_losses(head.name, spec.loss, regularization_losses)
    return spec


@dataclass(frozen=True)
class Training:
    """How to train: the arguments of `create_estimator_spec` that say so."""

    optimizer: Any = None
    trainable_variables: str | Sequence[str] | None = None
    train_op_fn: Callable[[jax.Array], Any] | None = None
    update_ops: Sequence[Any] | None = None

    def train_op(self, loss: jax.Array) -> Any:
        """The train op; raises unless exactly one way to train is given."""
        if (self.optimizer is None) == (self.train_op_fn is None):
            given = "none" if self.optimizer is None else "both"
            raise SpecError(
                "create_estimator_spec: training needs either optimizer or "
                f"train_op_fn, got {given} of them."
            )
        if not isinstance(self.update_ops, list | tuple | None):
            raise SpecError(
                "create_estimator_spec: update_ops must be a list or tuple, got "
                f"{type(self.update_ops).__name__}."
            )
        if self.train_op_fn is not None:
            return self.train_op_fn(loss)
        if self.trainable_variables is None:
            return optimizers.as_train_op(self.optimizer)
        names = self.trainable_variables
        return optimizers.minimize(self.optimizer, var_list=names)


def build_spec(
    head: Head,
    features: Features,
    mode: str,
    logits: Logits,
    labels: Labels,
    training: Training,
    regularization_losses: Losses,
) -> EstimatorSpec:
    """The spec for the mode, without logging anything."""
    predictions = head.predictions(logits)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(
            mode,
            predictions=predictions,
            export_outputs=head.export_outputs(predictions),
        )
    # By name: SequentialHeadWrapper.loss has these two the other way round.
    loss = head.loss(
        labels=labels,
        logits=logits,
        features=features,
        mode=mode,
        regularization_losses=regularization_losses,
    )
    if mode == ModeKeys.EVAL:
        empty = head.metrics(regularization_losses)
        seen = head.update_metrics(
            empty, features, logits, labels, regularization_losses
        )
        return EstimatorSpec(
            mode, predictions=predictions, loss=loss, eval_metric_ops=seen
        )
    if mode != ModeKeys.TRAIN:
        raise SpecError(
            f"create_estimator_spec: unknown mode {mode!r}; expected "
            "ModeKeys.TRAIN, EVAL or PREDICT ('train', 'eval' or 'infer')."
        )
    train_op = training.train_op(loss)
    return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)


def log_losses(
    name: str | None, loss: jax.Array, regularization_losses: Losses
) -> None:
    """Have a head's losses seen under its name."""
    # An unnamed head's loss is the spec's, which the training loop logs.
    if name is not None:
        log_scalar(named("loss", name), loss)
    penalty = total_regularization(regularization_losses)
    log_scalar(named("regularization_loss", name), penalty)


def log_scalar(tag: str, value: jax.Array | None) -> None:
    """Have a scalar of the training step seen, when one is being traced."""
    trace = staging.current()
    if trace is not None and value is not None:
        trace.logged[tag] = staging.LoggedValue("scalar", value)
