"""A label at every step of a sequence: another head, applied to the steps that count.

    head = SequentialHeadWrapper(MultiClassHead(9), sequence_length_mask="mask")
    head.loss(logits, labels, features)     # logits [B, T, 9], features["mask"] [B, T]

Steps that the mask leaves out are given weight 0 and not cut away, since the number of
the others is not known inside `jit`; a mean still divides by the steps that count.
Numbers are the same as when the head sees the [N, ...] unmasked steps alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import staging
from estimax.core import numbers as number_types
from estimax.core.errors import FeatureError, LabelError, SpecError
from estimax.core.sparse import Sparse
from estimax.core.spec import EstimatorSpec, ExportOutput, ModeKeys
from estimax.heads import checks
from estimax.heads.binary_class import BinaryClassHead
from estimax.heads.head import Features, Head, Labels, Logits, Losses, Metrics
from estimax.heads.labels import KEY, LabelRule, check_given
from estimax.heads.make_spec import Training, build_spec, log_losses
from estimax.heads.multi_class import MultiClassHead
from estimax.heads.multi_label import MultiLabelHead
from estimax.heads.regression import (
    LogisticRegressionHead,
    PoissonRegressionHead,
    RegressionHead,
)
from estimax.heads.scoring import Scored, merged_metrics, regularized

StaticHead = (
    BinaryClassHead
    | MultiClassHead
    | MultiLabelHead
    | RegressionHead
    | PoissonRegressionHead
    | LogisticRegressionHead
)


@final
@dataclass(frozen=True)
class SequentialHeadWrapper:
    """Applies `static_head` to the steps for which the mask, a feature, is true.

    `feature_columns` names the features that the static head reads, such as its weight
    column; each is [B, T, ...]. Note that `loss` takes logits first, then labels.

    >>> head = SequentialHeadWrapper(RegressionHead(), "mask")
    >>> features = {"mask": [[True, False]]}
    >>> logits = [[[1.0], [9.0]]]
    >>> float(head.loss(logits, [[3.0, 0.0]], features))
    4.0
    """

    static_head: StaticHead
    sequence_length_mask: str = "sequence_length_mask"
    feature_columns: str | Iterable[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.static_head, StaticHead):
            raise SpecError(
                "SequentialHeadWrapper: static_head must be one of the single heads of "
                f"estimax.heads, got {type(self.static_head).__name__}. A MultiHead "
                "cannot be wrapped."
            )
        if not isinstance(self.sequence_length_mask, str):
            raise TypeError(
                "SequentialHeadWrapper: sequence_length_mask must be the key of a "
                f"feature, got {type(self.sequence_length_mask).__name__}."
            )
        checks.put(self, "feature_columns", _keys(self.feature_columns))

    @property
    def name(self) -> str | None:
        """The static head's with `_sequential` behind; metrics keep the former."""
        name = self.static_head.name
        return None if name is None else f"{name}_sequential"

    @property
    def logits_dimension(self) -> int:
        """The static head's."""
        return self.static_head.logits_dimension

    @property
    def loss_reduction(self) -> str:
        """The static head's."""
        return self.static_head.loss_reduction

    @property
    def label_rule(self) -> LabelRule:
        """What the label of a step must be; the static head's."""
        return self.static_head._rules.labels

    @property
    def input_sequence_mask_key(self) -> str:
        """The key of the feature that holds the mask."""
        return self.sequence_length_mask

    def loss(
        self,
        logits: Logits,
        labels: Labels,
        features: Features = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """The loss over the unmasked steps; a mean divides by their number."""
        scored, mask = self._score(labels, logits, features)
        loss = scored.loss(self.loss_reduction)
        if self.loss_reduction != "sum":
            steps = jnp.sum(mask, dtype=jnp.float32)
            loss = loss * (mask.size / jnp.maximum(steps, 1.0))
        return regularized(loss, regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The static head's predictions for all steps, masked ones included."""
        return self.static_head.predictions(logits, keys)

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """The static head's metrics before any data."""
        return self.static_head.metrics(regularization_losses)

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Features,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """The metrics with the unmasked steps of this batch merged in."""
        scored, _ = self._score(labels, logits, features)
        name = self.static_head.name
        batch = self.static_head._measure(scored)
        return merged_metrics(eval_metrics, batch, name, regularization_losses)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """The static head's; the mask is not among them."""
        return self.static_head.export_outputs(predictions)

    def create_estimator_spec(
        self,
        features: Features,
        mode: str,
        logits: Logits,
        labels: Labels = None,
        optimizer: Any = None,
        trainable_variables: str | Sequence[str] | None = None,
        train_op_fn: Callable[[jax.Array], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Losses = None,
    ) -> EstimatorSpec:
        """What a `model_fn` returns for the mode; predictions include the mask."""
        training = Training(optimizer, trainable_variables, train_op_fn, update_ops)
        # Its loss has its arguments the other way round; build_spec names them.
        head = cast(Head, self)
        spec = build_spec(
            head, features, mode, logits, labels, training, regularization_losses
        )
        if mode == ModeKeys.PREDICT:
            with_mask = {
                **spec.predictions,
                self.sequence_length_mask: self._mask(features),
            }
            return spec._replace(predictions=with_mask)
        if mode == ModeKeys.TRAIN:
            log_losses(self.static_head.name, spec.loss, regularization_losses)
        return spec

    def _score(
        self, labels: Labels, logits: Logits, features: Features
    ) -> tuple[Scored, jax.Array]:
        """The steps of all sequences as rows, masked ones with weight 0."""
        rules = self.static_head._rules
        mask = self._mask(features)
        x = checks.checked_logits(rules.title, logits, rules.logits_dimension)
        if x.ndim < 3 or x.shape[:2] != mask.shape:
            raise SpecError(
                f"{rules.title}: logits must have shape [B, T, "
                f"{rules.logits_dimension}] with the [B, T] {list(mask.shape)} of the "
                f"mask {self.sequence_length_mask!r}, got {list(x.shape)}."
            )
        flat_x = _rows(_unmasked(x, mask))
        raw_mask = features[self.sequence_length_mask]
        steps = step_labels(rules.labels, labels, raw_mask, mask)
        flat_labels = _rows(_unmasked(steps, mask))
        own = self._own_features(features, mask)
        weights = rules.weights(own, flat_x)
        counts = _rows(mask.astype(jnp.float32))
        counts = counts if weights is None else weights * counts
        return rules.score_ready(flat_labels, flat_x, own, counts), mask

    def _mask(self, features: Features) -> jax.Array:
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

    def _own_features(self, features: Features, mask: jax.Array) -> dict[str, Any]:
        """The features the static head reads, their steps as rows."""
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


def _unmasked(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Zeros where the mask is false: whatever is there must not reach a gradient."""
    spread = mask.reshape(mask.shape + (1,) * (values.ndim - 2))
    return jnp.where(spread, values, jnp.zeros((), values.dtype))


def _rows(values: jax.Array) -> jax.Array:
    """[B, T, ...] as [B*T, ...], and [B, T] as [B*T, 1]."""
    tail = values.shape[2:] or (1,)
    return values.reshape((values.shape[0] * values.shape[1], *tail))


MASK = "mask"


@dataclass(frozen=True)
class StepLabels:
    """The labels of steps [B, T, ...] by a head's rule, 0 where masked."""

    rule: LabelRule
    has_mask: bool
    name: str = KEY

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw values it reads."""
        return (KEY, MASK) if self.has_mask else (KEY,)

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Look up, spread sparse labels over the steps, and check what counts."""
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
                "unmasked steps; every one needs its label."
            )
        spread = np.zeros(mask.shape, numbers.dtype)
        spread[mask] = numbers
        return spread


def step_labels(
    rule: LabelRule, labels: Any, raw_mask: Any, mask: jax.Array
) -> jax.Array:
    """Labels [B, T, ...] that fit the mask [B, T]."""
    check_given(rule.head, labels)
    if not staging.can_stage(labels):
        ready = rule.on_device(labels)
    elif staging.can_stage(raw_mask):
        both = {KEY: labels, MASK: raw_mask}
        ready = staging.stage(StepLabels(rule, has_mask=True), both)
    else:
        # The mask's steps are those of a program, rounded up; the labels' are not.
        ready = staging.stage(StepLabels(rule, has_mask=False), {KEY: labels})
        ready = fit_steps(ready, mask.shape[1])
    _check_steps(rule.head, ready.shape, mask.shape)
    return jnp.asarray(ready)


def fit_steps(values: jax.Array, steps: Any) -> jax.Array:
    """Cut [B, T', ...] to T steps, or fill it up with zeros."""
    if values.ndim < 2:
        return values  # not of steps: refused by a check, with its shape
    short = max(steps - values.shape[1], 0)
    padding = [(0, 0), (0, short), *[(0, 0)] * (values.ndim - 2)]
    return jnp.pad(values[:, :steps], padding)


def _check_steps(head: str, labels: tuple[int, ...], mask: tuple[int, ...]) -> None:
    if labels[:2] != mask:
        raise LabelError(
            f"{head}: labels must have one value for every step of the mask, shape "
            f"{list(mask)} and maybe more axes, got {list(labels)}."
        )
