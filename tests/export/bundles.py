"""A small bundle, and tables to score with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

import estimax as ex
from tests.export import servables


def write_bundle(folder: Path) -> Path:
    servable = servables.wide_servable()
    return Path(ex.export.write_bundle(servable, folder, platforms=("cpu",)))


def table(rows: int, *, first: int = 0) -> pa.Table:
    """Rows with a key of their own, and a column that the model does not use."""
    rng = np.random.default_rng(first)
    cities = rng.integers(0, 40, rows)
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "age": rng.uniform(18, 80, rows).round(2),
            "city": [f"city {n}" for n in cities],
            "tags": np.array(["red", "green", "blue", "pink"])[cities % 4],
            "note": ["x"] * rows,
        }
    )


def write(given: pa.Table, path: Path, **options: Any) -> Path:
    """Write a table in the format of the suffix."""
    if path.suffix == ".parquet":
        pq.write_table(given, path, **options)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(given, path)
    elif path.suffix == ".jsonl":
        given.to_pandas().to_json(path, orient="records", lines=True)
    else:
        columns = {
            name: np.asarray(given[name].to_pylist()) for name in given.column_names
        }
        columns["age"] = columns["age"].astype(np.float32)
        with ex.input.TFRecordWriter(path) as writer:
            writer.write_all(ex.input.serialize_examples(columns))
    return path


def expected(bundle: Path, given: pa.Table) -> dict[int, float]:
    """The first probability of each row, by its key."""
    found = ex.export.load(bundle).predict(given, ignore_extra=True)
    ids = given["id"].to_pylist()
    return dict(zip(ids, found["probabilities"][:, 0].tolist(), strict=True))


def scored(folder: Path) -> list[tuple[int, float]]:
    """The key and the first probability of every row of all shards, in order."""
    rows: list[tuple[int, float]] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".parquet":
            found = pq.read_table(path)
            scores = (p[0] for p in found["probabilities"].to_pylist())
            keys = found["id"].to_pylist()
        elif path.suffix == ".csv":
            found = pyarrow.csv.read_csv(path)
            keys, scores = found["id"].to_pylist(), found["probabilities_0"].to_pylist()
        elif path.suffix == ".jsonl":
            found = pyarrow.json.read_json(path)
            keys = found["id"].to_pylist()
            scores = (p[0] for p in found["probabilities"].to_pylist())
        else:
            records = ex.input.TFRecordDataset(str(path))
            examples = [ex.input.Example.parse(r).features for r in records]
            keys = [e["id"].values[0] for e in examples]
            scores = (e["probabilities"].values[0] for e in examples)
        rows += zip(map(int, keys), scores, strict=True)
    return rows
