"""A process that scores shards: `python -m estimax.export.scoring.worker`.

`score.py` starts it. The first line of standard input names the bundle; every other
line is a shard to score. Answers go to standard output, one JSON object per line:

    {"ready": {"bundle": …, "checksum": …, "signature": …, "outputs": […]}}
    {"rows": 4096}                     # more rows of the shard are predicted
    {"done": {"shard": 3, "rows": 131072, "size": 9451120}}
    {"error": {"kind": "InputError", "message": …, "traceback": …}}

The process ends when standard input is closed. No training code is imported.
"""

from __future__ import annotations

import base64
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from estimax import export
from estimax.core.errors import EstimaxError, InputError
from estimax.export.arrow_tables import arrow_types, as_arrow
from estimax.export.scoring.plan import FilePart
from estimax.export.scoring.rows import open_rows
from estimax.export.scoring.tables import InputColumns, predict_batch, read_part
from estimax.storage.compilation_cache import AUTO, keep_compiled_programs
from estimax.storage.worker_pool import ParentPipe


class ScoringWorker:
    """A loaded bundle, and the columns that are kept.

    Args:
      bundle: The folder of the bundle.
      signature: The signature to call; None for the default.
      keep: The columns to write beside the predictions.
    """

    def __init__(self, bundle: str, signature: str | None, keep: list[str]) -> None:
        self._bundle = export.load(bundle)
        self._called = self._bundle.signature(
            signature or self._bundle.default_signature
        )
        features = {spec.name: spec for spec in self._called.inputs}
        self._wanted = InputColumns(features, keep)

    def about(self) -> dict[str, Any]:
        """Return what the process that makes the plan needs to know."""
        return {
            "bundle": str(self._bundle.path),
            "checksum": self._bundle.manifest["checksum"],
            "signature": self._called.name,
            "outputs": [spec.name for spec in self._called.outputs],
        }

    def schema(self, path: str, part: FilePart) -> str:
        """Return the Arrow schema of the output in base64.

        The types of kept columns are those of the first rows of a part; a column
        without a value becomes text.
        """
        import pyarrow as pa

        wanted = InputColumns({}, self._wanted.keep)
        types: dict[str, Any] = dict.fromkeys(wanted.keep, pa.string())
        batch = next(read_part(path, part, wanted), None) if wanted.keep else None
        if batch is not None:
            found = {n: as_arrow(batch.columns[n]).type for n in wanted.keep}
            types |= {n: t for n, t in found.items() if not pa.types.is_null(t)}
        types |= arrow_types(self._called, fixed_size=True)
        return base64.b64encode(pa.schema(types).serialize()).decode()

    def score(self, task: Mapping[str, Any], send: Any) -> dict[str, Any]:
        """Write a shard; return its number, its rows and the bytes of its file."""
        output = Path(task["output"])
        keep = self._wanted.keep
        parent = os.getppid()
        with open_rows(output, task["format"], _schema(task["schema"])) as rows:
            for given in task["parts"]:
                part = FilePart.from_json(given["part"])
                for batch in read_part(given["path"], part, self._wanted):
                    kept = {name: batch.columns[name] for name in keep}
                    answers = predict_batch(self._bundle, self._called, batch)
                    rows.write(kept | answers)
                    send({"rows": batch.rows})
                _check_unchanged(given)
            if os.getppid() != parent:
                # The process that started this one was killed, and another scoring may
                # be using the folder: leave no file there.
                os._exit(1)
        size = output.stat().st_size
        return {"shard": task["shard"], "rows": rows.count, "size": size}


def _schema(text: str | None) -> Any:
    if text is None:
        return None
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _check_unchanged(given: Mapping[str, Any]) -> None:
    about = os.stat(given["path"])
    if (about.st_size, about.st_mtime_ns) != (given["size"], given["modified"]):
        raise InputError(
            f"{given['path']}: the file has changed while it was scored. Score files "
            "that are complete, and start again in another output folder."
        )


def main() -> None:
    """Answer the messages on standard input until it is closed."""
    pipe = ParentPipe()
    try:
        _serve(pipe)
    except Exception as error:
        pipe.send({"error": _describe_error(error)})
        pipe.receive()  # ends the process when the input is closed


def _serve(pipe: ParentPipe) -> None:
    keep_compiled_programs(AUTO)
    worker = ScoringWorker(**pipe.receive())
    pipe.send({"ready": worker.about()})
    while True:
        task = pipe.receive()
        if "schema_of" in task:
            given = task["schema_of"]
            part = FilePart.from_json(given["part"])
            pipe.send({"schema": worker.schema(given["path"], part)})
        else:
            pipe.send({"done": worker.score(task, pipe.send)})


def _describe_error(error: Exception) -> dict[str, Any]:
    # The class that callers know: a subclass may have other arguments.
    known = next(
        (kind for kind in type(error).__mro__ if kind.__module__ == _ERRORS),
        type(error),
    )
    kind = known if isinstance(error, EstimaxError) else type(error)
    described: dict[str, Any] = {
        "kind": kind.__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, OSError) and error.errno is not None:
        described["system"] = [error.errno, error.strerror, error.filename]
    return described


_ERRORS = "estimax.core.errors"

if __name__ == "__main__":
    main()
