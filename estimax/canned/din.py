"""DIN: what a user did before, weighed by how near each act is to the candidate.

Zhou et al., "Deep Interest Network for Click-Through Rate Prediction" (2018). For every
step of the behaviour sequence a small network looks at its vector, the candidate's, and
their difference and product, and says how much the step counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned.parts import check_features, click_head
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import FeatureError
from estimax.core.mode import ModeKeys
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig


class DINClassifier(Estimator):
    """A click model with attention over a behaviour sequence.

    `attend` pairs a column of the candidate with the sequence column of the same thing
    in the user's history; `fc.shared_embeddings` gives both one table. All histories
    have the same lengths. `feature_columns` are whatever else is known. Without another
    `optimizer` it is LazyAdam(0.001). `head` may be another one of
    one logit.

    >>> import estimax as ex
    >>> fc = ex.feature_columns
    >>> item = fc.categorical_column_with_hash_bucket("item", 1000)
    >>> clicked = fc.sequence_categorical_column_with_hash_bucket("clicked", 1000)
    >>> pair = tuple(fc.shared_embeddings([item, clicked], 8))
    >>> age = fc.numeric_column("age")
    >>> model = ex.DINClassifier([64], [pair], [age], "/tmp/estimax-doc-din")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        attend: Iterable[tuple[Any, Any]],
        feature_columns: Iterable[Any] = (),
        model_dir: str | os.PathLike[str] | None = None,
        attention_units: Sequence[int] = (36,),
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        pairs = _checked(attend)
        columns = tuple(feature_columns)
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DINClassifier")
            candidate, history, lengths = _vectors(features, pairs)
            interest = Attention(attention_units, name="attention")(
                candidate, history, lengths
            )
            parts = [candidate, interest, candidate * interest]
            if columns:
                parts.append(fc.input_layer(features, columns, name="context"))
            net = jnp.concatenate(parts, axis=-1)
            for index, units in enumerate(hidden_units):
                net = nn.relu(nn.Dense(units, name=f"hidden_{index}")(net))
                if dropout:
                    net = nn.Dropout(dropout, deterministic=mode != ModeKeys.TRAIN)(net)
            logits = nn.Dense(1, name="logits")(net)
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class Attention(nn.Module):
    """The steps of [B, T, D], weighed by their likeness to [B, D] and added: [B, D].

    The weights are not made to sum to one, as in the paper: a user with much of an
    interest differs from one with little. Steps past an example's length count nothing.
    """

    units: Sequence[int]

    @nn.compact
    def __call__(
        self, candidate: jax.Array, history: jax.Array, lengths: jax.Array
    ) -> jax.Array:
        """Weigh and add."""
        wanted = jnp.broadcast_to(candidate[:, None], history.shape)
        net = jnp.concatenate(
            [wanted, history, wanted - history, wanted * history], axis=-1
        )
        for index, size in enumerate(self.units):
            net = nn.sigmoid(nn.Dense(size, name=f"hidden_{index}")(net))
        weights = nn.Dense(1, name="weight")(net)[..., 0]  # [B, T]
        is_there = jnp.arange(history.shape[1]) < lengths[:, None]
        return jnp.einsum("bt,btd->bd", jnp.where(is_there, weights, 0.0), history)


def _vectors(
    features: Any, pairs: Sequence[tuple[Any, Any]]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The candidate [B, D], the history [B, T, D] in the same order, its lengths."""
    # A layer orders its columns by name, which may tear pairs apart; one sequence layer
    # all the same, since it sees that all histories have the same lengths.
    pairs = sorted(pairs, key=lambda pair: pair[1].name)
    candidates = [
        fc.input_layer(features, [candidate], name=f"candidate_{i}")
        for i, (candidate, _) in enumerate(pairs)
    ]
    steps, lengths = fc.sequence_input_layer(
        features, [behaviour for _, behaviour in pairs], name="behaviour"
    )
    return jnp.concatenate(candidates, axis=-1), steps, lengths


def _checked(attend: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    pairs = [(candidate, behaviour) for candidate, behaviour in attend]
    if not pairs:
        raise FeatureError(
            "DINClassifier: attend is empty; give pairs (candidate column, sequence "
            "column), such as fc.shared_embeddings([item, clicked_items], 16)."
        )
    for candidate, behaviour in pairs:
        if fc.is_sequence(candidate) or not fc.is_sequence(behaviour):
            raise FeatureError(
                "DINClassifier: a pair of attend is (candidate column, sequence "
                f"column); got ({candidate.name!r}, {behaviour.name!r})."
            )
        if candidate.variable_shape != behaviour.variable_shape:
            raise FeatureError(
                f"DINClassifier: {candidate.name!r} and {behaviour.name!r} are compared"
                f" and need one dimension; they have {candidate.variable_shape} and "
                f"{behaviour.variable_shape}."
            )
    return pairs
