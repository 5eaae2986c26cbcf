"""`estimax warm`: a later start finds its code compiled, and nothing else is left."""

import json
import os
import subprocess
import sys

import pytest
import xla_flags

from estimax.native import kernel_cache
from estimax.native.every_kernel import compile_kernels

# Runs a command line and prints which programs the cache had and lacked.
PROGRAM = """
import json, sys
import jax
from estimax.cli.main import app

counts = {"hits": 0, "misses": 0}
def listen(event, **_):
    for name in counts:
        counts[name] += event == f"/jax/compilation_cache/cache_{name}"
jax.monitoring.register_event_listener(listen)
app(sys.argv[1:], standalone_mode=False)
print(json.dumps(counts))
"""


def run(cache, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        env=environment | {"XLA_FLAGS": xla_flags.ONE_DEVICE},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is of Linux")
def test_a_run_that_was_warmed_trains_evaluates_and_exports_without_compiling(
    run_file, tmp_path
):
    before = sorted(tmp_path.iterdir())
    warmed = run(tmp_path / "cache", "warm", run_file)
    assert warmed["misses"] > 3
    assert sorted(tmp_path.iterdir()) == [tmp_path / "cache", *before]
    started = run(tmp_path / "cache", "train", run_file)
    assert started["hits"] > 3
    assert started["misses"] == 0
    assert any((tmp_path / "model" / "export" / "best").iterdir())


def test_without_a_run_file_all_kernels_are_compiled(cli):
    answer = cli("warm")
    assert answer.code == 0, answer.err
    every = compile_kernels()
    assert f"{len(every)} modules of host kernels are compiled" in answer.err
    helpers = {"__init__", "call_frames", "memory", "protos"}
    sources = {path.stem for path in kernel_cache.KERNELS.glob("*.py")}
    assert set(every) == sources - helpers


def test_the_run_of_a_cluster_is_refused(cli, run_file, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    answer = cli("warm", run_file)
    assert answer.code == 2
    assert "describes a cluster" in answer.err
