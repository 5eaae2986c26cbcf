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
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Let the bundle also answer with the part of each feature in the "
            'output, as the signature "explain".',
        ),
    ] = False,
    calibrate: Annotated[
        str | None,
        typer.Option(
            help="Fit a calibration on the source of eval, which is read: temperature, "
            "platt or isotonic.",
            metavar="METHOD",
        ),
    ] = None,
    table_dtype: Annotated[
        str | None,
        typer.Option(
            help="Store embedding tables as float16 or int8.", metavar="DTYPE"
        ),
    ] = None,
) -> None:
    """Export a checkpoint of a trained run as a bundle.

    The bundle predicts without the run file and without code. The section `export` of a
    run file writes bundles during training; this command does it afterwards. The data
    of the run is needed for `--calibrate` only.

    Examples:

        estimax export runs/flights

        estimax export runs/flights --calibrate isotonic --table-dtype int8

        estimax export run.yaml --checkpoint runs/flights/model.ckpt-700 --output best
    """
    from estimax.cli.model_commands import export as command

    command(
        run,
        set_ or [],
        model_dir,
        checkpoint,
        output,
        explain=explain,
        calibrate=calibrate,
        table_dtype=table_dtype,
    )
