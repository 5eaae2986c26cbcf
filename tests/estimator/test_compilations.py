"""How many programs a start compiles: a number that must not grow unnoticed.

Each bound is the number today. If a change needs one more program, say here which.
"""

import json
import os
import subprocess
import sys

import pytest
import xla_flags

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="XDG_CACHE_HOME is of Linux"
)

# Trains a small classifier with an embedding, and prints how many programs it compiled
# and how many it found in the cache.
PROGRAM = """
import json, sys
import jax, numpy as np
import estimax as ex

counts = {"hits": 0, "misses": 0}
def listen(event, **_):
    for name in counts:
        counts[name] += event == f"/jax/compilation_cache/cache_{name}"
jax.monitoring.register_event_listener(listen)

fc = ex.feature_columns
hashed = fc.categorical_column_with_hash_bucket("city", 50)
columns = [fc.numeric_column("x"), fc.embedding_column(hashed, 4)]

def input_fn():
    cities = np.array([b"oslo", b"rome"] * 32)
    rows = {"x": np.arange(64, dtype=np.float32), "city": cities}
    data = ex.input.Dataset.from_tensor_slices((rows, np.arange(64) % 2))
    return data.repeat(4).batch(8)

call, model_dir, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = ex.RunConfig(tf_random_seed=1, save_summary_steps=0)
model = ex.DNNClassifier([4], columns, model_dir, config=config)
if call == "train":
    model.train(input_fn, max_steps=steps)
else:
    train_spec = ex.TrainSpec(input_fn, max_steps=steps)
    eval_spec = ex.EvalSpec(input_fn, exporters=ex.FinalExporter("final"))
    ex.train_and_evaluate(model, train_spec, eval_spec)
assert model.get_variable_value("global_step") == steps
print(json.dumps(counts))
"""

# loop: the steps. jaxpr_as_fun, twice: initial values of the table, and of the rest.
# by_kernels, twice: proofs of the kernels that XLA calls. _copy: a batch is put on the
# device. stage: runs while the model is recorded. The other eight are single operations
# on keys and scalars, such as _threefry_split.
TRAINING = 15
# call: a step of the evaluation. merge: the metrics of two batches. _results: their
# values. _copy: a batch of another shape. predict: the exported function.
# call, three times: what the written bundle answers, when it is run as a check.
EVALUATING_AND_EXPORTING = 8


@pytest.fixture
def counts_of(tmp_path):
    """Runs the program in a process of its own, with the cache of this test."""

    def run(call, model_dir, steps):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
        environment |= {
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": xla_flags.ONE_DEVICE,
        }
        arguments = [call, str(tmp_path / model_dir), str(steps)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_training_compiles_few_programs_and_later_starts_none(counts_of):
    first = counts_of("train", "a", 20)
    assert 0 < first["misses"] <= TRAINING
    second = counts_of("train", "b", 20)
    assert second["misses"] == 0
    assert second["hits"] == first["hits"] + first["misses"]
    resumed = counts_of("train", "a", 32)
    assert resumed["misses"] == 0
    assert resumed["hits"] < first["misses"], "nothing is initialized"


def test_the_last_steps_of_a_training_run_in_the_program_of_the_others(counts_of):
    # 32 batches, of which a stack holds all: 20 steps, and then 3 and 9 more.
    counts_of("train", "a", 20)
    assert counts_of("train", "a", 23)["misses"] == 0
    assert counts_of("train", "a", 32)["misses"] == 0


def test_evaluating_and_exporting_adds_few_programs(counts_of):
    first = counts_of("train_and_evaluate", "a", 20)
    assert 0 < first["misses"] <= TRAINING + EVALUATING_AND_EXPORTING
    assert counts_of("train_and_evaluate", "b", 20)["misses"] == 0
