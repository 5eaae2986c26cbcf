"""Train several tasks in one model: MMoE, and ESMM for conversions after clicks.

    python examples/multi_task/clicks_and_orders.py

Each row is an item that was shown to a user. Labels are whether it was clicked, and
whether it was ordered; only clicked items can be. `ex.MMoEEstimator` learns both tasks
over shared experts. `ex.ESMMClassifier` learns the order rate after a click from all
rows that were shown, not only from the clicked ones. The item that is shown and the
item that was seen last share one embedding table.
"""

import sys
import tempfile

import numpy as np

import estimax as ex

fc = ex.feature_columns
USERS, ITEMS = 300, 100


def shown(count, seed):
    """Return features, and labels {"click", "conversion"} for so many rows."""
    world = np.random.default_rng(0)  # the same users and items for every seed
    taste, kind = world.normal(size=(USERS, 3)), world.normal(size=(ITEMS, 3))
    price = world.uniform(-1, 1, ITEMS)
    draw = np.random.default_rng(seed)
    user, item = draw.integers(0, USERS, count), draw.integers(0, ITEMS, count)
    last = draw.integers(0, ITEMS, count)
    likes = np.sum(taste[user] * kind[item], axis=1)
    alike = np.sum(kind[last] * kind[item], axis=1)
    click = draw.random(count) < _sigmoid(likes + 0.5 * alike - 1)
    order = click & (draw.random(count) < _sigmoid(0.7 * likes - 2 * price[item] - 1))
    labels = {"click": click.astype(np.int64), "conversion": order.astype(np.int64)}
    return {"user": user, "item": item, "last_item": last}, labels


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def columns():
    """Return embeddings of the user, and of two items that share a table."""
    user = fc.categorical_column_with_identity("user", USERS)
    item = fc.categorical_column_with_identity("item", ITEMS)
    last = fc.categorical_column_with_identity("last_item", ITEMS)
    return [fc.embedding_column(user, 8), *fc.shared_embeddings([item, last], 8)]


def models(folder):
    options = {
        "optimizer": ex.optimizers.LazyAdam(0.01),
        "config": ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
    }
    tasks = [ex.heads.BinaryClassHead(name=name) for name in ("click", "conversion")]
    return {
        "MMoE": ex.MMoEEstimator(
            ex.heads.MultiHead(tasks),
            columns(),
            expert_units=[32],
            tower_units=[16],
            experts=3,
            model_dir=f"{folder}/mmoe",
            **options,
        ),
        "ESMM": ex.ESMMClassifier([32, 16], columns(), f"{folder}/esmm", **options),
    }


def main(steps=800):
    train, test = shown(40_000, seed=1), shown(10_000, seed=2)
    rows = ex.input.Dataset.from_tensor_slices(train).shuffle(40_000, seed=1).repeat()
    tested = ex.input.Dataset.from_tensor_slices(test).batch(2000)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(folder).items():
            model.train(lambda: rows.batch(256), steps=steps)
            metrics = model.evaluate(lambda: tested)
            found[name] = {k: metrics[f"auc/{k}"] for k in ("click", "conversion")}
            print(
                f"{name}: AUC of clicks {found[name]['click']:.3f}, "
                f"of orders {found[name]['conversion']:.3f}"
            )
        answers = list(model.predict(lambda: tested))
    # The order rate after a click, of an ESMM, on the rows that were clicked.
    rate = np.array([row["conversion", "given_click"][0] for row in answers])
    clicked, ordered = test[1]["click"] == 1, test[1]["conversion"]
    print(
        f"orders per click: {ordered[clicked].mean():.3f}, "
        f"predicted {rate[clicked].mean():.3f}"
    )
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
