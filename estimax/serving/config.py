"""Which models to serve, and the limits of the server.

    ModelConfig("ctr", "/models/ctr", VersionPolicy.latest(2), {"stable": 7})
    read_model_configs(Path("models.config"))

A file of models is TensorFlow Serving's own text format, or YAML or JSON with the same
keys; its suffix decides (.yaml, .yml, .json).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from google.protobuf import json_format, text_format

from estimax.core.errors import ConfigError
from estimax.core.sparse import padded_length
from estimax.serving.protos import message

# "tensorflow" is accepted so that configurations of TensorFlow Serving work unchanged.
PLATFORMS: Final = ("", "estimax", "tensorflow")
METRICS_PATH: Final = "/monitoring/prometheus/metrics"


@dataclass(frozen=True)
class VersionPolicy:
    """Which of the versions on disk to serve.

    Args:
      kind: "latest", "all" or "specific".
      count: For "latest", how many of the highest versions.
      versions: For "specific", the versions.
    """

    kind: Literal["latest", "all", "specific"] = "latest"
    count: int = 1
    versions: tuple[int, ...] = ()

    def choose(self, found: Sequence[int]) -> list[int]:
        """Return those of the versions found on disk that are to be served.

        >>> VersionPolicy(count=2).choose([1, 5, 3])
        [3, 5]
        """
        if self.kind == "all":
            return sorted(found)
        if self.kind == "specific":
            return sorted(set(found) & set(self.versions))
        return sorted(found)[-max(self.count, 1) :]


@dataclass(frozen=True)
class ModelConfig:
    """One model to serve.

    Args:
      name: The name in requests.
      base_path: The folder whose sub-folders are versions, or one bundle.
      version_policy: Which versions to serve.
      version_labels: Label to version, e.g. `{"stable": 7}`.

    Raises:
      ConfigError: The name is empty or has a "/" or ":", or the path is missing or
        that of an object store.

    Example:
      >>> ModelConfig("ctr", "/models/ctr").version_policy.choose([1, 2])
      [2]
    """

    name: str
    base_path: str
    version_policy: VersionPolicy = VersionPolicy()
    version_labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or set(self.name) & set("/:"):
            raise ConfigError(
                f"model name {self.name!r}: expected a name without '/' and ':'."
            )
        if not self.base_path:
            raise ConfigError(f"model {self.name!r}: base_path is missing.")
        scheme, found, _ = self.base_path.partition("://")
        if found:
            raise ConfigError(
                f"model {self.name!r}: base_path {self.base_path!r} is in an object "
                f"store. Expected a folder: mount {scheme}:// as one, or copy versions "
                "from it into a folder, each under a temporary name that is renamed "
                "when it is complete."
            )


@dataclass(frozen=True)
class BatchingConfig:
    """How requests are joined into batches.

    Args:
      is_enabled: False runs every request alone.
      batch_sizes: The batch sizes to compile, increasing. A batch is padded to the
        next one; the last is the largest batch.
      timeout_micros: How long a batch that is not full may wait for more requests. 0
        runs a batch as soon as a thread is free; batches still form while all threads
        are busy.
      max_enqueued_batches: How many full batches may wait in one queue; further
        requests are refused with UNAVAILABLE.
      threads: How many batches run at the same time.
      list_length: Lists of a multi-valued feature are padded to this length. Programs
        for it are compiled before a version is ready.
      max_list_length: The longest list of a request; longer ones are refused. Lists
        between the two are padded to one of a few lengths, each 4 times the one before.
        The first request of a length compiles its program, and the next version does
        before it is ready.

    Raises:
      ConfigError: A number is out of range, or the sizes do not increase.

    Example:
      >>> BatchingConfig(batch_sizes=(1, 8, 64)).max_batch_size
      64
    """

    is_enabled: bool = True
    batch_sizes: tuple[int, ...] = tuple(2**i for i in range(11))
    timeout_micros: int = 0
    max_enqueued_batches: int = 10
    threads: int = field(default_factory=lambda: max(1, min(4, os.cpu_count() or 1)))
    list_length: int = 8
    max_list_length: int = 1024

    def __post_init__(self) -> None:
        sizes = self.batch_sizes
        if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
            raise ConfigError(
                f"batch sizes: expected increasing numbers from 1 on, found {sizes}."
            )
        for name in ("max_enqueued_batches", "threads", "list_length"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name}: expected at least 1, found {getattr(self, name)}."
                )
        if self.max_list_length < self.list_length:
            raise ConfigError(
                f"max_list_length: expected at least list_length, {self.list_length}, "
                f"found {self.max_list_length}."
            )
        if self.timeout_micros < 0:
            raise ConfigError(
                f"timeout_micros: expected 0 or more, found {self.timeout_micros}."
            )

    @property
    def max_batch_size(self) -> int:
        """The largest number of rows in a batch."""
        return self.batch_sizes[-1]

    @property
    def list_lengths(self) -> tuple[int, ...]:
        """The lengths to which lists are padded, increasing; all are powers of two.

        >>> BatchingConfig().list_lengths
        (8, 32, 128, 512, 1024)
        """
        lengths = [padded_length(self.list_length)]
        most = padded_length(self.max_list_length)
        while lengths[-1] < most:
            lengths.append(min(4 * lengths[-1], most))
        return tuple(lengths)

    @property
    def sizes_of_long_lists(self) -> tuple[int, ...]:
        """The batch sizes for lists longer than `list_length`; fewer, as they are rare.

        >>> BatchingConfig().sizes_of_long_lists
        (1, 32, 1024)
        """
        return self.batch_sizes[::-5][::-1]

    @property
    def piece_size(self) -> int:
        """The rows that a request larger than a batch runs at a time.

        Fewer than the largest batch, so that others wait a few milliseconds for their
        turn, and enough that the fixed cost of a batch does not count.
        """
        return next((n for n in self.batch_sizes if n >= 256), self.max_batch_size)


def read_model_configs(path: Path) -> tuple[ModelConfig, ...]:
    """Read the models of a configuration file.

    Raises:
      ConfigError: The file cannot be read or is invalid.
    """
    return model_configs_from_proto(read_proto(path, "ModelServerConfig"), str(path))


def check_names(configs: Sequence[ModelConfig], where: str) -> None:
    """Raise ConfigError if two models have the same name."""
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two models are both called {name!r}.")


def models_to_json(configs: Sequence[ModelConfig]) -> list[dict[str, Any]]:
    """Return models as JSON values, for another process."""
    return [asdict(config) for config in configs]


def models_from_json(values: Sequence[Mapping[str, Any]]) -> tuple[ModelConfig, ...]:
    """Return the models of `models_to_json`."""
    return tuple(
        ModelConfig(
            **{
                **value,
                "version_policy": VersionPolicy(
                    **{
                        **value["version_policy"],
                        "versions": tuple(value["version_policy"]["versions"]),
                    }
                ),
            }
        )
        for value in values
    )


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
