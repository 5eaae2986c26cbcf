"""Send one request over and over from several connections; print rates and latencies.

    python serving_load.py HOST PORT BODY.json --path /v1/models/m:predict
        --connections 16 --seconds 5

Connections stay open. Each sends its next request when it has the answer. With
`--grpc`, BODY is a serialized PredictRequest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """What the connections saw: seconds of every answer, and the failures."""

    seconds: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # when each answer came
    failures: list[str] = field(default_factory=list)
    elapsed: float = 0.0

    def summary(self) -> dict[str, float]:
        ordered = sorted(self.seconds) or [0.0]

        def at(part: float) -> float:
            return 1000 * ordered[min(int(part * len(ordered)), len(ordered) - 1)]

        return {
            "requests": len(self.seconds),
            "failures": len(self.failures),
            "requests_per_second": len(self.seconds) / self.elapsed,
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
            "max_ms": at(1.0),
        }


async def load(
    host: str,
    port: int,
    path: str,
    body: bytes,
    connections: int,
    seconds: float,
    stop_file: Path | None = None,
) -> Result:
    """Send the body from all connections, for a time or until a file is there."""
    result = Result()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    start = time.perf_counter()

    def is_over() -> bool:
        is_late = time.perf_counter() > start + seconds
        return is_late or (stop_file is not None and stop_file.exists())

    await asyncio.gather(
        *(_connection(host, port, request, is_over, result) for _ in range(connections))
    )
    result.elapsed = time.perf_counter() - start
    return result


async def _connection(
    host: str,
    port: int,
    request: bytes,
    is_over: Callable[[], bool],
    result: Result,
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while not is_over():
        start = time.perf_counter()
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(
                line.lower().split(b": ", 1)
                for line in head.split(b"\r\n")[1:]
                if b": " in line
            )
            answer = await reader.readexactly(int(fields[b"content-length"]))
            if not head.startswith(b"HTTP/1.1 200"):
                result.failures.append(answer[:200].decode())
        except (OSError, asyncio.IncompleteReadError) as error:
            result.failures.append(str(error))
            reader, writer = await asyncio.open_connection(host, port)
        now = time.perf_counter()
        result.seconds.append(now - start)
        result.times.append(now)
    writer.close()


async def load_grpc(
    host: str, port: int, body: bytes, connections: int, seconds: float
) -> Result:
    """Send a PredictRequest from all connections for a time."""
    import grpc.aio

    result = Result()
    start = time.perf_counter()

    async def send(channel: Any) -> None:
        predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        while time.perf_counter() < start + seconds:
            before = time.perf_counter()
            try:
                await predict(body)
            except grpc.aio.AioRpcError as error:
                result.failures.append(str(error.details()))
            result.seconds.append(time.perf_counter() - before)

    own = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each channel
    channels = [
        grpc.aio.insecure_channel(f"{host}:{port}", options=own)
        for _ in range(connections)
    ]
    await asyncio.gather(*map(send, channels))
    result.elapsed = time.perf_counter() - start
    for channel in channels:
        await channel.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("body", type=Path)
    parser.add_argument("--path", default="")
    parser.add_argument("--grpc", action="store_true")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--stop-file", type=Path)
    given = parser.parse_args()
    body = given.body.read_bytes()
    amount = given.connections, given.seconds
    sending = (
        load_grpc(given.host, given.port, body, *amount)
        if given.grpc
        else load(given.host, given.port, given.path, body, *amount, given.stop_file)
    )
    result = asyncio.run(sending)
    print(json.dumps({**result.summary(), "first_failures": result.failures[:3]}))


if __name__ == "__main__":
    main()
