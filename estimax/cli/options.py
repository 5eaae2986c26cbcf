"""The arguments and options that several commands have, and the panels of the help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

START, USE, RUNS, OTHER = "Start", "Use a model", "Look at runs", "Other"

RunFileArgument = Annotated[
    Path, typer.Argument(help="YAML file that describes the run.", metavar="RUN.yaml")
]
OverridesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a value of the run file, e.g. `--set train.max_steps=500`. "
        "May be given several times.",
        metavar="PATH=VALUE",
    ),
]
ModelDirOption = Annotated[
    str | None, typer.Option(help="Model directory; overrides run.model_dir.")
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        help="Checkpoint to load.  [default: of the best export, or the latest]"
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        help="File to write: .csv, .json, .jsonl, .parquet or .tfrecord; `-` for "
        "standard output.  [default: CSV to standard output]"
    ),
]
OutputFormatOption = Annotated[
    str | None,
    typer.Option(
        help="Format of the output: csv, json, jsonl, parquet or tfrecord.  "
        "[default: by suffix]"
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="Print results and errors only.")
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print events as JSON, one per line, and no remarks."),
]
