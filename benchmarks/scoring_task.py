"""The scoring task: a model in the shape of a click model, and rows to score.

scoring_task.py FOLDER ROWS FORMAT

Writes FOLDER/export and FOLDER/rows.FORMAT: a key, 13 numbers and 26 words per row.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import estimax as ex

NUMBERS = [f"number{i}" for i in range(13)]
WORDS = [f"word{i}" for i in range(26)]
BUCKETS, WIDTH, HIDDEN = 10_000, 16, [256, 128]
_CHUNK = 131_072  # rows of a row group


def main() -> None:
    folder, rows, form = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    write_bundle(folder)
    write_rows(folder / f"rows.{form}", rows)


def write_bundle(folder: Path) -> None:
    """Train for one step, which is enough to export, and export."""
    fc = ex.feature_columns
    hashed = [fc.categorical_column_with_hash_bucket(name, BUCKETS) for name in WORDS]
    columns = [
        *(fc.numeric_column(name) for name in NUMBERS),
        *(fc.embedding_column(column, WIDTH) for column in hashed),
    ]
    model = ex.DNNClassifier(HIDDEN, columns, model_dir=folder / "model")
    batch = table(64, 0).drop_columns(["id"]).to_pydict()
    labels = np.arange(64) % 2
    features = {name: np.array(values) for name, values in batch.items()}
    for name in NUMBERS:
        features[name] = features[name].astype(np.float32)
    model.train(lambda: (features, labels), steps=1)
    model.export_saved_model(folder / "export")


def table(rows: int, first: int) -> pa.Table:
    """Rows from the key `first` on."""
    rng = np.random.default_rng(first)
    vocabulary = pa.array([f"word {n}" for n in range(100_000)])
    words = (rng.zipf(1.3, rows) % 100_000 for _ in WORDS)
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            **{name: rng.normal(size=rows).astype(np.float32) for name in NUMBERS},
            **{
                n: vocabulary.take(pa.array(w))
                for n, w in zip(WORDS, words, strict=True)
            },
        }
    )


def write_rows(path: Path, rows: int) -> None:
    chunks = (table(min(_CHUNK, rows - i), i) for i in range(0, rows, _CHUNK))
    schema = table(1, 0).schema
    if path.suffix == ".csv":
        with pyarrow.csv.CSVWriter(path, schema) as writer:
            for chunk in chunks:
                writer.write_table(chunk)
        return
    with pq.ParquetWriter(path, schema) as parquet:
        for chunk in chunks:
            parquet.write_table(chunk)


if __name__ == "__main__":
    main()
