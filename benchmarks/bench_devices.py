"""Sharded tables: does a step on eight devices grow with the number of rows?

    python benchmarks/bench_devices.py --rounds 5 --steps 50

Eight simulated devices of a CPU share every step of a model with one embedding table,
sharded by row, and the same with a copy of the table on every device. The aim is that
1,000,000 rows take at most 1.3 times as long as 10,000. The devices share one
processor, so these times say nothing about the speed of eight real ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import machine
import numpy as np
from flax import linen as nn
from race import tell

import estimax as ex
from estimax import parallel, training
from estimax.core.spec import ModeKeys
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack, put

BATCH, IDS, WIDTH = 1024, 4, 16


def main() -> None:
    options = _options()
    racers = {
        (kind, rows): _racer(rows, above, options.devices)
        for kind, above in (("sharded", 0), ("replicated", None))
        for rows in options.rows
    }
    laps: dict[Any, list[float]] = {key: [] for key in racers}
    for turn in range(options.rounds):
        # In turns, and back again, so that drift of the machine meets all alike.
        for key in sorted(racers, reverse=turn % 2 == 1):
            laps[key].append(racers[key](options.steps))
    best = {key: min(times) for key, times in laps.items()}
    found = []
    for kind in ("sharded", "replicated"):
        smallest = best[kind, options.rows[0]]
        for rows in options.rows:
            growth = [
                mine / other
                for mine, other in zip(
                    laps[kind, rows], laps[kind, options.rows[0]], strict=True
                )
            ]
            found.append(
                {
                    "what": f"time, {kind}, {rows} rows / {options.rows[0]} rows",
                    "ms_per_step": round(best[kind, rows], 3),
                    "median": round(statistics.median(growth), 3),
                    "min": round(best[kind, rows] / smallest, 3),
                }
            )
            tell(f"{found[-1]}")
    setup = {"devices": options.devices, "batch": BATCH, "ids": IDS, "width": WIDTH}
    machine.write_result("devices", {"setup": setup, "ratios": found})


def _racer(rows: int, above: int | None, devices: int) -> Callable[[int], float]:
    """Compile a model; return a function that runs steps and gives ms per step."""
    mesh = parallel.make_mesh(devices)
    assert mesh is not None, "more than one device"
    raw = plans.flatten(*_data(rows))
    recording = training.record(_model_fn(rows), raw, ModeKeys.TRAIN)
    program = training.compile(recording, parallel.Placement(mesh, shard_above=above))
    packed = pack(program.plan.prepare(raw), program.placement)
    batch = put(packed, program.placement)
    state = program.init(jax.random.key(0), packed)
    state, outputs = program.step(state, batch)
    tell(f"compiled {rows} rows, loss {float(outputs['loss']):.4f}")
    held = [state]

    def lap(steps: int) -> float:
        state = held.pop()
        start = time.perf_counter()
        for _ in range(steps):
            state, outputs = program.step(state, batch)
        jax.block_until_ready((state, outputs))
        held.append(state)
        return 1000 * (time.perf_counter() - start) / steps

    return lap


def _model_fn(rows: int) -> Callable[[Any, Any], ex.EstimatorSpec]:
    city = ex.feature_columns.categorical_column_with_identity("city", rows)
    columns = [ex.feature_columns.embedding_column(city, WIDTH)]

    def model_fn(features: Any, labels: Any) -> ex.EstimatorSpec:
        net = ex.feature_columns.input_layer(features, columns)
        logits = nn.Dense(1)(nn.relu(nn.Dense(64)(net)))
        loss = ((logits[:, 0] - labels) ** 2).mean()
        adagrad = ex.optimizers.Adagrad(0.05)
        return ex.EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=adagrad)

    return model_fn


def _data(rows: int) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, rows, (BATCH, IDS))
    return {"city": ids}, rng.normal(size=BATCH).astype(np.float32)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    main()
