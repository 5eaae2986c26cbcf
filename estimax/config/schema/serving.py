"""The section `serving`: the server that `estimax serve run.yaml` starts.

serving:
  model_name: census
  rest_port: 8501
  batching: {batch_sizes: [1, 8, 64], timeout_micros: 1000}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from estimax.config.schema.section import (
    Items,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Share,
    calls,
)


@calls("estimax.serving.BatchingConfig")
@dataclass(frozen=True, kw_only=True)
class BatchingSection:
    """How requests are joined into batches.

    Args:
      is_enabled: False runs every request alone.
      batch_sizes: The batch sizes to compile, increasing. A batch is padded to the next
        one; the last is the largest batch.
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
    """

    is_enabled: bool = True
    batch_sizes: Annotated[tuple[PositiveInt, ...], Items(at_least=1)] | None = None
    timeout_micros: NonNegativeInt = 0
    max_enqueued_batches: PositiveInt = 10
    threads: PositiveInt | None = None
    list_length: PositiveInt = 8
    max_list_length: PositiveInt = 1024


@calls("estimax.serving.RestLimits")
@dataclass(frozen=True, kw_only=True)
class RestSection:
    """The limits of REST requests.

    Args:
      timeout: Seconds until a request is answered with 504.
      max_body: The largest body in bytes, after decompression.
      allows_cors: Whether pages of other origins may send requests.
    """

    timeout: float = 30.0
    max_body: int | None = None
    allows_cors: bool = False


@calls("estimax.serving.ServerConfig", own=("model_name", "export"))
@dataclass(frozen=True, kw_only=True)
class ServingSection:
    """The server of `estimax serve run.yaml`: ports, batches and limits.

    Args:
      model_name: The name in requests; null is the name of the run.
      export: The name of the export to serve; null is the first in `export`.
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
      monitoring_config_file: A `MonitoringConfig` of TensorFlow Serving, which sets the
        path of the metrics or turns them off.
      request_log: A file for a sample of the requests. None: none is written.
      request_log_rate: The part of the requests that is written there.
    """

    model_name: str | None = None
    export: str | None = None
    host: str = "0.0.0.0"
    grpc_port: Annotated[int, Limits(at_least=0, at_most=65535)] = 8500
    grpc_socket: str | None = None
    grpc_options: tuple[str, ...] = ()
    rest_port: Annotated[int, Limits(at_least=0, at_most=65535)] = 8501
    batching: BatchingSection | None = None
    poll_seconds: NonNegativeFloat = 1.0
    rest: RestSection | None = None
    max_rows: PositiveInt = 100000
    max_connections: PositiveInt = 1000
    request_read_seconds: float = 60.0
    load_retries: NonNegativeInt = 5
    load_retry_seconds: float = 60.0
    load_timeout: float = 900.0
    load_threads: PositiveInt | None = None
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
    monitoring_config_file: str | None = None
    request_log: str | None = None
    request_log_rate: Share = 0.01
