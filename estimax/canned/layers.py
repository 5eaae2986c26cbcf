"""The layers of the canned models, and the public logit function builders.

Layers and variables have the names that they have in tf.estimator's checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype

from estimax import feature_columns
from estimax.core.errors import SpecError
from estimax.core.spec import ModeKeys
from estimax.hooks import summary
from estimax.hooks.summary import log
from estimax.staging import variables

Activation = Callable[[jax.Array], jax.Array]


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Iterable[Any],
    activation_fn: Activation | None = nn.relu,
    dropout: float | None = None,
    input_layer_partitioner: None = None,
    batch_norm: bool = False,
) -> Callable[..., jax.Array]:
    """Return a function that computes the logits of a fully connected network.

    Use it inside a `model_fn` of your own, to combine the network of `DNNEstimator`
    with other parts.

    Args:
      units: Number of logits.
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: Dense columns (`numeric_column`, `embedding_column`,
        `indicator_column` …). Wrap a categorical column first; it is an error
        otherwise.
      activation_fn: Activation of the hidden layers. None: linear.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      input_layer_partitioner: Must be None: there are no parameter servers.
      batch_norm: Whether to apply batch normalisation after each hidden layer.

    Returns:
      `logit_fn(features, mode)`, which returns logits [B, units]. Call it within a
      `model_fn`, because it creates variables.

    Raises:
      SpecError: `units` is not a positive integer, or a partitioner is given.

    Example:
      >>> import estimax as ex
      >>> columns = [ex.feature_columns.numeric_column("x")]
      >>> logit_fn = ex.dnn_logit_fn_builder(1, [8], columns)
      >>> def model_fn(features, labels, mode):
      ...     logits = logit_fn(features, mode)
      ...     return ex.heads.BinaryClassHead().create_estimator_spec(
      ...         features, mode, logits, labels, optimizer="Adagrad")
    """
    _check_units(units, "dnn_logit_fn_builder")
    if input_layer_partitioner is not None:
        raise SpecError(
            "dnn_logit_fn_builder: input_layer_partitioner must be None, because there "
            "are no parameter servers to divide variables among."
        )
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
    """Return a function that computes the logits of a linear model.

    Use it inside a `model_fn` of your own, to combine the linear part of
    `LinearEstimator` with other parts.

    Args:
      units: Number of logits.
      feature_columns: Categorical columns and `numeric_column`s. Do not wrap
        categorical columns: each of their ids has a weight.
      sparse_combiner: How the weights of several ids in one example are combined:
        "sum", "mean" or "sqrtn".

    Returns:
      `logit_fn(features)`, which returns logits [B, units]. Call it within a
      `model_fn`,
      because it creates variables.

    Raises:
      SpecError: `units` is not a positive integer.

    Example:
      >>> import estimax as ex
      >>> columns = [ex.feature_columns.numeric_column("x")]
      >>> logit_fn = ex.linear_logit_fn_builder(1, columns)
    """
    _check_units(units, "linear_logit_fn_builder")
    columns = tuple(feature_columns)

    def linear_logit_fn(features: Any) -> jax.Array:
        return linear_logits(
            features, columns=columns, units=units, sparse_combiner=sparse_combiner
        )

    return linear_logit_fn


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
    """Return the logits [B, units] of hidden layers over feature columns."""
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
    """Write summaries of a layer's output, under tf.estimator's names."""
    with log.unscoped():
        summary.scalar(f"{name}/fraction_of_zero_values", jnp.mean(values == 0))
        summary.histogram(f"{name}/activation", values)


def linear_logits(
    features: Any, *, columns: Sequence[Any], units: int, sparse_combiner: str
) -> jax.Array:
    """Return a bias plus the weights of every column's values: [B, units]."""
    logits: jax.Array = feature_columns.linear_model(
        features, columns, units=units, sparse_combiner=sparse_combiner
    )
    with log.unscoped():
        _log_linear(variables.current_module("linear_logits").variables)
    return logits


def _log_linear(collections: Any) -> None:
    """Write summaries of the bias and of the share of weights that are 0."""
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


def hidden_layers(
    net: jax.Array,
    units: Sequence[int],
    *,
    name: str = "hidden",
    dropout: float | None = None,
    mode: str = ModeKeys.PREDICT,
) -> jax.Array:
    """Return [B, units[-1]] after dense layers with relu, named `<name>_0` and on."""
    for index, size in enumerate(units):
        net = nn.relu(nn.Dense(size, name=f"{name}_{index}")(net))
        if dropout:
            net = nn.Dropout(dropout, deterministic=mode != ModeKeys.TRAIN)(net)
    return net


class HiddenLayer(nn.Module):
    """A dense layer, activation, dropout and batch normalisation, in this order.

    tf.estimator normalises after the activation, so trained models depend on the order.
    """

    units: int
    index: int
    activation_fn: Activation | None
    dropout: float | None
    batch_norm: bool
    mode: str
    dtype: Any = None  # of the computation, as in Flax's layers

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
    """Batch normalisation with TensorFlow's variable names, momentum and epsilon."""

    momentum: float = 0.999
    epsilon: float = 1e-3

    @nn.compact
    def __call__(self, net: jax.Array, training: bool) -> jax.Array:
        """Normalise [B, D] by the batch in training, by moving averages otherwise."""
        net = net.astype(jnp.float32)  # bfloat16 is too coarse for mean and variance
        size = (net.shape[-1],)
        gamma = self.param("gamma", nn.initializers.ones, size)
        beta = self.param("beta", nn.initializers.zeros, size)
        mean = self.variable("batch_stats", "moving_mean", jnp.zeros, size)
        variance = self.variable("batch_stats", "moving_variance", jnp.ones, size)
        if not training:
            return self._scale_and_shift(net, mean.value, variance.value, gamma, beta)
        batch_mean = jnp.mean(net, axis=0)
        batch_variance = jnp.mean(jnp.square(net - batch_mean), axis=0)
        # Creating the variables must not count as a step.
        if not self.is_initializing():
            mean.value = self._moved(mean.value, batch_mean)
            variance.value = self._moved(variance.value, batch_variance)
        return self._scale_and_shift(net, batch_mean, batch_variance, gamma, beta)

    def _moved(self, average: jax.Array, batch: jax.Array) -> jax.Array:
        return average * self.momentum + batch * (1 - self.momentum)

    def _scale_and_shift(
        self,
        net: jax.Array,
        mean: jax.Array,
        variance: jax.Array,
        gamma: jax.Array,
        beta: jax.Array,
    ) -> jax.Array:
        return (net - mean) * jax.lax.rsqrt(variance + self.epsilon) * gamma + beta


def _check_units(units: Any, function: str) -> None:
    if not isinstance(units, int) or units < 1:
        raise SpecError(
            f"{function}: units must be a positive number of logits, got {units!r}."
        )
