"""Rank the results of searches: NDCG, and AUC within each user.

    python examples/ranking/search.py

A search returns a list of up to eight items with a graded relevance. Two models score
the items with the same network. One is trained to predict the relevance of each item,
the other to order the items of a list (`ex.heads.losses.pairwise_ranking`). The
relevance depends on the search as a whole as well, which only matters to the first
model: an order needs no such level. Padding of short lists has the relevance -1.
"""

import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex

USERS, ITEMS, WIDTH = 40, 8, 5


def searches(count, seed):
    """Return features {"items" [B, L, D], "user" [B]} and relevance [B, L]."""
    draw = np.random.default_rng(seed)
    items = draw.normal(size=(count, ITEMS, WIDTH)).astype(np.float32)
    user = draw.integers(0, USERS, count)
    level = draw.normal(0, 3, (count, 1))  # how much the whole list is about the query
    quality = items[..., 0] - 0.5 * items[..., 1] * items[..., 2]
    quality = quality + level + draw.normal(0, 0.5, quality.shape)
    relevance = np.clip(np.round(quality + 3), 0, 6)
    length = draw.integers(3, ITEMS + 1, (count, 1))
    relevance = np.where(np.arange(ITEMS) < length, relevance, -1)
    return {"items": items, "user": user}, relevance.astype(np.float32)


def model_fn(features, labels, mode, params):
    net = nn.relu(nn.Dense(32, name="hidden")(features["items"]))
    scores = nn.Dense(1, name="score")(net)[..., 0]  # [B, L]
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"scores": scores})

    is_item = labels >= 0
    if params["loss"] == "pairs":
        loss = jnp.mean(ex.heads.losses.pairwise_ranking(labels, scores))
    else:
        errors = jnp.where(is_item, jnp.square(labels - scores), 0.0)
        loss = jnp.sum(errors) / jnp.sum(is_item)
    groups = jnp.broadcast_to(features["user"][:, None], labels.shape)
    return ex.EstimatorSpec(
        mode,
        loss=loss,
        train_op=ex.optimizers.Adam(0.005),
        eval_metric_ops={
            "ndcg@5": ex.metrics.ndcg_at_k(labels, scores, k=5),
            "reciprocal_rank": ex.metrics.mean_reciprocal_rank(labels > 3, scores),
            "auc_per_user": ex.metrics.group_auc(
                labels > 3,
                jax.nn.sigmoid(scores),
                groups,
                is_item.astype(jnp.float32),
                num_groups=USERS,
            ),
        },
    )


def main(steps=500):
    train, test = searches(400, seed=1), searches(1000, seed=2)
    rows = ex.input.Dataset.from_tensor_slices(train).shuffle(400, seed=1).repeat()
    tested = ex.input.Dataset.from_tensor_slices(test).batch(250)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for loss in ("relevance", "pairs"):
            model = ex.Estimator(
                model_fn,
                f"{folder}/{loss}",
                ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
                params={"loss": loss},
            )
            model.train(lambda: rows.batch(64), steps=steps)
            found[loss] = model.evaluate(lambda: tested)
            shown = [
                f"{name} {found[loss][name]:.3f}"
                for name in ("ndcg@5", "reciprocal_rank", "auc_per_user")
            ]
            print(f"trained on {loss}: {', '.join(shown)}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
