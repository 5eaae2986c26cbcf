"""`estimax serve`: answer requests of TensorFlow Serving's clients."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax.cli.tf_serving_flags import WORKER
from estimax.core.errors import ConfigError

if TYPE_CHECKING:
    from estimax.serving import BatchingConfig, ModelConfig, Server, ServerConfig

_NEEDED = (
    *("grpc", "grpc_health", "orjson", "uvicorn", "google.protobuf"),
    "prometheus_client",
)


@dataclass(frozen=True)
class BatchingOptions:
    """The options that change how requests are joined; None if not given."""

    parameters_file: Path | None = None
    is_enabled: bool | None = None
    batch_sizes: str | None = None


def serve(
    models: Sequence[str],
    *,
    model_name: str | None,
    token_file: Path | None,
    batching: BatchingOptions,
    cache_dir: str | None,
    gpu_memory: float | None,
    log_format: str,
    logs_access: bool,
    workers: int,
    prepares: bool,
    rest: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    """Start the server; return when it has stopped.

    Options that are None were not given: the run file decides, or else the default.
    """
    if workers < 1:
        raise ConfigError(f"--workers: expected at least 1, found {workers}.")
    _check_installed()
    _set_up_logging(log_format, logs_access)
    if workers > 1 and not prepares:
        if settings["grpc_socket"]:
            raise ConfigError(
                "--grpc-socket-path: a Unix socket belongs to one process; use the "
                "port, or --workers 1."
            )
        from estimax.cli.serve_workers import run_workers

        sys.exit(run_workers(workers))
    if gpu_memory:
        # jax reads it when it is imported.
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(gpu_memory)
    _use_compilation_cache(cache_dir)
    from estimax.serving import Server, prepare
    from estimax.serving.workers import WorkerLink

    link = WorkerLink.from_environment(os.environ.pop(WORKER, None))
    config = _config(
        models, model_name, _token(token_file), batching, rest, settings, link
    )
    if prepares:
        for path in prepare(config):
            print(f"prepared {path}", flush=True)
        return
    _allow_files(config.max_connections)
    server = Server(config, link)
    server.run(on_ready=_print_ready)
    if server.is_still_loading:
        # A thread that waits for its disk cannot be ended in another way.
        logging.shutdown()
        os._exit(0)


def _allow_files(connections: int) -> None:
    """Raise the limit of open files, often 1024, to what the connections need."""
    try:
        import resource
    except ImportError:  # Windows
        return
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + 500
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def print_version() -> None:
    """Print the versions of estimax and jax."""
    from importlib.metadata import version

    print(f"estimax {version('estimax')}, jax {version('jax')}")


def channel_arguments(text: str | None) -> tuple[str, ...] | None:
    """Return the options of gRPC in a list with commas; None if it is not given."""
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _config(
    models: Sequence[str],
    model_name: str | None,
    token: str | None,
    batching: BatchingOptions,
    rest: Mapping[str, Any],
    settings: Mapping[str, Any],
    link: Any,
) -> ServerConfig:
    """Return the configuration of the run file or of the arguments, with options."""
    from estimax.serving import ServerConfig

    given = {name: value for name, value in settings.items() if value is not None}
    if len(models) == 1 and models[0].endswith((".yaml", ".yml")):
        if "model_config_file" in given:
            raise ConfigError(
                "--model-config-file: expected a run file or a file of models, found "
                "both."
            )
        config = _config_of(models[0], model_name)
        config = replace(config, **given)
    else:
        name = "default" if model_name is None else model_name
        config = ServerConfig(models=tuple(_model(m, name) for m in models), **given)
    limits = {name: value for name, value in rest.items() if value is not None}
    return replace(
        config,
        batching=_batching(config.batching, batching),
        rest=replace(config.rest, **limits, token=token),
        reuse_port=link is not None,
    )


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


def _config_of(path: str, model_name: str | None) -> ServerConfig:
    """Return the configuration of a run file: its `serving` section and its export."""
    from estimax import config
    from estimax.config.expressions import call_of, evaluate
    from estimax.config.schema.serving import ServingSection

    run = config.load(path).run
    section = run.serving or ServingSection()
    name = section.export or (run.export[0].name if run.export else None)
    if name is None:
        raise ConfigError(f"{path}: export: the run exports no bundle to serve.")
    folder = f"{run.run.model_dir}/export/{name}"
    model = _model(f"{model_name or section.model_name or run.name}={folder}", "")
    made: ServerConfig = evaluate(call_of(section, models=(model,)))
    return made


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
    from estimax.storage.compilation_cache import AUTO, keep_compiled_programs

    used = keep_compiled_programs(folder or AUTO)
    if used is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = used


def _model(given: str, default_name: str) -> ModelConfig:
    from estimax.serving import ModelConfig
    from estimax.serving.version_folders import check_store
    from estimax.storage.files import is_remote

    name, equals, path = given.partition("=")
    if not equals:
        name, path = default_name, given
    model = ModelConfig(name, path)  # checks the name
    if is_remote(path):
        check_store(path)
        return model
    if not Path(path).is_dir():
        raise ConfigError(
            f"{path}: expected a bundle, or a folder of versions of one, found no such "
            "folder."
        )
    return replace(model, base_path=str(Path(path).resolve()))


def _batching(config: BatchingConfig, options: BatchingOptions) -> BatchingConfig:
    from estimax.serving import read_batching_config

    if options.parameters_file is not None:
        config = read_batching_config(options.parameters_file)
    if options.batch_sizes is not None:
        try:
            sizes = tuple(int(size) for size in options.batch_sizes.split(","))
        except ValueError:
            raise ConfigError(
                "--batch-sizes: expected numbers like 1,8,64, found "
                f"{options.batch_sizes!r}."
            ) from None
        config = replace(config, batch_sizes=sizes)
    if options.is_enabled is not None:
        config = replace(config, is_enabled=options.is_enabled)
    return config


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
