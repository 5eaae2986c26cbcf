"""Every flag of tensorflow_model_server is taken, or answered with a line."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from estimax.cli.main import app
from estimax.cli.tf_serving_flags import translate
from estimax.core.errors import ConfigError

# The flags of tensorflow_model_server 2.15 with a value of their kind.
FLAGS = {
    "port": "8500",
    "grpc_socket_path": "/tmp/socket",
    "rest_api_port": "8501",
    "rest_api_num_threads": "8",
    "rest_api_timeout_in_ms": "100",
    "rest_api_enable_cors_support": "true",
    "enable_batching": "true",
    "allow_version_labels_for_unavailable_models": "true",
    "batching_parameters_file": "batching.txt",
    "enable_per_model_batching_parameters": "true",
    "model_config_file": "models.config",
    "model_config_file_poll_wait_seconds": "5",
    "model_name": "m",
    "model_base_path": "/models/m",
    "num_load_threads": "2",
    "num_unload_threads": "2",
    "max_num_load_retries": "5",
    "load_retry_interval_micros": "1000",
    "file_system_poll_wait_seconds": "1",
    "flush_filesystem_caches": "true",
    "tensorflow_session_parallelism": "2",
    "tensorflow_session_config_file": "session.txt",
    "tensorflow_intra_op_parallelism": "2",
    "tensorflow_inter_op_parallelism": "2",
    "use_alts_credentials": "false",
    "ssl_config_file": "ssl.txt",
    "platform_config_file": "platform.txt",
    "per_process_gpu_memory_fraction": "0.5",
    "saved_model_tags": "serve",
    "grpc_channel_arguments": "grpc.max_connection_age_ms=2000",
    "grpc_max_threads": "4",
    "enable_model_warmup": "true",
    "num_request_iterations_for_warmup": "1",
    "version": None,
    "monitoring_config_file": "monitoring.txt",
    "remove_unused_fields_from_bundle_metagraph": "true",
    "prefer_tflite_model": "false",
    "num_tflite_pools": "1",
    "num_tflite_interpreters_per_pool": "1",
    "enable_signature_method_name_check": "false",
    "xla_cpu_compilation_enabled": "true",
    "xla_gpu_compilation_enabled": "true",
    "enable_profiler": "true",
    "thread_pool_factory_config_file": "threads.txt",
    "mixed_precision": "float16",
    "skip_initialize_tpu": "true",
    "enable_grpc_healthcheck_service": "true",
    "enable_serialization_as_tensor_content": "true",
}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_of_tensorflow_model_server_is_taken(flag):
    given = f"--{flag}" if FLAGS[flag] is None else f"--{flag}={FLAGS[flag]}"
    # --version is the last option to be looked at, and ends the command.
    done = CliRunner().invoke(app, ["serve", given, "--version"])
    assert done.exit_code == 0, done.output
    notes = [line for line in done.stderr.splitlines() if "does nothing" in line]
    assert len(notes) <= 1


def test_a_flag_that_does_nothing_says_why():
    taken, notes = translate(["--num_unload_threads=4", "--port=1"], set())
    assert taken == ["--port=1"]
    assert notes == [
        "--num_unload_threads does nothing: versions are unloaded beside the requests "
        "anyway"
    ]


def test_the_value_of_a_flag_that_does_nothing_may_follow_it():
    args = ["--grpc-max-threads", "4", "--enable_profiler", "m=/models/m"]
    assert translate(args, set())[0] == ["m=/models/m"]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("--enable_batching=true", "--enable-batching"),
        ("--enable_batching=FALSE", "--no-enable-batching"),
        ("--enable-batching=0", "--no-enable-batching"),
        ("--enable_batching", "--enable_batching"),
        ("--port=8500", "--port=8500"),
    ],
)
def test_switches_may_have_a_value(given, taken):
    assert translate([given], {"enable-batching"}) == ([taken], [])


def test_a_switch_with_another_value_is_refused():
    with pytest.raises(ConfigError, match="expected true or false, found 'maybe'"):
        translate(["--enable_batching=maybe"], {"enable-batching"})


def test_alts_is_refused_because_it_would_be_insecure_to_leave_it_out():
    with pytest.raises(ConfigError, match="ALTS is not available"):
        translate(["--use_alts_credentials=true"], set())


def test_the_help_cuts_no_name_at_80_columns():
    done = subprocess.run(
        [sys.executable, "-m", "estimax", "serve", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80"},
    )
    assert done.returncode == 0
    assert "…" not in done.stdout
    assert "--no-enable-serialization-as-tensor-content" in done.stdout
