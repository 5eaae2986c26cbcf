"""Train one model in two processes, with a table that is divided between them.

    python examples/two_processes/train.py                              # in one process
    estimax launch --processes 2 examples/two_processes/train.py        # in two

The program is the same in both cases. `launch` tells each process its role in
TF_CONFIG, which `ex.RunConfig` reads. Every process trains on its part of each batch
and holds half of the rows of the table. Both trainings have the same losses. Without an
evaluator, the first process evaluates while the other waits. A number after the program
sets the steps, and a folder after it the model directory, which all processes share.
"""

from __future__ import annotations

import sys

import numpy as np

import estimax as ex

ITEMS = 10_000


def rows(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return visits and whether they ended with a click: some items are liked more."""
    random = np.random.default_rng(seed)
    # Most visits are to few items, as in a real log.
    items = (random.pareto(1.0, count) * 10).astype(np.int64) % ITEMS
    hours = random.integers(0, 24, count)
    liked = np.where(items % 7 < 3, 1.5, -1.5) + np.where(hours > 18, 1.0, 0.0)
    clicked = random.random(count) < 1 / (1 + np.exp(-liked))
    features = {"item": items, "hour": hours.astype(np.float32) / 24}
    return features, clicked.astype(np.int64)


def input_fn(count: int, seed: int, epochs: int | None) -> ex.input.Dataset:
    """Return batches of all processes together; each process takes its part."""
    data = ex.input.Dataset.from_tensor_slices(rows(count, seed))
    return data.shuffle(count, seed=1).repeat(epochs).batch(256)


def main(model_dir: str, steps: int) -> dict[str, float] | None:
    """Train and evaluate; return the metrics in the process that evaluates."""
    columns = ex.feature_columns
    item = columns.categorical_column_with_identity("item", ITEMS)
    config = ex.RunConfig(
        model_dir,
        tf_random_seed=1,
        # Tables of 128 MB and more are divided by themselves; this one is small.
        shard_tables={"item": True},
    )
    model = ex.DNNClassifier(
        [32, 16],
        [columns.embedding_column(item, 8), columns.numeric_column("hour")],
        optimizer=ex.optimizers.Adagrad(0.1),
        config=config,
    )
    metrics, _ = ex.train_and_evaluate(
        model,
        ex.TrainSpec(lambda: input_fn(20_000, 1, None), max_steps=steps),
        ex.EvalSpec(lambda: input_fn(5_000, 2, 1)),
    )
    if metrics is not None:
        print(f"{config.num_worker_replicas} process(es): AUC {metrics['auc']:.3f}")
    return metrics


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    folder = sys.argv[2] if len(sys.argv) > 2 else "runs/two_processes"
    main(folder, wanted)
