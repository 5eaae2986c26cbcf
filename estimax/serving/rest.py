"""The REST APIs of TensorFlow Serving and of the Open Inference Protocol, for ASGI.

    app = RestApp(service, metrics)
    uvicorn.run(app, port=8501)

Host it in any ASGI server. The routes are few, so they are matched here without a web
framework, which would take a fifth of the time of a small request.
"""

from __future__ import annotations

import gzip
import logging
import re
import time
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from estimax import __version__
from estimax.serving import json_bodies
from estimax.serving.config import METRICS_PATH, RestLimits
from estimax.serving.describe import (
    metadata_json,
    models_json,
    page,
    page_state,
    status_json,
)
from estimax.serving.examples import example_from_json
from estimax.serving.inference import (
    Answer,
    InferenceService,
    Target,
)
from estimax.serving.json_bodies import JsonPieces, parse_in_pieces
from estimax.serving.metric_families import Family
from estimax.serving.metrics import Observed, ServerMetrics, text_of, totals_of
from estimax.serving.open_inference import (
    JSON_LENGTH,
    OpenInferenceApi,
    model_metadata,
    server_metadata,
)
from estimax.serving.openapi import openapi
from estimax.serving.requests import CLASSES, REGRESSION, SCORES, features_from_json
from estimax.serving.status import Code, ServingError, check_token, invalid
from estimax.serving.threads import LARGE, SMALL
from estimax.serving.versions import LoadedVersion

_access = logging.getLogger("estimax.serving.access")

_COMPRESSED_FROM: Final = 8192
_SENT_AT_ONCE: Final = 1_000_000  # bytes
_PARSED_AT_ONCE: Final = 1_000_000  # bytes, which take a few milliseconds
_INT64: Final = 2**63
_LIVE: Final = ("/healthz", "/livez", "/v2/health/live")
_READY: Final = ("/readyz", "/v2/health/ready")
_HEALTH: Final = (*_LIVE, *_READY)
_PAGES: Final = ("/", "/ui", "/ui/")
# TensorFlow Serving matches the path without regard to case, and the verb after it with
# regard: ":Predict" is a malformed request.
_PATH: Final = re.compile(
    r"/v1/models(?:/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<rest>/metadata|:[^/]*)?)?",
    re.IGNORECASE,
)
# Of the Open Inference Protocol.
_OPEN_PATH: Final = re.compile(
    r"/v2/models/(?P<name>[^/]+)"
    r"(?:/versions/(?P<version>[^/]+)|/labels/(?P<label>[^/]+))?"
    r"(?P<rest>/ready|/infer)?"
)

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
# The target, the body, and its size in bytes.
Verb = Callable[[Target, dict[str, Any], int], Awaitable["Response"]]


@dataclass(frozen=True)
class Response:
    """An answer before it is sent."""

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class RestApp:
    """An ASGI application that answers as TensorFlow Serving does.

    Args:
      service: Runs the requests.
      metrics: Counts them.
      limits: Sizes, time and access.
      is_draining: Whether the server is about to stop, for `/readyz`.
      families: Returns the metrics of the server. None: the families of `metrics`.
      metrics_path: The path of the metrics. None: there is none.
    """

    def __init__(
        self,
        service: InferenceService,
        metrics: ServerMetrics,
        limits: RestLimits | None = None,
        is_draining: Callable[[], bool] = lambda: False,
        *,
        families: Callable[[], Awaitable[list[Family]]] | None = None,
        metrics_path: str | None = METRICS_PATH,
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._limits = limits or RestLimits()
        self._is_draining = is_draining
        self._families = families or self._own_families
        self._metrics_path = metrics_path
        self._open_inference = OpenInferenceApi(service, self._limits.timeout)
        self._verbs: dict[str, Verb] = {
            ":predict": self._predict,
            ":classify": self._classify,
            ":regress": self._regress,
        }

    async def __call__(
        self, scope: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Answer one request of an ASGI server."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # answered with 403
        elif scope["type"] == "http":
            start = time.perf_counter()
            response = await self._respond(scope, receive)
            if scope["path"] not in _HEALTH:
                self._metrics.observe_response(response.status)
            await self._send(scope, response, send)
            _log_access(scope, response, time.perf_counter() - start)

    async def _respond(self, scope: Mapping[str, Any], receive: Receive) -> Response:
        start = time.perf_counter()
        try:
            # Before the path is looked at: without a token nobody learns which models
            # exist.
            self._check_token(scope)
            return await self._route(scope, receive)
        except ServingError as error:
            if not error.is_counted:
                self._count_failure(scope, error.code, time.perf_counter() - start)
            return _error(error)
        except Exception as error:  # a bug: the connection and the server live on
            logging.getLogger("estimax.serving").exception("request failed")
            return _error(
                ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}")
            )

    def _check_token(self, scope: Mapping[str, Any]) -> None:
        # Only health checks need no token, and the page, which holds no data and asks
        # for the token. Compare the exact path: model routes ignore
        # case, so "/LIVEZ" must not skip the check.
        # A browser asks with OPTIONS before it sends the token.
        is_open = scope["path"] in (*_HEALTH, *_PAGES) or scope["method"] == "OPTIONS"
        if self._limits.token is not None and not is_open:
            given = _header(scope, b"authorization") or b""
            check_token(self._limits.token, given)

    async def _route(self, scope: Mapping[str, Any], receive: Receive) -> Response:
        method, path = _method(scope), _raw_path(scope)
        if method == "OPTIONS" and path.startswith(("/v1/", "/v2/")):
            return _preflight(scope)
        if path == self._metrics_path and method == "GET":
            families = await self._families()
            # Thousands of lines, for which requests need not wait.
            return _text(
                await self._service.decode_threads.run(LARGE, text_of, families)
            )
        if path == "/ui/state" and method == "GET":
            totals = totals_of(await self._families())
            return _json(page_state(self._service.manager, totals))
        if path == "/openapi.json" and method == "GET":
            has_token = self._limits.token is not None
            return _json(openapi(self._service.manager, __version__, has_token))
        if (found := self._page(method, path)) is not None:
            return found
        if path == "/v2" or path.startswith("/v2/"):
            return await self._open_request(scope, receive)
        match = _PATH.fullmatch(path)
        if match is None and path.startswith("/v1/"):
            raise invalid(f"malformed request: {method} {path}")
        if match is None:
            return Response(404, b"not found\n", b"text/plain")
        return await self._model_request(scope, receive, match)

    def _page(self, method: str, path: str) -> Response | None:
        """Return the answer of a path for people and for health checks, or None."""
        if method != "GET":
            return None
        if path in _LIVE:
            return _text("ok\n")
        if path in _READY:
            is_ready = self._service.manager.is_ready() and not self._is_draining()
            return _text(
                "ready\n" if is_ready else "not ready\n", 200 if is_ready else 503
            )
        if path in _PAGES:
            return Response(200, page(), b"text/html; charset=utf-8")
        return None

    async def _own_families(self) -> list[Family]:
        return self._metrics.families(self._service.manager)

    def _count_failure(
        self, scope: Mapping[str, Any], code: Code, seconds: float
    ) -> None:
        """Count a request that failed before it reached a model."""
        match = _PATH.fullmatch(_raw_path(scope))
        verb = (match["rest"] or "") if match is not None else ""
        is_question = scope["method"] in ("GET", "HEAD") and not verb.startswith(":")
        if is_question and code is not Code.UNAUTHENTICATED:
            return  # status and metadata are not inference
        name = urllib.parse.unquote(match["name"] or "") if match is not None else ""
        # A label for each name that clients invent would fill the memory of Prometheus.
        known = name if name in self._service.manager.models() else ""
        method = verb[1:] if verb in self._verbs else ""
        self._metrics.observe(
            Observed(known, None, "", method, "REST", code, 0, seconds)
        )

    async def _model_request(
        self, scope: Mapping[str, Any], receive: Receive, match: re.Match[str]
    ) -> Response:
        method, manager = _method(scope), self._service.manager
        target, rest = _target(match), match["rest"] or ""
        if match["name"] is None:
            if method == "GET" and b"list=1" in scope["query_string"].split(b"&"):
                return _json(models_json(manager))
            raise invalid("expected the name of a model: /v1/models/NAME")
        if method == "GET" and not rest:
            return _json(status_json(manager, target))
        if method == "GET" and rest.lower() == "/metadata":
            return _json(metadata_json(manager, target))
        verb = self._verbs.get(rest)
        if method != "POST" or verb is None:
            raise invalid(
                f"malformed request: {method} {_raw_path(scope)}; expected POST with "
                ":predict, :classify or :regress, or GET for status and metadata."
            )
        body, size = await self._body(scope, receive)
        return await verb(target, body, size)

    async def _open_request(
        self, scope: Mapping[str, Any], receive: Receive
    ) -> Response:
        """Answer a request of the Open Inference Protocol."""
        method, path = _method(scope), _raw_path(scope)
        if method == "GET" and path == "/v2":
            return _json(server_metadata(__version__))
        match = _OPEN_PATH.fullmatch(path)
        rest = match["rest"] if match is not None else None
        if match is None or method != ("POST" if rest == "/infer" else "GET"):
            raise invalid(
                f"malformed request: {method} {path}; expected POST "
                "/v2/models/NAME/infer, or GET /v2, /v2/models/NAME or "
                "/v2/models/NAME/ready."
            )
        target, manager = _target(match), self._service.manager
        if rest == "/ready":
            with manager.acquire(target.name, target.version, target.label):
                return _json({"name": target.name, "ready": True})
        if rest is None:
            return _json(model_metadata(manager, target))
        data = await self._data(scope, receive)
        given = _header(scope, JSON_LENGTH)
        text, blob = await self._open_inference.infer(target, data, given)
        if not blob:
            return Response(200, text)
        headers = ((JSON_LENGTH, b"%d" % len(text)),)
        return Response(200, text + blob, b"application/octet-stream", headers)

    async def _predict(
        self, target: Target, body: dict[str, Any], size: int
    ) -> Response:
        is_row_form = False

        def read(specs: Any, loaded: LoadedVersion) -> Any:
            nonlocal is_row_form
            features, is_row_form = features_from_json(body, specs, loaded.reader)
            # Thousands of objects, which the garbage collector would visit while the
            # request waits for its batch.
            body.clear()
            return features

        answer = await self._service.predict(
            _with_signature(target, body),
            read,
            output_filter=_output_filter(body),
            timeout=self._limits.timeout,
            size=size,
        )
        # After the run: only the outputs show whether they have a row for each
        # instance.
        if is_row_form:
            _check_rows(answer)
        write = json_bodies.predictions_json
        return await self._write(answer, write, answer.outputs, is_row_form)

    async def _classify(
        self, target: Target, body: dict[str, Any], size: int
    ) -> Response:
        examples = await self._service.decode_threads.run(size, _examples, body)
        answer = await self._service.classify(
            _with_signature(target, body), examples, self._limits.timeout
        )
        return await self._write(answer, _classes_json, answer)

    async def _regress(
        self, target: Target, body: dict[str, Any], size: int
    ) -> Response:
        examples = await self._service.decode_threads.run(size, _examples, body)
        answer = await self._service.regress(
            _with_signature(target, body), examples, self._limits.timeout
        )
        values = answer.outputs[REGRESSION]
        return await self._write(answer, json_bodies.list_json, "results", values)

    async def _write(
        self, answer: Answer, write: Callable[..., bytes], *arguments: Any
    ) -> Response:
        """Return the answer that `write(*arguments)` writes, in a thread if large."""
        size = json_bodies.SIZE_OF_NUMBER * sum(a.size for a in answer.outputs.values())
        return Response(
            200, await self._service.decode_threads.run(size, write, *arguments)
        )

    async def _body(
        self, scope: Mapping[str, Any], receive: Receive
    ) -> tuple[dict[str, Any], int]:
        """Return the object of a body, and the size of the body in bytes."""
        data = await self._data(scope, receive)
        size = len(data)
        # In the event loop: handing a body to a thread takes 50 microseconds.
        if size <= SMALL:
            return json_bodies.parse(data), size
        parse = json_bodies.parse if size <= _PARSED_AT_ONCE else parse_in_pieces
        return await self._service.decode_threads.run(size, parse, data), size

    async def _data(self, scope: Mapping[str, Any], receive: Receive) -> bytes:
        """Return the bytes of a body, decompressed."""
        data = await self._read(receive)
        encoding = (_header(scope, b"content-encoding") or b"").lower()
        if encoding == b"gzip":
            # A small body may become a large one.
            run, most = self._service.decode_threads.run, self._limits.max_body
            data = await run(LARGE, _inflate, data, most)
        elif encoding not in (b"", b"identity"):
            raise invalid(
                f"Content-Encoding: expected gzip, found {encoding.decode()}."
            )
        return data

    async def _read(self, receive: Receive) -> bytes:
        pieces, size, more = [], 0, True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise ServingError(Code.CANCELLED, "the client closed the connection.")
            pieces.append(event.get("body", b""))
            size += len(pieces[-1])
            # While it arrives, and not by Content-Length, which a client may leave out.
            if size > self._limits.max_body:
                raise _too_large(self._limits.max_body)
            more = event.get("more_body", False)
        return b"".join(pieces)

    async def _send(
        self, scope: Mapping[str, Any], response: Response, send: Send
    ) -> None:
        headers = [(b"content-type", response.content_type), *response.headers]
        body = response.body
        if self._is_draining():
            # Clients open their next connection to a server that stays.
            headers.append((b"connection", b"close"))
        # Both pass: a queue empties, and a model ends loading.
        if response.status in (429, 503):
            headers.append((b"retry-after", b"1"))
        if self._limits.allows_cors and _header(scope, b"origin"):
            headers += _CORS
        accepted = _header(scope, b"accept-encoding") or b""
        if len(body) > _COMPRESSED_FROM and b"gzip" in accepted:
            body = await self._compress(body)
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        start = {"type": "http.response.start", "status": response.status}
        await send({**start, "headers": headers})
        if scope["method"] == "HEAD":
            body = b""
        for place in range(0, len(body) or 1, _SENT_AT_ONCE):
            end = place + _SENT_AT_ONCE
            part = {"type": "http.response.body", "body": body[place:end]}
            await send({**part, "more_body": end < len(body)})

    async def _compress(self, body: bytes) -> bytes:
        return await self._service.decode_threads.run(len(body), gzip.compress, body, 1)


_CORS: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"Content-Type, Authorization"),
]


def _method(scope: Mapping[str, Any]) -> str:
    """Return the method; HEAD is GET, and its answer is sent without the body."""
    return "GET" if scope["method"] == "HEAD" else str(scope["method"])


def _raw_path(scope: Mapping[str, Any]) -> str:
    """Return the path before percent-decoding, which must not create a '/'."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.split(b"?")[0].decode("latin-1"))


def _target(match: re.Match[str]) -> Target:
    version = match["version"]
    if version is not None and not (version.isascii() and version.isdecimal()):
        raise invalid(f"version: expected digits, found {version[:100]!r}.")
    # Python refuses to convert thousands of digits.
    digits = None if version is None else version.lstrip("0") or "0"
    if digits is not None and (len(digits) > 19 or int(digits) >= _INT64):
        raise invalid(f"version {digits[:30]} is larger than a 64-bit number.")
    return Target(
        urllib.parse.unquote(match["name"] or ""),
        None if digits is None else int(digits),
        None if match["label"] is None else urllib.parse.unquote(match["label"]),
    )


def _with_signature(target: Target, body: Mapping[str, Any]) -> Target:
    name = body.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid("signature_name: expected a string.")
    return Target(target.name, target.version, target.label, name)


def _output_filter(body: Mapping[str, Any]) -> list[str]:
    names = body.get("output_filter", [])
    if isinstance(names, JsonPieces):
        names = names.whole()
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise invalid("output_filter: expected a list of names.")
    return names


def _examples(body: Mapping[str, Any]) -> list[bytes]:
    examples, context = body.get("examples"), body.get("context", {})
    if isinstance(examples, JsonPieces):
        examples = examples.whole()
    if not isinstance(examples, list) or not examples:
        raise invalid("examples: expected a list with at least one object.")
    if not isinstance(context, dict):
        raise invalid("context: expected an object of features.")
    if not all(isinstance(example, dict) for example in examples):
        raise invalid("examples: expected objects, found another value among them.")
    return [example_from_json({**context, **example}) for example in examples]


def _classes_json(answer: Answer) -> bytes:
    """Return `results`: [label, score] of every class of every row."""
    rows = _class_pairs(answer.outputs)
    is_finite = json_bodies.are_finite(answer.outputs.values())
    return json_bodies.list_json("results", rows, is_finite)


def _class_pairs(outputs: Mapping[str, Any]) -> list[list[list[Any]]]:
    given = next(iter(outputs.values()))
    rows, width = given.shape[0], given.shape[-1] if given.ndim > 1 else 1
    labels = (
        outputs[CLASSES].reshape(rows, width).tolist() if CLASSES in outputs else None
    )
    scores = outputs[SCORES].reshape(rows, width) if SCORES in outputs else None
    return [
        [
            [
                labels[i][k].decode("utf-8", "replace") if labels else "",
                scores[i][k] if scores is not None else 0.0,
            ]
            for k in range(width)
        ]
        for i in range(rows)
    ]


def _check_rows(answer: Answer) -> None:
    for name, array in answer.outputs.items():
        if not array.ndim or len(array) != answer.rows:
            raise invalid(
                f"output {name!r} has no row for each instance; send columns in "
                "'inputs' instead of 'instances'."
            )


def _inflate(data: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        # At most one byte beyond the limit: a few kB of gzip may hold gigabytes.
        found = inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise invalid(f"the body is not gzip: {error}.") from None
    if len(found) > most:
        raise _too_large(most)
    # Without its end, the checksum of the body has not been compared.
    if not inflater.eof:
        raise invalid("the body is not gzip: it is cut off.")
    return found


def _too_large(most: int) -> ServingError:
    return invalid(f"the body has more than {most} bytes; send fewer rows at a time.")


def _header(scope: Mapping[str, Any], name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


def _preflight(scope: Mapping[str, Any]) -> Response:
    origin = _header(scope, b"origin") or b""
    if not origin.startswith((b"http://", b"https://")):
        raise invalid("OPTIONS: expected the header 'Origin' of a web page.")
    # The CORS headers themselves are added by `_send`, to every answer.
    return _json({})


def _error(error: ServingError) -> Response:
    # A name that a client sent may be no valid text.
    text = str(error).encode("utf-8", "backslashreplace").decode()
    return Response(error.code.http, json_bodies.dumps({"error": text}))


def _json(value: Any) -> Response:
    return Response(200, json_bodies.dumps(value))


def _text(text: str, status: int = 200) -> Response:
    return Response(status, text.encode(), b"text/plain; charset=utf-8")


def _log_access(scope: Mapping[str, Any], response: Response, seconds: float) -> None:
    if not _access.isEnabledFor(logging.INFO):
        return
    client = scope.get("client") or ("-",)
    about = {
        "client": client[0],
        "method": scope["method"],
        "path": _raw_path(scope),
        "status": response.status,
        "bytes": len(response.body),
        "milliseconds": round(1000 * seconds, 3),
    }
    text = (
        "%(client)s %(method)s %(path)s %(status)d %(bytes)d bytes %(milliseconds)s ms"
    )
    _access.info(text, about, extra={"access": about})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
