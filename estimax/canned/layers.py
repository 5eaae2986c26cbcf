"""The layers of the canned models, named as in tf.estimator's checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype

from estimax import feature_columns, summary, variables
from estimax.core.errors import SpecError
from estimax.core.spec import ModeKeys

Activation = Callable[[jax.Array], jax.Array]


def dnn_logits(
    features: Any,
    mode: str,
    *,
    columns: Sequence[Any],
    hidden_units: Sequence[int],
    units: int,
    activation_fn: Activation | None,
    dropout: float | None,
    batch_norm: bool,
) -> jax.Array:
    """Columns, hidden layers, and a linear layer of `units` logits: [B, units]."""
    net = variables.scoped("input_from_feature_columns", feature_columns.input_layer)(
        features, columns
    )
    for index, size in enumerate(hidden_units):
        name = f"hiddenlayer_{index}"
        net = HiddenLayer(
            size, index, activation_fn, dropout, batch_norm, mode, name=name
        )(net)
        log_layer(f"dnn/{name}", net)
    logits: jax.Array = nn.Dense(
        units, kernel_init=nn.initializers.glorot_uniform(), name="logits"
    )(net)
    log_layer("dnn/logits", logits)
    return logits


def log_layer(name: str, values: jax.Array) -> None:
    """Have a layer's output seen, under tf.estimator's names."""
    summary.scalar(f"{name}/fraction_of_zero_values", jnp.mean(values == 0))
    summary.histogram(f"{name}/activation", values)


def linear_logits(
    features: Any, *, columns: Sequence[Any], units: int, sparse_combiner: str
) -> jax.Array:
    """The sum of every column's weights, and a bias: [B, units]."""
    logits: jax.Array = feature_columns.linear_model(
        features, columns, units=units, sparse_combiner=sparse_combiner
    )
    _log_linear(variables.current_module("linear_logits").variables)
    return logits


def _log_linear(collections: Any) -> None:
    """Have the bias seen, and how many weights are zero, of all collections."""
    bias = collections["params"]["linear_model"]["bias_weights"]
    if bias.size == 1:
        summary.scalar("bias", bias)
    else:
        summary.histogram("bias", bias)
    weights = [
        leaf
        for tree in collections.values()
        for path, leaf in jax.tree_util.tree_leaves_with_path(dict(tree))
        if not jax.tree_util.keystr(path, simple=True).endswith("bias_weights")
    ]
    zeros = sum(jnp.sum(leaf == 0, dtype=jnp.float32) for leaf in weights)
    count = sum(leaf.size for leaf in weights)
    if count:
        summary.scalar("fraction_of_zero_weights", zeros / count)


class HiddenLayer(nn.Module):
    """Dense, activation, dropout, then batch norm: tf.estimator's order."""

    units: int
    index: int
    activation_fn: Activation | None
    dropout: float | None
    batch_norm: bool
    mode: str
    dtype: Any = None  # to compute in, as in Flax's layers

    @nn.compact
    def __call__(self, net: jax.Array) -> jax.Array:
        """Map [B, D] to [B, units]."""
        initializer = nn.initializers.glorot_uniform()
        kernel = self.param("kernel", initializer, (net.shape[-1], self.units))
        bias = self.param("bias", nn.initializers.zeros, (self.units,))
        net, kernel, bias = promote_dtype(net, kernel, bias, dtype=self.dtype)
        net = net @ kernel + bias
        if self.activation_fn is not None:
            net = self.activation_fn(net)
        training = self.mode == ModeKeys.TRAIN
        if self.dropout:
            net = nn.Dropout(self.dropout, deterministic=not training)(net)
        if self.batch_norm:
            net = BatchNorm(name=f"batchnorm_{self.index}")(net, training)
        return net


class BatchNorm(nn.Module):
    """Batch normalisation with TensorFlow's names, momentum and epsilon."""

    momentum: float = 0.999
    epsilon: float = 1e-3

    @nn.compact
    def __call__(self, net: jax.Array, training: bool) -> jax.Array:
        """Normalise [B, D] by the batch in training, by moving averages otherwise."""
        net = net.astype(jnp.float32)  # moments of bfloat16 would be too coarse
        size = (net.shape[-1],)
        gamma = self.param("gamma", nn.initializers.ones, size)
        beta = self.param("beta", nn.initializers.zeros, size)
        mean = self.variable("batch_stats", "moving_mean", jnp.zeros, size)
        variance = self.variable("batch_stats", "moving_variance", jnp.ones, size)
        if not training:
            return self._scaled(net, mean.value, variance.value, gamma, beta)
        batch_mean = jnp.mean(net, axis=0)
        batch_variance = jnp.mean(jnp.square(net - batch_mean), axis=0)
        if not self.is_initializing():
            mean.value = self._moved(mean.value, batch_mean)
            variance.value = self._moved(variance.value, batch_variance)
        return self._scaled(net, batch_mean, batch_variance, gamma, beta)

    def _moved(self, average: jax.Array, batch: jax.Array) -> jax.Array:
        return average * self.momentum + batch * (1 - self.momentum)

    def _scaled(
        self,
        net: jax.Array,
        mean: jax.Array,
        variance: jax.Array,
        gamma: jax.Array,
        beta: jax.Array,
    ) -> jax.Array:
        return (net - mean) * jax.lax.rsqrt(variance + self.epsilon) * gamma + beta


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Iterable[Any],
    activation_fn: Activation | None = nn.relu,
    dropout: float | None = None,
    batch_norm: bool = False,
) -> Callable[..., jax.Array]:
    """Build logit_fn(features, mode) -> logits [B, units] of a deep network.

    >>> from estimax.feature_columns import numeric_column
    >>> logit_fn = dnn_logit_fn_builder(1, [8], [numeric_column("x")])
    """
    _check_units(units, "dnn_logit_fn_builder")
    columns = tuple(feature_columns)

    def dnn_logit_fn(features: Any, mode: str) -> jax.Array:
        return dnn_logits(
            features,
            mode,
            columns=columns,
            hidden_units=hidden_units,
            units=units,
            activation_fn=activation_fn,
            dropout=dropout,
            batch_norm=batch_norm,
        )

    return dnn_logit_fn


def linear_logit_fn_builder(
    units: int, feature_columns: Iterable[Any], sparse_combiner: str = "sum"
) -> Callable[..., jax.Array]:
    """Build logit_fn(features) -> logits [B, units] of a linear model.

    >>> from estimax.feature_columns import numeric_column
    >>> logit_fn = linear_logit_fn_builder(1, [numeric_column("x")])
    """
    _check_units(units, "linear_logit_fn_builder")
    columns = tuple(feature_columns)

    def linear_logit_fn(features: Any) -> jax.Array:
        return linear_logits(
            features, columns=columns, units=units, sparse_combiner=sparse_combiner
        )

    return linear_logit_fn


def _check_units(units: Any, function: str) -> None:
    if not isinstance(units, int) or units < 1:
        raise SpecError(
            f"{function}: units must be a positive number of logits, got {units!r}."
        )
