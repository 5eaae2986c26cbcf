"""Commands about a run file that train nothing: `check`, `python` and `schema`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from estimax import config
from estimax.cli.console import log_to, note, notes, results, say
from estimax.cli.data_errors import locate_errors, misfit
from estimax.config.build_custom import check_code, code_names
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files, report
from estimax.config.json_schema import json_schema
from estimax.config.key_reference import entries_at, lines_of
from estimax.config.schema.model import CustomModelConfig
from estimax.config.statistics import count_parts
from estimax.core.errors import ConfigError, InputError, MissingFileError, did_you_mean


def check(
    path: Path, overrides: Sequence[str], *, with_data: bool, with_import: bool
) -> None:
    """Check a run file and print a summary.

    Args:
      path: The run file.
      overrides: Values of --set.
      with_data: Also read the data files.
      with_import: Import `model.class` and other code that the file names, which
        runs that code.

    Raises:
      ConfigError: The run file is invalid. The message lists all problems.
      MissingFileError: A file that the run names does not exist.
      InputError: The data files do not fit the run.
    """
    loaded = config.load(path, overrides, with_missing_files=True)
    run = loaded.run
    is_custom = isinstance(run.model, CustomModelConfig)
    named = [path for path, _ in code_names(run)]
    wrong: list[ConfigError | MissingFileError] = []
    try:
        if with_import:
            check_code(loaded)
    except ConfigError as error:
        wrong.append(error)
    try:
        check_files(run, run.data.sources, list_urls=with_data)
    except MissingFileError as error:
        wrong.append(error)
    if len(wrong) > 1:
        raise ConfigError("\n".join(map(str, wrong)))
    if wrong:
        raise wrong[0]
    results.print(
        Text.assemble(f"{path}: ", ("ok", "green"), f", {_summary(run)}"),
        soft_wrap=True,
    )
    if is_custom and not with_import:
        say("model.class and model.params were not checked, because of --no-import")
    if named and not with_import:
        say(f"{', '.join(named)}: not imported, because of --no-import")
    if with_data:
        _check_data(run)


def _summary(run: config.Run) -> str:
    keys = ("class_", "model_fn", "type")
    kind = next(getattr(run.model, key) for key in keys if hasattr(run.model, key))
    steps = run.train.max_steps
    length = f"{steps:,} steps" if steps else "until the data ends"
    sources = ", ".join(run.data.sources)
    return f"{kind}, {len(run.features)} features, sources: {sources}; {length}"


def _check_data(run: config.Run) -> None:
    wrong: list[str] = []
    together = _parts_of_files(run)
    for name in run.data.sources:
        parts = next((parts for parts in together if name in parts), [name])
        if name == parts[0]:
            _check_source(run, parts, wrong)
    if wrong:
        raise misfit(wrong)


def _parts_of_files(run: config.Run) -> list[list[str]]:
    """Return the sources that are parts of the same files, together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, source in run.data.sources.items():
        if source.part is not None:
            found.setdefault(tuple(source.files), []).append(name)
    return list(found.values())


def _check_source(run: config.Run, parts: list[str], wrong: list[str]) -> None:
    """Print what the files of a source have, once for all parts of the files."""
    from rich.table import Table

    try:
        found = report(run, parts[0])
    except InputError as error:
        wrong.append(str(error))
        return
    title = f"{' + '.join(parts)}: {found.rows:,} rows in {found.files} files"
    table = Table(title=title, title_justify="left")
    for heading in ("column", "read as", "missing", "values"):
        table.add_column(heading)
    for column in found.columns:
        missing = f"{column.missing:,} ({column.missing / max(found.rows, 1):.1%})"
        table.add_row(column.name, column.kind, missing, column.values)
    results.print(table)
    for text in found.skipped:
        note(f"skipped in training: {text}", "yellow")
    wrong += found.problems
    if run.data.sources[parts[0]].part is not None and not found.problems:
        counts = count_parts(run, parts)
        shown = [f"{part} {n:,} ({n / found.rows:.1%})" for part, n in counts.items()]
        say(f"rows of each part: {', '.join(shown)}")
        empty = [part for part, count in counts.items() if not count]
        wrong += [
            f"data.sources.{part}: this part of the split has no rows; change its "
            "share, or the seed of the split"
            for part in empty
        ]


def python(
    path: Path, overrides: Sequence[str], model_dir: str | None, output: Path | None
) -> None:
    """Write the script to a file, or to standard output if `output` is None."""
    loaded = config.load(path, overrides, model_dir=model_dir)
    run = loaded.run
    check_files(run, sources_of(run))
    with notes.status("starting"):
        from estimax.config.script import script_of

        log_to(notes)
        with locate_errors(run, [run.train.source]):
            text = script_of(loaded)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)


def schema(key: str | None, output: Path | None) -> None:
    """Describe a key, or print the JSON Schema if `key` is None."""
    if key is None:
        text = json.dumps(json_schema(), indent=2) + "\n"
    else:
        text = "".join(f"{line}\n" for line in lines_of(key))
        if not text:
            raise ConfigError(_misspelt(key))
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)


def _misspelt(key: str) -> str:
    """Return what is wrong with an address: its first part that does not exist."""
    known = ""
    for part in key.split("."):
        entries = entries_at(known)
        keys = {k.key for e in entries if not e.is_key for k in e.keys}
        here = f"{known}.{part}".strip(".")
        if not entries_at(here) and keys:
            return f"no run file has {here}{did_you_mean(part, keys)}"
        known = here
    return f"no run file has {key}."
