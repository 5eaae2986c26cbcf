"""Send the warm-up requests of a bundle before its version is available.

    run_warm_up(bundle, programs, max_batch_size)

The requests are in `assets.extra/tf_serving_warmup_requests`, a TFRecord file of
PredictionLog messages, where TensorFlow Serving expects them. An export writes some;
its `assets_extra` may replace them by a log of real requests. If a record has a
response, the answer of this version is compared with it, so that a version which
answers otherwise never becomes available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from estimax.core.errors import BundleError, InputError
from estimax.export import CLASSIFY, Bundle
from estimax.export.selftest import WARM_UP_FILE, check_answers
from estimax.export.signature import DEFAULT_SIGNATURE, Signature
from estimax.formats.records import iter_record_blocks
from estimax.serving.batching import Answers, answer_in_pieces, as_serving_error
from estimax.serving.examples import (
    columns_from_examples,
    examples_from_proto,
)
from estimax.serving.programs import Programs
from estimax.serving.protos import message, request_message
from estimax.serving.requests import check_classify, check_regress, check_request
from estimax.serving.status import Code, ServingError, invalid
from estimax.serving.tensors import array_from_proto, columns_from_proto
from estimax.staging import host_plan as plans

_MOST_RECORDS: Final = 1000  # as in TensorFlow Serving


def run_warm_up(
    bundle: Bundle,
    programs: Programs,
    max_batch_size: int,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Send every request of the warm-up file, if there is one; return how many.

    Args:
      bundle: The bundle with the file.
      programs: Its programs, which answer the requests.
      max_batch_size: The most rows that a program takes.
      check: Called before each request; raises if nobody wants the version any more.

    Raises:
      ServingError: DATA_LOSS if the file is not a TFRecord file, otherwise the status
        of the first request that fails or is answered otherwise than recorded.
    """
    path = bundle.extra_file(Path(WARM_UP_FILE).name)
    if path is None:
        return 0
    runner = _Runner(bundle, programs, max_batch_size)
    count = 0
    for count, record in enumerate(_records(path), start=1):
        check()
        where = f"{path}, record {count - 1}"
        if count > _MOST_RECORDS:
            raise invalid(
                f"{where}: expected at most {_MOST_RECORDS} warm-up requests, found "
                "more. Leave some out."
            )
        try:
            runner.send(_log_of(record))
        except (ServingError, BundleError) as error:
            code = as_serving_error(error).code
            raise ServingError(code, f"{where}: {error}") from error
    return count


def _records(path: Path) -> Iterator[bytes]:
    try:
        for block in iter_record_blocks(path):
            yield from block.records.tolist()
    except InputError as error:
        raise ServingError(
            Code.DATA_LOSS,
            f"{error} Write warm-up requests as a TFRecord file of PredictionLog "
            "messages, for example with tf.io.TFRecordWriter, or remove the file.",
        ) from error


def _log_of(record: bytes) -> Any:
    try:
        return request_message("PredictionLog").FromString(record)
    except DecodeError as error:
        raise invalid(f"expected a PredictionLog, found other bytes: {error}") from None


class _Runner:
    """Runs logged requests on a bundle, without a queue."""

    def __init__(self, bundle: Bundle, programs: Programs, most: int) -> None:
        self._bundle = bundle
        self._programs = programs
        self._most = most

    def send(self, log: Any) -> None:
        """Answer one logged request and compare the answer with the logged one."""
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            self._predict(log.predict_log)
        elif kind == "classify_log":
            asked = log.classify_log.request
            recorded = log.classify_log.response.result
            self._classify(asked.model_spec, asked.input, recorded)
        elif kind == "regress_log":
            asked = log.regress_log.request
            recorded = log.regress_log.response.result
            self._regress(asked.model_spec, asked.input, recorded)
        elif kind == "multi_inference_log":
            self._multi_inference(log.multi_inference_log)
        else:
            raise ServingError(
                Code.UNIMPLEMENTED,
                "expected a request to Predict, Classify, Regress or MultiInference, "
                "found another kind.",
            )

    def _predict(self, log: Any) -> None:
        signature = self._signature(log.request.model_spec)
        columns = columns_from_proto(log.request.inputs, signature.inputs)
        recorded = {
            name: np.asarray(array_from_proto(proto, f"output {name!r}"))
            for name, proto in log.response.outputs.items()
        }
        self._compare(signature, recorded, self._answers(signature, columns))

    def _classify(self, spec: Any, given: Any, recorded: Any) -> None:
        signature = self._signature(spec)
        check_classify(signature)
        rows = [row.classes for row in recorded.classifications]
        labels = [[one.label.encode() for one in row] for row in rows]
        scores = [[one.score for one in row] for row in rows]
        expected = {"classes": _table(labels, object), "scores": _table(scores, "f4")}
        # A response has a label and a score for each class even if the signature has
        # only one of the two outputs; the other is a filler.
        names = {one.name for one in signature.outputs} if rows else set()
        found = self._answers(signature, self._from_examples(given))
        kept = {name: expected[name] for name in names}
        self._compare(signature, kept, found)

    def _regress(self, spec: Any, given: Any, recorded: Any) -> None:
        signature = self._signature(spec)
        check_regress(signature)
        found = self._answers(signature, self._from_examples(given))
        flat = {name: array.reshape(-1) for name, array in found.items()}
        values = np.array([row.value for row in recorded.regressions], np.float32)
        expected = dict.fromkeys(flat, values) if len(values) else {}
        self._compare(signature, expected, flat)

    def _multi_inference(self, log: Any) -> None:
        tasks, results = log.request.tasks, list(log.response.results)
        if results and len(results) != len(tasks):
            raise invalid(f"expected {len(tasks)} results, found {len(results)}.")
        # A log without responses only warms up; nothing is compared.
        results = results or [message("InferenceResult")()] * len(tasks)
        for task, result in zip(tasks, results, strict=True):
            given = log.request.input
            if task.method_name == CLASSIFY:
                self._classify(task.model_spec, given, result.classification_result)
            else:
                self._regress(task.model_spec, given, result.regression_result)

    def _signature(self, spec: Any) -> Signature:
        return self._bundle.signature(spec.signature_name or DEFAULT_SIGNATURE)

    def _from_examples(self, given: Any) -> dict[str, Any]:
        examples = examples_from_proto(given)
        if not examples:
            raise invalid("expected at least one example, found none.")
        return columns_from_examples(self._bundle, examples)

    def _answers(self, signature: Signature, columns: Mapping[str, Any]) -> Answers:
        # The same checks as a request of a client, but no queue: the version has none
        # until it is ready.
        batch = check_request(self._bundle, signature, columns)
        if not plans.batch_size(batch):
            raise invalid("expected at least one row, found none.")
        return answer_in_pieces(self._programs.run, signature.name, batch, self._most)

    def _compare(self, signature: Signature, recorded: Answers, found: Answers) -> None:
        unknown = sorted(recorded.keys() - found.keys())
        if unknown:
            raise invalid(
                f"signature {signature.name!r} has no output {unknown[0]!r}, which the "
                "recorded response has."
            )
        platform = jax.default_backend()
        check_answers(signature.name, recorded, found, platform=platform)


def _table(rows: list[list[Any]], dtype: Any) -> NDArray[Any]:
    if len({len(row) for row in rows}) > 1:
        raise invalid("expected as many classes in every row of the response.")
    table = np.empty((len(rows), len(rows[0]) if rows else 0), dtype)
    table[:] = rows
    return table
