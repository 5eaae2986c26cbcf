"""`estimax serve`: answer requests of TensorFlow Serving's clients."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax.core.errors import ConfigError

if TYPE_CHECKING:
    from estimax.serving import BatchingConfig, ModelConfig, Server

_WORKER = "ESTIMAX_SERVE_WORKER"  # set in the processes of --workers
_NEEDED = ("grpc", "grpc_health", "orjson", "uvicorn", "google.protobuf")


def serve(
    models: Sequence[str],
    *,
    model_name: str,
    token_file: Path | None,
    batching_parameters_file: Path | None,
    enable_batching: bool,
    batch_sizes: str | None,
    cache_dir: str | None,
    log_format: str,
    logs_access: bool,
    workers: int,
    rest: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Start the server; return when it has stopped."""
    _check_installed()
    if workers > 1:
        sys.exit(_run_workers(workers))
    _use_compilation_cache(cache_dir)
    _set_up_logging(log_format, logs_access)
    from estimax.serving import RestLimits, Server, ServerConfig

    if len(models) == 1 and models[0].endswith((".yaml", ".yml")):
        _run(Server(_config_of(models[0], _token(token_file))))
        return
    config = ServerConfig(
        models=tuple(_model(given, model_name) for given in models),
        batching=_batching(batching_parameters_file, enable_batching, batch_sizes),
        rest=RestLimits(**rest, token=_token(token_file)),
        reuse_port=_WORKER in os.environ,
        **settings,
    )
    _run(Server(config))


def _run(server: Server) -> None:
    server.run(on_ready=_print_ready)
    if server.is_still_loading:
        # A thread that waits for its disk cannot be ended in another way.
        logging.shutdown()
        os._exit(0)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file: {file} cannot be read: {error}.") from None
    if not token:
        raise ConfigError(f"--token-file: {file} is empty; expected a token.")
    return token


def _config_of(path: str, token: str | None) -> Any:
    """Return the configuration of a run file: its `serving` section and its export."""
    from estimax import config
    from estimax.config.calls import call_of
    from estimax.config.expressions import evaluate
    from estimax.config.schema.serving import ServingSection

    run = config.load(path).run
    section = run.serving or ServingSection()
    name = section.export or (run.export[0].name if run.export else None)
    if name is None:
        raise ConfigError(f"{path}: export: the run exports no bundle to serve.")
    folder = f"{run.run.model_dir}/export/{name}"
    model = _model(f"{section.model_name or run.name}={folder}", "")
    shares = _WORKER in os.environ
    served = evaluate(call_of(section, models=(model,), reuse_port=shares))
    return replace(served, rest=replace(served.rest, token=token))


def _run_workers(count: int) -> int:
    """Run the same command in several processes that share the ports.

    A signal is passed on, and all end when one of them does. Returns the exit status.
    """
    environment = {**os.environ, _WORKER: "1"}
    command = [*sys.orig_argv[:1], *sys.argv, "--workers", "1"]
    started = [
        # A session of its own: Ctrl-C reaches a worker once, through this process.
        subprocess.Popen(command, env=environment, start_new_session=True)
        for _ in range(count)
    ]
    told: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        told.append(number)
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while all(process.poll() is None for process in started):
        time.sleep(0.2)
    if not told:
        pass_on(signal.SIGTERM, None)
    return max(abs(process.wait()) for process in started)


def _check_installed() -> None:
    missing = [name for name in _NEEDED if not _is_installed(name)]
    if missing:
        raise ConfigError(
            "estimax serve needs packages that are not installed "
            f"({', '.join(missing)}). Run: pip install 'estimax[serve]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def _use_compilation_cache(folder: str | None) -> None:
    """Keep compiled programs on disk, also for the process that compiles ahead."""
    if folder == "":
        return
    # jax reads these when it is imported, here and in child processes.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    from estimax.wire.compilation_cache import AUTO, keep_compiled_programs

    used = keep_compiled_programs(folder or AUTO)
    if used is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = used


def _model(given: str, default_name: str) -> ModelConfig:
    from estimax.serving import ModelConfig

    name, equals, path = given.partition("=")
    if not equals:
        name, path = default_name, given
    if not Path(path).is_dir():
        raise ConfigError(
            f"{path}: expected a bundle, or a folder of versions of one, found no such "
            "folder."
        )
    return ModelConfig(name, str(Path(path).resolve()))


def _batching(
    file: Path | None, is_enabled: bool, batch_sizes: str | None
) -> BatchingConfig:
    from estimax.serving import BatchingConfig, read_batching_config

    config = BatchingConfig() if file is None else read_batching_config(file)
    if batch_sizes is not None:
        try:
            sizes = tuple(int(size) for size in batch_sizes.split(","))
        except ValueError:
            raise ConfigError(
                f"--batch-sizes: expected numbers like 1,8,64, found {batch_sizes!r}."
            ) from None
        config = replace(config, batch_sizes=sizes)
    return replace(config, is_enabled=is_enabled)


def _set_up_logging(log_format: str, logs_access: bool) -> None:
    if log_format not in ("text", "json"):
        raise ConfigError(f"--log-format: expected text or json, found {log_format!r}.")
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("estimax.serving")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    access = logging.INFO if logs_access else logging.WARNING
    logging.getLogger("estimax.serving.access").setLevel(access)


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        about = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "access", {}),
        }
        if record.exc_info:
            about["error"] = self.formatException(record.exc_info)
        return json.dumps(about)


def _print_ready(server: Server) -> None:
    for name, model in server.manager.models().items():
        versions = ", ".join(str(version.number) for version in model.available())
        print(f"serving {name}: version {versions or 'none'}", flush=True)
