"""`estimax init`: look at a table and write a run file that trains on it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from estimax.cli.console import note, notes, results, say, wrap_lines
from estimax.config.infer import Inferred, guess_label, infer
from estimax.config.json_schema import json_schema
from estimax.config.model_choice import choose_models, has_lightgbm
from estimax.config.profile import (
    NULL_WORDS,
    TableProfile,
    profile,
    read_texts,
)
from estimax.config.starter import (
    ALL,
    SHARES,
    SHARES_WITHOUT_TEST,
    starter_text,
)
from estimax.core.errors import ConfigError, MissingFileError, did_you_mean
from estimax.core.machine import user_cache_folder
from estimax.storage import atomic


def init(
    data: Path,
    label: str | None,
    test: Path | None,
    output: Path | None,
    name: str | None,
    *,
    force: bool,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    model: str | None = None,
) -> None:
    """Write a run file for a table.

    The run file splits the rows. Only if labels are missing, the other rows are
    written to a file of their own. `drop` has columns to leave out, `keep`
    columns to keep although they alone predict the label. `model` is one of
    `MODEL_CHOICES`; None chooses.
    """
    models = choose_models(model)
    path = Path(f"{_stem(data)}.yaml") if output is None else output
    _check_new(path, force=force)
    if test is not None and not test.is_file():
        raise MissingFileError(f"--test: there is no file {test}.")
    with notes.status(f"reading {data}"):
        table = profile(str(data))
    chosen = _label(table, label)
    _check_columns(table, chosen, drop, "--drop")
    _check_columns(table, chosen, keep, "--keep")
    share = (SHARES if test is None else SHARES_WITHOUT_TEST)["train"]
    inferred = infer(table, chosen, train_share=share, drop=drop, keep=keep)
    inferred = inferred.with_models(models)
    files = {ALL: str(data)}
    if table.column(chosen).missing:
        # Rows without a label cannot be trained on, so the others are copied.
        labelled = path.parent / f"{_stem(data)}.labelled.csv"
        files = {ALL: _write_labelled(inferred, data, labelled)}
        inferred = dataclasses.replace(inferred, format="csv")
    if test is not None:
        files["test"] = str(test)
    made_by = shlex.join(
        ["estimax", "init", str(data), "--label", chosen]
        + (["--test", str(test)] if test else [])
        + (["--drop", ",".join(drop)] if drop else [])
        + (["--keep", ",".join(keep)] if keep else [])
        + (["--model", model] if model else [])
    )
    text = starter_text(
        inferred,
        files,
        name=name or path.stem,
        path=str(path),
        made_by=made_by,
        schema=_schema_of_editors(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, text.encode())
    _report(table, inferred, path, _split(inferred, test))


def _schema_of_editors() -> str:
    """Write the JSON Schema to the cache of the user, and return its URL.

    All run files share one schema. Without a folder for caches there is none.
    """
    path = user_cache_folder() / "estimax" / "estimax-run.v1.schema.json"
    text = (json.dumps(json_schema(), indent=2) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != text:
            atomic.write_bytes(path, text)
    except OSError:
        return ""
    return path.as_uri()


def _stem(data: Path) -> str:
    """Return the name of a file without its suffixes such as .csv and .gz."""
    name = data.name
    for suffix in (".gz", ".zst", ".bz2", ".csv", ".tsv", ".txt", ".parquet", ".pq"):
        name = name.removesuffix(suffix)
    return name


def _check_new(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise ConfigError(f"--output: {path} is a folder; name a file in it.")
    if path.exists() and not force:
        raise ConfigError(
            f"{path} exists already. Use another folder (--output FOLDER/run.yaml), or "
            "replace it with --force."
        )


def _label(table: TableProfile, given: str | None) -> str:
    """Return the label: as given, or as answered on a terminal, or a guess."""
    if given is not None:
        if given not in table.names:
            hint = did_you_mean(given, table.names)
            listed = ", ".join(table.names)
            raise ConfigError(
                f"--label: {table.path} has no column {given!r}{hint}; its columns "
                f"are: {listed}."
            )
        return given
    guess = guess_label(table)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        note(f"label: {guess} (a guess; --label names another column)", "yellow")
        return guess
    note(f"columns: {', '.join(table.names)}")
    while True:
        notes.print(f"Which column is to be predicted? [{guess}] ", end="")
        answer = sys.stdin.readline().strip() or guess
        if answer in table.names:
            return answer
        note(f"there is no column {answer!r}{did_you_mean(answer, table.names)}")


def _check_columns(
    table: TableProfile, label: str, columns: Sequence[str], option: str
) -> None:
    for column in columns:
        if column not in table.names:
            raise ConfigError(
                f"{option}: {table.path} has no column {column!r}"
                f"{did_you_mean(column, table.names)}"
            )
        if column == label:
            raise ConfigError(f"{option}: {column!r} is the label.")


def _write_labelled(inferred: Inferred, data: Path, path: Path) -> str:
    """Write the rows with a label to a file; return its path."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows, _ = read_texts(str(data))
    labels = pc.utf8_trim_whitespace(rows[inferred.label])
    has_label = pc.invert(pc.is_in(labels, pa.array(NULL_WORDS)))
    dropped = rows.num_rows - pc.sum(has_label).as_py()
    rows = rows.filter(has_label)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_csv(rows, path, inferred.delimiter)
    note(f"{dropped:,} rows have no label and are left out", "yellow")
    note(f"{path}: the {rows.num_rows:,} rows that have one")
    return os.path.relpath(path)


def _write_csv(rows: Any, path: Path, delimiter: str) -> None:  # pyarrow has no types
    import pyarrow as pa
    import pyarrow.csv

    for style in ("none", "needed"):  # "needed" quotes every text
        sink = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style=style)
        try:
            pyarrow.csv.write_csv(rows, sink, options)
        except pa.ArrowInvalid:
            continue  # a value holds the delimiter, a quote or a line break
        atomic.write_bytes(path, sink.getvalue().to_pybytes())
        return


def _report(table: TableProfile, inferred: Inferred, path: Path, split: str) -> None:
    for column, reason in inferred.skipped:
        is_leak = column in inferred.leaks
        note(f"  left out: {column!r} {reason}", "yellow" if is_leak else "")
    if inferred.leaks:
        names = shlex.quote(",".join(inferred.leaks))
        note(f"  if they are known before the label, use --keep {names}")
    say(wrap_lines(_summary(table, inferred, path, split), results))
    if inferred.models == ("network",) and not has_lightgbm():
        note(
            '  with trees it is usually better: pip install "estimax[trees]"', "yellow"
        )
    note("next:")
    note(f"  estimax check {shlex.quote(str(path))} --data", "cyan")
    note(f"  estimax train {shlex.quote(str(path))}", "cyan")


def _summary(table: TableProfile, inferred: Inferred, path: Path, split: str) -> str:
    """Return one paragraph: what was seen and left out, the split, and the time."""
    used = len(table.columns) - 1 - len(inferred.skipped)
    seen = ""
    if not table.is_complete:
        seen = f" ({table.columns[0].rows:,} of them, evenly chosen, were looked at)"
    sentences = [
        f"{path}: predicts {inferred.label!r} ({inferred.task.remark}) from {used} "
        f"columns of {table.rows:,} rows{seen}.",
        _left_out(inferred),
        split,
        f"Training takes up to {inferred.steps:,} steps, {_about(inferred)} on one "
        "core; it ends earlier if the validation rows no longer improve.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _left_out(inferred: Inferred) -> str:
    if not inferred.skipped:
        return ""
    shown = [repr(column) for column, _ in inferred.skipped[:_MOST_SHOWN]]
    more = len(inferred.skipped) - len(shown)
    listed = ", ".join(shown) + (f" and {more} more" if more else "")
    leaks = len(inferred.leaks)
    why = f"; {leaks} of them would give the label away" if leaks else ""
    if inferred.weight is not None:
        why += f"; {inferred.weight!r} may be data.weight"
    return f"Left out: {listed} (the reasons are above{why})."


_MOST_SHOWN = 5
# Seconds of CPU: to start and compile, for a step, for an evaluation with a checkpoint
# and bundle, and for each value that is read. They fit tables of 442 rows (11 s), 6,000
# rows (19 s) and 1,017,209 rows (92 s, the comparison included).
_SECS_TO_START = 8.0
_SECS_PER_STEP = 1e-3
_SECS_TO_EVALUATE = 1.0
_SECS_PER_VALUE = 0.4e-6


def _about(inferred: Inferred) -> str:
    """Return the estimated time of a training, roughly."""
    evaluations = inferred.steps / inferred.steps_between
    held_out = inferred.train_rows * SHARES["validation"] / SHARES["train"]
    rows = inferred.steps * inferred.batch_size + evaluations * held_out
    secs = (
        _SECS_TO_START
        + inferred.steps * _secs_per_step(inferred)
        + evaluations * _SECS_TO_EVALUATE
        + (rows + inferred.train_rows) * (1 + len(inferred.features)) * _SECS_PER_VALUE
    )
    if secs < 90:
        return f"about {max(10, round(secs, -1)):.0f} seconds"
    return f"about {secs / 60:.0f} minutes"


def _secs_per_step(inferred: Inferred) -> float:
    if "network" not in inferred.models:
        return _SECS_PER_STEP
    # Of adult and titanic, whose networks have 128 and 64 units.
    return 13e-3 if inferred.train_rows >= 2_000 else 5e-3


def _split(inferred: Inferred, test: Path | None) -> str:
    """Return how the rows are split, and why."""
    shares = SHARES if test is None else SHARES_WITHOUT_TEST
    parts = ", ".join(f"{share:.0%} {part}" for part, share in shares.items())
    by = "at random"
    time = inferred.time
    if time is not None and time.is_used:
        by = f"by time, because {time.column!r} {time.reason}"
    elif time is not None:
        by += f" ({time.column!r} {time.reason}, so not by time)"
    beside = "" if test is None else f", and {test} is the test"
    return f"Rows are split {by}: {parts}{beside}."
