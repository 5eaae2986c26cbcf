"""Train a small model with settings that may differ by process; see `cluster_jobs.py`.

    python train_small.py MODEL_DIR '{"run": {"save_summary_steps": 3}, "dropout": 0.5}'

Settings are JSON; those of several arguments are merged. Without any, the seed is the
default: none.
"""

import json
import logging
import sys

import numpy as np

import estimax as ex

COLUMNS = ex.feature_columns
WORDS = ["red", "green", "blue", "grey"]


def merged(*given):
    """Return all settings; dicts in them are merged as well."""
    every = {}
    for one in given:
        for name, value in one.items():
            is_dict = isinstance(value, dict) and name in every
            every[name] = merged(every[name], value) if is_dict else value
    return every


def main(model_dir, given):
    if given.get("log"):  # every line: the default leaves out those that follow soon
        logging.basicConfig(level=logging.INFO)
    run = {"lost_after_secs": 10, "session_creation_timeout_secs": 120}
    run |= {"log_step_count_steps": None, **given.get("run", {})}
    config = ex.RunConfig(model_dir, **run)
    model = model_of(given, config)
    input_fn = {"dataset": dataset, "share": share, "rows": rows_of(given)}[
        given.get("input", "dataset")
    ]
    hooks = [getattr(ex.hooks, name)(**how) for name, how in given.get("hooks", ())]
    train = given.get("train", {"max_steps": 6})
    if given.get("evaluate"):
        metrics, _ = ex.train_and_evaluate(
            model,
            ex.TrainSpec(input_fn, **train, hooks=hooks),
            ex.EvalSpec(dataset_once, start_delay_secs=0, throttle_secs=0),
        )
        print("metrics of step", metrics and metrics["global_step"])
    else:
        model.train(input_fn, hooks=hooks, **train)
    print("trained as", config.task_type)


def model_of(given, config):
    words = given.get("words", WORDS)
    colour = COLUMNS.categorical_column_with_vocabulary_list("colour", words)
    optimizer = getattr(ex.optimizers, given.get("optimizer", "Adagrad"))
    return ex.DNNClassifier(
        given.get("hidden_units", [4]),
        [COLUMNS.embedding_column(colour, 4), COLUMNS.numeric_column("x")],
        optimizer=optimizer(given.get("learning_rate", 0.1)),
        dropout=given.get("dropout"),
        config=config,
    )


def data(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=64).astype(np.float32)
    colour = np.array(WORDS)[random.integers(0, 4, 64)]
    return {"x": x, "colour": colour}, (x > 0).astype(np.int32)


def dataset():
    rows = ex.input.Dataset.from_tensor_slices(data())
    return rows.shuffle(64).repeat().batch(16)


def dataset_once():
    return ex.input.Dataset.from_tensor_slices(data()).batch(16)


def share(input_context):
    rows = ex.input.Dataset.from_tensor_slices(data())
    return input_context.shard(rows.repeat().batch(8))


def rows_of(given):
    def input_fn():
        features, labels = data(given.get("rows_seed", 0))
        for start in list(range(0, 64, 16)) * 20:
            part = slice(start, start + 16)
            yield {k: v[part] for k, v in features.items()}, labels[part]

    return input_fn


if __name__ == "__main__":
    main(sys.argv[1], merged(*map(json.loads, sys.argv[2:])))
