"""Overlap: does a slow input run while the step does?

    python benchmarks/bench_overlap.py --steps 200

Input and step each take a given time (waiting, as for a disk and a device). Ideal is
the longer of the two; 0.9 of it is the aim. Cases: a slow map behind prefetch, one in
several threads, and an input four times as fast as the step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import machine
import numpy as np
from race import tell

from estimax import input as inputs


def main() -> None:
    options = _options()
    slow = options.input_ms
    cases: dict[str, tuple[Callable[[], inputs.Dataset], float]] = {
        "slow map, prefetch": (lambda: _data(slow).prefetch(2), 1),
        "slow map in 4 threads": (lambda: _data(4 * slow, 4).prefetch(2), 1),
        "faster input": (lambda: _data(slow / 4).prefetch(2), 0.25),
    }
    found: list[dict[str, Any]] = []
    for name, (make, share) in cases.items():
        took = _run(make(), options.steps, options.step_ms)
        ideal = max(options.input_ms * share, options.step_ms)
        share_of_ideal = round(ideal / took, 3)
        found.append(
            {
                "what": f"ideal / time, {name}",
                "ms_per_step": round(took, 3),
                "ideal_ms": ideal,
                "median": share_of_ideal,
                "min": share_of_ideal,
            }
        )
        tell(f"{found[-1]}")
    setup = {"input_ms": options.input_ms, "step_ms": options.step_ms}
    machine.write_result("overlap", {"setup": setup, "ratios": found})


def _data(milliseconds: float, threads: int | None = None) -> inputs.Dataset:
    def slow(batch: Any) -> Any:
        time.sleep(milliseconds / 1000)
        return batch

    rows = inputs.Dataset.from_tensor_slices(np.zeros((1 << 16, 8), np.float32))
    return rows.repeat().batch(256).map(slow, num_parallel_calls=threads)


def _run(data: inputs.Dataset, steps: int, step_ms: float) -> float:
    """Milliseconds a step, from the fifth on."""
    with iter(data) as batches:
        for _ in range(5):
            next(batches)
        start = time.perf_counter()
        for _ in range(steps):
            next(batches)
            time.sleep(step_ms / 1000)
        return 1000 * (time.perf_counter() - start) / steps


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input-ms", type=float, default=10.0)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    main()
