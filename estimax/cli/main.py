"""The arguments of every command; what a command does is in the file of its name.

Only typer is imported here: `estimax check` must answer before jax could be loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from estimax.core.errors import ConfigError, EstimaxError

app = typer.Typer(
    name="estimax",
    help="Train, evaluate and use estimators that a YAML file describes.",
    epilog="Start with: estimax check run.yaml, then estimax train run.yaml",
    no_args_is_help=True,
    add_completion=False,
    # Errors we expect are printed by `main`; others keep Python's own traceback.
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

RunFileArgument = Annotated[
    Path, typer.Argument(help="The run's YAML file.", metavar="RUN.yaml")
]
OverridesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a value: `--set train.max_steps=500`. May be repeated.",
        metavar="PATH=VALUE",
    ),
]
ModelDirOption = Annotated[
    str | None, typer.Option(help="Use this folder in place of run.model_dir.")
]
CheckpointOption = Annotated[
    str | None, typer.Option(help="A checkpoint's folder; by default the latest.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(help="A .csv, .json or .jsonl file; by default CSV on the screen."),
]


def main() -> None:
    """Run the command line; errors that estimax expects end without a traceback."""
    try:
        app()
    except EstimaxError as error:
        from estimax.cli.screen import print_error

        print_error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


@app.callback(invoke_without_command=True)
def estimax(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.")
    ] = False,
) -> None:
    """Train, evaluate and use estimators that a YAML file describes."""
    if version:
        from estimax import __version__

        typer.echo(f"estimax {__version__}")
        raise typer.Exit


@app.command()
def train(
    run: RunFileArgument, set_: OverridesOption = None, model_dir: ModelDirOption = None
) -> None:
    """Train a run, evaluating and exporting along the way.

    A run that was stopped goes on where it was. Examples:

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
        str | None, typer.Option(help="A name in data.sources; by default eval.source.")
    ] = None,
    checkpoint: CheckpointOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the metrics as JSON.")
    ] = False,
) -> None:
    """Evaluate the trained model on a source of the run.

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
        str, typer.Option("--input", help="A CSV file or pattern; no label is needed.")
    ],
    output: OutputOption = None,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    checkpoint: CheckpointOption = None,
) -> None:
    """Predict every row of a CSV file with the trained model.

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
            "--data", help="Also read the files: columns, missing values, labels."
        ),
    ] = False,
    no_import: Annotated[
        bool,
        typer.Option(
            "--no-import",
            help="Do not import model.class: run no code that the file names.",
        ),
    ] = False,
) -> None:
    """Check a run file without training; all mistakes are printed at once.

    If the file names a model.class, its module is imported, from the working directory
    too, to check the params against its signature: **this runs that module's code**.
    Use --no-import for a file that you do not trust; everything else is checked.

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
        typer.Argument(help="A run file, an exported bundle, or a model directory."),
    ],
    set_: OverridesOption = None,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Of a run: print the resolved YAML alone.")
    ] = False,
) -> None:
    """Show what a run, a bundle or a model directory holds.

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
        Path, typer.Argument(help="An exported bundle, or the folder of its versions.")
    ],
    input: Annotated[str, typer.Option("--input", help="A CSV file or pattern.")],
    output: OutputOption = None,
    signature: Annotated[
        str, typer.Option(help="Which of the bundle's functions to call.")
    ] = "predict",
) -> None:
    """Predict every row of a CSV file with an exported bundle.

    Needs neither the run file nor the code of the model. Example:

        estimax run runs/flights/export/best --input new.csv --output out.csv
    """
    from estimax.cli.run import run as command

    command(bundle, input, output, signature)


@app.command()
def schema(
    output: Annotated[
        Path | None, typer.Option(help="Where to write it; by default the screen.")
    ] = None,
) -> None:
    """Print the JSON Schema of run files, for editors.

    Example:

        estimax schema --output estimax-run.v1.schema.json

    and as the first line of a run file:

        # yaml-language-server: $schema=estimax-run.v1.schema.json
    """
    from estimax.cli.schema import schema as command

    command(output)
