"""A server that parses requests as `estimax serve` does, and answers a constant.

    python serving_constant.py BUNDLE PORT

The ceiling for a server of this kind: the same HTTP, the same JSON, the same checks, an
answer of the same size, and no host transforms, batches or compiled program.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn

from estimax import export
from estimax.export.signature import origins_of
from estimax.serving import json_bodies
from estimax.serving.requests import FeatureReader, PendingRows, features_from_json
from estimax.serving.rest import Response, RestApp


class ConstantApp(RestApp):
    """Answers every request with the outputs of the first one."""

    def __init__(self, bundle: export.Bundle) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]  # not used
        self._bundle = bundle
        first = next(iter(bundle.signatures.values()))
        self._reader = FeatureReader(first.inputs, origins_of(bundle.plan))
        self._answers: dict[int, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._send(scope, await self._constant(scope, receive), send)

    async def _constant(self, scope: Any, receive: Any) -> Response:
        if scope["method"] == "GET":
            return Response(200, b"ready")
        body = json_bodies.parse(await self._read(receive))
        signature = self._bundle.signature("serving_default")
        features, is_row_form = features_from_json(body, signature.inputs, self._reader)
        assert isinstance(features, PendingRows)
        batch, rows = self._reader.raw_batch([features]), features.rows
        if rows not in self._answers:
            arrays = self._bundle.transform(batch)
            self._answers[rows] = self._bundle.run("serving_default", arrays)
        answers = self._answers[rows]
        return Response(200, json_bodies.predictions_json(answers, is_row_form))


if __name__ == "__main__":
    path, port = Path(sys.argv[1]), int(sys.argv[2])
    app: Any = ConstantApp(export.load(path))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
