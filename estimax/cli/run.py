"""`estimax run`: predict every row of a CSV file with an exported bundle.

No training code is imported, as in a server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from estimax.cli.screen import note, notes
from estimax.core.errors import InputError, did_you_mean


def run(path: Path, input_files: str, output: Path | None, signature: str) -> None:
    """Write the predictions of each row of the input, in its order."""
    with notes.status("loading"):
        from estimax import export
        from estimax.cli.rows import open_rows

        bundle = export.load(path)
        bundle.signature(signature)  # raises for an unknown one before data is read
        batches = _read(bundle, input_files)
    started = time.monotonic()
    with open_rows(output) as rows:
        for features in batches:
            rows.write(bundle.predict(features, signature))
    seconds = time.monotonic() - started
    where = "" if output is None else f" in {output}"
    note(f"{rows.count:,} rows{where}, {rows.count / seconds:,.0f} rows/s")


def _read(bundle: Any, files: str) -> Any:  # a Bundle; batches of features
    from estimax import input as inputs

    features: Mapping[str, Mapping[str, Any]] = bundle.describe()["features"]
    # Missing numbers are NaN, missing ids -1: the model fills them as in training.
    defaults = {
        name: float("nan") if spec["dtype"].startswith("float") else -1
        for name, spec in features.items()
        if spec["dtype"] != "string"
    }
    _check_columns(files, features)
    data = inputs.csv_files(
        files,
        select=features,
        dtypes={name: spec["dtype"] for name, spec in features.items()},
        defaults=defaults,
    )
    return data.batch(4096)


def _check_columns(files: str, features: Mapping[str, object]) -> None:
    from estimax.config.data_report import find_files, header
    from estimax.config.schema.data import CsvSource

    source = CsvSource(format="csv", files=(files,), batch_size=1)
    path = find_files(source, "--input")[0]
    names = header(path, source)
    for name in features:
        if name not in names:
            hint = did_you_mean(name, names)
            raise InputError(f"{path}: the bundle needs a column {name!r}{hint}")
