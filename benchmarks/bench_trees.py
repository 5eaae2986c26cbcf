"""CPU of predicting with trees: XLA's function of a bundle beside LightGBM's predict.

    python benchmarks/bench_trees.py --rounds 5

Both predict 1,024 rows, and one row, with the same trees. LightGBM uses one thread,
where it needs the least CPU; XLA decides for itself. The bar is 2.5 times the CPU time
of LightGBM for 1,024 rows. It also prints how far the scores are apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import lightgbm
import machine
import numpy as np

from estimax.canned.trees.arrays import arrays_of
from estimax.canned.trees.scores import raw_scores
from estimax.formats import lightgbm_models

BAR = 2.5
ROWS = 20_000
NUMBERS, SIZES = 28, (40, 300)
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "100 trees of 31 leaves, 28 numbers": (False, {"num_leaves": 31}),
    "100 trees of 31 leaves, 28 numbers and 2 categories": (True, {"num_leaves": 31}),
    "100 trees of 64 leaves, 28 numbers": (False, {"num_leaves": 64}),
    "forest of 100 trees of 500 leaves": (
        False,
        {
            "num_leaves": 500,
            "boosting": "rf",
            "bagging_fraction": 0.6,
            "bagging_freq": 1,
            "min_data_in_leaf": 2,
        },
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    load = machine.load()
    found = {name: _measure(*case, rounds) for name, case in CASES.items()}
    within = {name: told["1024 rows"]["ratio"] <= BAR for name, told in found.items()}
    machine.write_result(
        "trees",
        {
            "load": {"before": load, "after": machine.load()},
            "versions": {"jax": jax.__version__, "lightgbm": lightgbm.__version__},
            "cases": found,
            "bar": BAR,
            "within_bars": within,
        },
    )


def _measure(
    has_categories: bool, parameters: dict[str, Any], rounds: int
) -> dict[str, Any]:
    """Return CPU times in milliseconds, and how far the scores are apart."""
    matrix, target = _table(has_categories)
    sizes = SIZES if has_categories else ()
    data = lightgbm.Dataset(
        matrix, target, categorical_feature=list(range(NUMBERS, matrix.shape[1]))
    )
    common = {"objective": "binary", "num_iterations": 100, "verbosity": -1}
    booster = lightgbm.train({**common, "num_threads": 1, **parameters}, data)
    forest = lightgbm_models.parse(booster.model_to_string())
    scores = jax.jit(raw_scores, static_argnums=(3, 4))
    arrays = jax.device_put(arrays_of(forest, NUMBERS, sizes))
    is_forest = forest.is_average
    told: dict[str, Any] = {}
    for rows in (1024, 1):
        part = np.ascontiguousarray(matrix[:rows])
        ids = np.where(np.isnan(part[:, NUMBERS:]), -1, part[:, NUMBERS:])
        given = jax.device_put((part[:, :NUMBERS], ids.astype(np.int32)))

        def by_xla(given: Any = given) -> Any:
            return scores(arrays, *given, sizes, 1).block_until_ready()

        def by_lightgbm(part: Any = part) -> Any:
            return booster.predict(part, raw_score=True, num_threads=1)

        theirs = by_lightgbm() / (len(forest.trees) if is_forest else 1)
        apart = np.abs(np.asarray(by_xla())[:, 0] - theirs).max()
        repeats = 20 if rows > 1 else 200
        ours_ms = min(_laps(by_xla, repeats, rounds))
        theirs_ms = min(_laps(by_lightgbm, repeats, rounds))
        told[f"{rows} rows"] = {
            "xla_cpu_ms": round(ours_ms, 3),
            "lightgbm_cpu_ms": round(theirs_ms, 3),
            "ratio": round(ours_ms / theirs_ms, 2),
            "scores_apart": float(apart),
        }
    return told


def _laps(call: Callable[[], Any], repeats: int, rounds: int) -> Iterator[float]:
    """Yield the CPU milliseconds of a call, the mean of each round."""
    call()
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(repeats):
            call()
        yield (time.process_time() - start) / repeats * 1e3


def _table(has_categories: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(ROWS, NUMBERS)).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    known = np.nan_to_num(numbers)
    score = known[:, 0] + np.sin(3 * known[:, 1]) + rng.normal(0, 0.3, ROWS)
    if not has_categories:
        return numbers, (score > 0.5).astype(np.float32)
    ids = np.stack([rng.integers(0, size, ROWS) for size in SIZES], axis=1)
    score += (ids[:, 0] % 3 == 0) + (ids[:, 1] % 5 == 0)
    matrix = np.concatenate([numbers, ids.astype(np.float32)], axis=1)
    return matrix, (score > 0.5).astype(np.float32)


if __name__ == "__main__":
    main()
