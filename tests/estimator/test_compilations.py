"""How many programs a start traces and compiles: numbers that must not grow unnoticed.

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

# Prints how many programs were compiled, how many found in the cache, and how many
# functions traced.
COUNTING = """
import atexit, json, sys
import jax

counts = {"hits": 0, "misses": 0, "traces": 0}
def listen(event, *_, **__):
    counts["hits"] += event == "/jax/compilation_cache/cache_hits"
    counts["misses"] += event == "/jax/compilation_cache/cache_misses"
    counts["traces"] += event == "/jax/core/compile/jaxpr_trace_duration"
jax.monitoring.register_event_listener(listen)
jax.monitoring.register_event_duration_secs_listener(listen)
atexit.register(lambda: print(json.dumps(counts)))
"""
# Trains a small classifier with an embedding.
PROGRAM = """
import numpy as np
import estimax as ex

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
"""
# The command line, without the report.
COMMAND = """
from estimax.cli.main import main
main()
"""

# loop: the steps. jaxpr_as_fun, twice: initial values of the table, and of the rest.
# by_kernels, twice: proofs of the kernels that XLA calls. _copy: a batch is put on the
# device. stage: runs while the model is recorded. The other eight are single operations
# on keys and scalars, such as _threefry_split.
TRAINING = 15
# call: a step of the evaluation. merge: the metrics of two batches. _results: their
# values. _copy: a batch of another shape. predict: the exported function.
# call, three times: what the written bundle answers, when it is run as a check.
# convert_element_type: a number that the export asks for.
EVALUATING_AND_EXPORTING = 9
# make, run: recording. rates: their names. call: initial values. loop: the steps.
# The others are those of TRAINING. JAX counts a function within another one as well.
TRAINING_TRACES = 16
# make, run: recording, in two modes. predict and <lambda>: the exported function, with
# a fixed and a free batch size. answer, three times: a signature each. The others are
# those of EVALUATING_AND_EXPORTING.
EVALUATING_TRACES = 18


@pytest.fixture(scope="module")
def counts_of(tmp_path_factory):
    """Runs a program in a process of its own, with a cache of these tests."""
    folder = tmp_path_factory.mktemp("compilations")

    def run(program, *arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
        environment |= {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": xla_flags.ONE_DEVICE,
        }
        done = subprocess.run(
            [sys.executable, "-c", COUNTING + program, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def first(counts_of):
    """The first training, which all others find in the cache."""
    return counts_of(PROGRAM, "train", "a", 20)


def test_training_compiles_few_programs_and_later_starts_none(counts_of, first):
    assert 0 < first["misses"] <= TRAINING
    assert first["traces"] <= TRAINING_TRACES
    second = counts_of(PROGRAM, "train", "b", 20)
    assert second["misses"] == 0
    assert second["hits"] == first["hits"] + first["misses"]
    assert second["traces"] <= TRAINING_TRACES


def test_a_resumed_training_initializes_nothing_and_compiles_nothing(counts_of, first):
    # 32 batches, of which a stack holds all: 20 steps, and then 3 and 9 more, which run
    # in the program of the others.
    for steps in (23, 32):
        resumed = counts_of(PROGRAM, "train", "a", steps)
        assert resumed["misses"] == 0
        assert resumed["hits"] < first["misses"], "nothing is initialized"
        assert resumed["traces"] < first["traces"]


@pytest.mark.usefixtures("first")
def test_evaluating_and_exporting_adds_few_programs(counts_of):
    more = counts_of(PROGRAM, "train_and_evaluate", "c", 20)
    assert 0 < more["misses"] <= EVALUATING_AND_EXPORTING
    assert more["traces"] <= TRAINING_TRACES + EVALUATING_TRACES
    assert counts_of(PROGRAM, "train_and_evaluate", "d", 20)["misses"] == 0


# Today 19 and 34, and 18 and 50. A thread compiles ahead, which may trace a small
# function at the same moment as the training.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "programs", "traces"), [("network", 21, 38), ("both", 20, 54)]
)
def test_a_run_file_of_init_compiles_few_programs_and_again_none(
    counts_of, tmp_path, model, programs, traces
):
    if model == "both":
        pytest.importorskip("lightgbm")
    table = tmp_path / "table.csv"
    rows = (f"{i},{i % 7},{'abc'[i % 3]},{int(i % 7 > 2)}\n" for i in range(400))
    table.write_text("row,size,kind,label\n" + "".join(rows))
    run_file = tmp_path / "table.yaml"
    made = ("--label", "label", "--model", model, "--output", run_file)
    counts_of(COMMAND, "init", table, *made)
    few = ("--no-report", "--set", "run.compare=false")
    first = counts_of(COMMAND, "train", run_file, *few, "--model-dir", tmp_path / "a")
    again = counts_of(COMMAND, "train", run_file, *few, "--model-dir", tmp_path / "b")
    assert 0 < first["hits"] + first["misses"] <= programs
    assert first["traces"] <= traces
    assert again["misses"] == 0
    assert again["traces"] <= traces
