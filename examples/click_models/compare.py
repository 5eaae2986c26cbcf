"""Compare four click models on synthetic data, and list the features that DIN needs.

    python examples/click_models/compare.py

The chance of a click depends on two things: whether the item fits the hour, which is an
interaction of a pair of features, and whether the item is of a kind that the user has
clicked before. All four models can learn the pair. Only DIN receives the history of
clicks, so only DIN can learn the second part.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

import estimax as ex

fc = ex.feature_columns
ITEMS, KINDS, HOURS = 200, 10, 24


def clicks(count, seed):
    """Return features of `count` examples, and labels: 1 if the item was clicked."""
    rng = np.random.default_rng(seed)
    kind_of = np.arange(ITEMS) % KINDS
    hour = rng.integers(0, HOURS, count)
    item = rng.integers(0, ITEMS, count)
    # Each user has clicked items of two kinds before, and prefers those kinds.
    liked = rng.integers(0, KINDS, (count, 2))
    histories = [
        rng.choice(np.flatnonzero(np.isin(kind_of, kinds)), rng.integers(1, 9))
        for kinds in liked
    ]
    suits_hour = (kind_of[item] + hour) % 3 == 0
    suits_user = (kind_of[item][:, None] == liked).any(axis=1)
    chance = 0.05 + 0.35 * suits_hour + 0.5 * suits_user
    features = {"hour": hour, "item": item, "clicked": ex.Sparse.of_rows(histories)}
    return features, (rng.random(count) < chance).astype(np.int64)


def models(folder):
    """Return the models by name, with the same columns, optimizer and seed."""
    hour = fc.categorical_column_with_identity("hour", HOURS)
    item = fc.categorical_column_with_identity("item", ITEMS)
    clicked = fc.sequence_categorical_column_with_identity("clicked", ITEMS)
    columns = [fc.embedding_column(column, 8) for column in (hour, item)]
    pair = tuple(fc.shared_embeddings([item, clicked], 8))
    shared = {
        "optimizer": ex.optimizers.LazyAdam(0.01),
        "config": ex.RunConfig(tf_random_seed=1, save_summary_steps=None),
    }
    return {
        "DNN": ex.DNNClassifier([32, 16], columns, f"{folder}/dnn", **shared),
        "DeepFM": ex.DeepFMClassifier([32, 16], columns, f"{folder}/deepfm", **shared),
        "DCN": ex.DCNClassifier([32, 16], columns, f"{folder}/dcn", **shared),
        "DIN": ex.DINClassifier([32, 16], [pair], columns, f"{folder}/din", **shared),
    }


def main(steps=1000):
    """Train each model and print its AUC on new users; return the AUC by name."""
    train, test = clicks(20_000, seed=1), clicks(5_000, seed=2)

    def input_fn():
        rows = ex.input.Dataset.from_tensor_slices(train).shuffle(20_000, seed=3)
        return rows.repeat().batch(128)

    def test_input_fn():
        return ex.input.Dataset.from_tensor_slices(test).batch(1000)

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(folder).items():
            model.train(input_fn, steps=steps)
            found[name] = model.evaluate(test_input_fn)["auc"]
            print(f"{name:7} AUC {found[name]:.3f}")
        print()
        print(ex.inspection.permutation_importance(model, test_input_fn, metric="auc"))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
