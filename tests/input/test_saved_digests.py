"""Names and digests are those that an earlier version saved in checkpoints.

`tests/snapshots/saved_digests.json` was written by that version: the name of each
public function, class and module in digests, and digests of the datasets below. If a
test fails after a move, add the old name to `estimax/input/pipeline_digest.py`; the
snapshot stays as it is.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import estimax as ex
from estimax.config import load
from estimax.config.build import plan
from estimax.config.expressions import evaluate
from estimax.crf import crf_decode
from estimax.feature_columns import embedding_lookup
from estimax.input import Int64List, RecordError, TensorSpec, pipeline_digest
from estimax.lookup import string_to_index
from estimax.losses import mean_squared_error

SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "saved_digests.json"
SAVED = json.loads(SNAPSHOT.read_text())
RUN = """\
schema: estimax/run/v1
name: small
run: {{model_dir: "{folder}/model"}}
data:
  label: late
  sources:
    train: {{format: {form}, files: "{folder}/a.{form}", batch_size: 2}}
features:
  age: {{type: numeric}}
  city: {{type: hashed, buckets: 10}}
model:
  type: linear
  linear: {{features: [age, city]}}
train: {{max_steps: 1}}
"""
COLUMNS = {"age": [1.5, 2.5, 3.5], "city": ["x", "y", "z"], "late": [0, 1, 0]}
SCALE = 3
SPEC = TensorSpec((None,), np.float32)


def public_names():
    """Return the name in digests of each public object that has a name."""
    names = {}
    modules = [("ex", ex)]
    seen = set()
    while modules:
        path, module = modules.pop()
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                if value.__name__.startswith("estimax.") and value not in seen:
                    seen.add(value)
                    modules.append((f"{path}.{name}", value))
            elif not hasattr(value, "__qualname__"):
                continue
            names[f"{path}.{name}"] = pipeline_digest._name(value)
    return dict(sorted(names.items()))


def write_files(folder):
    rows = list(zip(*COLUMNS.values(), strict=True))
    lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    objects = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(objects) + "\n")
    pq.write_table(pa.table(COLUMNS), folder / "a.parquet")
    with ex.input.TFRecordWriter(str(folder / "a.tfrecord")) as writer:
        for record in ex.input.serialize_examples({"age": np.float32(COLUMNS["age"])}):
            writer.write(record)


def read_run(folder, form):
    path = folder / f"{form}.yaml"
    path.write_text(RUN.format(folder=folder, form=form))
    return evaluate(plan(load(path)).input_fn("train"))()


def numbers():
    return ex.input.Dataset.range(20)


def scale(x):
    return x * SCALE


def add(more):
    return lambda x: scale(x) + more


def use_public_objects(x):
    """Refer to public objects, as functions of users do: only their names matter."""
    try:
        string_to_index(x, ["a"])
        mean_squared_error(SPEC, Int64List(x))
    except RecordError:
        crf_decode(x)
    return embedding_lookup(x, x)


# Each makes a dataset of the files in a folder.
DATASETS = {
    "csv_files": lambda folder: ex.input.csv_files(
        folder / "a.csv", dtypes={"age": "float32"}, defaults={"late": 0}
    ),
    "CsvDataset": lambda folder: ex.input.CsvDataset(
        str(folder / "a.csv"), [1.0, "", np.int64], header=True
    ),
    "make_csv_dataset": lambda folder: ex.input.make_csv_dataset(
        str(folder / "a.csv"), 2, label_name="late", shuffle_seed=1
    ),
    "run file csv": lambda folder: read_run(folder, "csv"),
    "run file parquet": lambda folder: read_run(folder, "parquet"),
    "run file jsonl": lambda folder: read_run(folder, "jsonl"),
    "parquet_files": lambda folder: ex.input.parquet_files(folder / "a.parquet"),
    "json_files": lambda folder: ex.input.json_files(
        folder / "a.jsonl", {"age": "float32", "city": "string"}
    ),
    "text lines": lambda folder: ex.input.TextLineDataset(str(folder / "a.csv")),
    "records": lambda folder: (
        ex.input.TFRecordDataset(str(folder / "a.tfrecord")).shuffle(9, seed=1).batch(2)
    ),
    "make_batched_features_dataset": lambda folder: (
        ex.input.make_batched_features_dataset(
            str(folder / "a.tfrecord"),
            2,
            {"age": ex.input.FixedLenFeature((), np.float32)},
            shuffle_seed=1,
        )
    ),
    "ExampleParser": lambda folder: (
        ex.input.TFRecordDataset(str(folder / "a.tfrecord"))
        .batch(2)
        .map(ex.input.ExampleParser({"age": ex.input.FixedLenFeature((), np.float32)}))
    ),
    "shuffle repeat batch": lambda folder: (
        numbers().shuffle(9, seed=1).repeat(2).batch(3, drop_remainder=True).prefetch(1)
    ),
    "closures": lambda folder: numbers().map(add(2)).filter(lambda x: x > SCALE),
    "interleave": lambda folder: numbers().interleave(
        lambda x: ex.input.Dataset.range(3), cycle_length=2, block_length=1
    ),
    "flat_map, scan": lambda folder: (
        numbers()
        .flat_map(lambda x: ex.input.Dataset.range(2))
        .scan(0, lambda state, x: (state + x, state))
    ),
    "padded, windows, zip": lambda folder: ex.input.Dataset.zip(
        (numbers().window(2), numbers().padded_batch(2))
    ),
    "arrays": lambda folder: (
        ex.input.Dataset.from_tensor_slices({"x": np.arange(4)}).cache().skip(1).take(2)
    ),
    "generator": lambda folder: ex.input.Dataset.from_generator(
        lambda: iter(range(4)), output_signature=ex.input.TensorSpec((), np.int64)
    ),
    "public objects": lambda folder: numbers().map(use_public_objects),
}


def test_public_names_in_digests_stay():
    now = public_names()
    assert {name: now.get(name) for name in SAVED["names"]} == SAVED["names"]


@pytest.mark.parametrize("what", DATASETS)
def test_digests_of_datasets_stay(what, tmp_path):
    # Functions are compared by their compiled code, which depends on Python's version.
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != SAVED["python"]:
        pytest.skip(f"the digests were saved with Python {SAVED['python']}")
    write_files(tmp_path)
    digest = pipeline_digest.digest_of(DATASETS[what](tmp_path).node)
    assert digest == SAVED["digests"][what]
