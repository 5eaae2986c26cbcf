"""DCN v2: layers that multiply features with one another, beside a deep network.

Wang et al., "DCN V2: Improved Deep & Cross Network" (2021). A cross layer computes
x₀ ⊙ (W x + b) + x: after n of them the network holds products of up to n + 1 features.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned.parts import check_features, click_head
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import ConfigError
from estimax.core.mode import ModeKeys
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig


class DCNClassifier(Estimator):
    """A click model of `cross_layers` cross layers and hidden layers.

    The deep network reads the features beside the cross layers ("parallel"), or what
    comes out of them ("stacked"). `projection` gives each cross layer a weight of that
    rank, U Vᵀ, in the place of a square one: a quarter of the width is often enough.
    Without another `optimizer` it is LazyAdam(0.001). `head` may be another one of
    one logit.

    >>> import estimax as ex
    >>> fc = ex.feature_columns
    >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
    >>> columns = [fc.embedding_column(city, 8), fc.numeric_column("age")]
    >>> model = ex.DCNClassifier([64, 32], columns, "/tmp/estimax-doc-dcn")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: str | os.PathLike[str] | None = None,
        cross_layers: int = 3,
        projection: int | None = None,
        structure: Literal["parallel", "stacked"] = "parallel",
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        if structure not in ("parallel", "stacked"):
            raise ConfigError(
                "DCNClassifier: structure must be 'parallel' or 'stacked', got "
                f"{structure!r}."
            )
        columns = tuple(feature_columns)
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DCNClassifier")
            first = fc.input_layer(features, columns)
            crossed = first
            for index in range(cross_layers):
                crossed = Cross(projection, name=f"cross_{index}")(first, crossed)
            net = first if structure == "parallel" else crossed
            for index, units in enumerate(hidden_units):
                net = nn.relu(nn.Dense(units, name=f"hidden_{index}")(net))
                if dropout:
                    net = nn.Dropout(dropout, deterministic=mode != ModeKeys.TRAIN)(net)
            if structure == "parallel":
                net = jnp.concatenate([crossed, net], axis=-1)
            logits = nn.Dense(1, name="logits")(net)
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class Cross(nn.Module):
    """A cross layer: first ⊙ (W x + b) + x, all [B, D].

    >>> x = jnp.array([[1.0, 2.0]])
    >>> params = {"kernel": {"kernel": jnp.eye(2), "bias": jnp.ones(2)}}
    >>> Cross().apply({"params": params}, x, x).tolist()
    [[3.0, 8.0]]
    """

    projection: int | None = None

    @nn.compact
    def __call__(self, first: jax.Array, x: jax.Array) -> jax.Array:
        """Multiply the features of `x` with those of the first layer."""
        low = x
        if self.projection is not None:
            low = nn.Dense(self.projection, use_bias=False, name="projection")(x)
        mixed: jax.Array = nn.Dense(x.shape[-1], name="kernel")(low)
        return first * mixed + x
