"""Which models to serve, and the limits of the server, checked before it starts.

    ModelConfig("ctr", "/models/ctr", VersionPolicy("latest", 2), {"stable": 7})
    ServerConfig(models=(ModelConfig("ctr", "/models/ctr"),), rest_port=8080)

`config_files.py` reads the files that describe the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from estimax.core.errors import ConfigError
from estimax.core.sparse import padded_length

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
        """Return the versions to serve, of the versions found on disk.

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
      base_path: The folder whose sub-folders are versions, or one bundle; also in an
        object store, such as "s3://bucket/models/ctr".
      version_policy: Which versions to serve.
      version_labels: Label to version, e.g. `{"stable": 7}`.

    Raises:
      ConfigError: The name is empty or has a "/" or ":", or the path is missing or
        points to an object store.

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
        # Factor 4: five lengths up to 1024, each a compiler run of every long size.
        # Factor 2 would be eight.
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


@dataclass(frozen=True)
class RestLimits:
    """The limits of REST requests.

    Args:
      timeout: Seconds until a request is answered with 504.
      max_body: The largest body in bytes, after decompression.
      token: The bearer token that requests must carry. None: none.
      allows_cors: Whether pages of other origins may send requests.
    """

    timeout: float = 30.0
    max_body: int = 64 * 1024 * 1024
    token: str | None = None
    allows_cors: bool = False


@dataclass(frozen=True)
class ServerConfig:
    """The settings of a server.

    Args:
      models: The models to serve.
      model_config_file: A file of models, read again when it changes. Give this or
        `models`.
      model_config_poll_seconds: How often that file is looked at; 0 reads it once.
        None is as often as `poll_seconds`.
      host: The address to listen on. "::" is all addresses of IPv6 and IPv4.
      grpc_port: The port of gRPC; 0 turns gRPC off.
      grpc_socket: The path of a Unix socket of gRPC, besides the port.
      grpc_options: Options of gRPC, e.g. `("grpc.max_connection_age_ms=2000",)`.
      rest_port: The port of REST; 0 turns REST off.
      batching: How requests are joined into batches.
      poll_seconds: How often folders are searched for new versions; 0 looks once.
      rest: The limits of REST requests.
      max_rows: The most rows of a request.
      max_connections: The most connections of each protocol at one time. At the limit
        of REST, a new connection replaces the one that has been idle longest.
      request_read_seconds: A REST connection is closed if a request has not arrived as
        a whole after this time, or an answer is left unread for so long.
      load_retries: How often a version that cannot be loaded is tried again.
      load_retry_seconds: The time between two tries.
      load_timeout: Seconds after which loading a version counts as failed.
      load_threads: How many versions are loaded at the same time. None: one for each
        processor, at least 2 and at most 4.
      runs_warm_up: Whether the warm-up requests of a bundle are sent before its version
        is available.
      reads_batching_params: Whether the file `batching_params.pbtxt` in the folder of a
        version, or in its `assets.extra`, replaces `batching` for it.
      allows_pending_labels: Whether a reload may name a label of a version that is not
        loaded yet; requests with it fail until then.
      drain_delay: Seconds between the end of readiness and the end of accepting.
      shutdown_grace: Seconds for requests under way after that.
      ssl_key: The file of the private key; turns TLS on, with `ssl_certificate`.
      ssl_certificate: The file of the certificate chain.
      ssl_client_ca: The file with the certificates of authorities. Clients must then
        have a certificate that one of them has signed (mutual TLS).
      ssl_config_file: An `SSLConfig` of TensorFlow Serving, in place of these three. As
        there, it turns TLS on for gRPC only.
      as_content: Whether gRPC answers use `tensor_content`.
      reuse_port: Whether other processes may listen on the same ports.
      monitoring_config_file: A `MonitoringConfig` of TensorFlow Serving, which sets the
        path of the metrics or turns them off.
      request_log: A file for a sample of the requests. None: none is written.
      request_log_rate: The part of the requests that is written there.
    """

    models: tuple[ModelConfig, ...] = ()
    model_config_file: str | None = None
    model_config_poll_seconds: float | None = None
    host: str = "0.0.0.0"
    grpc_port: int = 8500
    grpc_socket: str | None = None
    grpc_options: tuple[str, ...] = ()
    rest_port: int = 8501
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    poll_seconds: float = 1.0
    rest: RestLimits = field(default_factory=RestLimits)
    max_rows: int = 100_000
    max_connections: int = 1000
    request_read_seconds: float = 60.0
    load_retries: int = 5
    load_retry_seconds: float = 60.0
    load_timeout: float = 900.0
    load_threads: int | None = None
    runs_warm_up: bool = True
    reads_batching_params: bool = False
    allows_pending_labels: bool = True
    drain_delay: float = 2.0
    shutdown_grace: float = 25.0
    ssl_key: str | None = None
    ssl_certificate: str | None = None
    ssl_client_ca: str | None = None
    ssl_config_file: str | None = None
    as_content: bool = False
    reuse_port: bool = False
    monitoring_config_file: str | None = None
    request_log: str | None = None
    request_log_rate: float = 0.01

    def __post_init__(self) -> None:
        if bool(self.models) == bool(self.model_config_file):
            raise ConfigError("expected models or a model_config_file, one of the two.")
        check_names(self.models, "models")
        if not self.grpc_port and not self.rest_port and self.grpc_socket is None:
            raise ConfigError("gRPC and REST are both off; expected one of the ports.")
        for name in ("grpc_port", "rest_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ConfigError(
                    f"{name}: expected a port from 0 to 65535, found "
                    f"{getattr(self, name)}."
                )
        if self.grpc_port and self.grpc_port == self.rest_port:
            raise ConfigError(
                f"grpc_port and rest_port are both {self.grpc_port}; expected two "
                "different ports."
            )
        if self.max_connections < 1 or self.request_read_seconds <= 0:
            raise ConfigError(
                "expected max_connections of at least 1 and request_read_seconds "
                f"above 0, found {self.max_connections} and "
                f"{self.request_read_seconds:g}."
            )
        if bool(self.ssl_key) != bool(self.ssl_certificate):
            raise ConfigError("TLS needs both ssl_key and ssl_certificate.")
        if self.ssl_client_ca and not self.ssl_key:
            raise ConfigError("ssl_client_ca needs ssl_key and ssl_certificate.")
        if self.ssl_config_file and self.ssl_key:
            raise ConfigError("expected ssl_config_file or ssl_key, found both.")


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
