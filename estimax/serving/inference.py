"""Answer requests: the part that REST and gRPC share.

    service = InferenceService(manager)
    answer = await service.predict(Target("ctr"), columns, timeout=5.0)
    answer.outputs["scores"], answer.version

A request is checked before it is queued, so that a bad one cannot spoil the batch that
it would share with others. Waiting for a batch does not block the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from estimax.export import Bundle, TensorInfo
from estimax.export.signature import DEFAULT_SIGNATURE, Signature
from estimax.serving.batching import (
    Answers,
    RequestFeatures,
    as_serving_error,
    row_count,
)
from estimax.serving.examples import (
    EXAMPLE_NAMES,
    columns_from_examples,
    compile_parser,
    is_parser_loaded,
)
from estimax.serving.lifecycle import AcquiredVersion
from estimax.serving.manager import ModelManager
from estimax.serving.metrics import Observed
from estimax.serving.requests import (
    REGRESSION,
    PendingRows,
    check_classify,
    check_regress,
    check_request,
)
from estimax.serving.status import Code, ServingError, invalid
from estimax.serving.threads import LARGE, DecodeThreads
from estimax.serving.versions import LoadedVersion


@dataclass(frozen=True)
class Target:
    """What a request asks: a model, one of its versions, and a signature.

    Args:
      name: The name of the model.
      version: The version. None: the version of the label, or the highest ready one.
      label: The label of a version.
      signature: The name of the signature. Empty: "serving_default".
    """

    name: str
    version: int | None = None
    label: str | None = None
    signature: str = ""


@dataclass(frozen=True)
class Answer:
    """The outputs of a request, and who computed them."""

    outputs: Answers
    model: str
    version: int
    signature: str
    rows: int


RequestColumns = Mapping[str, Any] | PendingRows
# The inputs of a signature, and the version -> features of a request, or a function
# that decodes them if that takes long.
ReadFeatures = Callable[
    [Sequence[TensorInfo], LoadedVersion], RequestColumns | Callable[[], RequestColumns]
]


class InferenceService:
    """Runs requests on the models of a manager.

    Args:
      manager: The models.
      max_rows: The most rows of a request.
      entry: REST or GRPC, for metrics.
      observe: Called after every request.
      record: Called with every answer to Predict and its features, for a log.
    """

    def __init__(
        self,
        manager: ModelManager,
        *,
        max_rows: int = 100_000,
        entry: str = "",
        observe: Callable[[Observed], None] | None = None,
        record: Callable[[Answer, RequestColumns], None] | None = None,
    ) -> None:
        self.manager = manager
        self._record = record
        self.max_rows = max_rows
        self.decode_threads = DecodeThreads()
        self._parser_loading: asyncio.Task[None] | None = None
        self._entry = entry
        self._observe = observe

    async def predict(
        self,
        target: Target,
        read: ReadFeatures,
        *,
        output_filter: Sequence[str] = (),
        timeout: float | None = None,
        size: int = 0,
    ) -> Answer:
        """Return the outputs of a signature.

        Args:
          target: The model and the signature.
          read: Reads the features.
          output_filter: The names of the outputs. Empty: all.
          timeout: Seconds until the request is given up.
          size: The bytes that `read` reads; many are read in a thread.

        Raises:
          ServingError: FAILED_PRECONDITION if there is no such signature,
            INVALID_ARGUMENT if features or the filter do not fit it.
        """
        async with self._begin_run(target, "predict") as run:
            # TensorFlow Serving answers an unknown signature with FAILED_PRECONDITION
            # in Predict and with INVALID_ARGUMENT in Classify and Regress; over REST
            # both are 400.
            signature = _find_signature(run.served, target, Code.FAILED_PRECONDITION)
            _check_filter(signature, output_filter)
            loaded = run.served.loaded
            columns = await self.decode_threads.run(
                size, read, signature.inputs, loaded
            )
            # The message was small, but its tensors repeat values: only now is it known
            # that decoding them takes long.
            if callable(columns):
                columns = await self.decode_threads.run(LARGE, columns)
                size = LARGE
            outputs = await self._run(run, signature, columns, timeout, size)
            if output_filter:
                outputs = {name: outputs[name] for name in output_filter}
            answer = run.answer(outputs, signature)
            if self._record is not None:
                self._record(answer, columns)
            return answer

    async def classify(
        self, target: Target, examples: Sequence[bytes], timeout: float | None = None
    ) -> Answer:
        """Return "classes" [B, K] and "scores" [B, K] for serialized Examples."""
        async with self._begin_run(target, "classify") as run:
            signature = _find_signature(run.served, target, Code.INVALID_ARGUMENT)
            check_classify(signature)
            columns, size = await self._parse_examples(run, examples, timeout)
            outputs = await self._run(run, signature, columns, timeout, size)
            return run.answer(outputs, signature)

    async def regress(
        self, target: Target, examples: Sequence[bytes], timeout: float | None = None
    ) -> Answer:
        """Return "outputs" [B] for serialized Examples."""
        async with self._begin_run(target, "regress") as run:
            signature = _find_signature(run.served, target, Code.INVALID_ARGUMENT)
            check_regress(signature)
            columns, size = await self._parse_examples(run, examples, timeout)
            outputs = await self._run(run, signature, columns, timeout, size)
            flat = outputs[REGRESSION].reshape(len(examples))
            return run.answer({REGRESSION: flat}, signature)

    async def _parse_examples(
        self, run: _Run, examples: Sequence[bytes], timeout: float | None
    ) -> tuple[Mapping[str, Any], int]:
        """Return the columns of serialized Examples, and the size of the Examples."""
        if not examples:
            raise invalid("expected at least one example, found none.")
        self._check_rows(len(examples))
        size = sum(map(len, examples))
        bundle = run.served.loaded.bundle
        await self._load_parser(bundle, timeout)
        parse = columns_from_examples
        return await self.decode_threads.run(size, parse, bundle, examples), size

    async def _load_parser(self, bundle: Bundle, timeout: float | None) -> None:
        """Load the parser of Examples, which most servers never need.

        Compiling it takes seconds, once on a machine; other requests go on meanwhile.
        """
        if is_parser_loaded():
            return
        # One task for all requests: the first one starts it, and all wait for it.
        if self._parser_loading is None:
            loading = asyncio.to_thread(compile_parser, bundle)
            self._parser_loading = asyncio.create_task(loading)
        try:
            # Shielded: the request that began it may give up, the others still wait.
            await asyncio.wait_for(asyncio.shield(self._parser_loading), timeout)
        except TimeoutError:
            raise ServingError(
                Code.DEADLINE_EXCEEDED,
                f"the parser of Examples is not compiled within {timeout:g} s; try "
                "again, or prepare the server with `estimax serve --prepare`.",
            ) from None

    def _check_rows(self, rows: int) -> None:
        if rows > self.max_rows:
            raise invalid(
                f"the request has {rows} rows and at most {self.max_rows} are allowed; "
                "send it in parts."
            )

    async def _run(
        self,
        run: _Run,
        signature: Signature,
        columns: RequestColumns,
        timeout: float | None,
        size: int,
    ) -> Answers:
        """Check the features, wait for their batch, and return its outputs."""
        bundle = run.served.loaded.bundle
        if isinstance(columns, Mapping) and next(iter(columns), "") in EXAMPLE_NAMES:
            await self._load_parser(bundle, timeout)
        batch: RequestFeatures = (
            columns
            if isinstance(columns, PendingRows)
            else await self.decode_threads.run(
                size, check_request, bundle, signature, columns
            )
        )
        # Before the check of the rows, so that metrics have the size of a refused
        # request.
        run.rows = row_count(batch)
        self._check_rows(run.rows)
        if not run.rows:
            return signature.without_rows()
        # The queue drops a task whose deadline has passed before it is run; the timer
        # below answers the client if the batch itself takes too long.
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = _submit(run.served, signature.name, batch, deadline)
        if timeout is None:
            return await waiting
        # `asyncio.wait_for` would do the same in four times the time.
        timer = asyncio.get_running_loop().call_later(
            timeout, _give_up, waiting, timeout
        )
        try:
            return await waiting
        finally:
            timer.cancel()

    def _begin_run(self, target: Target, method: str) -> _Run:
        return _Run(self.manager, target, method, self._entry, self._observe)


class _Run:
    """A request under way: holds its version, and reports how it ended."""

    def __init__(
        self,
        manager: ModelManager,
        target: Target,
        method: str,
        entry: str,
        observe: Callable[[Observed], None] | None,
    ) -> None:
        self._target = target
        self._method = method
        self._entry = entry
        self._report = observe
        # Held until the answer is complete: a version that is replaced meanwhile is
        # unloaded only after its last request.
        self._held = manager.acquire(target.name, target.version, target.label)
        self._start = time.perf_counter()
        self.rows = 0
        self.served: AcquiredVersion
        self._version: int | None = None

    async def __aenter__(self) -> _Run:
        try:
            self.served = self._held.__enter__()
        except ServingError as error:
            self._tell(error.code)
            error.is_counted = True
            raise
        self._version = self.served.number
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._held.__exit__(kind, error, traceback)
        if error is None:
            self._tell(Code.OK)
        elif isinstance(error, Exception):
            # Marked as counted, because REST and gRPC count the failures that never
            # came here.
            found = as_serving_error(error)
            self._tell(found.code)
            found.is_counted = True
            if found is not error:
                raise found from error
        else:  # the client has gone
            self._tell(Code.CANCELLED)

    def answer(self, outputs: Answers, signature: Signature) -> Answer:
        """Return the outputs with the version that computed them."""
        served = self.served
        return Answer(outputs, served.model, served.number, signature.name, self.rows)

    def _tell(self, code: Code) -> None:
        if self._report is not None:
            # A client may ask for any signature: count only those that exist.
            found = self._target.signature or DEFAULT_SIGNATURE
            is_known = self._version is not None and (
                found in self.served.loaded.bundle.signatures
            )
            self._report(
                Observed(
                    self._target.name,
                    self._version,
                    found if is_known else "",
                    self._method,
                    self._entry,
                    code,
                    self.rows,
                    time.perf_counter() - self._start,
                )
            )


def _find_signature(served: AcquiredVersion, target: Target, code: Code) -> Signature:
    name = target.signature or DEFAULT_SIGNATURE
    signatures = served.loaded.bundle.signatures
    if name not in signatures:
        raise ServingError(
            code,
            f"model {served.model!r}, version {served.number}: no signature {name!r}; "
            f"signatures: {', '.join(signatures)}.",
        )
    return signatures[name]


def _check_filter(signature: Signature, names: Sequence[str]) -> None:
    outputs = [spec.name for spec in signature.outputs]
    for name in names:
        if name not in outputs or list(names).count(name) > 1:
            raise invalid(
                f"output_filter: expected distinct names of {', '.join(outputs)}, "
                f"found {name!r}" + ("." if name not in outputs else " twice.")
            )


def _give_up(waiting: asyncio.Future[Answers], timeout: float) -> None:
    if not waiting.done():
        waiting.set_exception(
            ServingError(Code.DEADLINE_EXCEEDED, f"no answer within {timeout:g} s.")
        )


def _submit(
    served: AcquiredVersion,
    signature: str,
    batch: RequestFeatures,
    deadline: float | None,
) -> asyncio.Future[Answers]:
    """Queue a batch; return a future of the running event loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answers] = loop.create_future()

    # Runs in the event loop, the only thread that may touch the future.
    def resolve(found: Answers | Exception) -> None:
        if future.done():  # the client has gone, or its time is up
            return
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)

    # Runs in a thread of the scheduler, and only hands the answer over.
    def deliver(found: Answers | Exception) -> None:
        loop.call_soon_threadsafe(resolve, found)

    def is_wanted() -> bool:
        return not future.done()

    # Raises at once if the queue is full: a client that is told so can try another
    # server, one that waits in vain cannot.
    served.loaded.submit(signature, batch, deliver, deadline, is_wanted)
    return future
