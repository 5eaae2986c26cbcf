"""Counters and latencies of a server, for Prometheus.

    metrics = ServerMetrics()
    metrics.observe(Observed("ctr", 7, "predict", "predict", "REST", Code.OK, 64, 0.1))
    text_of(metrics.families(manager))

Names with ":tensorflow:serving:" are TensorFlow Serving's own, with its units, so that
existing dashboards work. The series of a version end with it, because a server
that is given a new version every hour would otherwise have ever more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

from estimax.serving.lifecycle import ServedModel, VersionState
from estimax.serving.manager import ModelManager
from estimax.serving.metric_families import Family, Sample
from estimax.serving.status import Code

_TF: Final = ":tensorflow:serving:"
_OWN_REQUESTS: Final = "estimax_requests"
_REQUEST_COUNT: Final = f"{_TF}request_count"
# TensorFlow Serving's buckets: 33 from 10 us on, each 1.8 times the one before.
_MICROSECONDS: Final = tuple(10 * 1.8**i for i in range(33))
_SECONDS: Final = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    *(10.0, 30.0),
)
_ROWS: Final = tuple(float(2**i) for i in range(17))
_ENDED_KEPT: Final = 3  # ended versions of a model whose series are kept
_POOL: Final = "model_server_batch_threads"  # TensorFlow Serving's name of its threads

# TensorFlow Serving has no series of the time at which another was begun.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Observed:
    """One request that has been answered.

    Args:
      model: The name of the model; "" if there is no such model.
      version: The version that answered; None if none did.
      signature: The name of the signature; "" if the request did not get that far.
      method: predict, classify, regress or multi_inference; "" if unknown.
      entry: REST or GRPC.
      code: How it ended.
      rows: How many rows it had.
      seconds: How long it took.
    """

    model: str
    version: int | None
    signature: str
    method: str
    entry: str
    code: Code
    rows: int
    seconds: float


class _AnswerSeries(NamedTuple):
    """The series that an answered request is counted in, besides its status."""

    rows: tuple[Counter, Counter]
    row_counts: Histogram
    microseconds: Histogram
    seconds: Histogram


class _BatchSeries(NamedTuple):
    """The series that a batch is counted in."""

    waits: Histogram
    tf_waits: Histogram
    seconds: Histogram
    tf_seconds: Histogram
    rows: Histogram


_Series = tuple[tuple[Counter, Counter], _AnswerSeries | None]


class ServerMetrics:
    """What the server has answered so far, and what it is doing."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(name, about, labels, registry=registry)

        def histogram(
            name: str, about: str, limits: Sequence[float], *labels: str
        ) -> Histogram:
            return Histogram(name, about, labels, buckets=limits, registry=registry)

        model, version = "model_name", "version"
        self._tf_requests = counter(
            _REQUEST_COUNT, "Requests by status.", model, "status"
        )
        self._tf_rows = counter(
            f"{_TF}request_example_count", "Rows of answered requests.", "model"
        )
        self._tf_row_counts = histogram(
            f"{_TF}request_example_counts", "Rows of a request.", _ROWS, "model"
        )
        self._tf_latency = histogram(
            f"{_TF}request_latency",
            "Microseconds of answered requests.",
            _MICROSECONDS,
            *(model, "API", "entrypoint"),
        )
        self._tf_runtime = histogram(
            f"{_TF}runtime_latency",
            "Microseconds in which a batch was computed.",
            _MICROSECONDS,
            *(model, "API", "runtime"),
        )
        self._tf_queuing = histogram(
            f"{_TF}batching_session:queuing_latency",
            "Microseconds that a request waited for its batch.",
            _MICROSECONDS,
            "thread_pool_name",
        )
        self._tf_warm_up = histogram(
            f"{_TF}model_warmup_latency",
            "Microseconds of the warm-up requests of a version.",
            _MICROSECONDS,
            *("model_path", "status"),
        )
        self._requests = counter(
            _OWN_REQUESTS,
            "Requests by version, signature and status.",
            *(model, version, "signature", "method", "entrypoint", "status"),
        )
        self._rows = counter(
            "estimax_rows", "Rows of answered requests.", model, version
        )
        self._seconds = histogram(
            "estimax_request_seconds",
            "Seconds of answered requests.",
            _SECONDS,
            *(model, version),
        )
        self._queue_seconds = histogram(
            "estimax_queue_seconds",
            "Seconds that a request waited for its batch.",
            _SECONDS,
            *(model, version),
        )
        self._run_seconds = histogram(
            "estimax_run_seconds",
            "Seconds in which a batch was computed.",
            _SECONDS,
            *(model, version),
        )
        self._batch_rows = histogram(
            "estimax_batch_rows", "Rows of a batch.", _ROWS, model, version
        )
        self._loads = counter(
            "estimax_loads",
            "Versions that were loaded, or failed to.",
            *("model_path", "status"),
        )
        self._responses = counter(
            "estimax_rest_responses", "Answers over REST, except health.", "code"
        )
        self.closed_connections = counter(
            "estimax_closed_connections", "Connections the server closed.", "reason"
        )
        self.lost_log_lines = Counter(
            "estimax_request_log_lost",
            "Requests that could not be written to the request log.",
            registry=registry,
        )
        pair = model, version
        self._of_version: dict[Any, tuple[str, ...]] = {
            self._requests: (*pair, "signature", "method", "entrypoint", "status"),
            **dict.fromkeys(
                (self._rows, self._seconds, self._queue_seconds, self._run_seconds),
                pair,
            ),
            self._batch_rows: pair,
        }
        # Looking for a series by its labels takes longer than counting.
        self._series: dict[tuple[Any, ...], _Series] = {}
        self._batches: dict[tuple[str, int], _BatchSeries] = {}
        self._process = prometheus_client.ProcessCollector(registry=None)

    def observe(self, request: Observed) -> None:
        """Count one request."""
        key = (
            *(request.model, request.version, request.signature, request.method),
            *(request.entry, request.code),
        )
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._series_of(request)
        counts, answered = series
        for count in counts:
            count.inc()
        # As in TensorFlow Serving, only successes are in the latencies: refusals in
        # microseconds would hide slow answers.
        if answered is None:
            return
        for count in answered.rows:
            count.inc(request.rows)
        answered.row_counts.observe(request.rows)
        answered.microseconds.observe(request.seconds * 1e6)
        answered.seconds.observe(request.seconds)

    def _series_of(self, request: Observed) -> _Series:
        """Return the series of requests like this; only answers have a latency."""
        model, code = request.model, request.code
        version = "" if request.version is None else str(request.version)
        about = request.signature, request.method, request.entry
        counts = (
            self._tf_requests.labels(model, code.name),
            self._requests.labels(model, version, *about, code.name),
        )
        if code is not Code.OK:
            return counts, None
        # TensorFlow Serving writes the method in lower case for REST only.
        is_rest = request.entry == "REST"
        api = request.method if is_rest else _camel(request.method)
        return counts, _AnswerSeries(
            rows=(self._tf_rows.labels(model), self._rows.labels(model, version)),
            row_counts=self._tf_row_counts.labels(model),
            microseconds=self._tf_latency.labels(model, api, request.entry),
            seconds=self._seconds.labels(model, version),
        )

    def observe_batch(
        self,
        model: str,
        version: int,
        rows: int,
        waits: Iterable[float],
        seconds: float,
    ) -> None:
        """Count one batch.

        Args:
          model: The name of the model.
          version: Its version.
          rows: The rows of all requests in the batch.
          waits: How many seconds each request waited.
          seconds: How long the batch took.
        """
        found = self._batches.get((model, version))
        if found is None:
            labels = model, str(version)
            found = self._batches[model, version] = _BatchSeries(
                self._queue_seconds.labels(*labels),
                self._tf_queuing.labels(_POOL),
                self._run_seconds.labels(*labels),
                self._tf_runtime.labels(model, "Predict", "estimax"),
                self._batch_rows.labels(*labels),
            )
        for wait in waits:
            found.waits.observe(wait)
            found.tf_waits.observe(wait * 1e6)
        found.seconds.observe(seconds)
        found.tf_seconds.observe(seconds * 1e6)
        found.rows.observe(rows)

    def observe_load(self, path: str, code: Code) -> None:
        """Count a version in a folder that was loaded, or that could not be."""
        self._loads.labels(path, code.name).inc()

    def observe_warm_up(self, path: str, code: Code, seconds: float) -> None:
        """Count the warm-up requests of a version."""
        self._tf_warm_up.labels(path, code.name).observe(seconds * 1e6)

    def observe_response(self, status: int) -> None:
        """Count one answer over REST by its HTTP status."""
        self._responses.labels(str(status)).inc()

    def families(self, manager: ModelManager) -> list[Family]:
        """Return all metrics, with the state of the models of a manager."""
        self._forget_versions(manager)
        own = [_family_of(metric) for metric in self._registry.collect()]
        process = [_family_of(metric) for metric in self._process.collect()]
        return [*own, *process, *_manager_families(manager)]

    def _forget_versions(self, manager: ModelManager) -> None:
        """Remove the series of ended versions, except those that ended last."""
        known = {
            (name, str(number))
            for name, model in manager.models().items()
            for number in _versions_to_keep(model)
        }
        for metric, names in self._of_version.items():
            samples = next(iter(metric.collect())).samples
            for values in {tuple(s.labels[name] for name in names) for s in samples}:
                if values[1] and values[:2] not in known:
                    metric.remove(*values)
                    # The cached series are detached now, and counts in them would be
                    # lost.
                    self._series.clear()
                    self._batches.clear()


def _versions_to_keep(model: ServedModel) -> list[int]:
    """Return the versions whose series are kept; a scrape must see their last counts.

    The hundred series of a version take a millisecond of a scrape.
    """
    ended = [v.number for v in model.versions.values() if v.state is VersionState.END]
    dropped = set(sorted(ended)[:-_ENDED_KEPT])
    return [number for number in model.versions if number not in dropped]


def text_of(families: Iterable[Family]) -> str:
    """Return metrics in Prometheus' text format."""
    text = prometheus_client.generate_latest(_CollectedFamilies(families)).decode()
    # The library appends "_total" to the name of every counter.
    return text.replace(f"{_REQUEST_COUNT}_total", _REQUEST_COUNT)


def totals_of(families: Iterable[Family]) -> dict[str, dict[str, float]]:
    """Return requests, errors, rows and seconds of every model, for the page.

    The requests of version 7 are also counted apart, as "requests/7".
    """
    found: dict[str, dict[str, float]] = {}

    def add(model: str, key: str, value: float) -> None:
        empty = {"requests": 0.0, "errors": 0.0, "rows": 0.0, "seconds": 0.0}
        totals = found.setdefault(model, empty)
        totals[key] = totals.get(key, 0.0) + value

    for family in families:
        for name, labels, value in family.samples:
            if family.name == _REQUEST_COUNT:
                add(labels["model_name"], "requests", value)
                is_error = labels["status"] != "OK"
                add(labels["model_name"], "errors", value * is_error)
            elif name == f"{_OWN_REQUESTS}_total" and labels["version"]:
                add(labels["model_name"], f"requests/{labels['version']}", value)
            elif family.name == f"{_TF}request_example_count":
                add(labels["model"], "rows", value)
            elif name == f"{_TF}request_latency_sum":
                add(labels["model_name"], "seconds", value / 1e6)
    return found


class _CollectedFamilies(prometheus_client.registry.Collector):
    """Metrics that have been collected, for the library's text writer."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.about, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, dict(labels), value)
            yield metric


def _family_of(metric: Metric) -> Family:
    samples = [Sample(s.name, s.labels, s.value) for s in metric.samples]
    return Family(metric.name, metric.documentation, metric.type, samples)


def _manager_families(manager: ModelManager) -> Iterator[Family]:
    failures = "estimax_listing_failures"
    yield Family(
        failures,
        "How often the folder of a model could not be read.",
        "counter",
        [
            Sample(
                f"{failures}_total",
                {"model_name": name},
                manager.listing_failures[name],
            )
            for name in manager.models()
        ],
    )
    served = [
        ({"model_name": name, "version": str(version.number)}, version)
        for name, model in manager.models().items()
        for version in model.versions.values()
    ]
    yield _gauge(
        "estimax_model_state",
        "State of a version: 10 start, 20 loading, 30 available, 40 unloading, 50 end.",
        [(labels, int(version.state)) for labels, version in served],
        merge="max",
    )
    loaded = [
        (labels, version.loaded, version.requests)
        for labels, version in served
        if version.state is VersionState.AVAILABLE and version.loaded is not None
    ]
    yield _gauge(
        "estimax_queue_rows",
        "Rows that wait for a batch.",
        [(labels, found.queue.waiting_rows) for labels, found, _ in loaded],
    )
    yield _gauge(
        "estimax_requests_in_flight",
        "Requests under way.",
        [(labels, requests) for labels, _, requests in loaded],
    )
    late = "estimax_late_compiles"
    yield Family(
        late,
        "Programs that were compiled while requests were answered.",
        "counter",
        [
            Sample(f"{late}_total", labels, found.programs.late_compiles)
            for labels, found, _ in loaded
        ],
    )
    yield _gauge(
        "estimax_model_ready",
        "Whether a model has a version that answers requests.",
        [
            ({"model_name": name}, float(bool(model.available())))
            for name, model in manager.models().items()
        ],
        merge="min",
    )


def _gauge(
    name: str,
    about: str,
    values: Iterable[tuple[Mapping[str, str], float]],
    merge: Any = "sum",
) -> Family:
    samples = [Sample(name, labels, float(value)) for labels, value in values]
    return Family(name, about, "gauge", samples, merge)


def _camel(method: str) -> str:
    return "".join(part.capitalize() for part in method.split("_"))
