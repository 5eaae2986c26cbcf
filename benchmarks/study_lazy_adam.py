"""A study: could exact Adam leave rows of a table alone until they are read again?

    python benchmarks/study_lazy_adam.py
    python benchmarks/study_lazy_adam.py --steps 1000 --vocabulary 20000     # quick

Adam moves every row of a table at every step. A row without a gradient moves by what is
left of its moments, so the moves that it missed since its last gradient, k = 1 … K,
depend on two numbers of each weight, m and s = sqrt(v):

    w -= sum over k of rate_k * m * b1^k / (s * b^k + epsilon)          b = sqrt(b2)

Two ways to make up for them when the row is next read:

- series: with y = s / (s + epsilon), 1 / (s * b^k + epsilon) is exactly
  1 / (s + epsilon) / (1 - y * (1 - b^k)). 1 - b^k is below 0.08 for the 160 steps after
  which nothing is left of m, so a few powers of y suffice, for every epsilon:

      w -= m / (s + epsilon) * sum over j of y^j * A_j
      A_j = sum over k of rate_k * b1^k * (1 - b^k)^j

  The A_j depend on the last step of the row alone, and are kept in a table by step.
- loop: the missed steps one by one, for the rows of the batch, 160 at most.

The script prints the errors of both over many steps, with a schedule and gradients of
many magnitudes, beside those of the exact update in float32, which visits every row.
Then it prints what a step costs, beside what estimax does: `Adam` in XLA and in its
kernel, and `LazyAdam`. Nothing here is part of estimax.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import machine
import numpy as np
from criteo import power_law_ids

from estimax import optimizers

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7
ROOT = BETA_2**0.5
WINDOW = 160  # steps; 0.9 ** 160 is 5e-8
TERMS = 6
WEIGHTS = (float(1 - np.float32(BETA_1)), float(1 - np.float32(BETA_2)))


def main() -> None:
    options = _options()
    machine.write_result(
        "study_lazy_adam",
        {
            "errors": errors(options.steps),
            "ms_of_cpu_per_step": costs(options.vocabulary, options.tables),
        },
    )


def errors(steps: int) -> dict[str, dict[str, float]]:
    """Errors of w after some steps, as multiples of those of exact float32 Adam."""
    rates = rates_of(steps)
    true = train_every_row(steps, rates, np.float64)
    found = {
        "every row, float32": train_every_row(steps, rates, np.float32),
        "series": train_by_row(steps, rates, missed_by_series),
        "loop": train_by_row(steps, rates, missed_by_loop),
        "LazyAdam": train_by_row(steps, rates, None),
    }
    differ = {name: np.abs(w - true) for name, w in found.items()}
    base = differ["every row, float32"]
    return {
        name: {
            "largest": float(error.max()),
            "mean": float(error.mean()),
            "mean_to_float32": float(error.mean() / base.mean()),
        }
        for name, error in differ.items()
    }


def rates_of(steps: int) -> np.ndarray:
    """The rate of each step with its bias corrections: warm-up, then decay to 0.1."""
    k = np.arange(1, steps + 1, dtype=np.float64)
    rate = 0.01 * np.minimum(k / 100, 1) * 0.1 ** (k / steps)
    return rate * np.sqrt(1 - BETA_2**k) / (1 - BETA_1**k)


def batches(steps: int, rows: int = 1000, width: int = 4) -> Any:
    """Distinct ids of a power law, and gradients from 1e-12 to 100."""
    rng = np.random.default_rng(1)
    for _ in range(steps):
        ids = np.unique(power_law_ids(rng.random(16), rows))
        size = 10.0 ** rng.uniform(-12, 2, (len(ids), 1))
        yield ids, rng.normal(size=(len(ids), width)) * size


def start(dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    w = np.random.default_rng(0).normal(0, 0.25, (1000, 4)).astype(np.float32)
    return w.astype(dtype), np.zeros_like(w, dtype), np.zeros_like(w, dtype)


def train_every_row(steps: int, rates: np.ndarray, dtype: Any) -> np.ndarray:
    """Adam as it is defined."""
    w, m, v = start(dtype)
    one, two = dtype(BETA_1), dtype(BETA_2)
    for (ids, grads), rate in zip(batches(steps), rates, strict=True):
        g = grads.astype(np.float32).astype(dtype)
        m *= one
        v *= two
        m[ids] += dtype(WEIGHTS[0]) * g
        v[ids] += dtype(WEIGHTS[1]) * g * g
        w -= dtype(rate) * m / (np.sqrt(v) + dtype(EPSILON))
    return w.astype(np.float64)


Missed = Callable[[Any, Any, Any, np.ndarray, int, np.ndarray, np.ndarray], Any]


def train_by_row(steps: int, rates: np.ndarray, missed: Missed | None) -> np.ndarray:
    """Adam in float32 that visits the rows of the batch; all of them at the end."""
    w, m, v = start(np.float32)
    last = np.zeros(len(w), np.int64)  # the step after which a row is up to date
    sums = np.zeros((steps + 1, TERMS))  # A_j of each last step, so far
    one, two, eps = np.float32(BETA_1), np.float32(BETA_2), np.float32(EPSILON)
    for step, (ids, grads) in enumerate(batches(steps)):
        if missed:
            w[ids], m[ids], v[ids] = missed(
                w[ids], m[ids], v[ids], last[ids], step, rates, sums
            )
        g = grads.astype(np.float32)
        m[ids] = one * m[ids] + np.float32(WEIGHTS[0]) * g
        v[ids] = two * v[ids] + np.float32(WEIGHTS[1]) * g * g
        w[ids] -= np.float32(rates[step]) * m[ids] / (np.sqrt(v[ids]) + eps)
        last[ids] = step + 1
        # This step is the k-th that the rows of each earlier last step miss.
        first = max(0, step + 1 - WINDOW)
        k = step + 1 - np.arange(first, step + 1)
        sums[first : step + 1] += rates[step] * weights_of(k)
    if missed:
        w, _, _ = missed(w, m, v, last, steps, rates, sums)
    return w.astype(np.float64)


def weights_of(k: np.ndarray) -> np.ndarray:
    """b1^k (1 - b^k)^j, [K, TERMS]."""
    powers = (1 - ROOT**k)[:, None] ** np.arange(TERMS)
    return (BETA_1**k)[:, None] * powers


def missed_by_series(
    w: Any, m: Any, v: Any, last: Any, step: int, rates: Any, sums: Any
) -> Any:
    k = (step - last)[:, None]
    return apply_series(np, w, m, v, k, sums[last].astype(np.float32))


def apply_series(xp: Any, w: Any, m: Any, v: Any, k: Any, sums: Any) -> Any:
    """Rows [U, D] after the k steps [U, 1] they missed; `sums` are A_j [U, TERMS]."""
    s = xp.sqrt(v)
    below = s + np.float32(EPSILON)
    y = s / below
    total = sums[:, -1:]
    for j in reversed(range(TERMS - 1)):
        total = total * y + sums[:, j : j + 1]
    powers = [np.power(np.float64(b), np.arange(4 * WINDOW)) for b in (BETA_1, BETA_2)]
    if xp is np:
        first, second = BETA_1**k, BETA_2**k
        return (
            w - m / below * total,
            (m * first.astype(np.float32)),
            (v * second.astype(np.float32)),
        )
    one, two = (jnp.asarray(p, jnp.float32) for p in powers)
    near = jnp.minimum(k, 4 * WINDOW - 1)
    return w - m / below * total, m * one[near], v * two[near]


def missed_by_loop(
    w: Any, m: Any, v: Any, last: Any, step: int, rates: Any, sums: Any
) -> Any:
    gap = step - last
    w, m, v = w.copy(), m.copy(), v.copy()
    eps = np.float32(EPSILON)
    for k in range(1, int(min(gap.max(initial=0), WINDOW)) + 1):
        rows = gap >= k
        m[rows] *= np.float32(BETA_1)
        v[rows] *= np.float32(BETA_2)
        rate = rates[last[rows] + k - 1].astype(np.float32)[:, None]
        w[rows] -= rate * m[rows] / (np.sqrt(v[rows]) + eps)
    rest = np.maximum(gap - WINDOW, 0)[:, None]
    m *= (BETA_1**rest).astype(np.float32)
    v *= (BETA_2**rest).astype(np.float32)
    return w, m, v


def costs(vocabulary: int, tables: int) -> dict[str, float]:
    """CPU time of one update of all tables, 1,024 ids of equal frequency in each."""
    rng = np.random.default_rng(2)
    shape = (vocabulary, 16)
    ids = [np.sort(rng.choice(vocabulary, 1024, False)) for _ in range(tables)]
    ids = [jnp.asarray(each, jnp.int32) for each in ids]
    grads = [jnp.asarray(rng.normal(size=(1024, 16)), jnp.float32) for _ in ids]
    gaps = np.minimum(rng.geometric(min(1, 1024 / vocabulary), vocabulary), 999)
    kept = jnp.asarray(1000 - gaps, jnp.int32)
    rates = jnp.full(2000, 1e-3, jnp.float32)
    table_of_sums = jnp.full((2000, TERMS), 1e-3, jnp.float32)

    def library(optimizer: Any, **options: Any) -> Any:
        def update(w: Any, m: Any, v: Any, last: Any, ids: Any, grads: Any) -> Any:
            slots = {"m": m, "v": v}
            w, slots = optimizers.update_rows(
                optimizer, w, slots, ids, grads, 1000, **options
            )
            return w, slots["m"], slots["v"], last

        return update

    def by_row(missed: Any) -> Any:
        rule = optimizers.LazyAdam(1e-3).rule
        assert rule is not None

        def update(w: Any, m: Any, v: Any, last: Any, ids: Any, grads: Any) -> Any:
            w_, m_, v_ = missed(w[ids], m[ids], v[ids], last[ids])
            w_, new = rule.update(
                grads, w_, {"m": m_, "v": v_}, jnp.float32(1e-3), jnp.int32(1000)
            )
            placed = [
                array.at[ids].set(
                    rows, unique_indices=True, indices_are_sorted=True, mode="drop"
                )
                for array, rows in ((w, w_), (m, new["m"]), (v, new["v"]))
            ]
            # The gap of the next call is the same, so that calls can be repeated.
            return *placed, last.at[ids].add(0)

        return update

    def series(w: Any, m: Any, v: Any, last: Any) -> Any:
        return apply_series(jnp, w, m, v, (1000 - last)[:, None], table_of_sums[last])

    def loop(w: Any, m: Any, v: Any, last: Any) -> Any:
        gap = (1000 - last)[:, None]

        def body(k: Any, carry: Any) -> Any:
            w, m, v = carry
            new_m, new_v = BETA_1 * m, BETA_2 * v
            rate = rates[last + k][:, None]
            new_w = w - rate * new_m / (jnp.sqrt(new_v) + EPSILON)
            old, new = (w, m, v), (new_w, new_m, new_v)
            return tuple(
                jnp.where(k < gap, b, a) for a, b in zip(old, new, strict=True)
            )

        return jax.lax.fori_loop(0, jnp.minimum(gap.max(), WINDOW), body, (w, m, v))

    def all_rows(w: Any, m: Any, v: Any, last: Any, ids: Any, grads: Any) -> Any:
        return *series(w, m, v, last), last

    ways = {
        "Adam, XLA": library(optimizers.Adam(1e-3), in_place=False),
        "Adam, kernel": library(optimizers.Adam(1e-3)),
        "LazyAdam": library(optimizers.LazyAdam(1e-3)),
        "series": by_row(series),
        "loop": by_row(loop),
        "series, once for all rows": all_rows,
    }
    found = {}
    for name, way in ways.items():
        state = [
            (
                jnp.asarray(rng.normal(0, 0.25, shape), jnp.float32),
                jnp.full(shape, 1e-3, jnp.float32),
                jnp.full(shape, 1e-5, jnp.float32),
                kept + 0,
            )
            for _ in ids
        ]
        found[name] = round(1000 * seconds_of(way, state, ids, grads), 1)
    return found


def seconds_of(way: Any, state: Any, ids: Any, grads: Any, rounds: int = 5) -> float:
    """The least CPU time of a call, of some rounds of four."""

    def update(state: Any, ids: Any, grads: Any) -> Any:
        return [way(*s, i, g) for s, i, g in zip(state, ids, grads, strict=True)]

    compiled = jax.jit(update, donate_argnums=0)
    state = jax.block_until_ready(compiled(state, ids, grads))
    taken = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(4):
            state = compiled(state, ids, grads)
        jax.block_until_ready(state)
        taken.append((time.process_time() - begin) / 4)
    return min(taken)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--vocabulary", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=26)
    return parser.parse_args()


if __name__ == "__main__":
    main()
