"""`estimax evaluate`: print the metrics of a trained model on a source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.screen import log_to, metrics_table, notes, results
from estimax.config.data_report import find_files
from estimax.core.errors import ConfigError, did_you_mean


def evaluate(
    path: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    source: str | None,
    checkpoint: str | None,
    *,
    as_json: bool,
) -> None:
    """Evaluate the model and print its metrics, as a table or as JSON."""
    loaded = config.load(path, overrides, model_dir=model_dir)
    name = _source(loaded.run, source)
    find_files(loaded.run.data.sources[name], name)
    with notes.status("starting"):
        from estimax.config.build import build

        log_to(notes)
        built = build(loaded)
    steps = loaded.run.eval.steps if loaded.run.eval else None
    metrics = built.estimator.evaluate(
        built.input_fn(name),
        steps=steps,
        checkpoint_path=checkpoint,
        name=None if source is None else source,
    )
    if as_json:
        plain = {key: _plain(value) for key, value in sorted(metrics.items())}
        results.print_json(json.dumps(plain))
    else:
        results.print(metrics_table(metrics, f"{loaded.run.name} on {name}"))


def _source(run: config.Run, given: str | None) -> str:
    if given is None:
        if run.eval is None:
            raise ConfigError("the run has no eval section; name a source: --source.")
        return run.eval.source
    if given not in run.data.sources:
        hint = did_you_mean(given, run.data.sources)
        raise ConfigError(f"--source: unknown source {given!r}{hint}")
    source = run.data.sources[given]
    if source.epochs is None:
        raise ConfigError(f"--source: {given!r} repeats forever; set its epochs.")
    return given


def _plain(value: object) -> object:
    to_list = getattr(value, "tolist", None)
    return value if to_list is None else to_list()
