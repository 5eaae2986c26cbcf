"""`estimax predict`: predict every row of files with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.console import log_to, note, notes
from estimax.cli.events import emit, output
from estimax.core.errors import ConfigError


def predict(
    path: Path,
    input_files: str,
    output_path: Path | None,
    output_form: str | None,
    overrides: Sequence[str],
    model_dir: str | None,
    checkpoint: str | None,
    *,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Write the predictions of each row of the input, in its order."""
    if as_json and output_path in (None, Path("-")):
        raise ConfigError(
            "--json: standard output has the events; name a file for the predictions "
            "with --output. For predictions as JSON, use --output-format jsonl."
        )
    with output(quiet=quiet, as_json=as_json):
        loaded = config.load(path, overrides, model_dir=model_dir)
        with notes.status("starting"):
            from estimax.config.build import build
            from estimax.config.build_input import make_predict_input_fn
            from estimax.core.spec import PredictOutput
            from estimax.export.scoring.rows import open_rows

            log_to(notes)
            built = build(loaded)
        batches = built.estimator.predict(
            make_predict_input_fn(loaded.run, input_files),
            checkpoint_path=checkpoint,
            yield_single_examples=False,
        )
        with open_rows(output_path, output_form) as rows:
            for batch in batches:
                rows.write(PredictOutput(batch).as_outputs())  # as a bundle names them
                emit("rows", rows=rows.count)
        emit("end", rows=rows.count, output=output_path)
        where = "" if output_path is None else f" in {output_path}"
        note(f"{rows.count:,} rows{where}")
