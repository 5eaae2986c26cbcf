"""Racer: a `model_fn` with one table, which it reads in one of several ways.

The argument is `<way>:<setup>`; the ways are "lookup", "computed" (ids plus 0),
"column" (`embedding_column`), "indexing" (`table[ids]`), "embed" (Flax's `nn.Embed`)
and "embed whole" (a subclass of it, which is left to Flax).
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import optax
from criteo import checksum
from estimax_pacing import PacingHook, versions
from flax import linen as nn
from lookup_task import Setup, examples
from pacing import Pacer

import estimax as ex


class WholeEmbed(nn.Embed):
    """A layer that is not read by row."""


def main() -> None:
    way, _, text = sys.argv[1].partition(":")
    setup = Setup.from_json(text)
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices((features, labels))
        return rows.repeat().batch(setup.batch_size)

    def model_fn(features: Any, labels: Any, mode: str) -> ex.EstimatorSpec:
        net = _column(features, setup) if way == "column" else _rows(features, way)
        logits = nn.Dense(1, name="logits")(net)[:, 0]
        loss = jnp.mean(optax.sigmoid_binary_cross_entropy(logits, labels))
        optimizer = ex.optimizers.Adagrad(setup.learning_rate)
        return ex.EstimatorSpec(mode, loss=loss, train_op=optimizer)

    def _rows(features: Any, way: str) -> Any:
        if way.startswith("embed"):
            layer = nn.Embed if way == "embed" else WholeEmbed
            rows = layer(setup.vocabulary, setup.dimension)(features["item"])
            return rows if rows.ndim == 2 else rows.mean(axis=1)
        table = ex.get_variable("emb", (setup.vocabulary, setup.dimension))
        ids = features["item"]
        if way == "indexing":
            rows = table[ids]
        else:
            rows = ex.embedding_lookup(table, ids + 0 if way == "computed" else ids)
        return rows if rows.ndim == 2 else rows.mean(axis=1)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = ex.Estimator(
            model_fn,
            model_dir,
            # As in lookup_tf.py: nothing saved, no summaries, a log line in 100 steps.
            ex.RunConfig(
                tf_random_seed=setup.seed,
                save_summary_steps=None,
                save_checkpoints_steps=None,
                log_step_count_steps=100,
            ),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


def _column(features: Any, setup: Setup) -> Any:
    fc = ex.feature_columns
    ids = fc.categorical_column_with_identity("item", setup.vocabulary)
    return fc.input_layer(features, [fc.embedding_column(ids, setup.dimension)])


if __name__ == "__main__":
    assert jax.default_backend() == "cpu", "the other racers run on the CPU"
    main()
