"""The arguments and help of every command; a module of its name implements it.

Only typer is imported here. Importing jax takes seconds, and most commands either do
not need it or report errors before they do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from estimax.core.errors import ConfigError, EstimaxError

app = typer.Typer(
    name="estimax",
    help="Train, evaluate and run models described by a YAML file.",
    epilog="To begin, run: estimax check run.yaml, then: estimax train run.yaml",
    no_args_is_help=True,
    add_completion=False,
    # `main` prints errors of estimax; other exceptions keep Python's traceback.
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

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
    typer.Option(help="Checkpoint to load.  [default: the latest]"),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        help="File to write: .csv, .json or .jsonl.  [default: CSV to standard output]"
    ),
]


def main() -> None:
    """Run the command line; errors of estimax are printed without a traceback.

    The exit status is 2 for an invalid run file or option, and 1 for other errors.
    """
    try:
        app()
    except EstimaxError as error:
        from estimax.cli.screen import print_error

        print_error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


@app.callback(invoke_without_command=True)
def estimax(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.")
    ] = False,
) -> None:
    """Train, evaluate and run models described by a YAML file."""
    if version:
        from estimax import __version__

        typer.echo(f"estimax {__version__}")
        raise typer.Exit


@app.command()
def train(
    run: RunFileArgument, set_: OverridesOption = None, model_dir: ModelDirOption = None
) -> None:
    """Train a model, and evaluate and export it as the run file says.

    If the model directory has a checkpoint, training resumes from it.

    Examples:

        estimax train run.yaml

        estimax train run.yaml --set train.max_steps=500 --model-dir runs/quick
    """
    from estimax.cli.train import train as command

    command(run, set_ or [], model_dir)


@app.command()
def evaluate(
    run: RunFileArgument,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Source to evaluate, a name in data.sources.  [default: eval.source]"
        ),
    ] = None,
    checkpoint: CheckpointOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the metrics as JSON.")
    ] = False,
) -> None:
    """Evaluate a trained model on a source of the run file.

    The latest checkpoint in the model directory is evaluated.

    Examples:

        estimax evaluate run.yaml

        estimax evaluate run.yaml --source holdout --json
    """
    from estimax.cli.evaluate import evaluate as command

    command(run, set_ or [], model_dir, source, checkpoint, as_json=json)


@app.command()
def predict(
    run: RunFileArgument,
    input: Annotated[
        str,
        typer.Option(
            "--input", help="CSV file or pattern; the label column is not needed."
        ),
    ],
    output: OutputOption = None,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    checkpoint: CheckpointOption = None,
) -> None:
    """Predict every row of a CSV file with a trained model.

    Predictions are written in the order of the rows.

    Example:

        estimax predict run.yaml --input new.csv --output predictions.csv
    """
    from estimax.cli.predict import predict as command

    command(run, input, output, set_ or [], model_dir, checkpoint)


@app.command()
def check(
    run: RunFileArgument,
    set_: OverridesOption = None,
    data: Annotated[
        bool,
        typer.Option(
            "--data",
            help="Read the data files as well: check columns, values and labels.",
        ),
    ] = False,
    no_import: Annotated[
        bool,
        typer.Option(
            "--no-import",
            help="Do not import model.class, so that no code named by the file runs.",
        ),
    ] = False,
) -> None:
    """Check a run file, and print all errors at once.

    If the file has a model.class, its module is imported to check model.params against
    the signature. **This runs the code of that module.** The working directory is
    searched as well. Use --no-import for a file that you do not trust; everything else
    is still checked.

    Examples:

        estimax check run.yaml

        estimax check run.yaml --data

        estimax check run.yaml --no-import
    """
    from estimax.cli.check import check as command

    command(run, set_ or [], with_data=data, with_import=not no_import)


@app.command()
def show(
    path: Annotated[
        Path,
        typer.Argument(help="Run file, exported bundle or model directory."),
    ],
    set_: OverridesOption = None,
    yaml: Annotated[
        bool,
        typer.Option("--yaml", help="Print a run file as YAML with all defaults."),
    ] = False,
) -> None:
    """Show the contents of a run file, a bundle or a model directory.

    For a run file: every value, and where it was set. For a bundle: its features,
    signatures and weights. For a model directory: its checkpoints and variables.

    Examples:

        estimax show run.yaml

        estimax show runs/flights/export/best

        estimax show runs/flights
    """
    from estimax.cli.show import show as command

    command(path, set_ or [], as_yaml=yaml)


@app.command()
def run(
    bundle: Annotated[
        Path,
        typer.Argument(help="Exported bundle, or directory of versions of one."),
    ],
    input: Annotated[str, typer.Option("--input", help="CSV file or pattern.")],
    output: OutputOption = None,
    signature: Annotated[
        str, typer.Option(help="Signature of the bundle to call.")
    ] = "predict",
) -> None:
    """Predict every row of a CSV file with an exported bundle.

    Neither the run file nor the code of the model is needed.

    Example:

        estimax run runs/flights/export/best --input new.csv --output out.csv
    """
    from estimax.cli.run import run as command

    command(bundle, input, output, signature)


@app.command()
def schema(
    output: Annotated[
        Path | None, typer.Option(help="File to write.  [default: standard output]")
    ] = None,
) -> None:
    """Print the JSON Schema of run files, for editors.

    Editors use the schema to complete and check run files.

    Example:

        estimax schema --output estimax-run.v1.schema.json

    Then add this line at the top of a run file:

        # yaml-language-server: $schema=estimax-run.v1.schema.json
    """
    from estimax.cli.schema import schema as command

    command(output)
