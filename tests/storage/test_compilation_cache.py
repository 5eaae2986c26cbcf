"""The compilation cache: which folder, how large, and what a second process finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import xla_flags

import estimax as ex
from estimax.storage.compilation_cache import prune

# Prints how many programs the cache had and lacked, and what the model predicts. Its
# tables are looked up and updated by native kernels, and `offset` calls back into
# Python, so a cached program with an address of the first process would fail here.
PROGRAM = """
import json, os, sys
import jax, jax.numpy as jnp, numpy as np
import estimax as ex

hits = {"hits": 0, "misses": 0}
def listen(event, **_):
    for name in hits:
        hits[name] += event == f"/jax/compilation_cache/cache_{name}"
jax.monitoring.register_event_listener(listen)

city = ex.feature_columns.categorical_column_with_hash_bucket("city", 50)
embedding = ex.feature_columns.embedding_column(city, 4)
offset = float(sys.argv[2])

def model_fn(features, labels, mode):
    net = ex.feature_columns.input_layer(features, [embedding])
    y = net.sum(axis=1)
    if mode == ex.ModeKeys.PREDICT:
        called = jax.pure_callback(lambda: np.float32(offset), jnp.zeros(()))
        return ex.EstimatorSpec(mode, predictions={"y": y, "offset": called + 0 * y})
    loss = jnp.mean((y - labels) ** 2)
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.Adagrad(0.1))

words = [b"oslo", b"rome", b"lima", b"oslo"]
config = ex.RunConfig(tf_random_seed=1, save_summary_steps=0)
model = ex.Estimator(model_fn, sys.argv[1], config)
data = {"city": np.array(words)}, np.arange(4, dtype=np.float32)
model.train(lambda: data, steps=5)
rows = list(model.predict(lambda: iter([data[0]])))
print(json.dumps({**hits, "y": [r["y"].item() for r in rows],
                  "offset": rows[0]["offset"].item()}))
"""


def run(model_dir, cache_home, offset):
    """Train and predict in a process of its own, and return what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(cache_home), "JAX_PLATFORMS": "cpu"}
    arguments = [str(model_dir), str(offset)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        env=environment | {"XLA_FLAGS": xla_flags.ONE_DEVICE},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is of Linux")
def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    first = run(tmp_path / "a", tmp_path / "cache", offset=1.0)
    second = run(tmp_path / "b", tmp_path / "cache", offset=2.0)
    assert first["misses"] > 3
    assert second["hits"] == first["hits"] + first["misses"]
    assert second["misses"] == 0
    assert second["y"] == first["y"]
    # The program that calls Python is compiled anew, for the function of its process.
    assert (first["offset"], second["offset"]) == (1.0, 2.0)


# Prints the folder that JAX has been told after each setting.
SETTINGS = """
import json, sys
import jax
from estimax.storage.compilation_cache import keep_compiled_programs
for setting in json.loads(sys.argv[1]):
    keep_compiled_programs(setting)
    print(jax.config.values["jax_compilation_cache_dir"])
"""


def folders(cache_home, *settings, **env):
    """Return the folders that JAX was told, one after each setting."""
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS, json.dumps(settings)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache_home), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_last_setting_of_a_process_is_used(tmp_path):
    own = str(tmp_path / "own")
    auto, none, other = folders(tmp_path, "auto", None, own)
    assert auto.startswith(str(tmp_path / "estimax" / "compiled"))
    assert (none, other) == ("None", own)


def test_a_folder_that_cannot_be_made_is_not_used(tmp_path):
    (tmp_path / "file").write_text("a file in the way")
    assert folders(tmp_path / "file", "auto") == ["None"]


def test_the_setting_of_jax_itself_is_left_alone(tmp_path):
    env = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    own = str(tmp_path / "own")
    assert folders(tmp_path, "auto", None, own, **env) == [
        *(env["JAX_COMPILATION_CACHE_DIR"], env["JAX_COMPILATION_CACHE_DIR"], own),
    ]


def entry(folder, name, size, used):
    path = folder / f"{name}-cache"
    path.write_bytes(b"x" * size)
    os.utime(path, (used, used))


def names(folder):
    return sorted(path.name.removesuffix("-cache") for path in folder.iterdir())


def test_the_programs_used_longest_ago_are_removed_above_the_limit(tmp_path):
    for name, used in (("old", 10), ("new", 30), ("older", 5), ("middle", 20)):
        entry(tmp_path, name, 100, used)
    prune(tmp_path, now=40, max_bytes=400, max_bytes_after=200)
    assert names(tmp_path) == ["middle", "new", "old", "older"]
    prune(tmp_path, now=40, max_bytes=399, max_bytes_after=200)
    assert names(tmp_path) == ["middle", "new"]


def test_an_empty_file_of_a_killed_process_is_removed(tmp_path):
    entry(tmp_path, "killed", 0, used=10)
    entry(tmp_path, "being written", 0, used=90)
    prune(tmp_path, now=100, max_bytes=10, max_bytes_after=10)
    assert names(tmp_path) == ["being written"]


def test_the_default_is_on_and_shown_in_no_repr():
    assert ex.RunConfig().compilation_cache_dir == "auto"
    assert repr(ex.RunConfig()) == "RunConfig()"
    assert ex.RunConfig(compilation_cache_dir=Path("x")).compilation_cache_dir == "x"
