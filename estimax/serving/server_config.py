"""The settings of a server, checked before anything is started.

ServerConfig(models=(ModelConfig("ctr", "/models/ctr"),), rest_port=8080)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from estimax.core.errors import ConfigError
from estimax.serving.config import BatchingConfig, ModelConfig, check_names
from estimax.serving.rest import RestLimits


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
