"""`estimax check`: check a run file, and with --data its data files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from estimax import config
from estimax.cli.screen import note, results, say
from estimax.config.schema.model import CustomModelConfig
from estimax.core.errors import InputError, MissingFileError


def check(
    path: Path, overrides: Sequence[str], *, with_data: bool, with_import: bool
) -> None:
    """Check a run file and print a summary.

    Args:
      path: The run file.
      overrides: Values of --set.
      with_data: Also read the data files.
      with_import: Import `model.class`, which runs the code of its module.

    Raises:
      ConfigError: The run file is invalid. The message lists all problems.
      InputError: The data files do not fit the run.
    """
    loaded = config.load(path, overrides)
    run = loaded.run
    is_custom = isinstance(run.model, CustomModelConfig)
    if is_custom and with_import:
        from estimax.config.build_custom import resolve

        resolve(loaded)
    results.print(
        Text.assemble(f"{path}: ", ("ok", "green"), f", {_summary(run)}"),
        soft_wrap=True,
    )
    if is_custom and not with_import:
        say("model.class and model.params were not checked, because of --no-import")
    if with_data:
        _check_data(run)
    else:
        _remark_on_files(run)


def _summary(run: config.Run) -> str:
    model = run.model
    kind = model.class_ if isinstance(model, CustomModelConfig) else model.type
    steps = run.train.max_steps
    length = f"{steps:,} steps" if steps else "until the data ends"
    sources = ", ".join(run.data.sources)
    return f"{kind}, {len(run.features)} features, sources: {sources}; {length}"


def _remark_on_files(run: config.Run) -> None:
    from estimax.config.data_report import find_files

    for name, source in run.data.sources.items():
        try:
            find_files(source, name)
        except MissingFileError as error:
            note(f"note: {error}", "yellow")


def _check_data(run: config.Run) -> None:
    from rich.table import Table

    from estimax.config.data_report import report

    wrong: list[str] = []
    for name in run.data.sources:
        found = report(run, name)
        title = f"{name}: {found.rows:,} rows in {found.files} files"
        table = Table(title=title, title_justify="left")
        for heading in ("column", "read as", "missing", "values"):
            table.add_column(heading)
        for column in found.columns:
            missing = f"{column.missing:,} ({column.missing / max(found.rows, 1):.1%})"
            table.add_row(column.name, column.kind, missing, column.values)
        results.print(table)
        wrong += found.problems
    if wrong:
        raise InputError("\n  ".join(["the files do not fit the run:", *wrong]))
