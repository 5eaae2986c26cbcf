"""Numbers to predict: squared error, Poisson counts, or probabilities.

head = RegressionHead(label_dimension=2)
head = PoissonRegressionHead()          # counts: logits are logs of rates
head = LogisticRegressionHead()         # labels in [0, 1], regression metrics

The three differ in loss, link and range of labels only, which `_Regression` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.core.errors import SpecError
from estimax.core.spec import ExportOutput, PredictOutput, RegressionOutput
from estimax.heads import checks
from estimax.heads.head import (
    Features,
    Labels,
    Logits,
    Losses,
    LossFn,
    Measured,
    Metrics,
)
from estimax.heads.labels import NumberLabels, labels_for
from estimax.heads.losses import poisson, sigmoid_cross_entropy, squared_error
from estimax.heads.make_spec import make_spec
from estimax.heads.scoring import Scored, fresh_metrics, merged_metrics, parts_of
from estimax.heads.weights import WeightColumn, check_weight_column, weights_for

Link = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class _Regression:
    """All that the three heads do, given what they differ in."""

    title: str
    dimension: int
    weight_column: WeightColumn | None
    loss_fn: LossFn
    link: Link | None
    low: float | None = None
    high: float | None = None

    @property
    def label_rule(self) -> NumberLabels:
        return NumberLabels(self.title, self.low, self.high)

    def check(self, reduction: str) -> None:
        if not isinstance(self.dimension, int) or self.dimension < 1:
            raise SpecError(
                f"{self.title}: label_dimension must be an integer of at least 1, got "
                f"{self.dimension}."
            )
        check_weight_column(self.title, self.weight_column)
        checks.check_reduction(self.title, reduction)
        checks.check_loss_fn(self.title, self.loss_fn)

    def score(self, labels: Labels, logits: Logits, features: Features) -> Scored:
        x = checks.checked_logits(self.title, logits, self.dimension)
        y = labels_for(self.label_rule, labels, x, width=self.dimension)
        losses = checks.call_loss_fn(
            self.title, self.loss_fn, y, x, features, self.dimension
        )
        weights = weights_for(
            self.title, self.weight_column, features, x, per_output=True
        )
        return Scored(y, x, losses, weights)

    def predictions(self, logits: Logits, keys: Sequence[str] | None) -> dict[str, Any]:
        x = checks.checked_logits(self.title, logits, self.dimension)
        if self.link is None:
            return checks.selected(self.title, {"predictions": x}, keys)
        every = {"predictions": self.link(x), "logits": x}
        return checks.selected(self.title, every, keys)

    def measure(self, scored: Scored | None) -> Measured:
        y, x, losses, w = parts_of(scored)
        predicted = x if x is None or self.link is None else self.link(x)
        return {
            "average_loss": metrics.mean(losses, w),
            "prediction/mean": metrics.mean(predicted, w),
            "label/mean": metrics.mean(y, w),
        }


def _exports(predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
    regression = RegressionOutput(predictions["predictions"])
    return {
        "serving_default": regression,
        "regression": regression,
        "predict": PredictOutput(predictions),
    }


@final
@dataclass(frozen=True)
class RegressionHead:
    """`label_dimension` numbers an example; the loss is the squared error.

    `inverse_link_fn` turns logits into predictions and never touches the loss.

    >>> head = RegressionHead()
    >>> float(head.loss(labels=[3.0], logits=jnp.array([[1.0]])))
    4.0
    """

    label_dimension: int = 1
    weight_column: WeightColumn | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    inverse_link_fn: Link | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        self._regression.check(self.loss_reduction)

    @property
    def logits_dimension(self) -> int:
        """One logit a predicted number."""
        return self.label_dimension

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Features = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """The reduced, regularized loss; `mode` changes nothing."""
        scored = self._regression.score(labels, logits, features)
        return scored.loss(self.loss_reduction, regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The predictions; with a link, also the logits they come from."""
        return self._regression.predictions(logits, keys)

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """Its metrics before any data."""
        return fresh_metrics(
            self._regression.measure(None), self.name, regularization_losses
        )

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Features,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """The metrics with this batch merged in, as a new dict."""
        scored = self._regression.score(labels, logits, features)
        batch = self._regression.measure(scored)
        return merged_metrics(eval_metrics, batch, self.name, regularization_losses)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a regression, or all predictions."""
        return _exports(predictions)

    create_estimator_spec = make_spec

    @property
    def _label_rule(self) -> NumberLabels:
        return self._regression.label_rule

    @property
    def _regression(self) -> _Regression:
        return _Regression(
            checks.title("RegressionHead", self.name),
            self.label_dimension,
            self.weight_column,
            self.loss_fn or squared_error,
            self.inverse_link_fn,
        )


@final
@dataclass(frozen=True)
class PoissonRegressionHead:
    """Counts; logits are the logs of their rates, predictions the rates.

    >>> head = PoissonRegressionHead()
    >>> head.predictions(jnp.array([[0.0]]))["predictions"].tolist()
    [[1.0]]
    """

    label_dimension: int = 1
    weight_column: WeightColumn | None = None
    loss_reduction: str = "sum_over_batch_size"
    compute_full_loss: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        self._regression.check(self.loss_reduction)

    @property
    def logits_dimension(self) -> int:
        """One logit a predicted number."""
        return self.label_dimension

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Features = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """The reduced, regularized loss; `mode` changes nothing."""
        scored = self._regression.score(labels, logits, features)
        return scored.loss(self.loss_reduction, regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The rates, and the logits they come from."""
        return self._regression.predictions(logits, keys)

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """Its metrics before any data."""
        return fresh_metrics(
            self._regression.measure(None), self.name, regularization_losses
        )

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Features,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """The metrics with this batch merged in, as a new dict."""
        scored = self._regression.score(labels, logits, features)
        batch = self._regression.measure(scored)
        return merged_metrics(eval_metrics, batch, self.name, regularization_losses)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a regression, or all predictions."""
        return _exports(predictions)

    create_estimator_spec = make_spec

    @property
    def _label_rule(self) -> NumberLabels:
        return self._regression.label_rule

    @property
    def _regression(self) -> _Regression:
        return _Regression(
            checks.title("PoissonRegressionHead", self.name),
            self.label_dimension,
            self.weight_column,
            partial(poisson, compute_full_loss=self.compute_full_loss),
            jnp.exp,
        )


@final
@dataclass(frozen=True)
class LogisticRegressionHead:
    """A probability an example: labels in [0, 1], sigmoid cross entropy.

    Measured and served as a regression; for classes use BinaryClassHead.

    >>> head = LogisticRegressionHead()
    >>> head.predictions(jnp.array([[0.0]]))["predictions"].tolist()
    [[0.5]]
    """

    weight_column: WeightColumn | None = None
    loss_reduction: str = "sum_over_batch_size"
    name: str | None = None

    def __post_init__(self) -> None:
        self._regression.check(self.loss_reduction)

    @property
    def logits_dimension(self) -> int:
        """One logit a predicted number."""
        return 1

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Features = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """The reduced, regularized loss; `mode` changes nothing."""
        scored = self._regression.score(labels, logits, features)
        return scored.loss(self.loss_reduction, regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The probabilities, and the logits they come from."""
        return self._regression.predictions(logits, keys)

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """Its metrics before any data."""
        return fresh_metrics(
            self._regression.measure(None), self.name, regularization_losses
        )

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Features,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """The metrics with this batch merged in, as a new dict."""
        scored = self._regression.score(labels, logits, features)
        batch = self._regression.measure(scored)
        return merged_metrics(eval_metrics, batch, self.name, regularization_losses)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a regression, or all predictions."""
        return _exports(predictions)

    create_estimator_spec = make_spec

    @property
    def _label_rule(self) -> NumberLabels:
        return self._regression.label_rule

    @property
    def _regression(self) -> _Regression:
        return _Regression(
            checks.title("LogisticRegressionHead", self.name),
            1,
            self.weight_column,
            sigmoid_cross_entropy,
            jax.nn.sigmoid,
            low=0.0,
            high=1.0,
        )
