"""`estimax python`: print the Python script that a run file stands for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.console import log_to, notes
from estimax.cli.data_errors import located
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files


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
        with located(run, [run.train.source]):
            text = script_of(loaded)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)
