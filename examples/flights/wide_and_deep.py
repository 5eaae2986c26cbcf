"""Predict late flights with a wide-and-deep model, in Python.

    python examples/flights/prepare.py          # writes data/flights/*.csv
    python examples/flights/wide_and_deep.py

`configs/flights_wide_deep.yaml` describes a run on the same data in YAML, with more
features. This program shows what it does: vocabularies and means are found in the
training data, the wide part is trained by FTRL and the deep part by Adagrad, and the
model with the best AUC is exported. It prints the AUC, the features that matter most,
and the share of late flights among those that the bundle finds most likely to be late.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.csv

import estimax as ex

fc = ex.feature_columns
NUMBERS = ("distance", "temp", "wind_speed", "precip", "visib", "pressure")
WORDS = ("carrier", "origin", "dest")
# Identities: the column has the numbers 0 to n - 1.
COUNTS = {"month": 13, "weekday": 7, "hour": 24}
USED = [*WORDS, *COUNTS, *NUMBERS, "late"]


def statistics(path):
    """Return the words of text columns, and mean and deviation of numbers."""
    options = pyarrow.csv.ConvertOptions(include_columns=[*WORDS, *NUMBERS])
    table = pyarrow.csv.read_csv(path, convert_options=options)
    words = {name: sorted(pc.unique(table[name]).to_pylist()) for name in WORDS}
    moments = {
        name: (pc.mean(table[name]).as_py(), pc.stddev(table[name]).as_py())
        for name in NUMBERS
    }
    return words, moments


def columns(words, moments):
    """Return the columns of the wide part and those of the deep part."""
    ids = {
        name: fc.categorical_column_with_identity(name, n) for name, n in COUNTS.items()
    }
    for name in WORDS:
        ids[name] = fc.categorical_column_with_vocabulary_list(
            name, words[name], num_oov_buckets=1
        )
    rain = fc.bucketized_column(fc.numeric_column("precip"), [0.01, 0.05, 0.2])
    wide = [
        *ids.values(),
        fc.crossed_column(["carrier", "dest"], 2000),
        fc.crossed_column(["origin", ids["hour"]], 200),
        fc.crossed_column(["origin", ids["hour"], rain], 500),
    ]
    scaled = [
        fc.numeric_column(name, normalizer_fn=ex.transforms.Scaling(mean=mean, std=std))
        for name, (mean, std) in moments.items()
    ]
    embedded = [fc.embedding_column(ids[n], 8) for n in ("carrier", "dest", "hour")]
    shown = [fc.indicator_column(ids[n]) for n in ("origin", "weekday")]
    return wide, [*scaled, *embedded, *shown]


def input_fn(path, moments, epochs=1, shuffle=False):
    """Return a function that gives batches; missing weather becomes the mean."""
    means = {name: mean for name, (mean, _) in moments.items()}
    rows = ex.input.csv_files(path, select=USED, defaults=means).with_label("late")
    if shuffle:
        rows = rows.shuffle(300_000, seed=1)
    return lambda: rows.repeat(epochs).batch(256 if shuffle else 4096).prefetch(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data/flights"))
    parser.add_argument("--model-dir", default="runs/flights_python")
    parser.add_argument("--steps", type=int, default=1400)
    arguments = parser.parse_args()
    train, test = arguments.data / "train.csv", arguments.data / "test.csv"

    words, moments = statistics(train)
    wide, deep = columns(words, moments)
    model = ex.DNNLinearCombinedClassifier(
        model_dir=arguments.model_dir,
        linear_feature_columns=wide,
        linear_optimizer=ex.optimizers.Ftrl(0.02, l1_regularization_strength=0.0005),
        dnn_feature_columns=deep,
        dnn_hidden_units=[128, 64, 32],
        dnn_optimizer=ex.optimizers.Adagrad(0.1),
        dnn_dropout=0.1,
        config=ex.RunConfig(tf_random_seed=1),
    )
    metrics, _ = ex.train_and_evaluate(
        model,
        ex.TrainSpec(
            input_fn(train, moments, epochs=2, shuffle=True), max_steps=arguments.steps
        ),
        ex.EvalSpec(
            input_fn(test, moments),
            every_steps=700,
            throttle_secs=0,
            exporters=ex.BestExporter(
                "best", compare_fn=ex.export.metric_compare("auc")
            ),
        ),
    )
    print(f"AUC {metrics['auc']:.3f}")

    found = ex.inspection.permutation_importance(
        model, input_fn(test, moments), metric="auc", repeats=1, max_examples=8192
    )
    print(found)

    bundle = ex.export.load(f"{arguments.model_dir}/export/best")
    answers = [
        (bundle.predict(rows)["logistic"][:, 0], late)
        for rows, late in input_fn(test, moments)()
    ]
    chance, late = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    likely = np.argsort(-chance)[: len(chance) // 20]
    print(f"late, of all flights: {late.mean():.0%}")
    print(f"late, of the 5% that are most likely to be: {late[likely].mean():.0%}")


if __name__ == "__main__":
    main()
