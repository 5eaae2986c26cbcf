"""The server under load: throughput, batching, version swaps and start.

    python benchmarks/bench_serving.py --seconds 5 --rounds 3

- 64 rows of 39 features (26 strings) over REST, beside the same server that parses the
  same JSON and answers a constant of the same size.
- Requests of one row, with batching and without.
- Processor time of the server for each request: one row over REST and over gRPC from 64
  connections, one row from a single connection, and 1,024 rows over REST.
- 20 version swaps under load: failed requests, and p99 during a swap beside idle p99.
- Seconds until a server with 11 batch sizes is ready, first and second time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import numpy as np
from serving_start import free_port, serving, started

import estimax as ex
from estimax.serving.protos import message
from estimax.serving.tensors import fill_proto

HERE = Path(__file__).resolve().parent
STRINGS, NUMBERS, ROWS = 26, 13, 64


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        bundle = _export(folder / "exported")
        base = folder / "model"
        shutil.copytree(bundle, base / "1")
        _write_requests(folder)
        found = {
            "start": _starts(base, folder),
            "throughput": _throughput(base, folder, options),
            "batching": _batching(base, folder, options),
            "processor": _processor(base, folder, options),
            "swaps": _swaps(base, bundle, folder, options),
        }
    machine.write_result("serving", found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--swaps", type=int, default=20)
    return parser.parse_args()


def _export(folder: Path) -> Path:
    fc = ex.feature_columns
    random = np.random.default_rng(0)
    features: dict[str, Any] = {
        f"s{i}": random.integers(0, 10_000, 512).astype("U") for i in range(STRINGS)
    }
    for i in range(NUMBERS):
        features[f"n{i}"] = random.normal(size=512).astype(np.float32)
    columns = [fc.numeric_column(f"n{i}") for i in range(NUMBERS)]
    for i in range(STRINGS):
        ids = fc.categorical_column_with_hash_bucket(f"s{i}", 10_000)
        columns.append(fc.embedding_column(ids, 16))
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = ex.DNNClassifier([256, 128], columns, model_dir=model_dir)
        labels = random.integers(0, 2, 512)
        model.train(lambda: iter([(features, labels)]), steps=1)
        example = {name: values[:2] for name, values in features.items()}
        receive = ex.export.build_raw_serving_input_receiver_fn(example)
        return Path(model.export_saved_model(folder, receive))


def _write_requests(folder: Path) -> None:
    random = np.random.default_rng(1)

    def row() -> dict[str, Any]:
        texts = {f"s{i}": str(random.integers(0, 10_000)) for i in range(STRINGS)}
        return texts | {f"n{i}": round(random.normal(), 4) for i in range(NUMBERS)}

    rows = [row() for _ in range(ROWS)]
    columns = {name: [each[name] for each in rows] for name in rows[0]}
    for name, body in (
        ("rows", {"instances": rows}),
        ("columns", {"inputs": columns}),
        ("one", {"instances": rows[:1]}),
        ("1024", {"instances": rows * (1024 // ROWS)}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(body))
    request = message("PredictRequest")()
    request.model_spec.name = "m"
    for name, value in rows[0].items():
        dtype: Any = object if isinstance(value, str) else np.float32
        word = value.encode() if isinstance(value, str) else value
        fill_proto(request.inputs[name], np.array([word], dtype))
    (folder / "one.pb").write_bytes(request.SerializeToString())


def _throughput(base: Path, folder: Path, options: argparse.Namespace) -> Any:
    """Race the server against its own ceiling, in turns."""
    found: dict[str, Any] = {}
    with serving(base, folder) as server, _constant(base / "1") as ceiling:
        for form in ("rows", "columns"):
            laps: dict[str, list[Any]] = {"estimax": [], "constant": []}
            for _ in range(options.rounds):
                for racer, at in (("estimax", server.rest), ("constant", ceiling)):
                    laps[racer].append(_load(at, folder / f"{form}.json", options))
            found[form] = _compared(laps, "estimax", "constant")
    return found


def _batching(base: Path, folder: Path, options: argparse.Namespace) -> Any:
    laps: dict[str, list[Any]] = {"on": [], "off": []}
    with (
        serving(base, folder) as on,
        serving(base, folder, "--no-enable-batching") as off,
    ):
        for _ in range(options.rounds):
            for racer, at in (("on", on.rest), ("off", off.rest)):
                laps[racer].append(_load(at, folder / "one.json", options))
    return _compared(laps, "on", "off")


def _processor(base: Path, folder: Path, options: argparse.Namespace) -> Any:
    """Return the microseconds of processor time that the server takes for a request."""
    found: dict[str, Any] = {}
    with serving(base, folder, with_grpc=True) as server:
        pid, port, grpc_port = server.process.pid, server.rest, server.grpc
        for name, body, at, connections, kind in (
            ("one row, REST, 64 connections", "one.json", port, 64, ()),
            ("one row, gRPC, 64 connections", "one.pb", grpc_port, 64, ("--grpc",)),
            ("one row, REST, 1 connection", "one.json", port, 1, ()),
            ("one row, gRPC, 1 connection", "one.pb", grpc_port, 1, ("--grpc",)),
            ("1,024 rows, REST, 2 connections", "1024.json", port, 2, ()),
        ):
            laps = []
            for _ in range(options.rounds):
                given = argparse.Namespace(
                    **vars(options) | {"connections": connections}
                )
                command = _load_command(at, folder / body, given, options.seconds)
                before = _processor_seconds(pid)
                done = subprocess.run(
                    [*command, *kind], capture_output=True, check=True
                )
                used = _processor_seconds(pid) - before
                laps.append(1e6 * used / json.loads(done.stdout)["requests"])
            found[name] = {"microseconds": laps, "median": statistics.median(laps)}
    return found


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _compared(laps: dict[str, list[Any]], one: str, other: str) -> Any:
    rates = {
        name: [lap["requests_per_second"] for lap in ran] for name, ran in laps.items()
    }
    ratios = [a / b for a, b in zip(rates[one], rates[other], strict=True)]
    return {
        "laps": laps,
        f"{one} / {other}": {"rounds": ratios, "median": statistics.median(ratios)},
    }


def _swaps(base: Path, bundle: Path, folder: Path, options: argparse.Namespace) -> Any:
    """Replace the version again and again while requests come in."""
    with serving(base, folder) as server:
        port = server.rest
        idle = _load(port, folder / "one.json", options, seconds=4)
        stop = folder / "stop"
        command = _load_command(port, folder / "one.json", options, seconds=600)
        command += ["--stop-file", str(stop)]
        loading = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for version in range(2, 2 + options.swaps):
            shutil.copytree(bundle, base / "temporary")
            (base / "temporary").rename(base / str(version))
            _wait_for_version(port, version)
        stop.touch()
        under = json.loads(loading.communicate()[0])
    return {"idle": idle, "during": under, "swaps": options.swaps}


def _wait_for_version(port: int, version: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models/m") as answer:
            states = json.load(answer)["model_version_status"]
        ready = [int(s["version"]) for s in states if s["state"] == "AVAILABLE"]
        if ready == [version]:
            return
        time.sleep(0.1)
    raise SystemExit(f"version {version} did not become ready")


def _starts(base: Path, folder: Path) -> Any:
    """Return the seconds until ready, with an empty cache and with a full one."""
    cache = folder / "cache"
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        with serving(base, folder, "--compilation-cache-dir", str(cache)):
            seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "second": seconds[1]}


def _load(
    port: int, body: Path, options: argparse.Namespace, seconds: float | None = None
) -> Any:
    command = _load_command(port, body, options, seconds or options.seconds)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _load_command(
    port: int, body: Path, options: argparse.Namespace, seconds: float
) -> list[str]:
    return [
        sys.executable,
        str(HERE / "serving_load.py"),
        "127.0.0.1",
        str(port),
        str(body),
        *("--path", "/v1/models/m:predict"),
        *("--connections", str(options.connections)),
        *("--seconds", str(seconds)),
    ]


@contextlib.contextmanager
def _constant(bundle: Path) -> Iterator[int]:
    port = free_port()
    program = str(HERE / "serving_constant.py")
    with started([sys.executable, program, str(bundle), str(port)], port):
        yield port


if __name__ == "__main__":
    main()
