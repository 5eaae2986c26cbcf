"""The gRPC API of TensorFlow Serving.

    server = grpc.aio.server()
    add_services(server, service)

Handlers are registered by name, so no generated stubs are needed. All methods are
unary and run in the event loop of the REST API, with the same queues.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from estimax.core.errors import ConfigError
from estimax.export import CLASSIFY, REGRESS, TensorInfo
from estimax.serving.config import ModelConfig
from estimax.serving.config_files import model_configs_from_proto
from estimax.serving.describe import error_of, inputs_of, method_of
from estimax.serving.examples import examples_from_proto
from estimax.serving.inference import Answer, InferenceService, Target
from estimax.serving.metrics import Observed
from estimax.serving.protos import message, request_message
from estimax.serving.requests import CLASSES, REGRESSION, SCORES
from estimax.serving.status import Code, ServingError, check_token, invalid
from estimax.serving.tensors import check_inputs, dtype_number, field, tensor_bytes
from estimax.serving.threads import SMALL, DecodeThreads, ReloadThreads
from estimax.serving.versions import LoadedVersion

_log = logging.getLogger("estimax.serving")
_MOST_DETAILS: Final = 1024  # characters of an error, as in TensorFlow Serving
# Clients unpack the metadata by this name, which is not ours.
_TYPE_URL: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_RELOAD_SECONDS: Final = 600.0

_INFERENCE: Final = ("predict", "classify", "regress", "multi_inference")

RpcHandler = Callable[[Any, float | None], Awaitable[Any]]
Reload = Callable[[Sequence[ModelConfig], float], Awaitable[None]]


class GrpcApi:
    """The methods of PredictionService and ModelService.

    Args:
      service: Runs the requests.
      as_content: Answer with `tensor_content` instead of typed fields.
      token: The bearer token that calls must carry as metadata. None: none.
      reload: Replaces all models. None: only the manager of `service` replaces its own.
      observe: Called after a request that failed before it reached a model.
    """

    def __init__(
        self,
        service: InferenceService,
        *,
        as_content: bool = False,
        token: str | None = None,
        reload: Reload | None = None,
        observe: Callable[[Observed], None] = lambda _: None,
    ) -> None:
        self._service = service
        self._reload = reload or ReloadThreads(service.manager.reload).run
        self._observe = observe
        self._as_content = as_content
        self._token = token

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers of both services, for `add_generic_rpc_handlers`."""
        prediction = {
            "Predict": (self.predict, "PredictRequest"),
            "Classify": (self.classify, "ClassificationRequest"),
            "Regress": (self.regress, "RegressionRequest"),
            "MultiInference": (self.multi_inference, "MultiInferenceRequest"),
            "GetModelMetadata": (self.get_model_metadata, "GetModelMetadataRequest"),
        }
        model = {
            "GetModelStatus": (self.get_model_status, "GetModelStatusRequest"),
            "HandleReloadConfigRequest": (self.reload_config, "ReloadConfigRequest"),
        }
        return [
            grpc.method_handlers_generic_handler(
                f"tensorflow.serving.{service}",
                {
                    name: _unary(
                        run,
                        request,
                        self._token,
                        self._service.decode_threads,
                        self._observe,
                    )
                    for name, (run, request) in methods.items()
                },
            )
            for service, methods in (
                ("PredictionService", prediction),
                ("ModelService", model),
            )
        ]

    async def predict(self, request: Any, timeout: float | None) -> Any:
        """Answer a Predict request with a serialized PredictResponse."""

        inputs = dict(request.inputs)
        size = sum(map(len, inputs.values()))

        def read(specs: Sequence[TensorInfo], loaded: LoadedVersion) -> Any:
            # The short way of one row; None means any other form, not a mistake.
            row = loaded.tensor_reader.from_inputs(inputs) if size <= SMALL else None
            if row is not None:
                return row
            checked = check_inputs(
                inputs,
                specs,
                text_inputs=loaded.reader.text_inputs,
                max_rows=self._service.max_rows,
            )
            # A short message may stand for many values.
            is_small = size > SMALL or checked.elements <= SMALL // 8
            return checked.decode() if is_small else checked.decode

        answer = await self._service.predict(
            _target(request.model_spec),
            read,
            output_filter=list(request.output_filter),
            timeout=timeout,
            size=size,
        )
        return await self._service.decode_threads.run(
            _size_of(answer), predict_response, answer, self._as_content
        )

    async def classify(self, request: Any, timeout: float | None) -> Any:
        """Answer a Classify request."""
        answer = await self._service.classify(
            _target(request.model_spec), examples_from_proto(request.input), timeout
        )
        response = message("ClassificationResponse")()
        fill = _fill_classes
        await self._service.decode_threads.run(
            _size_of(answer), fill, response.result, answer
        )
        _fill_spec(response.model_spec, answer)
        return response

    async def regress(self, request: Any, timeout: float | None) -> Any:
        """Answer a Regress request."""
        answer = await self._service.regress(
            _target(request.model_spec), examples_from_proto(request.input), timeout
        )
        response = message("RegressionResponse")()
        fill = _fill_regressions
        await self._service.decode_threads.run(
            _size_of(answer), fill, response.result, answer
        )
        _fill_spec(response.model_spec, answer)
        return response

    async def multi_inference(self, request: Any, timeout: float | None) -> Any:
        """Answer MultiInference: several signatures of one model, one input."""
        targets = [_target(task.model_spec) for task in request.tasks]
        _check_tasks(request.tasks, targets)
        examples = examples_from_proto(request.input)
        with self._service.manager.acquire(
            targets[0].name, targets[0].version, targets[0].label
        ) as held:  # one version answers all tasks
            response = message("MultiInferenceResponse")()
            for task, target in zip(request.tasks, targets, strict=True):
                # By number: "latest" may be another version by the second task.
                same = Target(target.name, held.number, signature=target.signature)
                result = response.results.add()
                if task.method_name == CLASSIFY:
                    answer = await self._service.classify(same, examples, timeout)
                    _fill_classes(result.classification_result, answer)
                else:
                    answer = await self._service.regress(same, examples, timeout)
                    _fill_regressions(result.regression_result, answer)
                _fill_spec(result.model_spec, answer)
            return response

    async def get_model_metadata(self, request: Any, timeout: float | None) -> Any:
        """Answer a GetModelMetadata request."""
        target = _target(request.model_spec)
        # The only field that TensorFlow Serving knows.
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid(
                "metadata_field: expected 'signature_def', found "
                f"{', '.join(request.metadata_field) or 'none'}."
            )
        with self._service.manager.acquire(
            target.name, target.version, target.label
        ) as served:
            signatures = message("SignatureDefMap")()
            for name, signature in served.loaded.bundle.signatures.items():
                made = signatures.signature_def[name]
                made.method_name = method_of(signature)
                _fill_infos(made.inputs, inputs_of(signature))
                _fill_infos(made.outputs, signature.outputs)
            response = message("GetModelMetadataResponse")()
            response.model_spec.name = target.name
            response.model_spec.version.value = served.number
        packed = response.metadata["signature_def"]
        packed.type_url = _TYPE_URL
        packed.value = signatures.SerializeToString()
        return response

    async def get_model_status(self, request: Any, timeout: float | None) -> Any:
        """Answer a GetModelStatus request."""
        target = _target(request.model_spec)
        response = message("GetModelStatusResponse")()
        versions = self._service.manager.versions(
            target.name, target.version, target.label
        )
        for version in versions:
            code, text = error_of(version)
            made = response.model_version_status.add(
                version=version.number, state=int(version.state)
            )
            made.status.error_code = int(code)
            made.status.error_message = text
        return response

    async def reload_config(self, request: Any, timeout: float | None) -> Any:
        """Answer HandleReloadConfigRequest: replace all models."""
        try:
            configs = model_configs_from_proto(request.config, "config")
        except ConfigError as error:
            raise invalid(str(error)) from None
        if not configs:
            raise invalid("config: expected at least one model, found none.")
        # A client without a deadline must not keep the one reload busy for ever.
        seconds = min(timeout or _RELOAD_SECONDS, _RELOAD_SECONDS)
        await self._reload(configs, seconds)
        response = message("ReloadConfigResponse")()
        response.status.error_code = int(Code.OK)
        return response


def add_services(
    server: grpc.aio.Server,
    service: InferenceService,
    *,
    as_content: bool = False,
    token: str | None = None,
    reload: Reload | None = None,
    observe: Callable[[Observed], None] = lambda _: None,
) -> None:
    """Register the methods of TensorFlow Serving with a gRPC server."""
    api = GrpcApi(
        service, as_content=as_content, token=token, reload=reload, observe=observe
    )
    server.add_generic_rpc_handlers(tuple(api.handlers()))


def _unary(
    run: RpcHandler,
    request_name: str,
    token: str | None,
    threads: DecodeThreads,
    observe: Callable[[Observed], None],
) -> grpc.RpcMethodHandler:
    request_class = request_message(request_name)
    method = getattr(run, "__name__", "")  # of a method of GrpcApi

    def count(error: ServingError) -> None:
        """Count a request that failed before it reached a model."""
        is_refused = error.code is Code.UNAUTHENTICATED
        if not error.is_counted and (method in _INFERENCE or is_refused):
            known = method if method in _INFERENCE else ""
            observe(Observed("", None, "", known, "GRPC", error.code, 0, 0.0))

    async def handle(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            if token is not None:
                sent = dict(context.invocation_metadata() or ())
                given = sent.get("authorization", "")
                check_token(
                    token, given if isinstance(given, bytes) else given.encode()
                )
            request = await threads.run(len(data), _parse_request, request_class, data)
            response = await run(request, context.time_remaining())
            if isinstance(response, bytes):
                return response
            size = response.ByteSize()
            serialized: bytes = await threads.run(size, response.SerializeToString)
        except ServingError as error:
            # Before `abort`, which raises and does not return.
            count(error)
            await context.abort(_grpc_code(error.code), _shorten_details(str(error)))
        except Exception as error:  # a bug: the server lives on
            # `context.abort` raises it: the answer was sent.
            if isinstance(error, grpc.aio.AbortError):
                raise
            _log.exception("request failed")
            text = _shorten_details(f"{type(error).__name__}: {error}")
            await context.abort(grpc.StatusCode.INTERNAL, text)
        return serialized

    # Parsed in `handle`, since gRPC would answer a damaged message with UNKNOWN.
    return grpc.unary_unary_rpc_method_handler(handle)


def _parse_request(request_class: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return request_class.FromString(data)
    except DecodeError as error:
        name = request_class.DESCRIPTOR.name
        raise invalid(f"the request is not a {name}: {error}.") from None


def _grpc_code(code: Code) -> grpc.StatusCode:
    return grpc.StatusCode[code.name]


def _shorten_details(text: str) -> str:
    # A name that a client sent may be no valid text.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_DETAILS else text[: _MOST_DETAILS - 3] + "..."


def _target(spec: Any) -> Target:
    if not spec.name:
        raise invalid("model_spec: the name of the model is missing.")
    choice = spec.WhichOneof("version_choice")
    return Target(
        spec.name,
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
        spec.signature_name,
    )


def _check_tasks(tasks: Sequence[Any], targets: Sequence[Target]) -> None:
    if not tasks:
        raise invalid("tasks: expected at least one, found none.")
    # These rules, and UNIMPLEMENTED below, are TensorFlow Serving's.
    if len({target.name for target in targets}) > 1:
        raise invalid("tasks: all tasks of a request must name the same model.")
    names = [target.signature for target in targets]
    if len(set(names)) < len(names):
        raise invalid("tasks: two tasks name the same signature.")
    for task in tasks:
        if task.method_name not in (CLASSIFY, REGRESS):
            raise ServingError(
                Code.UNIMPLEMENTED,
                f"method {task.method_name!r}: expected {CLASSIFY} or {REGRESS}.",
            )


def _size_of(answer: Answer) -> int:
    """Return about how many bytes an answer has."""
    return sum(array.nbytes for array in answer.outputs.values())


def predict_response(answer: Answer, as_content: bool) -> bytes:
    """Return a serialized PredictResponse.

    Its parts are put together from bytes: a message of protobuf would convert every
    number to an object, which takes ten times as long.
    """
    # Field 1 of PredictResponse is `outputs` and field 2 the spec of the model; in an
    # entry of the map, 1 is the key and 2 the value.
    entries = [
        field(1, field(1, name.encode()) + field(2, tensor_bytes(array, as_content)))
        for name, array in answer.outputs.items()
    ]
    spec = _spec_bytes(answer.model, answer.version, answer.signature)
    return b"".join([*entries, field(2, spec)])


@functools.lru_cache(maxsize=64)
def _spec_bytes(model: str, version: int, signature: str) -> bytes:
    spec = message("ModelSpec")(name=model, signature_name=signature)
    spec.version.value = version
    serialized: bytes = spec.SerializeToString()
    return serialized


def _fill_spec(spec: Any, answer: Answer) -> None:
    spec.name = answer.model
    spec.version.value = answer.version
    spec.signature_name = answer.signature


def _fill_classes(result: Any, answer: Answer) -> None:
    outputs = answer.outputs
    labels, scores = outputs.get(CLASSES), outputs.get(SCORES)
    for row in range(answer.rows):
        made = result.classifications.add()
        row_labels = None if labels is None else labels[row].reshape(-1).tolist()
        row_scores = None if scores is None else scores[row].reshape(-1).tolist()
        for index in range(len(row_labels or row_scores or ())):
            label = row_labels[index].decode("utf-8", "replace") if row_labels else ""
            made.classes.add(
                label=label, score=row_scores[index] if row_scores else 0.0
            )


def _fill_regressions(result: Any, answer: Answer) -> None:
    for value in answer.outputs[REGRESSION].tolist():
        result.regressions.add(value=value)


def _fill_infos(infos: Any, specs: Sequence[TensorInfo]) -> None:
    for spec in specs:
        info = infos[spec.name]
        info.name = f"{spec.name}:0"
        info.dtype = dtype_number(spec.dtype)
        for size in spec.shape:
            info.tensor_shape.dim.add(size=-1 if size is None else size)
