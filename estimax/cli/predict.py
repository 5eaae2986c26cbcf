"""`estimax predict`: predict every row of a CSV file with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.screen import log_to, note, notes


def predict(
    path: Path,
    input_files: str,
    output: Path | None,
    overrides: Sequence[str],
    model_dir: str | None,
    checkpoint: str | None,
) -> None:
    """Write the predictions of each row of the input, in its order."""
    loaded = config.load(path, overrides, model_dir=model_dir)
    with notes.status("starting"):
        from estimax.cli.rows import open_rows
        from estimax.config.build import build
        from estimax.config.build_input import make_predict_input_fn

        log_to(notes)
        built = build(loaded)
    batches = built.estimator.predict(
        make_predict_input_fn(loaded.run, input_files),
        checkpoint_path=checkpoint,
        yield_single_examples=False,
    )
    with open_rows(output) as rows:
        for batch in batches:
            rows.write(batch)
    note(f"{rows.count:,} rows{'' if output is None else f' in {output}'}")
