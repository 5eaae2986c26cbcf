"""Train a wide-and-deep model on made-up clicks; run by `cluster_jobs.py`.

    python train_clicks.py MODEL_DIR --steps 100 [--optimizers Adagrad Ftrl] [--sharded]

Several optimizers train one model each, in MODEL_DIR/<optimizer>. The chief writes the
loss of every step to losses.json in the folder of the model.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import estimax as ex
from estimax.core.sparse import Sparse

ROWS = 64 * 30
COLUMNS = ex.feature_columns


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--optimizers", nargs="+", default=["Adagrad"])
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--devices", type=int)
    parser.add_argument("--share", action="store_true", help="take input_context")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--save-secs", type=float)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds a step")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    for name in args.optimizers:
        train(args, name)


def train(args, optimizer):
    folder = args.model_dir / optimizer
    if args.save_secs:
        saves = {"save_checkpoints_secs": args.save_secs}
    else:
        saves = {"save_checkpoints_steps": args.save_steps}
    config = ex.RunConfig(
        folder,
        tf_random_seed=args.seed,
        log_step_count_steps=None,
        shard_tables={"": True} if args.sharded else (),
        devices=args.devices,
        lost_after_secs=10,
        session_creation_timeout_secs=300,
        keep_checkpoint_max=None,
        **saves,
    )
    hooks = [Losses(args.slow)]
    input_fn = share_fn(args.epochs) if args.share else whole_fn(args.epochs)
    model = model_of(optimizer, config)
    if args.evaluate:
        ex.train_and_evaluate(
            model,
            ex.TrainSpec(input_fn, max_steps=args.steps, hooks=hooks),
            ex.EvalSpec(whole_fn(1), start_delay_secs=0, throttle_secs=0),
        )
    else:
        model.train(input_fn, hooks=hooks, max_steps=args.steps)
    if config.is_chief:
        before = json.loads(losses_of(folder)) if os.environ.get("APPEND") else []
        (folder / "losses.json").write_text(json.dumps(before + hooks[0].losses))


def losses_of(folder):
    path = folder / "losses.json"
    return path.read_text() if path.exists() else "[]"


class Losses(ex.hooks.Hook):
    def __init__(self, seconds):
        self.losses = []
        self._seconds = seconds

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.losses.append(float(values["loss"]))
        time.sleep(self._seconds)


def model_of(optimizer, config):
    rates = {"Adagrad": 0.1, "Ftrl": 0.1, "LazyAdam": 0.01, "Adam": 0.01}

    def made():
        return getattr(ex.optimizers, optimizer)(rates[optimizer])

    city = COLUMNS.categorical_column_with_identity("city", 1000)
    tags = COLUMNS.categorical_column_with_hash_bucket("tags", 300, np.int64)
    return ex.DNNLinearCombinedClassifier(
        config=config,
        linear_feature_columns=[city, tags],
        linear_optimizer=made(),
        dnn_feature_columns=[
            COLUMNS.embedding_column(city, 8),
            COLUMNS.embedding_column(tags, 4),
            COLUMNS.numeric_column("x", (2,)),
        ],
        dnn_optimizer=made(),
        dnn_hidden_units=[16],
    )


def data():
    """Rows of ids, lists of one to five tags, and numbers."""
    rng = np.random.default_rng(0)
    city = rng.zipf(1.3, ROWS) % 1000
    x = rng.normal(size=(ROWS, 2)).astype(np.float32)
    lengths = rng.integers(1, 6, ROWS)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tags = Sparse.of_lists(rng.integers(0, 500, starts[-1]), starts, 5)
    clicked = ((city % 7 < 3) ^ (x[:, 0] > 0)).astype(np.int32)
    return {"city": city, "x": x, "tags": tags}, clicked


def whole_fn(epochs):
    def input_fn():
        rows = ex.input.Dataset.from_tensor_slices(data())
        return rows.shuffle(500, seed=3).repeat(epochs).batch(64)

    return input_fn


def share_fn(epochs):
    def input_fn(input_context):
        size = input_context.get_per_replica_batch_size(64)
        rows = ex.input.Dataset.from_tensor_slices(data())
        return input_context.shard(rows.repeat(epochs).batch(size))

    return input_fn


if __name__ == "__main__":
    main()
