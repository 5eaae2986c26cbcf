"""The files that configure a server, most of them in formats of TensorFlow Serving.

    read_model_configs(Path("models.config"))
    batching_of(Path("/models/ctr/7"), BatchingConfig(), reads_file=True)

    file = ModelsFile("models.yaml", retry_seconds=60)
    file.read()                 # at the start
    file.read_if_changed()      # None, or the models to serve from now on
    file.note_applied()         # they are served

A file of models is TensorFlow Serving's own text format, or YAML or JSON with the same
keys; its suffix decides (.yaml, .yml, .json). A file whose models cannot be served is
tried again after some time, although it has not changed: the folder of a version may
appear after the file that names it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml
from google.protobuf import json_format, text_format

from estimax.core.errors import ConfigError
from estimax.serving.config import (
    METRICS_PATH,
    BatchingConfig,
    ModelConfig,
    VersionPolicy,
    check_names,
)
from estimax.serving.protos import message

# "tensorflow" is accepted so that configurations of TensorFlow Serving work unchanged.
PLATFORMS: Final = ("", "estimax", "tensorflow")
_BATCHING_FILE: Final = "batching_params.pbtxt"  # as in TensorFlow Serving
_Stamp = tuple[int, int] | None


def read_model_configs(path: Path) -> tuple[ModelConfig, ...]:
    """Read the models of a configuration file.

    Raises:
      ConfigError: The file cannot be read or is invalid.
    """
    return model_configs_from_proto(read_proto(path, "ModelServerConfig"), str(path))


def model_configs_from_proto(proto: Any, where: str) -> tuple[ModelConfig, ...]:
    """Return the models of a `ModelServerConfig` message."""
    if proto.WhichOneof("config") != "model_config_list":
        raise ConfigError(f"{where}: expected a model_config_list, found none.")
    configs = tuple(_model_config(c, where) for c in proto.model_config_list.config)
    check_names(configs, where)
    return configs


def read_batching_config(path: Path) -> BatchingConfig:
    """Read a file of `BatchingParameters` as TensorFlow Serving has them.

    Raises:
      ConfigError: The file cannot be read, or a value is out of range.
    """
    proto = read_proto(path, "BatchingParameters")
    largest = proto.max_batch_size.value if proto.HasField("max_batch_size") else 1000
    sizes = tuple(proto.allowed_batch_sizes) or _sizes_up_to(largest)
    # A rule of TensorFlow Serving; without it requests of the largest size fit no
    # batch.
    if sizes[-1] != largest:
        raise ConfigError(
            f"{path}: the last of allowed_batch_sizes must be max_batch_size, "
            f"{largest}, found {sizes[-1]}."
        )
    given = {
        name: getattr(proto, key).value
        for name, key in (
            ("timeout_micros", "batch_timeout_micros"),
            ("max_enqueued_batches", "max_enqueued_batches"),
            ("threads", "num_batch_threads"),
        )
        if proto.HasField(key)
    }
    return BatchingConfig(batch_sizes=sizes, **given)


def batching_of(
    path: Path, batching: BatchingConfig, *, reads_file: bool
) -> BatchingConfig:
    """Return how requests of a version are joined.

    Args:
      path: The folder of the version.
      batching: The settings of the server.
      reads_file: Whether `batching_params.pbtxt` in the folder, or in its
        `assets.extra`, replaces them. `threads` is never replaced, because all models
        share the threads of the server.

    Raises:
      ConfigError: The file cannot be read, or a value is out of range.
    """
    if reads_file:
        for file in (path / _BATCHING_FILE, path / "assets.extra" / _BATCHING_FILE):
            if file.is_file():
                # `num_batch_threads` of the file has no effect, since all models share
                # the threads.
                return replace(read_batching_config(file), threads=batching.threads)
    return batching


def read_metrics_path(path: Path) -> str | None:
    """Read the path of the metrics in a `MonitoringConfig` of TensorFlow Serving.

    Returns:
      The path, or None if the file turns metrics off.

    Raises:
      ConfigError: The file cannot be read, or its path does not begin with "/".
    """
    found = read_proto(path, "MonitoringConfig").prometheus_config
    if not found.enable:
        return None
    if found.path and not found.path.startswith("/"):
        raise ConfigError(
            f"{path}: prometheus_config.path: expected a path that begins with '/', "
            f"found {found.path!r}."
        )
    return found.path or METRICS_PATH


class ModelsFile:
    """A file of models.

    Args:
      path: The file. None: there is none, and no method may be called.
      retry_seconds: The time until a file that could not be applied is tried again.
    """

    def __init__(self, path: str | None, retry_seconds: float) -> None:
        self._path = Path(path or "")
        self._retry_seconds = retry_seconds
        self._applied: _Stamp = None
        self._tried: _Stamp = None
        self._retry_at = 0.0

    def read(self) -> tuple[ModelConfig, ...]:
        """Read the file at the start; raise ConfigError if it is invalid."""
        self._tried = self._applied = self._stamp()
        return read_model_configs(self._path)

    def read_if_changed(self) -> tuple[ModelConfig, ...] | None:
        """Return the models if the file is not the one that was applied last.

        Raises:
          ConfigError: The file is invalid.
        """
        stamp, now = self._stamp(), time.monotonic()
        # No file: an editor may be replacing it, so keep what is served.
        if stamp in (None, self._applied):
            return None
        if stamp == self._tried and now < self._retry_at:
            return None
        # Before it is read: an invalid file is not reported every second.
        self._tried, self._retry_at = stamp, now + self._retry_seconds
        return read_model_configs(self._path)

    def note_applied(self) -> None:
        """Note that the models of the file are served now."""
        self._applied = self._tried

    def _stamp(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _sizes_up_to(largest: int) -> tuple[int, ...]:
    if largest < 1:
        raise ConfigError(f"max_batch_size: expected at least 1, found {largest}.")
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    return (*powers, largest)


def _model_config(proto: Any, where: str) -> ModelConfig:
    if proto.model_platform not in PLATFORMS:
        raise ConfigError(
            f"{where}: model {proto.name!r} has model_platform "
            f"{proto.model_platform!r}; expected 'estimax' or 'tensorflow'."
        )
    return ModelConfig(
        proto.name,
        proto.base_path,
        _policy(proto.model_version_policy),
        dict(proto.version_labels),
    )


def _policy(proto: Any) -> VersionPolicy:
    match proto.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy("all")
        case "specific":
            return VersionPolicy("specific", versions=tuple(proto.specific.versions))
        case _:
            return VersionPolicy("latest", count=proto.latest.num_versions or 1)


def read_proto(path: Path, kind: str) -> Any:
    """Read a message of TensorFlow Serving from a file.

    Raises:
      ConfigError: The file cannot be read or is no such message.
    """
    made = message(kind)()
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".yaml", ".yml", ".json"):
            json_format.ParseDict(yaml.safe_load(text) or {}, made)
        else:
            text_format.Parse(text, made)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    except (text_format.ParseError, json_format.ParseError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: expected a {kind} in protobuf's text format, or in YAML or JSON "
            f"if the name ends in .yaml or .json; {error}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text; {error}.") from error
    return made
