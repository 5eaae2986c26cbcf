"""A server compiles nothing that it does not need, and can be prepared for an image."""

import os
import subprocess

import pytest
import xla_flags
from serving.bundles import export_clicks
from serving.servers import ESTIMAX

from estimax.core.errors import ConfigError
from estimax.serving import BatchingConfig, ModelConfig, ServerConfig, prepare
from estimax.serving.config_files import batching_of, read_batching_config


def test_prepare_fills_the_cache_and_ends(tmp_path):
    exported = export_clicks(tmp_path / "clicks")
    cache = tmp_path / "cache"
    done = subprocess.run(
        [
            *(ESTIMAX, "serve", f"clicks={exported.parent}", "--prepare"),
            *("--batch-sizes", "1", "--compilation-cache-dir", str(cache)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": xla_flags.ONE_DEVICE,
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"prepared {exported}\n"
    assert any(file.is_file() for file in cache.rglob("*"))


def test_a_model_without_a_version_cannot_be_prepared(tmp_path):
    config = ServerConfig(models=(ModelConfig("m", str(tmp_path)),))
    with pytest.raises(ConfigError, match="has no version to serve"):
        list(prepare(config))


def test_loading_a_version_does_not_compile_the_parser_of_examples(tmp_path):
    code = f"""
from estimax.native import loading
from estimax.serving import BatchingConfig
from estimax.serving.batching import Scheduler
from estimax.serving.versions import load_version
from pathlib import Path
path = Path({str(export_clicks(tmp_path))!r})
load_version(path, BatchingConfig(batch_sizes=(1,)), Scheduler(1))
assert not loading.is_loaded("examples")
"""
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", [".", "assets.extra"])
def test_a_version_may_have_batching_parameters_of_its_own(tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    file = tmp_path / folder / "batching_params.pbtxt"
    file.write_text("max_batch_size { value: 4 } num_batch_threads { value: 9 }")
    given = BatchingConfig(batch_sizes=(1, 8), threads=2)
    assert read_batching_config(file).threads == 9
    own = batching_of(tmp_path, given, reads_file=True)
    assert (own.batch_sizes, own.threads) == ((1, 2, 4), 2)
    assert batching_of(tmp_path, given, reads_file=False) is given
