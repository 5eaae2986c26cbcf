"""What a scoring process does, in one process of its own."""

import dataclasses
import json
import subprocess
import sys

import pyarrow.parquet as pq

from estimax.export.scoring import planning
from tests.export import bundles

# Scores one shard, then prints the modules that were imported.
PROGRAM = """
import json, sys
from estimax.export.scoring.worker import ScoringWorker
bundle, tasks = sys.argv[1], json.loads(sys.argv[2])
worker = ScoringWorker(bundle, None, ["id"])
done = [worker.score(task, lambda message: None) for task in tasks]
print(json.dumps({"done": done, "modules": sorted(sys.modules)}))
"""
TRAINING = (
    "flax",
    "optax",
    "estimax.canned",
    "estimax.config",
    "estimax.estimator",
    "estimax.feature_columns.column",
    "estimax.feature_columns.layers",
    "estimax.staging.variables",
    "estimax.heads",
    "estimax.hooks",
    "estimax.optimizers",
    "estimax.training",
)


def test_every_format_is_read_and_written_without_training_code(tmp_path):
    bundle = bundles.write_bundle(tmp_path / "bundle")
    table = bundles.table(60)
    tasks = []
    for number, form in enumerate(("csv", "jsonl", "parquet", "tfrecord")):
        path = bundles.write(table, tmp_path / f"in.{form}")
        (part,) = planning.cut(str(path), form, rows=100)
        about = path.stat()
        tasks.append(
            {
                "shard": number,
                "output": str(tmp_path / f"part-{number}.{form}"),
                "format": form,
                "schema": None,
                "parts": [
                    {
                        "path": str(path),
                        "size": about.st_size,
                        "modified": about.st_mtime_ns,
                        "part": dataclasses.asdict(part),
                    }
                ],
            }
        )
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, bundle, json.dumps(tasks)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(answer.stdout)
    assert [(one["shard"], one["rows"]) for one in found["done"]] == [
        (n, 60) for n in range(4)
    ]
    rows = bundles.scored(tmp_path)
    expected = bundles.expected(bundle, table)
    assert len(rows) == 240
    for key, score in rows:
        assert abs(score - expected[key]) < 1e-5
    assert not [m for m in found["modules"] if m.startswith(TRAINING)]
    assert "jax" in found["modules"]
    # A kept column has the type that it has in the input.
    assert pq.read_schema(tmp_path / "part-2.parquet").field("id").type == "int64"


def test_the_process_that_starts_the_others_does_not_wait_for_jax():
    code = "import estimax.scoring, sys; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
