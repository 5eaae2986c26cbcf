"""`SequentialHeadWrapper`: a label at every step of a sequence.

    head = SequentialHeadWrapper(MultiClassHead(9), sequence_length_mask="mask")
    head.loss(logits, labels, features)     # logits [B, T, 9], features["mask"] [B, T]

The wrapper applies another head, the static head, to all steps of all sequences as if
each step were an example. Masked steps get weight 0 and stay in the arrays, since their
number is not known inside `jit`; a mean is rescaled to the unmasked steps. The results
are those of the static head applied to the unmasked steps alone.

`StepLabels`, below the class, converts and checks the labels of steps on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import staging
from estimax.core import device_dtypes as number_types
from estimax.core.errors import FeatureError, LabelError, SpecError
from estimax.core.sparse import Sparse
from estimax.core.spec import ExportOutput, ModeKeys
from estimax.heads import checks
from estimax.heads.head import (
    BaseHead,
    Labels,
    Logits,
    Losses,
    Metrics,
    ScoredBatch,
    add_regularization,
    loss_scalars,
)
from estimax.heads.labels import KEY, LabelRule, check_given
from estimax.heads.multi_head import MultiHead
from estimax.metrics.losses import reduce_losses


@final
@dataclass(frozen=True, repr=False)
class SequentialHeadWrapper(BaseHead):
    """Apply a head to every step of a sequence for which a mask is true.

    Use it to label each step, such as the words of a sentence; `RNNEstimator` needs it
    with `return_sequences=True`. Logits have shape [B, T, K] and labels [B, T] or
    [B, T, D], for B sequences of T steps. Metrics, summaries and signatures are those
    of the static head. In `PREDICT` the predictions of the spec include the mask.

    As in tf.estimator, `loss` takes logits first and then labels.

    Args:
      static_head: The head for one step: any head of this package except `MultiHead`,
        or your own subclass of `BaseHead`.
      sequence_length_mask: Key of the feature with the mask, [B, T], true for the steps
        that count.
      feature_columns: Key or keys of the features that the static head reads, such as
        its weight column. Each has shape [B, T, ...].

    Raises:
      SpecError: `static_head` cannot be wrapped.
      TypeError: `sequence_length_mask` or one of `feature_columns` is not a string.

    Example:
      >>> from estimax.heads import RegressionHead
      >>> head = SequentialHeadWrapper(RegressionHead(), "mask")
      >>> features = {"mask": [[True, False]]}
      >>> logits = [[[1.0], [9.0]]]
      >>> float(head.loss(logits, [[3.0, 0.0]], features))
      4.0
    """

    static_head: BaseHead
    sequence_length_mask: str = "sequence_length_mask"
    feature_columns: str | Iterable[str] | None = None

    def __post_init__(self) -> None:
        can_wrap = isinstance(self.static_head, BaseHead) and not isinstance(
            self.static_head, MultiHead | SequentialHeadWrapper
        )
        if not can_wrap:
            raise SpecError(
                "SequentialHeadWrapper: static_head must be a head for one array of "
                "labels that inherits from ex.heads.BaseHead, such as MultiClassHead; "
                f"got {type(self.static_head).__name__}."
            )
        if not isinstance(self.sequence_length_mask, str):
            raise TypeError(
                "SequentialHeadWrapper: sequence_length_mask must be the key of a "
                f"feature, got {type(self.sequence_length_mask).__name__}."
            )
        self._set("feature_columns", _keys(self.feature_columns))

    @property
    def name(self) -> str | None:
        """The static head's name with `_sequential` appended; not used in metrics."""
        name = self.static_head.name
        return None if name is None else f"{name}_sequential"

    @property
    def logits_dimension(self) -> int:
        return self.static_head.logits_dimension

    @property
    def loss_reduction(self) -> str:
        return self.static_head.loss_reduction

    @property
    def label_rule(self) -> LabelRule:
        """How the label of a step is converted and checked: the static head's rule."""
        return self.static_head.label_rule

    @property
    def input_sequence_mask_key(self) -> str:
        """The key of the feature that holds the mask."""
        return self.sequence_length_mask

    # tf.estimator's order of arguments; make_spec passes them by keyword.
    def loss(  # type: ignore[override]
        self,
        logits: Logits,
        labels: Labels,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """Return the loss over the unmasked steps. Logits come before labels.

        Args:
          logits: Output of the model, [B, T, K].
          labels: Labels of the steps, [B, T] or [B, T, D]; values at masked steps are
            ignored. Or `Sparse`, with one label for each unmasked step.
          features: Features by name, with the mask [B, T].
          mode: Has no effect.
          regularization_losses: Scalars to add to the loss.

        Returns:
          A float32 scalar. A mean divides by the number of unmasked steps.

        Raises:
          FeatureError: The mask, or a feature of `feature_columns`, is missing or does
            not have a value for every step.
          LabelError: Labels are missing, out of range or of another shape.
          SpecError: The logits have another shape.
        """
        batch, mask = self._score_steps(labels, logits, features, mode)
        loss = reduce_losses(batch.losses, batch.weights, self.loss_reduction)
        if self.loss_reduction != "sum":
            # The reduction divided by B * T; rescale to the number of unmasked steps.
            steps = jnp.sum(mask, dtype=jnp.float32)
            loss = loss * (mask.size / jnp.maximum(steps, 1.0))
        return add_regularization(loss, regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[Any, Any]:
        """Return the static head's predictions for all steps, including masked ones.

        Args:
          logits: Output of the model, [B, T, K].
          keys: The predictions to return. By default all of them.

        Returns:
          A dict from prediction key to an array [B, T, ...].

        Raises:
          SpecError: The logits have another last axis, or a key is unknown.
        """
        return self.static_head.predictions(logits, keys)

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        return self.static_head.metrics(regularization_losses)

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        batch, _ = self._score_steps(labels, logits, features, ModeKeys.EVAL)
        return self.static_head._merge_batch(eval_metrics, batch, regularization_losses)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        return self.static_head.export_outputs(predictions)

    def _training_scalars(
        self,
        loss: jax.Array,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses,
    ) -> dict[str, jax.Array]:
        return loss_scalars(self.static_head.name, loss, regularization_losses)

    def _reported_predictions(
        self, predictions: dict[Any, Any], features: Any
    ) -> dict[Any, Any]:
        return {**predictions, self.sequence_length_mask: self._mask(features)}

    def _score_steps(
        self, labels: Labels, logits: Logits, features: Any, mode: str | None
    ) -> tuple[ScoredBatch, jax.Array]:
        """Score the steps of all sequences as rows, masked ones with weight 0.

        Return the batch of B * T rows and the mask [B, T].
        """
        head = self.static_head
        mask = self._mask(features)
        x = checks.validate_logits(head._title, logits, head.logits_dimension)
        if x.ndim < 3 or x.shape[:2] != mask.shape:
            raise SpecError(
                f"{head._title}: logits must have shape [B, T, "
                f"{head.logits_dimension}] with the [B, T] {list(mask.shape)} of the "
                f"mask {self.sequence_length_mask!r}, got {list(x.shape)}."
            )
        x = head._corrected(x) if mode == ModeKeys.EVAL else x
        flat_x = _rows(_zero_padding(x, mask))
        raw_mask = features[self.sequence_length_mask]
        steps = step_labels(head.label_rule, labels, raw_mask, mask)
        flat_labels = _rows(_zero_padding(steps, mask))
        own = self._own_features(features, mask)
        weights = head._weights(own, flat_x)
        is_counted = _rows(mask.astype(jnp.float32))
        weights = is_counted if weights is None else weights * is_counted
        return head._score_checked(flat_labels, flat_x, own, weights), mask

    def _mask(self, features: Any) -> jax.Array:
        key = self.sequence_length_mask
        if not isinstance(features, Mapping) or key not in features:
            raise FeatureError(
                f"SequentialHeadWrapper: the mask {key!r} is not among the features. "
                "Add it to the dict: a bool [B, T], true for the steps that count."
            )
        mask = jnp.asarray(features[key])
        if mask.ndim != 2:
            raise FeatureError(
                f"SequentialHeadWrapper: the mask {key!r} must have shape [B, T], got "
                f"{list(mask.shape)}."
            )
        return mask.astype(bool)

    def _own_features(self, features: Any, mask: jax.Array) -> dict[str, Any]:
        """Return the features that the static head reads, with steps as rows."""
        own = {}
        for key in self.feature_columns or ():
            if key not in features:
                raise FeatureError(
                    f"SequentialHeadWrapper: feature_columns names {key!r}, which is "
                    f"not among the features {sorted(map(str, features))}."
                )
            value = jnp.asarray(features[key])
            if value.shape[:2] != mask.shape:
                raise FeatureError(
                    f"SequentialHeadWrapper: feature {key!r} must have a value for "
                    f"every step of {list(mask.shape)}, got shape {list(value.shape)}."
                )
            own[key] = _rows(value)
        return own


def _keys(columns: object) -> tuple[str, ...]:
    if columns is None:
        return ()
    if isinstance(columns, str):
        return (columns,)
    keys = tuple(columns) if isinstance(columns, Iterable) else (columns,)
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(
                "SequentialHeadWrapper: feature_columns must be keys of features, got "
                f"{type(key).__name__}."
            )
    return keys


def _zero_padding(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Return 0 where the mask is false, so that a NaN there reaches no gradient."""
    spread = mask.reshape(mask.shape + (1,) * (values.ndim - 2))
    return jnp.where(spread, values, jnp.zeros((), values.dtype))


def _rows(values: jax.Array) -> jax.Array:
    """Reshape [B, T, ...] to [B*T, ...], and [B, T] to [B*T, 1]."""
    tail = values.shape[2:] or (1,)
    return values.reshape((values.shape[0] * values.shape[1], *tail))


MASK = "mask"  # the key of the raw mask among the inputs of StepLabels


@dataclass(frozen=True)
class StepLabels:
    """Host transform of the labels of steps, [B, T, ...], by a rule; 0 where masked."""

    rule: LabelRule
    has_mask: bool
    name: str = KEY

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the raw values it reads."""
        return (KEY, MASK) if self.has_mask else (KEY,)

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert labels, and check those of unmasked steps."""
        given = raw[KEY]
        mask = np.asarray(raw[MASK]).astype(bool) if self.has_mask else None
        if isinstance(given, Sparse):
            return number_types.cast(self._spread(given, mask), self.rule.dtype)
        numbers = self.rule.convert(given)
        if mask is None:
            return number_types.cast(numbers, self.rule.dtype)
        _check_steps(self.rule.head, numbers.shape, mask.shape)
        spread = mask.reshape(mask.shape + (1,) * (numbers.ndim - 2))
        numbers = np.where(spread, numbers, np.zeros((), numbers.dtype))
        self.rule.check(numbers, given)
        return number_types.cast(numbers, self.rule.dtype)

    def _spread(self, given: Sparse, mask: NDArray[np.bool_] | None) -> NDArray[Any]:
        numbers = self.rule.convert(given.values)
        self.rule.check(numbers, given.values, given.indices[:, 0])
        if mask is None:
            spread = np.zeros(given.dense_shape, numbers.dtype)
            spread[tuple(given.indices.T)] = numbers
            return spread
        if len(numbers) != mask.sum():
            raise LabelError(
                f"{self.rule.head}: {len(numbers)} sparse labels for {mask.sum()} "
                "unmasked steps; every one needs a label."
            )
        spread = np.zeros(mask.shape, numbers.dtype)
        spread[mask] = numbers
        return spread


def step_labels(
    rule: LabelRule, labels: Any, raw_mask: Any, mask: jax.Array
) -> jax.Array:
    """Return checked labels [B, T, ...] for the mask [B, T]."""
    check_given(rule.head, labels)
    if not staging.can_stage(labels):
        ready = rule.on_device(labels)
    elif staging.can_stage(raw_mask):
        both = {KEY: labels, MASK: raw_mask}
        ready = staging.stage(StepLabels(rule, has_mask=True), both)
    else:
        # The mask was computed on the device, where T is rounded up to limit the number
        # of compiled shapes; the labels still have the T of the batch.
        ready = staging.stage(StepLabels(rule, has_mask=False), {KEY: labels})
        ready = fit_steps(ready, mask.shape[1])
    _check_steps(rule.head, ready.shape, mask.shape)
    return jnp.asarray(ready)


def fit_steps(values: jax.Array, steps: Any) -> jax.Array:
    """Cut [B, T', ...] to T steps, or pad it with zeros."""
    if values.ndim < 2:
        return values  # has no axis of steps; a check raises for its shape
    short = max(steps - values.shape[1], 0)
    padding = [(0, 0), (0, short), *[(0, 0)] * (values.ndim - 2)]
    return jnp.pad(values[:, :steps], padding)


def _check_steps(head: str, labels: tuple[int, ...], mask: tuple[int, ...]) -> None:
    if labels[:2] != mask:
        raise LabelError(
            f"{head}: labels must have one value for every step of the mask, shape "
            f"{list(mask)} and maybe more axes, got {list(labels)}."
        )
