"""The arguments and help of `estimax serve`.

An option that is not given is None here, so that a value of a run file, or the default
of `ServerConfig`, stays in force. `main.py` registers the command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models to serve: NAME=PATH, or PATH alone for one model. A path is a "
            "bundle, or a folder of versions of one. Or one run file; options win over "
            "its section `serving`.",
            metavar="[NAME=]PATH...",
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(
            help="Name of a model that is given without one.  [default: default]"
        ),
    ] = None,
    model_base_path: Annotated[
        str | None,
        typer.Option(help="Folder of one model, as TensorFlow Serving has the option."),
    ] = None,
    model_config_file: Annotated[
        str | None,
        typer.Option(
            help="File of models, instead of arguments: TensorFlow Serving's text "
            "format, YAML or JSON. Changes are applied while the server runs."
        ),
    ] = None,
    model_config_file_poll_wait_seconds: Annotated[
        float | None,
        typer.Option(
            help="How often to read that file again; 0: never.  [default: as often as "
            "--file-system-poll-wait-seconds]"
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on; `::` for IPv6 and IPv4.  [default: 0.0.0.0]"
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of gRPC; 0 turns it off.  [default: 8500]")
    ] = None,
    grpc_socket_path: Annotated[
        str | None, typer.Option(help="Unix socket of gRPC, besides the port.")
    ] = None,
    grpc_channel_arguments: Annotated[
        str | None,
        typer.Option(help="Options of gRPC, e.g. grpc.max_connection_age_ms=2000,..."),
    ] = None,
    rest_api_port: Annotated[
        int | None,
        typer.Option(
            help="Port of REST and of the page; 0 turns it off.  [default: 8501]"
        ),
    ] = None,
    rest_api_timeout_in_ms: Annotated[
        int | None,
        typer.Option(
            help="Time until a REST request is answered with 504.  [default: 30000]"
        ),
    ] = None,
    max_request_bytes: Annotated[
        int | None, typer.Option(help="Largest request.  [default: 67108864]")
    ] = None,
    max_request_rows: Annotated[
        int | None, typer.Option(help="Most rows of a request.  [default: 100000]")
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(help="Most connections of each protocol.  [default: 1000]"),
    ] = None,
    request_read_seconds: Annotated[
        float | None,
        typer.Option(
            help="A connection is closed if a request has not arrived as a whole "
            "after this time.  [default: 60]"
        ),
    ] = None,
    enable_batching: Annotated[
        bool | None,
        typer.Option(
            "--enable-batching/--no-enable-batching",
            help="Join waiting requests into batches.  [default: yes]",
        ),
    ] = None,
    batching_parameters_file: Annotated[
        Path | None, typer.Option(help="BatchingParameters of TensorFlow Serving.")
    ] = None,
    enable_per_model_batching_parameters: Annotated[
        bool | None,
        typer.Option(
            "--enable-per-model-batching-parameters/"
            "--no-enable-per-model-batching-parameters",
            help="Read batching_params.pbtxt in the folder of a version.  "
            "[default: no]",
        ),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes to compile, e.g. 1,8,64.  [default: 1,2,4,...,1024]"
        ),
    ] = None,
    file_system_poll_wait_seconds: Annotated[
        float | None,
        typer.Option(help="How often to look for new versions; 0: once.  [default: 1]"),
    ] = None,
    max_num_load_retries: Annotated[
        int | None,
        typer.Option(
            help="How often a version that fails to load is tried again.  [default: 5]"
        ),
    ] = None,
    load_retry_interval_micros: Annotated[
        int | None, typer.Option(help="Time between two tries.  [default: 60000000]")
    ] = None,
    load_timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which loading a version has failed.  [default: 900]"
        ),
    ] = None,
    num_load_threads: Annotated[
        int | None,
        typer.Option(
            help="Versions loaded at the same time; 0: by processors.  [default: 0]"
        ),
    ] = None,
    enable_model_warmup: Annotated[
        bool | None,
        typer.Option(
            "--enable-model-warmup/--no-enable-model-warmup",
            help="Send the warm-up requests of a bundle before its version is "
            "available.  [default: yes]",
        ),
    ] = None,
    allow_version_labels_for_unavailable_models: Annotated[
        bool | None,
        typer.Option(
            "--allow-version-labels-for-unavailable-models/"
            "--no-allow-version-labels-for-unavailable-models",
            help="Accept a new label of a version that is not loaded yet.  "
            "[default: yes]",
        ),
    ] = None,
    drain_delay: Annotated[
        float | None,
        typer.Option(
            help="Seconds from SIGTERM until requests are refused.  [default: 2]"
        ),
    ] = None,
    shutdown_grace: Annotated[
        float | None,
        typer.Option(help="Seconds for requests under way after that.  [default: 25]"),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token that requests must carry."),
    ] = None,
    ssl_key: Annotated[str | None, typer.Option(help="Private key, for TLS.")] = None,
    ssl_certificate: Annotated[
        str | None, typer.Option(help="Certificate chain, for TLS.")
    ] = None,
    ssl_client_ca: Annotated[
        str | None,
        typer.Option(
            help="Certificates of the authorities that sign clients; a client must "
            "then have a certificate (mutual TLS)."
        ),
    ] = None,
    ssl_config_file: Annotated[
        str | None,
        typer.Option(help="SSLConfig of TensorFlow Serving; TLS for gRPC only."),
    ] = None,
    rest_api_enable_cors_support: Annotated[
        bool | None,
        typer.Option(
            "--rest-api-enable-cors-support/--no-rest-api-enable-cors-support",
            help="Let pages of other origins send requests.  [default: no]",
        ),
    ] = None,
    enable_serialization_as_tensor_content: Annotated[
        bool | None,
        typer.Option(
            "--enable-serialization-as-tensor-content/"
            "--no-enable-serialization-as-tensor-content",
            help="Answer gRPC requests in tensor_content.  [default: no]",
        ),
    ] = None,
    monitoring_config_file: Annotated[
        str | None,
        typer.Option(
            help="MonitoringConfig of TensorFlow Serving: the path of the metrics, or "
            "none.  [default: /monitoring/prometheus/metrics]"
        ),
    ] = None,
    compilation_cache_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder for compiled programs; '' turns the cache off.  "
            "[default: in the user's cache folder]"
        ),
    ] = None,
    per_process_gpu_memory_fraction: Annotated[
        float | None,
        typer.Option(help="Part of the memory of a GPU to use; 0: as jax chooses."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            help="Processes that share the ports, each with the models; one that dies "
            "is started again."
        ),
    ] = 1,
    request_log: Annotated[
        str | None,
        typer.Option(help="File for a sample of requests and answers, as JSON lines."),
    ] = None,
    request_log_rate: Annotated[
        float | None,
        typer.Option(help="Part of the requests written there.  [default: 0.01]"),
    ] = None,
    access_log: Annotated[
        bool,
        typer.Option(
            "--access-log/--no-access-log", help="Log a line for every REST request."
        ),
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Compile the models into the cache and end, e.g. for an image.",
        ),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version of estimax and end.")
    ] = False,
) -> None:
    """Serve exported bundles to clients of TensorFlow Serving.

    REST, gRPC, metrics and a page to try predictions. New versions are loaded as they
    appear; a version is replaced without losing a request. SIGTERM stops the server
    after the requests under way. Every flag of tensorflow_model_server is taken, with
    dashes or underscores; one that has nothing to set here is answered with a line.

    Examples:

        estimax serve runs/flights/export/best

        estimax serve late=runs/flights/export/best --rest-api-port 8080

        estimax serve --model-config-file models.config

        estimax serve run.yaml --rest-api-port 8080
    """
    from estimax.cli import serve as command

    if version:
        command.print_version()
        return
    command.serve(
        [*(models or []), *([model_base_path] if model_base_path else [])],
        model_name=model_name,
        token_file=token_file,
        batching=command.BatchingOptions(
            batching_parameters_file, enable_batching, batch_sizes
        ),
        cache_dir=compilation_cache_dir,
        gpu_memory=per_process_gpu_memory_fraction,
        log_format=log_format,
        logs_access=access_log,
        workers=workers,
        prepares=prepare,
        rest={
            "timeout": _per(rest_api_timeout_in_ms, 1e3),
            "max_body": max_request_bytes,
            "allows_cors": rest_api_enable_cors_support,
        },
        settings={
            "model_config_file": model_config_file,
            "model_config_poll_seconds": model_config_file_poll_wait_seconds,
            "host": host,
            "grpc_port": port,
            "grpc_socket": grpc_socket_path,
            "grpc_options": command.channel_arguments(grpc_channel_arguments),
            "rest_port": rest_api_port,
            "poll_seconds": file_system_poll_wait_seconds,
            "max_rows": max_request_rows,
            "max_connections": max_connections,
            "request_read_seconds": request_read_seconds,
            "load_retries": max_num_load_retries,
            "load_retry_seconds": _per(load_retry_interval_micros, 1e6),
            "load_timeout": load_timeout,
            "load_threads": num_load_threads or None,
            "runs_warm_up": enable_model_warmup,
            "allows_pending_labels": allow_version_labels_for_unavailable_models,
            "reads_batching_params": enable_per_model_batching_parameters,
            "drain_delay": drain_delay,
            "shutdown_grace": shutdown_grace,
            "ssl_key": ssl_key,
            "ssl_certificate": ssl_certificate,
            "ssl_client_ca": ssl_client_ca,
            "ssl_config_file": ssl_config_file,
            "as_content": enable_serialization_as_tensor_content,
            "monitoring_config_file": monitoring_config_file,
            "request_log": request_log,
            "request_log_rate": request_log_rate,
        },
    )


def _per(value: int | None, units: float) -> float | None:
    return None if value is None else value / units
