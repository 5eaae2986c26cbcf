"""MMoE: several tasks that share experts, each with a gate and a tower of its own.

Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
Mixture-of-Experts" (2018). A gate is a softmax over the experts, computed from the
features. With one expert there is nothing to weigh: the classic shared bottom.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned.parts import check_features
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import Estimator, RunConfig


class MMoEEstimator(Estimator):
    """Tasks of a `MultiHead` over shared experts; `experts=1` is a shared bottom.

    Labels are a dict by head name, as the head wants them. Without another `optimizer`
    it is LazyAdam(0.001).

    >>> import estimax as ex
    >>> tasks = ex.heads.MultiHead(
    ...     [
    ...         ex.heads.BinaryClassHead(name="click"),
    ...         ex.heads.RegressionHead(name="dwell_time"),
    ...     ]
    ... )
    >>> columns = [ex.feature_columns.numeric_column("age")]
    >>> model = ex.MMoEEstimator(tasks, columns, model_dir="/tmp/estimax-doc-mmoe")
    """

    def __init__(
        self,
        head: heads.MultiHead,
        feature_columns: Iterable[Any],
        expert_units: Sequence[int] = (128,),
        tower_units: Sequence[int] = (64,),
        experts: int = 4,
        model_dir: str | os.PathLike[str] | None = None,
        optimizer: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        if not isinstance(head, heads.MultiHead):
            raise SpecError(
                "MMoEEstimator: head must be a MultiHead, which holds a head for each "
                f"task; got {type(head).__name__}."
            )
        columns = tuple(feature_columns)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "MMoEEstimator")
            net = fc.input_layer(features, columns)
            shared = jnp.stack(
                [_hidden(net, expert_units, f"expert_{i}") for i in range(experts)],
                axis=1,
            )  # [B, experts, D]
            logits = {}
            for task in head.heads:
                mixed = shared[:, 0] if experts == 1 else _gated(shared, net, task.name)
                tower = _hidden(mixed, tower_units, f"{task.name}_tower")
                units = task.logits_dimension
                logits[task.name] = nn.Dense(units, name=f"{task.name}_logits")(tower)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def _hidden(net: jax.Array, units: Sequence[int], name: str) -> jax.Array:
    """Layers of their own under a name: [B, units[-1]]."""
    for index, size in enumerate(units):
        net = nn.relu(nn.Dense(size, name=f"{name}_{index}")(net))
    return net


def _gated(shared: jax.Array, net: jax.Array, task: str | None) -> jax.Array:
    weights = nn.softmax(nn.Dense(shared.shape[1], name=f"{task}_gate")(net))
    return jnp.einsum("be,bed->bd", weights, shared)


LABELS = CLICK, CONVERSION = "click", "conversion"


class ESMMClassifier(Estimator):
    """Clicks and the conversions that follow them, trained on all impressions.

    Labels are {"click": 0 or 1, "conversion": 1 if clicked and converted}. Predictions
    are those of the heads "click" and "conversion" (of an impression), and
    ("conversion", "given_click"), the rate after a click. Without another `optimizer`
    it is LazyAdam(0.001).

    >>> import estimax as ex
    >>> columns = [ex.feature_columns.numeric_column("age")]
    >>> model = ex.ESMMClassifier([32], columns, "/tmp/estimax-doc-esmm")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: str | os.PathLike[str] | None = None,
        optimizer: Any = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        columns = tuple(feature_columns)
        tasks = [heads.BinaryClassHead(weight_column, name=n) for n in LABELS]
        head = heads.MultiHead(tasks)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "ESMMClassifier")
            net = fc.input_layer(features, columns)
            click, after = (
                _tower(net, hidden_units, name)
                for name in (CLICK, "conversion_after_click")
            )
            logits = {CLICK: click, CONVERSION: both_logit(click, after)}
            spec = head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )
            if mode != ModeKeys.PREDICT:
                return spec
            given_click = {(CONVERSION, "given_click"): nn.sigmoid(after)}
            predictions = {**spec.predictions, **given_click}
            exports = head.export_outputs(predictions)
            return replace(spec, predictions=predictions, export_outputs=exports)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def both_logit(a: jax.Array, b: jax.Array) -> jax.Array:
    """The logit of σ(a)·σ(b), exact where the product itself would round to 0 or 1.

    >>> round(float(both_logit(jnp.array(0.0), jnp.array(0.0))), 4)  # of a quarter
    -1.0986
    """
    # 1/p = (1 + e⁻ᵃ)(1 + e⁻ᵇ), so 1/p - 1 = e⁻ᵃ + e⁻ᵇ + e⁻ᵃ⁻ᵇ, and the logit is
    # minus its logarithm.
    return -jnp.logaddexp(jnp.logaddexp(-a, -b), -a - b)


def _tower(net: jax.Array, units: Sequence[int], name: str) -> jax.Array:
    """Layers of their own under a name, and a logit: [B, 1]."""
    for index, size in enumerate(units):
        net = nn.relu(nn.Dense(size, name=f"{name}_{index}")(net))
    # The layers may compute in bfloat16, which is too coarse for `both_logit`.
    return nn.Dense(1, name=f"{name}_logits")(net).astype(jnp.float32)
