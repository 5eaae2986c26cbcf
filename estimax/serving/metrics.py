"""Counters and latencies of a server, in Prometheus' text format.

    metrics = ServerMetrics()
    metrics.observe(target, "predict", Code.OK, rows=64, seconds=0.004, entry="REST")
    metrics.text(manager)

Names with ":tensorflow:serving:" are those of TensorFlow Serving, with its units, so
that existing dashboards work. prometheus_client cannot write them: it appends "_total".
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from estimax.serving.lifecycle import State
from estimax.serving.manager import ModelManager
from estimax.serving.status import Code

_TF: Final = ":tensorflow:serving:"
# TensorFlow Serving's buckets: 33 from 10 us on, each 1.8 times the one before.
_LIMITS: Final = tuple(10 * 1.8**i for i in range(33))

Labels = tuple[tuple[str, str], ...]


@dataclass
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(_LIMITS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(_LIMITS, value)] += 1
        self.total += value


class ServerMetrics:
    """What the server has answered so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.time()
        self._requests: dict[Labels, int] = defaultdict(int)
        self._latency: dict[Labels, _Histogram] = defaultdict(_Histogram)
        self._rows: dict[str, int] = defaultdict(int)

    def observe(
        self,
        model: str,
        method: str,
        code: Code,
        rows: int,
        seconds: float,
        entry: str,
    ) -> None:
        """Count one request.

        Args:
          model: The name of the model.
          method: predict, classify, regress or multi_inference.
          code: How it ended.
          rows: How many rows it had.
          seconds: How long it took.
          entry: REST or GRPC.
        """
        # TensorFlow Serving writes the method in lower case for REST only.
        api = method if entry == "REST" else _camel(method)
        with self._lock:
            self._requests[("model_name", model), ("status", code.name)] += 1
            if code is Code.OK:
                labels = ("model_name", model), ("API", api), ("entrypoint", entry)
                self._latency[labels].add(seconds * 1e6)
                self._rows[model] += rows

    def totals(self) -> dict[str, dict[str, float]]:
        """Return requests, errors, rows and mean seconds of every model."""
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            for labels, count in self._requests.items():
                about = found.setdefault(labels[0][1], _no_requests())
                about["requests"] += count
                about["errors"] += count if labels[1][1] != "OK" else 0
            for labels, histogram in self._latency.items():
                about = found.setdefault(labels[0][1], _no_requests())
                about["seconds"] += histogram.total / 1e6
            for model, rows in self._rows.items():
                found.setdefault(model, _no_requests())["rows"] = rows
        return found

    def text(self, manager: ModelManager) -> str:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            lines = [*self._own_lines(), *_manager_lines(manager)]
        return "\n".join(lines) + "\n"

    def _own_lines(self) -> Iterator[str]:
        yield "# TYPE process_start_time_seconds gauge"
        yield f"process_start_time_seconds {self._started:.3f}"
        yield f"# TYPE {_TF}request_count counter"
        for of, count in self._requests.items():
            yield f"{_TF}request_count{_braces(of)} {count}"
        yield f"# TYPE {_TF}request_example_count_total counter"
        for model, rows in self._rows.items():
            labels = _braces((("model", model),))
            yield f"{_TF}request_example_count_total{labels} {rows}"
        yield f"# TYPE {_TF}request_latency histogram"
        for of, histogram in self._latency.items():
            yield from _histogram_lines(f"{_TF}request_latency", of, histogram)


def _manager_lines(manager: ModelManager) -> Iterator[str]:
    yield "# TYPE estimax_listing_failures_total counter"
    for name in manager.models():
        count = manager.listing_failures[name]
        of = _braces((("model_name", name),))
        yield f"estimax_listing_failures_total{of} {count}"
    yield "# TYPE estimax_model_state gauge"
    served = [
        ((("model_name", name), ("version", str(version.number))), version)
        for name, model in manager.models().items()
        for version in model.versions.values()
    ]
    for labels, version in served:
        yield f"estimax_model_state{_braces(labels)} {int(version.state)}"
    loaded = [
        (_braces(labels), version.loaded, version.requests)
        for labels, version in served
        if version.state is State.AVAILABLE and version.loaded is not None
    ]
    for name, kind, value in (
        ("queue_rows", "gauge", lambda loaded, _: loaded.queue.waiting_rows),
        ("batches_total", "counter", lambda loaded, _: loaded.queue.batches),
        ("batched_rows_total", "counter", lambda loaded, _: loaded.queue.batched_rows),
        ("late_compiles_total", "counter", lambda v, _: v.programs.late_compiles),
        ("requests_in_flight", "gauge", lambda _, requests: requests),
    ):
        yield f"# TYPE estimax_{name} {kind}"
        for braces, version_loaded, requests in loaded:
            yield f"estimax_{name}{braces} {value(version_loaded, requests)}"


def _histogram_lines(name: str, labels: Labels, histogram: _Histogram) -> Iterator[str]:
    total = 0
    for limit, count in zip((*_LIMITS, float("inf")), histogram.counts, strict=True):
        total += count
        shown = "+Inf" if limit == float("inf") else f"{limit:g}"
        yield f"{name}_bucket{_braces((*labels, ('le', shown)))} {total}"
    yield f"{name}_sum{_braces(labels)} {histogram.total:g}"
    yield f"{name}_count{_braces(labels)} {total}"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(v)}"' for name, v in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _camel(method: str) -> str:
    return "".join(part.capitalize() for part in method.split("_"))


def _no_requests() -> dict[str, float]:
    return {"requests": 0, "errors": 0, "rows": 0, "seconds": 0.0}
