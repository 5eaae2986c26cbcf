"""`estimax export`: write the bundle of a checkpoint of a trained run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.console import log_to, note, notes, say
from estimax.core.errors import MissingFileError


def export(
    run: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    checkpoint: str | None,
    output: Path | None,
) -> None:
    """Export a checkpoint; print the path of the bundle.

    Args:
      run: A model directory, or a run file.
      overrides: Values of --set.
      model_dir: Replaces the model directory of a run file.
      checkpoint: The checkpoint; the latest one if None.
      output: The folder of versions; `export/manual` in the model directory if None.
    """
    if run.is_dir():
        file = run / "config" / "resolved.yaml"
        if not file.is_file():
            raise MissingFileError(
                f"{run}: expected a run file, or a model directory of `estimax train`, "
                "which has config/resolved.yaml."
            )
        loaded = config.load(file, overrides, model_dir=str(run))
    else:
        loaded = config.load(run, overrides, model_dir=model_dir)
    folder = Path(loaded.run.run.model_dir)
    with notes.status("starting"):
        from estimax.config.build import build

        log_to(notes)
        built = build(loaded)
    target = folder / "export" / "manual" if output is None else output
    bundle = built.estimator.export_saved_model(target, checkpoint_path=checkpoint)
    say(bundle)
    note("next, try:")
    note(f"  estimax show {shlex.quote(str(target))}", "cyan")
    note(f"  estimax serve {shlex.quote(str(target))}", "cyan")
