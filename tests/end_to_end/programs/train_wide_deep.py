"""Trains a wide-and-deep model on CSV files, to be killed and started again.

    python train_wide_deep.py DATA MODEL_DIR --steps 60

It has all that a resumed run could get wrong: shuffled input over several files, blocks
and epochs, tables updated by row, dropout, batch statistics, two optimizers. Prints a
line per step; in the end it writes the evaluation to MODEL_DIR/evaluation.json.
"""

import argparse
import json
import logging
import os
import time
from pathlib import Path

import estimax as ex

fc = ex.feature_columns


def make_estimator(
    model_dir,
    *,
    save_steps=5,
    iterations_per_loop=None,
    keep_max=5,
    resume_input="exact",
):
    age = fc.numeric_column("age")
    ages = fc.bucketized_column(age, [25, 35, 50])
    city = fc.categorical_column_with_hash_bucket("city", 500)
    device = fc.categorical_column_with_vocabulary_list(
        "device", ["phone", "tablet", "desk"], num_oov_buckets=2
    )
    cross = fc.crossed_column([ages, "city"], 5000)
    return ex.DNNLinearCombinedClassifier(
        model_dir,
        linear_feature_columns=[ages, city, cross],
        dnn_feature_columns=[
            age,
            fc.indicator_column(device),
            fc.embedding_column(city, 8),
            fc.embedding_column(cross, 4),
        ],
        dnn_hidden_units=[16, 8],
        dnn_optimizer=ex.optimizers.Adam(0.01),
        dnn_dropout=0.3,
        batch_norm=True,
        config=ex.RunConfig(
            save_checkpoints_steps=save_steps,
            keep_checkpoint_max=keep_max,
            iterations_per_loop=iterations_per_loop,
            resume_input=resume_input,
            tf_random_seed=7,
        ),
    )


def read_csv(pattern):
    # Small blocks: a position is then often in the middle of a file.
    data = ex.input.csv_files(pattern, defaults={"age": 0.0}, block_bytes=4096)
    return data.with_label("clicked")


def train_input(data):
    rows = read_csv(f"{data}/train-*.csv").shuffle(256, seed=3)
    return rows.repeat().batch(32).prefetch(2)


def eval_input(data):
    return read_csv(f"{data}/eval.csv").batch(64)


class Progress(ex.hooks.Hook):
    """Prints every step and sleeps, so that there is a middle to be killed in."""

    def __init__(self, pause):
        self._pause = pause

    def after_run(self, context, values):
        print(f"step {context.step}", flush=True)
        time.sleep(self._pause)

    def next_step(self, step):
        return step  # sees what there is to see, and cuts no loop short


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("model_dir")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-steps", type=int, default=5)
    parser.add_argument("--iterations-per-loop", type=int)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--resume-input", default="exact")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")

    estimator = make_estimator(
        given.model_dir,
        save_steps=given.save_steps,
        iterations_per_loop=given.iterations_per_loop,
        resume_input=given.resume_input,
    )
    estimator.train(
        lambda: train_input(given.data),
        hooks=[Progress(given.pause)],
        max_steps=given.steps,
    )
    results = estimator.evaluate(lambda: eval_input(given.data))
    exact = {name: float(value).hex() for name, value in results.items()}
    text = json.dumps(exact, indent=1, sort_keys=True)
    # Renamed in, as the process may be killed here too.
    path = Path(given.model_dir, "evaluation.json")
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


if __name__ == "__main__":
    main()
