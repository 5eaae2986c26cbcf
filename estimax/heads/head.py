"""The interface of a head, and the base class that implements most of it.

    head = ex.heads.BinaryClassHead()
    return head.create_estimator_spec(features, mode, logits, labels, optimizer="Adam")

A head turns logits into a loss, predictions, metrics and serving signatures. It is a
frozen value without state: everything it computes is a pure function of its arguments
and works eagerly as well as inside `jit`.

`Head` is the interface that estimators rely on. `make_spec` builds an `EstimatorSpec`
from any object with that interface. `BaseHead` implements the interface from three
members; to write a head of your own, inherit from it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from estimax import metrics, optimizers, staging
from estimax.core import display
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, ExportOutput, ModeKeys, PredictOutput
from estimax.heads import checks
from estimax.heads.labels import LabelRule, NumberLabels, labels_for
from estimax.heads.weights import WeightColumn, check_weight_column, weights_for
from estimax.metrics.losses import reduce_losses
from estimax.optimizers.minimize import VarList

# Labels, logits and features are Any in these signatures: they are arrays, tracers,
# text, sparse values or placeholders, and only the head can tell them apart.
Labels = Any
Logits = Any
Losses = Sequence[Any] | None  # regularization losses: scalars
Metrics = Mapping[str, metrics.Metric]
BatchMetrics = dict[str, metrics.Metric]
LossFn = Callable[..., jax.Array]


@runtime_checkable
class Head(Protocol):
    """The interface of a head, the last part of a model.

    Annotate with `Head` where any head is accepted, and test for it with `isinstance`.
    To write a head, inherit from `BaseHead`, which implements this interface. An object
    that defines these members itself is a head too; it sets
    `create_estimator_spec = ex.heads.make_spec`.

    Example:
      >>> from estimax import heads
      >>> isinstance(heads.RegressionHead(), heads.Head)
      True
    """

    @property
    def name(self) -> str | None:
        """The suffix of this head's metrics and summaries, as in `auc/<name>`."""

    @property
    def logits_dimension(self) -> int:
        """The size of the last axis of the logits, K in [B, K]."""

    @property
    def loss_reduction(self) -> str:
        """How per-example losses become a scalar; see `losses.reduce_losses`."""

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """Return the scalar to minimise.

        Args:
          labels: The labels of a batch, in the form that the head documents.
          logits: Output of the model, [B, K] with K = `logits_dimension`. More axes may
            come before the last.
          features: Features by name. Needed only if the head reads one, such as its
            weight column.
          mode: A key of `ModeKeys`. Heads of this package compute the same loss in
            every mode.
          regularization_losses: Scalars to add to the loss.

        Returns:
          A float32 scalar: the reduced, weighted loss plus the regularization losses.

        Raises:
          LabelError: The labels are missing, out of range or of another shape.
          SpecError: The logits have another shape.
          FeatureError: A feature that the head reads is missing or does not fit.
        """

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[Any, Any]:
        """Return predictions by key.

        Args:
          logits: Output of the model, [B, K].
          keys: The predictions to return. By default all of them.

        Returns:
          A dict from prediction key, such as "probabilities", to an array of B rows.

        Raises:
          SpecError: The logits have another shape, or a key is unknown.
        """

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """Return this head's metrics before any data.

        Args:
          regularization_losses: If given and not empty, the metrics include
            "regularization_loss".

        Returns:
          A dict from metric name to a `metrics.Metric` without data.
        """

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """Return the metrics with one more batch merged in.

        Args:
          eval_metrics: The metrics so far, as returned by `metrics` or by this method.
            They are values and are not changed.
          features: Features by name; see `loss`.
          logits: Output of the model, [B, K].
          labels: The labels of the batch; see `loss`.
          regularization_losses: Scalars; their sum is recorded as
            "regularization_loss".

        Returns:
          A new dict from metric name to metric.

        Raises:
          LabelError: The labels are missing, out of range or of another shape.
          SpecError: The logits have another shape.
          FeatureError: A feature that the head reads is missing or does not fit.
        """

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Return the outputs of each serving signature.

        Args:
          predictions: All predictions, as returned by `predictions`.

        Returns:
          A dict from signature name to outputs. "serving_default" is the signature used
          by clients that name none.
        """

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Logits,
        labels: Labels = None,
        optimizer: Any = None,
        trainable_variables: VarList = None,
        train_op_fn: Callable[[jax.Array], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Losses = None,
    ) -> EstimatorSpec:
        """Return what a `model_fn` returns for the mode; see `make_spec`.

        Args:
          features: Features by name, as passed to the `model_fn`.
          mode: `ModeKeys.TRAIN`, `EVAL` or `PREDICT`.
          logits: Output of the model, [B, K].
          labels: The labels of the batch; ignored in `PREDICT`.
          optimizer: An `ex.optimizers` optimizer, an optax transformation or a name.
          trainable_variables: The variables to train, as the `var_list` of
            `ex.minimize`: regular expressions, or arrays. By default all of them.
          train_op_fn: Function from the loss to a train op, instead of `optimizer`.
          update_ops: Accepted for compatibility with tf.estimator and not used.
          regularization_losses: Scalars to add to the loss.

        Returns:
          The predictions, and for the mode: export outputs (`PREDICT`), loss and
          metrics (`EVAL`), or loss and train op (`TRAIN`).

        Raises:
          SpecError: The mode is unknown, or training has not exactly one of `optimizer`
            and `train_op_fn`.
          LabelError: The labels are missing, out of range or of another shape.
        """


def make_spec(
    head: Head,
    features: Any,
    mode: str,
    logits: Logits,
    labels: Labels = None,
    optimizer: Any = None,
    trainable_variables: VarList = None,
    train_op_fn: Callable[[jax.Array], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    regularization_losses: Losses = None,
) -> EstimatorSpec:
    """Return what a `model_fn` returns for the mode, computed with a head.

    Heads of this package and subclasses of `BaseHead` have it as their method
    `create_estimator_spec`. A class that implements the `Head` interface on its own
    sets `create_estimator_spec = ex.heads.make_spec`.

    Args:
      head: The head that computes loss, predictions, metrics and export outputs.
      features: Features by name, as passed to the `model_fn`.
      mode: `ModeKeys.TRAIN`, `EVAL` or `PREDICT`.
      logits: Output of the model, [B, K] with K = `head.logits_dimension`.
      labels: The labels of the batch; ignored in `PREDICT`.
      optimizer: An `ex.optimizers` optimizer, an optax transformation or a name.
        Training needs either this or `train_op_fn`.
      trainable_variables: The variables to train, as the `var_list` of `ex.minimize`: a
        regular expression for their names, arrays of `ex.get_variable`, or a list of
        these. By default all of them.
      train_op_fn: Function from the loss to a train op, as returned by `ex.minimize`.
      update_ops: Accepted for compatibility with tf.estimator and not used: batch
        statistics are variables of the model and update themselves.
      regularization_losses: Scalars to add to the loss.

    Returns:
      An `EstimatorSpec` with the predictions, and for the mode: export outputs
      (`PREDICT`), loss and metrics (`EVAL`), or loss and train op (`TRAIN`).

    Raises:
      SpecError: The mode is unknown; or the mode is `TRAIN` and none or both of
        `optimizer` and `train_op_fn` are given, or `update_ops` is not a list or tuple.
      LabelError: The mode is not `PREDICT` and the labels are missing, out of range or
        of another shape.

    Example:
      >>> from estimax.heads import RegressionHead
      >>> spec = make_spec(RegressionHead(), {}, "infer", [[1.5]])
      >>> sorted(spec.export_outputs)
      ['predict', 'regression', 'serving_default']
      >>> spec = make_spec(RegressionHead(), {}, "eval", [[1.5]], labels=[2.5])
      >>> float(spec.loss)
      1.0
    """
    predictions = head.predictions(logits)
    if mode == ModeKeys.PREDICT:
        exports = head.export_outputs(predictions)
        if isinstance(head, BaseHead):
            predictions = head._reported_predictions(predictions, features)
        return EstimatorSpec(mode, predictions=predictions, export_outputs=exports)
    # By keyword: SequentialHeadWrapper.loss takes logits before labels.
    loss = head.loss(
        labels=labels,
        logits=logits,
        features=features,
        mode=mode,
        regularization_losses=regularization_losses,
    )
    if mode == ModeKeys.EVAL:
        empty = head.metrics(regularization_losses)
        measured = head.update_metrics(
            empty, features, logits, labels, regularization_losses
        )
        return EstimatorSpec(
            mode, predictions=predictions, loss=loss, eval_metric_ops=measured
        )
    if mode != ModeKeys.TRAIN:
        raise SpecError(
            f"create_estimator_spec: unknown mode {mode!r}; expected "
            "ModeKeys.TRAIN, EVAL or PREDICT ('train', 'eval' or 'infer')."
        )
    if isinstance(head, BaseHead):
        scalars = head._training_scalars(
            loss, features, logits, labels, regularization_losses
        )
    else:
        scalars = loss_scalars(head.name, loss, regularization_losses)
    train_op = _train_op(loss, optimizer, trainable_variables, train_op_fn, update_ops)
    trace = staging.current()
    if trace is not None:
        for tag, value in scalars.items():
            trace.logged[tag] = staging.LoggedValue("scalar", value)
    return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)


def _train_op(
    loss: jax.Array,
    optimizer: Any,
    trainable_variables: VarList,
    train_op_fn: Callable[[jax.Array], Any] | None,
    update_ops: Any,
) -> Any:
    """Return the train op; raise unless exactly one way to train is given."""
    if (optimizer is None) == (train_op_fn is None):
        given = "none" if optimizer is None else "both"
        raise SpecError(
            "create_estimator_spec: training needs either optimizer or "
            f"train_op_fn, got {given} of them."
        )
    if not isinstance(update_ops, list | tuple | None):
        raise SpecError(
            "create_estimator_spec: update_ops must be a list or tuple, got "
            f"{type(update_ops).__name__}."
        )
    if train_op_fn is not None:
        return train_op_fn(loss)
    if trainable_variables is None:
        return optimizers.as_train_op(optimizer)
    return optimizers.minimize(optimizer, var_list=trainable_variables)


class ScoredBatch(NamedTuple):
    """A checked batch with the loss of every example, before any reduction."""

    labels: jax.Array  # [..., label_dimension]
    logits: jax.Array  # [..., logits_dimension]
    losses: jax.Array  # [..., any width], unweighted
    weights: jax.Array | None  # [..., 1] or the shape of losses; None: all are 1


class BaseHead(Head):
    """Base class of heads: define three members and inherit the rest.

    Use it for a task that no head of this package covers. If only the loss differs, no
    new head is needed: pass `loss_fn` to `BinaryClassHead`, `MultiClassHead`,
    `MultiLabelHead` or `RegressionHead`.

    A subclass is a frozen dataclass that defines

    - `logits_dimension`: how many logits the model computes for an example, K;
    - `example_losses(labels, logits, features)`: the loss of every example;
    - `all_predictions(logits)`: the predictions by key.

    It may override `batch_metrics` (default: the mean of the losses), `export_outputs`
    (default: all predictions), `label_dimension` (default: 1) and `label_rule`
    (default: any numbers, as float32). Fields named `name`, `loss_reduction` and
    `weight_column` are optional and have their usual meaning.

    Checks of shapes, example weights, the reduction and regularization of the loss, the
    names and merging of metrics, and `create_estimator_spec` are inherited.

    Example:
      >>> from dataclasses import dataclass
      >>> @dataclass(frozen=True, repr=False)
      ... class QuantileHead(BaseHead):
      ...     quantile: float = 0.9
      ...     name: str | None = None
      ...     logits_dimension = 1
      ...
      ...     def example_losses(self, labels, logits, features):
      ...         error = labels - logits  # [B, 1]
      ...         return jnp.maximum(self.quantile * error, (self.quantile - 1) * error)
      ...
      ...     def all_predictions(self, logits):
      ...         return {"quantile": logits}
      >>> head = QuantileHead(0.75)
      >>> float(head.loss(labels=[3.0, 1.0], logits=[[1.0], [2.0]]))
      0.875
      >>> seen = head.update_metrics(head.metrics(), {}, [[1.0], [2.0]], [3.0, 1.0])
      >>> float(seen["average_loss"].compute())
      0.875
    """

    @property
    def name(self) -> str | None:
        return None

    @property
    def loss_reduction(self) -> str:
        return "sum_over_batch_size"

    @property
    def weight_column(self) -> WeightColumn | None:
        """The feature with the example weights; None if every example weighs 1."""
        return None

    @property
    def label_dimension(self) -> int:
        """The size of the last axis of the labels, D in [B, D]."""
        return 1

    @property
    def label_rule(self) -> LabelRule:
        """How labels are converted to numbers and checked, on the host."""
        return NumberLabels(self._title)

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        """Return the loss of every example; to be defined by subclasses.

        Args:
          labels: Checked labels, [B, D] with D = `label_dimension`.
          logits: Checked logits, float32 [B, K] with K = `logits_dimension`.
          features: Features by name, as passed to the head.

        Returns:
          Unweighted losses, [B, 1] or one for each of several outputs, [B, N].
        """
        raise NotImplementedError(f"{self._title}: define example_losses.")

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        """Return all predictions by key; to be defined by subclasses.

        Args:
          logits: Checked logits, float32 [B, K].

        Returns:
          A dict from prediction key to an array of B rows.
        """
        raise NotImplementedError(f"{self._title}: define all_predictions.")

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        """Return the metrics of one batch, without the head's name in their keys.

        Args:
          labels: Checked labels, [B, D].
          logits: Checked logits, float32 [B, K].
          losses: What `example_losses` returned, [B, N].
          weights: Example weights, [B, 1]; None if every example weighs 1.

        Returns:
          A dict from metric name to metric. By default "average_loss" alone. The names
          and the shapes of their sums must not depend on the batch: `metrics` calls
          this method with one row of zeros, to learn which metrics there are.
        """
        return {"average_loss": metrics.mean(losses, weights)}

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        batch = self._score(labels, logits, features, mode)
        loss = reduce_losses(batch.losses, batch.weights, self.loss_reduction)
        mask = _padding_mask()
        if mask is not None and self.loss_reduction != "sum":
            # The reduction divided by all rows; rows of padding are no examples.
            loss = loss * (mask.size / jnp.maximum(jnp.sum(mask), 1.0))
        return add_regularization(loss, regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[Any, Any]:
        x = checks.validate_logits(self._title, logits, self.logits_dimension)
        found = self.all_predictions(self._corrected(x))
        return checks.select_predictions(self._title, found, keys)

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        # Compute the metrics of one row of zeros to learn their names and shapes, then
        # set their accumulators to 0.
        row = self.batch_metrics(
            labels=jnp.zeros((1, self.label_dimension), self.label_rule.dtype),
            logits=jnp.zeros((1, self.logits_dimension)),
            losses=jnp.zeros((1, 1)),
            weights=None,
        )
        row = _with_regularization(row, regularization_losses)
        return {
            named(key, self.name): jax.tree.map(jnp.zeros_like, metric)
            for key, metric in row.items()
        }

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        batch = self._score(labels, logits, features, ModeKeys.EVAL)
        return self._merge_batch(eval_metrics, batch, regularization_losses)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        return {"serving_default": PredictOutput(predictions)}

    create_estimator_spec = make_spec

    def __post_init__(self) -> None:
        """Check the options that all heads have."""
        check_weight_column(self._title, self.weight_column)
        checks.check_reduction(self._title, self.loss_reduction)

    def __repr__(self) -> str:
        """Show the options that differ from their defaults."""
        shown = [
            f"{field.name}={_short(getattr(self, field.name))}"
            for field in getattr(self, "__dataclass_fields__", {}).values()
            if getattr(self, field.name) not in (field.default, ())
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def _title(self) -> str:
        """What error messages call the head: BinaryClassHead 'click'."""
        kind = type(self).__name__
        return kind if self.name is None else f"{kind} {self.name!r}"

    @property
    def _vocabulary(self) -> tuple[str, ...] | None:
        """The field `label_vocabulary` as a tuple, of heads that have one."""
        words = getattr(self, "label_vocabulary", None)
        return None if words is None else tuple(words)

    def _set(self, field: str, value: object) -> None:
        """Set a field of the frozen head while it is constructed."""
        object.__setattr__(self, field, value)

    def _weights(self, features: Any, logits: jax.Array) -> jax.Array | None:
        """Return the example weights [B, 1]; None if every example weighs 1."""
        return weights_for(self._title, self.weight_column, features, logits)

    def _corrected(self, logits: jax.Array) -> jax.Array:
        """Return the logits of predictions and metrics; training has the given ones."""
        return logits

    def _score(
        self, labels: Labels, logits: Logits, features: Any, mode: str | None = None
    ) -> ScoredBatch:
        """Check a batch and compute the loss of every example."""
        x = checks.validate_logits(self._title, logits, self.logits_dimension)
        x = self._corrected(x) if mode == ModeKeys.EVAL else x
        ready = labels_for(self.label_rule, labels, x, self.label_dimension)
        weights = _without_padding(self._weights(features, x), x)
        return self._score_checked(ready, x, features, weights)

    def _score_checked(
        self,
        labels: jax.Array,
        logits: jax.Array,
        features: Any,
        weights: jax.Array | None,
    ) -> ScoredBatch:
        """Compute the loss of every example of a batch that was checked before."""
        losses = self.example_losses(labels, logits, features)
        if losses.ndim != logits.ndim or losses.shape[:-1] != logits.shape[:-1]:
            leading = ", ".join(map(str, logits.shape[:-1]))
            raise SpecError(
                f"{self._title}: example_losses must return the loss of each example, "
                f"shape [{leading}, 1] or [{leading}, N], got {list(losses.shape)}. "
                "The head applies weights and reduces."
            )
        return ScoredBatch(labels, logits, losses, weights)

    def _merge_batch(
        self, seen: Metrics, batch: ScoredBatch, regularization_losses: Losses
    ) -> BatchMetrics:
        measured = self.batch_metrics(*batch)
        measured = _with_regularization(measured, regularization_losses)
        return merge(
            seen, {named(key, self.name): metric for key, metric in measured.items()}
        )

    def _training_scalars(
        self,
        loss: jax.Array,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses,
    ) -> dict[str, jax.Array]:
        """Return the scalars to log in a training step, by tag."""
        return loss_scalars(self.name, loss, regularization_losses)

    def _reported_predictions(
        self, predictions: dict[Any, Any], features: Any
    ) -> dict[Any, Any]:
        """Return what `Estimator.predict` yields; not what is exported."""
        return predictions


def _padding_mask() -> jax.Array | None:
    """Return the mask of a batch that may have rows of padding, [B], or None."""
    trace = staging.current()
    return None if trace is None else trace.mask


def _without_padding(weights: jax.Array | None, logits: jax.Array) -> jax.Array | None:
    """Return the weights, 0 for rows of padding."""
    mask = _padding_mask()
    if mask is None:
        return weights
    mask = mask.reshape(-1, *(1,) * (logits.ndim - 1))
    shape = (*logits.shape[:-1], 1) if weights is None else weights.shape
    return jnp.broadcast_to(mask, shape) if weights is None else weights * mask


def add_regularization(loss: jax.Array, regularization_losses: Losses) -> jax.Array:
    """Return the loss plus the sum of the regularization losses."""
    penalty = total_regularization(regularization_losses)
    return loss if penalty is None else loss + penalty


def total_regularization(losses: Losses) -> jax.Array | None:
    """Return the sum of the regularization losses, or None if there are none."""
    if losses is None or len(losses) == 0:
        return None
    scalars = [jnp.asarray(loss, jnp.float32).reshape(()) for loss in losses]
    return sum(scalars[1:], scalars[0])


def loss_scalars(
    name: str | None, loss: jax.Array, regularization_losses: Losses
) -> dict[str, jax.Array]:
    """Return the losses to log for a head of this name, by tag."""
    # The training loop logs the loss of the spec, so an unnamed head leaves it out.
    scalars = {} if name is None else {named("loss", name): loss}
    penalty = total_regularization(regularization_losses)
    if penalty is not None:
        scalars[named("regularization_loss", name)] = penalty
    return scalars


def named(key: str, name: str | None) -> str:
    """Return the key of a metric or summary with the head's name appended.

    >>> named("auc", "click"), named("auc", None)
    ('auc/click', 'auc')
    """
    return key if name is None else f"{key}/{name}"


def merge(seen: Metrics, batch: Metrics) -> BatchMetrics:
    """Merge metrics by name; keep those that only one side has."""
    merged = {
        key: seen[key].merge(metric) if key in seen else metric
        for key, metric in batch.items()
    }
    return {**seen, **merged}


def _with_regularization(
    measured: BatchMetrics, regularization_losses: Losses
) -> BatchMetrics:
    penalty = total_regularization(regularization_losses)
    if penalty is None:
        return measured
    return {**measured, "regularization_loss": metrics.mean(penalty)}


_ABBREVIATED = reprlib.Repr()
_ABBREVIATED.maxtuple = 5
_ABBREVIATED.maxother = 200


def _short(value: object) -> str:
    if callable(value):
        return display.format_value(value)
    return _ABBREVIATED.repr(value)
