"""Multi-task models: mixture of experts (MMoE), and clicks with conversions (ESMM).

The papers are:

    MMoEEstimator    Ma et al., "Modeling Task Relationships in Multi-task Learning with
                     Multi-gate Mixture-of-Experts" (2018)
    ESMMClassifier   Ma et al., "Entire Space Multi-Task Model: An Effective Approach
                     for Estimating Post-Click Conversion Rate" (2018)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned import defaults
from estimax.canned.defaults import ModelPath, check_features, validate_optimizer
from estimax.canned.layers import hidden_layers
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import Estimator, RunConfig

LABELS = CLICK, CONVERSION = "click", "conversion"


class MMoEEstimator(Estimator):
    """Several tasks over shared expert networks, each with its own gate and tower.

    Use it when tasks are related but not the same (click and dwell time, for example).
    The gate of a task is a softmax over the experts, computed from the features. With
    `experts=1` there is no gate: a shared bottom.

    Args:
      head: A `MultiHead` with one named head per task. Labels are a dict by head name.
      feature_columns: Dense columns (`embedding_column`, `numeric_column` …).
      expert_units: Width of each hidden layer of an expert.
      tower_units: Width of each hidden layer of a task's tower.
      experts: Number of experts.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `LazyAdam(0.001)`, which only updates the table
        rows of the batch.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.

    Raises:
      SpecError: `head` is not a `MultiHead`.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.linspace(-1, 1, 16, dtype=np.float32)
      >>> labels = {"click": (x > 0).astype(int), "dwell_time": 2 * x}
      >>> rows = ex.input.Dataset.from_tensor_slices(({"x": x}, labels))
      >>> tasks = [
      ...     ex.heads.BinaryClassHead(name="click"),
      ...     ex.heads.RegressionHead(name="dwell_time"),
      ... ]
      >>> model = ex.MMoEEstimator(
      ...     ex.heads.MultiHead(tasks),
      ...     [ex.feature_columns.numeric_column("x")],
      ...     expert_units=[8],
      ...     tower_units=[4],
      ...     optimizer=ex.optimizers.Adagrad(0.2),
      ... )
      >>> model = model.train(lambda: rows.repeat().batch(16), steps=40)
      >>> bool(model.evaluate(lambda: rows.batch(16))["accuracy/click"] > 0.9)
      True
    """

    def __init__(
        self,
        head: heads.MultiHead,
        feature_columns: Iterable[Any],
        expert_units: Sequence[int] = (128,),
        tower_units: Sequence[int] = (64,),
        experts: int = 4,
        model_dir: ModelPath | None = None,
        optimizer: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        if not isinstance(head, heads.MultiHead):
            raise SpecError(
                "MMoEEstimator: head must be a MultiHead, which holds a head for each "
                f"task; got {type(head).__name__}."
            )
        columns = defaults.validate_columns(feature_columns, "MMoEEstimator")
        expert_units = defaults.validate_units(
            expert_units, "MMoEEstimator", "expert_units"
        )
        tower_units = defaults.validate_units(
            tower_units, "MMoEEstimator", "tower_units"
        )
        defaults.check_count(experts, "MMoEEstimator", "experts")
        trained_by = optimizer or optimizers.LazyAdam(0.001)
        validate_optimizer(trained_by, None, "MMoEEstimator")

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "MMoEEstimator")
            net = fc.input_layer(features, columns)
            shared = jnp.stack(
                [
                    hidden_layers(net, expert_units, name=f"expert_{i}")
                    for i in range(experts)
                ],
                axis=1,
            )  # [B, experts, D]
            logits = {}
            for task in head.heads:
                mixed = shared[:, 0] if experts == 1 else _gated(shared, net, task.name)
                tower = hidden_layers(mixed, tower_units, name=f"{task.name}_tower")
                units = task.logits_dimension
                logits[task.name] = nn.Dense(units, name=f"{task.name}_logits")(tower)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class ESMMClassifier(Estimator):
    """Clicks and the conversions that follow them, trained on all impressions.

    Use it to estimate conversion rates after a click without training on clicked
    examples only, which would be a biased sample. The model learns the probability of a
    click and that of a click and a conversion; the second is the first times the
    conversion rate. `MMoEEstimator` has an example of training.

    Labels are `{"click": ..., "conversion": ...}`, both 0 or 1; a conversion without a
    click is 0. Predictions have the keys of the heads "click" and "conversion" (both
    per impression), and `("conversion", "given_click")`, the conversion rate after a
    click.

    Args:
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: Dense columns (`embedding_column`, `numeric_column` …).
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `LazyAdam(0.001)`, which only updates the table
        rows of the batch.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.

    Example:
      >>> import estimax as ex
      >>> columns = [ex.feature_columns.numeric_column("age")]
      >>> model = ex.ESMMClassifier([32], columns)
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: ModelPath | None = None,
        optimizer: Any = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        columns = defaults.validate_columns(feature_columns, "ESMMClassifier")
        hidden_units = defaults.validate_units(hidden_units, "ESMMClassifier")
        tasks = [heads.BinaryClassHead(weight_column, name=n) for n in LABELS]
        head = heads.MultiHead(tasks)
        trained_by = optimizer or optimizers.LazyAdam(0.001)
        validate_optimizer(trained_by, None, "ESMMClassifier")

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


def _gated(shared: jax.Array, net: jax.Array, task: str | None) -> jax.Array:
    """Return the experts [B, E, D] averaged by the task's gate: [B, D]."""
    weights = nn.softmax(nn.Dense(shared.shape[1], name=f"{task}_gate")(net))
    return jnp.einsum("be,bed->bd", weights, shared)


def both_logit(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the logit of sigmoid(a) * sigmoid(b), the probability of both events.

    It is exact even where the product itself would round to 0 or 1.

    >>> round(float(both_logit(jnp.array(0.0), jnp.array(0.0))), 4)  # of 1/4
    -1.0986
    """
    # With p the product, 1/p = (1 + e⁻ᵃ)(1 + e⁻ᵇ), so 1/p - 1 = e⁻ᵃ + e⁻ᵇ + e⁻ᵃ⁻ᵇ.
    # The logit log(p / (1 - p)) is minus the logarithm of this sum.
    return -jnp.logaddexp(jnp.logaddexp(-a, -b), -a - b)


def _tower(net: jax.Array, units: Sequence[int], name: str) -> jax.Array:
    """Return a logit [B, 1] over hidden layers named `<name>_0` and on."""
    net = hidden_layers(net, units, name=name)
    # The layers may compute in bfloat16, which is too coarse for `both_logit`.
    return nn.Dense(1, name=f"{name}_logits")(net).astype(jnp.float32)
