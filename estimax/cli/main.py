"""The arguments and help of the commands; a module of its name implements each.

Only typer is imported here. Importing jax takes seconds, and most commands either do
not need it or report errors before they do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from estimax.cli import bundle_commands, serve_options
from estimax.cli.options import (
    OTHER,
    RUNS,
    START,
    USE,
    CheckpointOption,
    JsonOption,
    ModelDirOption,
    OutputFormatOption,
    OutputOption,
    OverridesOption,
    QuietOption,
    RunFileArgument,
)
from estimax.cli.tf_serving_flags import ServeCommand
from estimax.core.errors import ConfigError, EstimaxError

_EPILOG = """To begin: `estimax init DATA.csv`, then `estimax train DATA.yaml`.

Exit status:

- 0: done

- 1: failed: a file is missing, the data does not fit, training cannot continue

- 2: the command line or the run file is not valid; nothing was started

- 70: an error in estimax, or in your own model code; the traceback is printed

- 130, 143: stopped by Ctrl-C or SIGTERM; start `train` and `sweep` again to continue
"""
app = typer.Typer(
    name="estimax",
    help="Train, evaluate and run models described by a YAML file.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    # `main` prints errors of estimax; other exceptions keep Python's traceback.
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_SIGPIPE = 13  # signal.SIGPIPE, which Windows lacks


def main() -> None:
    """Run the command line; mistakes of users are printed without a traceback.

    `_EPILOG` lists the exit status.
    """
    try:
        app()
    except EstimaxError as error:
        from estimax.cli.console import print_error

        print_error(f"{error}{_advice(error)}")
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended. Python would complain
        # when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + _SIGPIPE)
    except OSError as error:
        from estimax.cli.console import print_error

        where = "" if error.filename is None else f"{error.filename}: "
        notes = "".join(f"\n{text}" for text in getattr(error, "__notes__", ()))
        print_error(f"{where}{error.strerror or error}{notes}")
        sys.exit(1)
    except UnicodeDecodeError as error:
        from estimax.cli.console import print_error

        print_error(f"expected text in UTF-8: {error}")
        sys.exit(1)
    except Exception:
        import traceback

        traceback.print_exc()
        sys.exit(70)


def _advice(error: EstimaxError) -> str:
    """Return a line that tells how to look up a key of a run file, or nothing."""
    from estimax.config.nodes import RunFileError

    if not isinstance(error, RunFileError):
        return ""
    from estimax.config.key_reference import known_part

    known = [part for p in error.problems if (part := known_part(p.path))]
    return f"\nDescribe a key: estimax schema {known[0]}" if known else ""


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


@app.command(rich_help_panel=START)
def init(
    data: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with a header.", metavar="DATA")
    ],
    label: Annotated[
        str | None,
        typer.Option(help="Column to predict.  [default: asked, or guessed]"),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="File with the test rows.  [default: 15% of DATA, the latest ones "
            "or at random]"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Run file to write.  [default: NAME-OF-DATA.yaml, here]"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the run.  [default: that of the run file]"),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out.", metavar="A,B")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns to keep although each alone predicts the label.",
            metavar="A,B",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="trees, network, linear, or both: trees and a network, averaged.  "
            "\\[default: both, or network without LightGBM]",
            metavar="MODEL",
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
) -> None:
    """Look at a table and write a run file that trains on it.

    The run file has comments, and trains as it is: types, missing values, vocabularies
    and the task are taken from the data. On a terminal, the label is asked for.

    Beside the run file, the JSON Schema is written, with which editors complete and
    check the file. The run file splits the rows into train, validation and test.

    Examples:

        estimax init flights.csv --label late

        estimax init train.parquet --label income --output runs/income.yaml

        estimax init train.csv --label late --test test.csv

        estimax init flights.csv --label late --drop arr_delay,air_time
    """
    from estimax.cli.init import init as command

    command(
        data,
        label,
        test,
        output,
        name,
        force=force,
        drop=_comma_list(drop),
        keep=_comma_list(keep),
        model=model,
    )


def _comma_list(text: str | None) -> list[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]


@app.command(rich_help_panel=START)
def train(
    run: RunFileArgument,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    no_report: Annotated[
        bool,
        typer.Option(
            "--no-report", help="Write no report.html; as does run.report: false."
        ),
    ] = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a model, and evaluate and export it as the run file says.

    If the model directory has a checkpoint, training resumes from it. At the end,
    report.html is written to the model directory, if matplotlib is installed.

    Examples:

        estimax train run.yaml

        estimax train run.yaml --set train.max_steps=500 --model-dir runs/quick
    """
    from estimax.cli.train import train as command

    command(
        run,
        set_ or [],
        model_dir,
        with_report=not no_report,
        quiet=quiet,
        as_json=json,
    )


@app.command(
    rich_help_panel=START,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def launch(
    context: typer.Context,
    program: Annotated[
        Path,
        typer.Argument(help="Run file or Python program.", metavar="RUN.yaml|TRAIN.py"),
    ],
    processes: Annotated[
        int, typer.Option(help="Number of processes that train together.")
    ] = 2,
    evaluator: Annotated[
        bool,
        typer.Option(
            "--evaluator",
            help="Start one more process, which evaluates and exports the checkpoints. "
            "By default the first process does, and the others wait for it.",
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(help="Port of the first process.  [default: a free one]"),
    ] = None,
) -> None:
    """Train one model in several processes on this machine.

    Options of this command come before the file; what follows it is passed to the
    program, or to `estimax train`. Every process finds its role in TF_CONFIG.

    Examples:

        estimax launch --processes 4 run.yaml --set train.max_steps=500

        estimax launch --processes 2 --evaluator train.py --epochs 3
    """
    from estimax.cli.launch import launch as command

    command(program, context.args, processes, evaluator=evaluator, port=port)


@app.command(rich_help_panel=START)
def evaluate(
    run: RunFileArgument,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Source to evaluate, a name in data.sources.  "
            "[default: test.source or eval.source]"
        ),
    ] = None,
    checkpoint: CheckpointOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Evaluate a trained model on a source of the run file.

    The checkpoint of the best export is evaluated, or the latest if there is none.

    Examples:

        estimax evaluate run.yaml

        estimax evaluate run.yaml --source holdout --json
    """
    from estimax.cli.model_commands import evaluate as command

    options = (run, set_ or [], model_dir, source, checkpoint)
    command(*options, quiet=quiet, as_json=json)


@app.command(rich_help_panel=RUNS)
def report(
    run: Annotated[
        Path,
        typer.Argument(help="Run file, or model directory of `estimax train`."),
    ],
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write.  [default: report.html in the model dir]"),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Source to look at, a name in data.sources.  "
            "[default: test.source or eval.source]"
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Column that groups rows for ranking, such as a query or a user.",
            metavar="COLUMN",
        ),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            help="Most rows to look at, spread evenly over the data; with --group, the "
            "first rows.",
            min=1,
        ),
    ] = 20_000,
) -> None:
    """Write a report of a trained model: one HTML file that needs no network.

    It shows metrics, learning curves, ROC and precision-recall curves, calibration,
    the confusion matrix, slices, feature importance, the worst errors, and how to
    reproduce the run. It needs matplotlib: pip install 'estimax[report]'.

    Examples:

        estimax report run.yaml

        estimax report runs/flights --source holdout --output holdout.html
    """
    from estimax.cli.report import report as command

    command(
        run,
        set_ or [],
        model_dir,
        output=output,
        source=source,
        group=group,
        max_rows=rows,
    )


@app.command(rich_help_panel=START)
def predict(
    run: RunFileArgument,
    input: Annotated[
        str,
        typer.Option(
            "--input",
            help="File or pattern, in the format of the source in eval, or else in "
            "train. Labels are not needed.",
        ),
    ],
    output: OutputOption = None,
    output_format: OutputFormatOption = None,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    checkpoint: CheckpointOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Predict every row of files with a trained model.

    Predictions are written in the order of the rows.

    Example:

        estimax predict run.yaml --input new.csv --output predictions.csv
    """
    from estimax.cli.model_commands import predict as command

    options = (run, input, output, output_format, set_ or [], model_dir, checkpoint)
    command(*options, quiet=quiet, as_json=json)


@app.command(rich_help_panel=START)
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
            help="Do not import code that the file names, so that none of it runs.",
        ),
    ] = False,
) -> None:
    """Check a run file, and print all errors at once.

    If the file names code, such as a model.class, a hook or a loss, its module is
    imported to check the name and the parameters. **This runs the code of that
    module.** The working directory is searched as well. Use --no-import for a file that
    you do not trust; everything else is still checked.

    Examples:

        estimax check run.yaml

        estimax check run.yaml --data

        estimax check run.yaml --no-import
    """
    from estimax.cli.run_file_commands import check as command

    command(run, set_ or [], with_data=data, with_import=not no_import)


@app.command(rich_help_panel=RUNS)
def show(
    path: Annotated[
        Path,
        typer.Argument(
            help="Run file, exported bundle, model directory or checkpoint."
        ),
    ],
    set_: OverridesOption = None,
    yaml: Annotated[
        bool,
        typer.Option("--yaml", help="Print a run file as YAML with all defaults."),
    ] = False,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show the state of optimizers in a checkpoint, too.",
        ),
    ] = False,
) -> None:
    """Show the contents of a run file, a bundle, a model directory or a checkpoint.

    For a run file: every value, and where it was set. For a bundle: its features,
    signatures and weights. For a model directory or a checkpoint: its variables and
    the last metrics.

    Examples:

        estimax show run.yaml

        estimax show runs/flights/export/best

        estimax show runs/flights

        estimax show runs/flights/model.ckpt-1000 --all
    """
    from estimax.cli.show import show as command

    command(path, set_ or [], as_yaml=yaml, with_slots=all_)


app.command(rich_help_panel=USE)(bundle_commands.run)
app.command(rich_help_panel=USE)(bundle_commands.convert)
app.command(
    rich_help_panel=USE,
    cls=ServeCommand,
    # TensorFlow Serving writes its flags with underscores; both are accepted.
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)(serve_options.serve)
app.command(rich_help_panel=USE)(bundle_commands.export)


@app.command(rich_help_panel=RUNS)
def python(
    run: RunFileArgument,
    set_: OverridesOption = None,
    model_dir: ModelDirOption = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write.  [default: standard output]")
    ] = None,
) -> None:
    """Print the Python script that a run file stands for.

    The script trains the same model to the same weights, bit for bit. Use it to
    continue in Python. Means and vocabularies are written out; they are
    computed from the train source unless the model directory has them.

    Example:

        estimax python run.yaml --output train.py
    """
    from estimax.cli.run_file_commands import python as command

    command(run, set_ or [], model_dir, output)


@app.command(rich_help_panel=RUNS)
def diff(
    first: Annotated[
        Path, typer.Argument(help="Model directory of a run.", metavar="A")
    ],
    second: Annotated[
        Path, typer.Argument(help="Model directory of another run.", metavar="B")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two runs: config, data, metrics and packages, side by side.

    Only values that differ are shown, and all metrics of the last evaluation.

    Example:

        estimax diff runs/first runs/second
    """
    from estimax.cli.compare import diff as command

    command(first, second, as_json=json)


@app.command(rich_help_panel=RUNS)
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Model directories; the folder of a sweep stands for its trials.",
            metavar="RUN...",
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(
            help="Sort by this metric, best first, and show only it and loss."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each run.")
    ] = False,
) -> None:
    """Print a table of runs: metrics of the last evaluation, and what differs.

    Examples:

        estimax compare runs/*

        estimax compare runs/flights-sweep --metric auc
    """
    from estimax.cli.compare import compare as command

    command(runs, metric, as_json=json)


@app.command(rich_help_panel=START)
def cv(
    run: RunFileArgument,
    set_: OverridesOption = None,
    folds: Annotated[int, typer.Option(help="Number of folds, at least 2.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the folds.  [default: MODEL_DIR-cv]"),
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a run on folds of its rows, and print mean ± deviation of each metric.

    Use it where one split is too small to trust. The rows of the train source, with
    all parts that the run file splits off it, are divided into folds: each is held out
    once, and the model that was trained on the others is measured on it. The folds are
    made as the split of the run file is: at random by the number of the row, or by hash
    of `key`, so that rows of one key stay together. They are not stratified by class,
    and a split by time has none.

    Whatever the run file says is done in every fold: early stopping and the best
    export use a part of the other folds, as large a share as that of `eval`.

    If it is killed, the same command continues it: folds that have ended are not
    repeated, and one that was interrupted goes on from its last checkpoint.

    The result is a table, and FOLDER/cv.json with the metrics of each fold.

    Examples:

        estimax cv run.yaml

        estimax cv run.yaml --folds 10 --set model.n_trees=300 --output runs/cv-300
    """
    from estimax.cli.cv import cv as command

    command(run, set_ or [], folds, output, quiet=quiet, as_json=json)


@app.command(rich_help_panel=START)
def sweep(
    run: RunFileArgument,
    set_: OverridesOption = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space",
            help="Values to try at an address, e.g. `--space "
            "'optimizers.dnn.learning_rate={log_uniform: [0.01, 0.3]}'`. May be given "
            "several times; added to sweep.space.",
            metavar="PATH=VALUES",
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help="random, grid or optuna.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials.")] = None,
    processes: Annotated[
        int | None, typer.Option(help="Trials that run at the same time.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric to improve.  [default: by the head]")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="min or max.  [default: by the metric]")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep.  [default: MODEL_DIR-sweep]"),
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a run with different values, and show which are best.

    The values to try are in the section `sweep` of the run file, or in --space: a
    `choice` of values, or `uniform`, `log_uniform` or `int_uniform` between two limits.
    Options replace values of the section.

    If the sweep is killed, the same command continues it: trials that have ended are
    not repeated, and others go on from their last checkpoint. With sweep.prune, a trial
    that is worse than the median of the others is stopped early.

    The result is a table, and a plot in FOLDER/sweep.svg.

    Examples:

        estimax sweep run.yaml --trials 40 --processes 2

        estimax sweep run.yaml --method grid --space 'seed={choice: [1, 2, 3]}'
    """
    from estimax.cli.sweep import space_options
    from estimax.cli.sweep import sweep as command

    given = {
        "method": method,
        "trials": trials,
        "processes": processes,
        "metric": metric,
        "mode": mode,
        "space": space_options(space or []),
    }
    changes = {k: v for k, v in given.items() if v is not None}
    command(run, set_ or [], changes, output, quiet=quiet, as_json=json)


@app.command(rich_help_panel=OTHER)
def port(
    program: Annotated[
        Path, typer.Argument(help="Python program for tf.estimator.", metavar="FILE.py")
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write.  [default: FILE_estimax.py]")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Rewrite the file itself.")
    ] = False,
) -> None:
    """Rewrite the names of a tf.estimator program to those of estimax.

    A name that estimax has is replaced: `tf.estimator.DNNClassifier` becomes
    `ex.DNNClassifier`. All other names of TensorFlow are listed with file, line and
    what to write, as in the guide "Migrate a tf.estimator program". TensorFlow is not
    needed. Requires `pip install 'estimax[port]'`.

    Examples:

        estimax port census.py

        estimax port census.py --in-place
    """
    from estimax.cli.port import port as command

    command(program, output, in_place=in_place)


@app.command(rich_help_panel=OTHER)
def warm(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="YAML file that describes the run.  [default: kernels only]",
            metavar="[RUN.yaml]",
            show_default=False,
        ),
    ] = None,
    set_: OverridesOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compile ahead, so that a later start need not.

    Compiles the host kernels of estimax, which takes seconds once on a machine. With a
    run file, also the programs with which `estimax train` trains, evaluates and
    exports: the run takes at most 64 steps in a temporary folder, which is removed.
    Everything is kept in the user's cache folder. Nothing is written to run.model_dir.

    Examples:

        estimax warm

        estimax warm run.yaml
    """
    from estimax.cli.warm import warm as command

    command(run, set_ or [], quiet=quiet)


@app.command(rich_help_panel=OTHER)
def schema(
    key: Annotated[
        str | None,
        typer.Argument(help="Address of a key or section, e.g. train.max_steps."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write.  [default: standard output]")
    ] = None,
) -> None:
    """Describe a key of run files, or print their JSON Schema, for editors.

    With the address of a key or section, print its type, limits, default and meaning.
    Names and numbers of items may be any, as in data.sources.train and export.0.

    Without one, print the JSON Schema. Editors use it to complete and check run files.

    Examples:

        estimax schema model.dnn.dropout

        estimax schema optimizers.dnn

        estimax schema --output estimax-run.v1.schema.json

    Then add this line at the top of a run file:

        # yaml-language-server: $schema=estimax-run.v1.schema.json
    """
    from estimax.cli.run_file_commands import schema as command

    command(key, output)
