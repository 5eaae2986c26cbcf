"""The arguments and help of the commands that use exported bundles.

`main.py` registers them with the other commands. Only typer is imported here, as there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from estimax.cli.options import (
    CheckpointOption,
    ModelDirOption,
    OutputFormatOption,
    OutputOption,
    OverridesOption,
)
from estimax.core.errors import ConfigError


def run(
    bundle: Annotated[
        Path,
        typer.Argument(help="Exported bundle, or directory of versions of one."),
    ],
    input: Annotated[
        str,
        typer.Option("--input", help="File or pattern, or `-` for standard input."),
    ],
    output: OutputOption = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of the input: csv, jsonl, npz, parquet or tfrecord "
            "(tf.Example).  [default: by suffix or content]",
        ),
    ] = None,
    output_format: OutputFormatOption = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns of the input to write beside the predictions, e.g. "
            "`--keep id,name`.",
            metavar="COLUMNS",
        ),
    ] = None,
    signature: Annotated[
        str | None,
        typer.Option(
            help="Signature of the bundle to call.  [default: predict if there is one, "
            "else serving_default]"
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Score in this many processes, into a folder of shards (--output). "
            "The same command continues after a kill.",
            metavar="N",
        ),
    ] = None,
    shard_rows: Annotated[
        int | None,
        typer.Option(
            help="With --processes: most rows of a shard.  [default: 131072]",
            metavar="N",
        ),
    ] = None,
) -> None:
    """Predict every row of a table with an exported bundle.

    Neither the run file nor the code of the model is needed. Columns that the model
    does not use are ignored. A missing value is an error unless its column has a
    default.

    With --processes, the output is a folder of shards, and large files are shared by
    the processes. If the command is killed, the same command continues.

    Examples:

        estimax run runs/flights/export/best --input new.csv --output out.csv

        estimax run BUNDLE --input new.parquet --keep id --output out.parquet

        cat new.jsonl | estimax run BUNDLE --input - --output-format jsonl

        estimax run BUNDLE --input "new-*.parquet" --keep id --output out --processes 4
    """
    from estimax.cli import run as command

    columns = [name.strip() for name in (keep or "").split(",") if name.strip()]
    options = (bundle, input, format, output, output_format, signature, columns)
    if processes is None:
        if shard_rows is not None:
            raise ConfigError("--shard-rows: only --processes writes shards.")
        command.run(*options)
    else:
        command.run_processes(*options, processes, shard_rows)


def convert(
    bundle: Annotated[
        Path,
        typer.Argument(help="Exported bundle, or directory of versions of one."),
    ],
    folder: Annotated[
        Path, typer.Argument(help="Folder to write, such as models/clicks/1.")
    ],
    transformed: Annotated[
        bool,
        typer.Option(
            help="Take the results of the host transforms in place of raw features. "
            "Needed for sequences and for some crosses."
        ),
    ] = False,
) -> None:
    """Write a bundle as a SavedModel, for TensorFlow Serving.

    TensorFlow is not needed for it. TensorFlow Serving must run with
    --xla_cpu_compilation_enabled=true. `estimax serve` needs no SavedModel.

    Example:

        estimax convert runs/flights/export/best models/late/1
    """
    from estimax import export

    made = export.write_saved_model(
        export.load(bundle), folder, transformed=transformed
    )
    typer.echo(f"wrote {made}")


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models to serve: NAME=PATH, or PATH alone for one model. A path is a "
            "bundle, or a folder of versions of one. Or one run file, whose `serving` "
            "section then replaces the options below.",
            metavar="[NAME=]PATH...",
        ),
    ] = None,
    model_name: Annotated[
        str, typer.Option(help="Name of a model that is given without one.")
    ] = "default",
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
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port of gRPC; 0 turns it off.")] = 8500,
    rest_api_port: Annotated[
        int, typer.Option(help="Port of REST and of the page; 0 turns it off.")
    ] = 8501,
    rest_api_timeout_in_ms: Annotated[
        int, typer.Option(help="Time until a REST request is answered with 504.")
    ] = 30000,
    max_request_bytes: Annotated[int, typer.Option(help="Largest request.")] = 64
    * 1024
    * 1024,
    max_request_rows: Annotated[
        int, typer.Option(help="Most rows of a request.")
    ] = 100_000,
    enable_batching: Annotated[
        bool, typer.Option(help="Join waiting requests into batches.")
    ] = True,
    batching_parameters_file: Annotated[
        Path | None, typer.Option(help="BatchingParameters of TensorFlow Serving.")
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes to compile, e.g. 1,8,64.  [default: 1,2,4,...,1024]"
        ),
    ] = None,
    file_system_poll_wait_seconds: Annotated[
        float, typer.Option(help="How often to look for new versions; 0: once.")
    ] = 1.0,
    max_num_load_retries: Annotated[
        int, typer.Option(help="How often a version that fails to load is tried again.")
    ] = 5,
    load_retry_interval_micros: Annotated[
        int, typer.Option(help="Time between two tries.")
    ] = 60_000_000,
    load_timeout: Annotated[
        float, typer.Option(help="Seconds after which loading a version has failed.")
    ] = 900.0,
    num_load_threads: Annotated[
        int, typer.Option(help="Versions loaded at the same time; 0: by processors.")
    ] = 0,
    drain_delay: Annotated[
        float, typer.Option(help="Seconds from SIGTERM until requests are refused.")
    ] = 2.0,
    shutdown_grace: Annotated[
        float, typer.Option(help="Seconds for requests under way after that.")
    ] = 25.0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token that requests must carry."),
    ] = None,
    ssl_key: Annotated[str | None, typer.Option(help="Private key, for TLS.")] = None,
    ssl_certificate: Annotated[
        str | None, typer.Option(help="Certificate chain, for TLS.")
    ] = None,
    rest_api_enable_cors_support: Annotated[
        bool, typer.Option(help="Let pages of other origins send requests.")
    ] = False,
    enable_serialization_as_tensor_content: Annotated[
        bool, typer.Option(help="Answer gRPC requests in tensor_content.")
    ] = False,
    compilation_cache_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder for compiled programs; '' turns the cache off.  "
            "[default: in the user's cache folder]"
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes that share the ports, each with the models.")
    ] = 1,
    request_log: Annotated[
        str | None,
        typer.Option(help="File for a sample of requests and answers, as JSON lines."),
    ] = None,
    request_log_rate: Annotated[
        float, typer.Option(help="Part of the requests that is written there.")
    ] = 0.01,
    access_log: Annotated[
        bool, typer.Option(help="Log a line for every REST request.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Serve exported bundles to clients of TensorFlow Serving.

    REST, gRPC, metrics and a page to try predictions. New versions are loaded as they
    appear; a version is replaced without losing a request. SIGTERM stops the server
    after the requests under way.

    Examples:

        estimax serve runs/flights/export/best

        estimax serve late=runs/flights/export/best --rest-api-port 8080

        estimax serve --model-config-file models.config

        estimax serve run.yaml
    """
    from estimax.cli.serve import serve as command

    command(
        [*(models or []), *([model_base_path] if model_base_path else [])],
        model_name=model_name,
        token_file=token_file,
        batching_parameters_file=batching_parameters_file,
        enable_batching=enable_batching,
        batch_sizes=batch_sizes,
        cache_dir=compilation_cache_dir,
        log_format=log_format,
        logs_access=access_log,
        workers=workers,
        rest={
            "timeout": rest_api_timeout_in_ms / 1000,
            "max_body": max_request_bytes,
            "allows_cors": rest_api_enable_cors_support,
        },
        settings={
            "model_config_file": model_config_file,
            "host": host,
            "grpc_port": port,
            "rest_port": rest_api_port,
            "poll_seconds": file_system_poll_wait_seconds,
            "max_rows": max_request_rows,
            "load_retries": max_num_load_retries,
            "load_retry_seconds": load_retry_interval_micros / 1e6,
            "load_timeout": load_timeout,
            "load_threads": num_load_threads or None,
            "drain_delay": drain_delay,
            "shutdown_grace": shutdown_grace,
            "ssl_key": ssl_key,
            "ssl_certificate": ssl_certificate,
            "as_content": enable_serialization_as_tensor_content,
            "request_log": request_log,
            "request_log_rate": request_log_rate,
        },
    )


def export(
    run: Annotated[
        Path,
        typer.Argument(help="Model directory, or run file.", metavar="RUN"),
    ],
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    checkpoint: CheckpointOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which the bundle gets a numbered folder.  "
            "[default: MODEL_DIR/export/manual]"
        ),
    ] = None,
) -> None:
    """Export a checkpoint of a trained run as a bundle.

    The bundle predicts without the run file and without code. The section `export` of a
    run file writes bundles during training; this command does it afterwards. The data
    of the run is not needed.

    Examples:

        estimax export runs/flights

        estimax export run.yaml --checkpoint runs/flights/model.ckpt-700 --output best
    """
    from estimax.cli.export import export as command

    command(run, set_ or [], model_dir, checkpoint, output)
