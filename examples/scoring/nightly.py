"""A nightly job: score all customers in two processes, and continue after a crash.

    python examples/scoring/nightly.py --folder /tmp/nightly --rows 400000

It makes customers in Parquet files, trains a small model that predicts who will cancel
a contract, and exports it. Then it scores every customer in two processes. Half way,
the job ends as if the machine had failed; the same call continues it. At the end every
customer has one score.

The same on a cluster: `on_spark.py` and `on_ray.py` take the bundle and the files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

import estimax as ex

PLANS = ["basic", "family", "business", "trial"]
CITIES = [f"city {n}" for n in range(200)]
FILES = 4


def main() -> None:
    options = _options()
    folder: Path = options.folder
    for number in range(FILES):
        table = customers(options.rows // FILES, first=number * (options.rows // FILES))
        path = folder / "customers" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=20_000)
    bundle = train(folder)
    print(f"bundle in {bundle}")
    score(bundle, folder)
    report(folder / "scores")


def customers(rows: int, first: int) -> pa.Table:
    """Return customers from the number `first` on, and whether they cancel."""
    rng = np.random.default_rng(first)
    months, calls = rng.integers(0, 60, rows), rng.poisson(1.0, rows)
    plan = rng.integers(0, len(PLANS), rows)
    # Customers cancel early, after many calls, and on trial.
    strength = 0.8 * calls - 0.08 * months + 1.5 * (plan == 3)
    cancels = rng.random(rows) < 1 / (1 + np.exp(1 - strength))
    return pa.table(
        {
            "customer": np.arange(first, first + rows),
            "months": months.astype(np.float32),
            "calls": calls.astype(np.float32),
            "plan": np.array(PLANS)[plan],
            "city": np.array(CITIES)[rng.integers(0, len(CITIES), rows)],
            "cancels": cancels.astype(np.int64),
        }
    )


def train(folder: Path) -> str:
    """Train on customers of the past, and return the path of the bundle."""
    fc = ex.feature_columns
    plan = fc.categorical_column_with_vocabulary_list("plan", PLANS)
    city = fc.categorical_column_with_hash_bucket("city", 500)
    model = ex.DNNClassifier(
        hidden_units=[32, 16],
        feature_columns=[
            fc.numeric_column("months"),
            fc.numeric_column("calls"),
            fc.indicator_column(plan),
            fc.embedding_column(city, 4),
        ],
        model_dir=folder / "model",
        optimizer=ex.optimizers.Adam(0.01),
    )
    past = customers(20_000, first=10_000_000).drop_columns(["customer"])
    pq.write_table(past, folder / "past.parquet")

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.parquet_files(folder / "past.parquet").with_label("cancels")
        return rows.shuffle(20_000, seed=1).repeat(2).batch(200)

    model.train(input_fn)
    print(f"AUC {model.evaluate(input_fn)['auc']:.3f} on the training data")
    return str(model.export_saved_model(folder / "export"))


def score(bundle: str, folder: Path) -> None:
    """Score all customers; the first call ends half way."""

    def fail_half_way(progress: ex.scoring.ScoringProgress) -> None:
        if progress.shards >= progress.total_shards // 2:
            raise OSError("the machine failed")

    arguments = {
        "bundle": bundle,
        "files": folder / "customers" / "*.parquet",
        "output": folder / "scores",
        "processes": 2,
        "keep": ["customer"],
        "shard_rows": 20_000,
    }
    try:
        ex.scoring.score_files(**arguments, on_progress=fail_half_way)
    except OSError as error:
        print(f"the job ended: {error}")
    result = ex.scoring.score_files(**arguments)
    print(
        f"continued: {result.new_rows:,} of {result.rows:,} customers were missing, "
        f"{result.new_rows / result.seconds:,.0f} rows/s"
    )


def report(scores: Path) -> None:
    """Read all shards, check that each customer has one score, and show the first."""
    table = pyarrow.dataset.dataset(scores, format="parquet").to_table()
    keys = table["customer"]
    assert len(keys) == pc.count_distinct(keys).as_py(), "a customer has two scores"
    print(f"{len(table):,} customers have one score each")
    ranked = table.sort_by([("logistic", "descending")]).slice(0, 3)
    for row in ranked.select(["customer", "logistic"]).to_pylist():
        print(f"customer {row['customer']:>8}: cancels with {row['logistic']:.2f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/nightly"))
    parser.add_argument("--rows", type=int, default=400_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
