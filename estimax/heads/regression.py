"""Numbers to predict: squared error, Poisson counts, or probabilities.

head = RegressionHead(label_dimension=2)
head = PoissonRegressionHead()          # counts: logits are logs of rates
head = LogisticRegressionHead()         # labels in [0, 1], regression metrics

The three differ in loss, link (logits to predictions) and range of labels only.
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
from estimax.heads import checks, members
from estimax.heads.head import (
    Logits,
    LossFn,
    Measured,
)
from estimax.heads.labels import NumberLabels
from estimax.heads.losses import poisson, sigmoid_cross_entropy, squared_error
from estimax.heads.make_spec import make_spec
from estimax.heads.scoring import Rules, Scored, parts_of
from estimax.heads.weights import WeightColumn

Link = Callable[[jax.Array], jax.Array]


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
        _check_dimension(self._rules, self.label_dimension)
        self._rules.check(self.loss_reduction)

    @property
    def logits_dimension(self) -> int:
        """One logit a predicted number."""
        return self.label_dimension

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The predictions; with a link, also the logits they come from."""
        return _predictions(self._rules, self.inverse_link_fn, logits, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a regression, or all predictions."""
        return _exports(predictions)

    loss = members.loss
    metrics = members.fresh
    update_metrics = members.updated
    create_estimator_spec = make_spec

    @property
    def _rules(self) -> Rules:
        title = checks.title("RegressionHead", self.name)
        return Rules(
            title,
            labels=NumberLabels(title),
            label_width=self.label_dimension,
            logits_dimension=self.label_dimension,
            loss_fn=self.loss_fn or squared_error,
            loss_width=self.label_dimension,
            weight_column=self.weight_column,
            weight_per_output=True,
        )

    def _measure(self, scored: Scored | None) -> Measured:
        return _measure(self.inverse_link_fn, scored)


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
        _check_dimension(self._rules, self.label_dimension)
        self._rules.check(self.loss_reduction)

    @property
    def logits_dimension(self) -> int:
        """One logit a predicted number."""
        return self.label_dimension

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The rates, and the logits they come from."""
        return _predictions(self._rules, jnp.exp, logits, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a regression, or all predictions."""
        return _exports(predictions)

    loss = members.loss
    metrics = members.fresh
    update_metrics = members.updated
    create_estimator_spec = make_spec

    @property
    def _rules(self) -> Rules:
        title = checks.title("PoissonRegressionHead", self.name)
        return Rules(
            title,
            labels=NumberLabels(title),
            label_width=self.label_dimension,
            logits_dimension=self.label_dimension,
            loss_fn=partial(poisson, compute_full_loss=self.compute_full_loss),
            loss_width=self.label_dimension,
            weight_column=self.weight_column,
            weight_per_output=True,
        )

    def _measure(self, scored: Scored | None) -> Measured:
        return _measure(jnp.exp, scored)


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
        self._rules.check(self.loss_reduction)

    @property
    def logits_dimension(self) -> int:
        """One logit a predicted number."""
        return 1

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The probabilities, and the logits they come from."""
        return _predictions(self._rules, jax.nn.sigmoid, logits, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a regression, or all predictions."""
        return _exports(predictions)

    loss = members.loss
    metrics = members.fresh
    update_metrics = members.updated
    create_estimator_spec = make_spec

    @property
    def _rules(self) -> Rules:
        title = checks.title("LogisticRegressionHead", self.name)
        return Rules(
            title,
            labels=NumberLabels(title, 0.0, 1.0),
            label_width=1,
            logits_dimension=1,
            loss_fn=sigmoid_cross_entropy,
            loss_width=1,
            weight_column=self.weight_column,
            weight_per_output=True,
        )

    def _measure(self, scored: Scored | None) -> Measured:
        return _measure(jax.nn.sigmoid, scored)


def _check_dimension(rules: Rules, dimension: object) -> None:
    if not isinstance(dimension, int) or dimension < 1:
        raise SpecError(
            f"{rules.title}: label_dimension must be an integer of at least 1, got "
            f"{dimension}."
        )


def _predictions(
    rules: Rules, link: Link | None, logits: Logits, keys: Sequence[str] | None
) -> dict[str, Any]:
    x = checks.checked_logits(rules.title, logits, rules.logits_dimension)
    every = {"predictions": x if link is None else link(x)}
    if link is not None:
        every["logits"] = x
    return checks.selected(rules.title, every, keys)


def _measure(link: Link | None, scored: Scored | None) -> Measured:
    y, x, losses, w = parts_of(scored)
    predicted = x if x is None or link is None else link(x)
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
