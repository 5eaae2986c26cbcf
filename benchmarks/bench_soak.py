"""A server for an hour: swaps, rollbacks, good, bad and large requests.

    python benchmarks/bench_soak.py --minutes 60

- A new version every 20 s, in turn with new weights and with a new program, and every
  5 minutes a rollback: the newest folder is deleted.
- Small requests over REST and gRPC, each checked: the answer must be that of a version
  that was published. One request of 5,000 rows a second. Malformed bodies, wrong names
  and half-sent requests ten times a second.
- Printed: failed good requests and wrong answers, p99 of small requests without and
  with all the rest, of health checks, and memory, threads and open files over time.

Everything is on the loopback address and ends by itself; `--minutes 2` is a quick look
at it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import machine
import numpy as np
from serving_start import Server, serving

import estimax as ex
from estimax.serving.protos import message

ROW = {"age": 1.0, "city": "Oslo"}
PROGRAMS, WEIGHTS = 3, 3  # bundles that are published again and again
KEPT = 4  # folders of versions on disk
LARGE_ROWS = 5000
STATUS = "/v1/models/m"
PREDICT = f"{STATUS}:predict"


@dataclass
class Seen:
    """What the clients saw."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    scores: set[float] = field(default_factory=set)  # of versions published so far
    bad: dict[int, int] = field(default_factory=dict)  # status -> bad requests
    latest: float = math.nan  # the last score that was answered
    phase: str = "idle"

    def note(self, kind: str, start: float) -> None:
        """Record the latency of an answer."""
        name = f"{kind}, {self.phase}"
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)

    def check(self, score: float) -> None:
        """Record an answer that no published version gives."""
        self.latest = round(score, 4)
        if self.latest not in self.scores:
            self.failures.append(f"wrong answer {score}")


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        bundles = _export_all(folder / "exported")
        base = folder / "model"
        seen = Seen()
        _publish(base, bundles[0], 1, seen)
        cache = ("--compilation-cache-dir", str(folder / "cache"))
        with serving(base, folder, *cache, with_grpc=True) as server:
            found = asyncio.run(_soak(options, seen, base, bundles, server))
            found["server_lived"] = server.process.poll() is None
            server.process.terminate()
            found["exit_status"] = server.process.wait(timeout=60)
        log = (folder / "server.log").read_text()
        found["tracebacks_in_the_log"] = log.count("Traceback")
    machine.write_result("soak", found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--swap-seconds", type=float, default=20.0)
    parser.add_argument("--rollback-minutes", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.04, help="between requests")
    return parser.parse_args()


def _export_all(folder: Path) -> list[tuple[Path, float]]:
    """Return bundles with the score of ROW: in turn new weights and new programs."""
    return [
        _export(folder / f"{program}-{weights}", program, weights / 10)
        for weights in range(WEIGHTS)
        for program in range(PROGRAMS)
    ]


def _export(folder: Path, program: int, weight: float) -> tuple[Path, float]:
    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        fc = ex.feature_columns
        city = fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
        table = fc.input_layer(features, [fc.indicator_column(city)])
        own = ex.get_variable("weight", (), initializer=weight)
        hidden = ex.get_variable("hidden", (64, 64), initializer=0.01)
        wide = (table @ np.ones((2, 64), np.float32)) @ hidden
        for _ in range(program):  # another program
            wide = np.float32(0.5) * (wide @ hidden)
        logits = (own * features["age"] + 0.001 * wide.sum(axis=1))[:, None]
        return ex.heads.BinaryClassHead().create_estimator_spec(
            features, mode, logits, labels, optimizer=ex.optimizers.SGD(0.0)
        )

    rows = {"age": np.ones(2, np.float32), "city": np.array(["Oslo", "Rome"])}
    estimator = ex.Estimator(model_fn)
    estimator.train(lambda: (rows, np.array([0, 1])), steps=1)
    receive = ex.export.build_raw_serving_input_receiver_fn(rows)
    path = Path(estimator.export_saved_model(folder, receive))
    answer = ex.export.load(path).predict([ROW], signature="predict")
    return path, round(float(answer["logistic"][0, 0]), 4)


def _publish(base: Path, bundle: tuple[Path, float], number: int, seen: Seen) -> None:
    path, score = bundle
    seen.scores.add(score)
    shutil.copytree(path, base / f"copy-{number}")
    (base / f"copy-{number}").rename(base / str(number))


async def _soak(
    options: argparse.Namespace,
    seen: Seen,
    base: Path,
    bundles: list[tuple[Path, float]],
    server: Server,
) -> dict[str, Any]:
    rest = server.rest
    stop = asyncio.Event()
    samples: list[dict[str, float]] = []
    good = [
        _repeat(stop, options.pause, _rest_client(rest, 1, seen, "REST"))
        for _ in range(options.connections)
    ]
    good += [_repeat(stop, options.pause, _grpc_client(server.grpc, seen))]
    good += [_repeat(stop, 0.5, _health_client(rest, seen))]
    good += [_repeat(stop, 5.0, _sampler(server.process.pid, samples))]
    tasks = [asyncio.create_task(work) for work in good]
    await asyncio.sleep(options.idle_seconds)
    seen.phase = "loaded"
    tasks += [
        asyncio.create_task(
            _repeat(stop, 1.0, _rest_client(rest, LARGE_ROWS, seen, "large"))
        ),
        asyncio.create_task(_repeat(stop, 0.1, _bad_client(rest, seen))),
    ]
    swaps, rollbacks, late = await _swap(options, seen, base, bundles)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 120)
    return {
        "minutes": options.minutes,
        "swaps": swaps,
        "rollbacks": rollbacks,
        "swaps_not_seen_in_60_s": late,
        "good_requests": sum(len(s) for s in seen.seconds.values()),
        "failed_good_requests": len(seen.failures),
        "first_failures": seen.failures[:5],
        "bad_requests_by_status": dict(sorted(seen.bad.items())),
        "milliseconds": {name: _summary(s) for name, s in seen.seconds.items()},
        "process": _trend(samples),
    }


async def _swap(
    options: argparse.Namespace,
    seen: Seen,
    base: Path,
    bundles: list[tuple[Path, float]],
) -> tuple[int, int, int]:
    """Publish and roll back until the time is up; return how often, and what failed."""
    start = time.monotonic()
    next_rollback = start + 60 * options.rollback_minutes
    served = [(1, bundles[0][1])]  # on disk: number and score
    swaps, rollbacks, late, number = 0, 0, 0, 1
    while time.monotonic() < start + 60 * options.minutes:
        due = time.monotonic() + options.swap_seconds
        if time.monotonic() >= next_rollback and len(served) > 1:
            shutil.rmtree(base / str(served.pop()[0]))
            rollbacks += 1
            next_rollback += 60 * options.rollback_minutes
        else:
            number += 1
            bundle = bundles[(number - 1) % len(bundles)]
            await asyncio.to_thread(_publish, base, bundle, number, seen)
            served.append((number, bundle[1]))
            swaps += 1
        late += not await _until(lambda: seen.latest == served[-1][1])
        for old, _ in served[:-KEPT]:
            shutil.rmtree(base / str(old))
        del served[:-KEPT]
        await asyncio.sleep(max(due - time.monotonic(), 0))
    return swaps, rollbacks, late


async def _until(condition: Callable[[], bool]) -> bool:
    for _ in range(600):
        if condition():
            return True
        await asyncio.sleep(0.1)
    return False


async def _repeat(
    stop: asyncio.Event, pause: float, client: Callable[[], Awaitable[None]]
) -> None:
    while not stop.is_set():
        await client()
        await asyncio.sleep(pause)


def _rest_client(port: int, rows: int, seen: Seen, kind: str) -> Any:
    """Return a function that sends a good request over a connection that stays open."""
    instances = [ROW] * rows
    body = json.dumps({"signature_name": "predict", "instances": instances}).encode()
    connection: list[Any] = []

    async def send() -> None:
        start = time.perf_counter()
        try:
            if not connection:
                connection.extend(await asyncio.open_connection("127.0.0.1", port))
            status, answer = await _exchange(*connection, "POST", PREDICT, body)
            if status != 200:
                seen.failures.append(f"{kind}: {status} {answer[:200]!r}")
                return
            seen.note(kind, start)
            # Only the first row is parsed: other clients are in this event loop.
            first = answer[answer.index(b'"logistic":[') + 12 :].split(b"]")[0]
            seen.check(float(first))
            if answer.count(b'"logistic"') != rows:
                seen.failures.append(f"{kind}: expected {rows} rows")
        except (OSError, asyncio.IncompleteReadError) as error:
            seen.failures.append(f"{kind}: {error!r}")
            connection.clear()

    return send


def _health_client(port: int, seen: Seen) -> Any:
    async def send() -> None:
        for path in ("/livez", "/readyz", "/monitoring/prometheus/metrics"):
            start = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                status, _ = await _exchange(reader, writer, "GET", path, b"")
                writer.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                seen.failures.append(f"{path}: {error!r}")
                continue
            seen.note(path, start)
            if status != 200:
                seen.failures.append(f"{path}: {status}")

    return send


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    body: bytes,
) -> tuple[int, bytes]:
    head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    header = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = next(
        int(line.split(b":")[1])
        for line in header.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    return int(header.split()[1]), await reader.readexactly(length)


def _grpc_client(port: int, seen: Seen) -> Any:
    request = message("PredictRequest")()
    request.model_spec.name, request.model_spec.signature_name = "m", "predict"
    age, city = request.inputs["age"], request.inputs["city"]
    age.dtype, city.dtype = 1, 7
    for tensor in (age, city):
        tensor.tensor_shape.dim.add(size=1)
    age.float_val.append(ROW["age"])
    city.string_val.append(ROW["city"].encode())
    data = request.SerializeToString()
    channel: list[Any] = []

    async def send() -> None:
        if not channel:
            channel.append(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        call = channel[0].unary_unary("/tensorflow.serving.PredictionService/Predict")
        start = time.perf_counter()
        try:
            answer = message("PredictResponse").FromString(await call(data, timeout=60))
        except grpc.aio.AioRpcError as error:
            seen.failures.append(f"gRPC: {error.code().name} {error.details()}")
            return
        seen.note("gRPC", start)
        seen.check(answer.outputs["logistic"].float_val[0])

    return send


def _bad_client(port: int, seen: Seen) -> Any:
    bodies = [
        (PREDICT, b"{"),
        (PREDICT, b'{"instances": [{"age": "x", "city": 1}]}'),
        ("/v1/models/none:predict", b'{"instances": [1]}'),
        (f"{STATUS}:explain", b"{}"),
        (PREDICT, b"\xff" * 10000),
        (PREDICT, b'{"signature_name": "none", "instances": [1]}'),
    ]
    turn = iter(range(10**9))

    async def send() -> None:
        index = next(turn)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if index % 7 == 6:  # half a request, and the client goes
                writer.write(f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\n".encode())
            else:
                path, body = bodies[index % len(bodies)]
                status, _ = await _exchange(reader, writer, "POST", path, body)
                seen.bad[status] = seen.bad.get(status, 0) + 1
        writer.close()

    return send


def _sampler(pid: int, samples: list[dict[str, float]]) -> Any:
    async def sample() -> None:
        status = Path(f"/proc/{pid}/status").read_text()
        values = dict(
            line.split(":\t", 1) for line in status.splitlines() if ":" in line
        )
        samples.append(
            {
                "rss_mb": int(values["VmRSS"].split()[0]) / 1024,
                "threads": int(values["Threads"]),
                "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
            }
        )

    return sample


def _trend(samples: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median of each quarter of the time: flat if the server is."""
    quarters = np.array_split(np.arange(len(samples)), 4)
    return {
        name: [
            round(statistics.median(samples[i][name] for i in quarter), 1)
            for quarter in quarters
            if len(quarter)
        ]
        for name in ("rss_mb", "threads", "files")
    }


def _summary(seconds: list[float]) -> dict[str, float]:
    ordered = np.sort(seconds) * 1000
    return {
        "count": len(ordered),
        "p50": round(float(np.quantile(ordered, 0.5)), 2),
        "p99": round(float(np.quantile(ordered, 0.99)), 2),
        "max": round(float(ordered[-1]), 2),
    }


if __name__ == "__main__":
    main()
