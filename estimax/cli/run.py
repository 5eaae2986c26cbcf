"""`estimax run`: predict every row of a table with an exported bundle.

One process writes a file or standard output. With --processes, several write a folder
of shards. No training code is imported, as in a server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from estimax.cli.console import note, notes
from estimax.cli.progress import ProgressLine
from estimax.core.errors import ConfigError

if TYPE_CHECKING:
    from estimax.export.scoring import ScoringProgress

_LEAST_SECONDS = 0.5  # before a speed is shown
_FILE_SUFFIXES = (".csv", ".json", ".jsonl", ".parquet", ".tfrecord")


def run(
    path: Path,
    input_files: str,
    input_form: str | None,
    output: Path | None,
    output_form: str | None,
    signature: str | None,
    keep: Sequence[str],
) -> None:
    """Write the predictions of each row of the input, in its order."""
    with notes.status("loading"):
        from estimax import export
        from estimax.export.scoring.rows import open_rows
        from estimax.export.scoring.tables import (
            InputColumns,
            check_keep,
            predict_batch,
            read_tables,
        )

        bundle = export.load(path)
        # Raises for an unknown one before data is read.
        called = bundle.signature(signature or bundle.default_signature)
        check_keep(keep, [spec.name for spec in called.outputs])
    features = {spec.name: spec for spec in called.inputs}
    started = time.monotonic()
    with open_rows(output, output_form) as rows:
        for batch in read_tables(input_files, input_form, InputColumns(features, keep)):
            kept = {name: batch.columns[name] for name in keep}
            rows.write(kept | predict_batch(bundle, called, batch))
    seconds = time.monotonic() - started
    where = "" if output is None else f" in {output}"
    note(f"{rows.count:,} rows{where}, {rows.count / seconds:,.0f} rows/s")


def run_processes(
    path: Path,
    input_files: str,
    input_form: str | None,
    output: Path | None,
    output_form: str | None,
    signature: str | None,
    keep: Sequence[str],
    processes: int,
    shard_rows: int | None,
) -> None:
    """Write a folder of shards with the predictions of each row of the input."""
    # Light imports only: the processes start at once.
    from estimax.export.scoring import score_files
    from estimax.export.scoring.plan import SHARD_ROWS

    folder = _folder(input_files, output)
    now = time.monotonic()
    with ProgressLine(notes, None, "loading", since=now, is_transient=True) as line:
        try:
            result = score_files(
                path,
                input_files,
                folder,
                processes=processes,
                keep=keep,
                signature=signature,
                input_format=input_form,
                output_format=output_form or "parquet",
                shard_rows=SHARD_ROWS if shard_rows is None else shard_rows,
                on_progress=_ShardProgress(line),
            )
        except KeyboardInterrupt:
            note("interrupted; the same command continues with the missing shards")
            raise
    if not result.new_rows:
        note(f"{result.rows:,} rows in {folder}: all of them were complete before")
        return
    before = result.rows - result.new_rows
    note(
        f"{result.rows:,} rows in {len(result.files)} shards in {folder}"
        f"{f', of which {before:,} were complete before' if before else ''}, "
        f"{result.new_rows / max(result.seconds, 1e-9):,.0f} rows/s"
    )


def _folder(input_files: str, output: Path | None) -> Path:
    """Return the folder of the shards; raise if the options name none."""
    if input_files == "-":
        raise ConfigError(
            "--processes: standard input cannot be shared by processes. Write it to a "
            "file, or leave --processes out."
        )
    if output is None or str(output) == "-":
        raise ConfigError(
            "--processes: several processes write a folder of shards; name it with "
            "--output, and the format with --output-format (parquet by default)."
        )
    if output.suffix in _FILE_SUFFIXES and not output.is_dir():
        form = output.suffix.removeprefix(".")
        raise ConfigError(
            f"--output: {output} is the name of a file, and --processes writes a "
            f"folder of shards: --output {output.with_suffix('')} --output-format "
            f"{'jsonl' if form == 'json' else form}"
        )
    return output


class _ShardProgress:
    """Shows how many rows and shards of a scoring are complete, and how fast."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._first: tuple[float, int] | None = None  # time and rows when it began

    def __call__(self, progress: ScoringProgress) -> None:
        """Show how far the scoring is."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, progress.rows
            self._line.set_total(progress.total_rows)
        seconds, rows = now - self._first[0], progress.rows - self._first[1]
        total = progress.total_rows
        texts = [
            f"{progress.rows:,}{'' if total is None else f'/{total:,}'} rows",
            f"{progress.shards}/{progress.total_shards} shards",
        ]
        if seconds > _LEAST_SECONDS:
            texts.append(f"{rows / seconds:,.0f} rows/s")
        self._line.show("scoring", progress.rows, texts, now)
