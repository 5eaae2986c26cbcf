"""Racers take turns on one machine, so that whatever disturbs one disturbs all.

    with Race([Racer("estimax", command), Racer("tf", other)], log_dir) as race:
        laps = race.run(rounds=5, steps=100)

All workers are started and warmed up one after the other. Then every round asks each
for a lap, in an order that is reversed from round to round. The others are stopped by a
signal: one that worked ahead meanwhile would slow down whose lap it is, and hasten its
own. Compare racers by the ratio within a round: single numbers drift with the machine.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Racer:
    """One worker: a script of this folder, its one argument, and who runs it.

    `steps` and `rounds` override those of the race, for racers too slow to keep up.
    `tree` is another checkout of estimax to import.
    """

    name: str
    script: str
    argument: str
    python: str = sys.executable
    steps: int | None = None
    rounds: int | None = None
    tree: Path | None = None


@dataclass
class _Worker:
    racer: Racer
    process: subprocess.Popen[str]
    log: Path
    about: dict[str, Any] = field(default_factory=dict)


class Race:
    """The worker processes, alive between `__enter__` and `__exit__`."""

    def __init__(
        self, racers: Sequence[Racer], log_dir: Path, *, same_data: bool = True
    ) -> None:
        self._racers = racers
        self._log_dir = log_dir
        self._same_data = same_data
        self._workers: list[_Worker] = []

    def __enter__(self) -> Race:
        for racer in self._racers:
            tell(f"starting {racer.name}")
            worker = _start(racer, self._log_dir)
            self._workers.append(worker)
            worker.about = _reply(worker)
            worker.process.send_signal(signal.SIGSTOP)
        seen = {w.about["data"] for w in self._workers if "data" in w.about}
        if self._same_data and len(seen) > 1:
            raise RuntimeError(f"the racers were given different data: {seen}")
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            assert worker.process.stdin is not None
            worker.process.send_signal(signal.SIGCONT)
            worker.process.stdin.close()
            try:
                worker.process.wait(60)
            except subprocess.TimeoutExpired:
                worker.process.kill()

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """The libraries of each racer that told them."""
        return {
            w.racer.name: w.about["versions"]
            for w in self._workers
            if "versions" in w.about
        }

    def run(
        self, *, rounds: int, steps: int, settle: int = 5
    ) -> list[dict[str, dict[str, Any]]]:
        """Run the rounds; a lap by racer's name for each."""
        laps: list[dict[str, dict[str, Any]]] = []
        for number in range(rounds):
            order = self._workers if number % 2 == 0 else self._workers[::-1]
            lap = {}
            for worker in order:
                racer = worker.racer
                if racer.rounds is None or number < racer.rounds:
                    lap[racer.name] = _lap(worker, racer.steps or steps, settle)
            tell(f"round {number + 1} of {rounds}: {_line(lap)}")
            laps.append(lap)
        return laps


def summary(
    laps: Sequence[dict[str, dict[str, Any]]], *, batch_size: int
) -> dict[str, Any]:
    """Best and median of each racer: time and CPU time a step, examples a second."""
    names = dict.fromkeys(name for lap in laps for name in lap)
    return {
        name: _summary_of([lap[name] for lap in laps if name in lap], batch_size)
        for name in names
    }


def ratios(
    laps: Sequence[dict[str, dict[str, Any]]], slow: str, fast: str
) -> dict[str, Any]:
    """How many times `fast` is as fast as `slow`, round by round."""
    both = [lap for lap in laps if slow in lap and fast in lap]
    return {
        "what": f"seconds a step of {slow} / {fast}",
        **_spread([_ms(lap[slow]) / _ms(lap[fast]) for lap in both]),
        "cpu": _spread(
            [
                _ms(lap[slow], "cpu_seconds") / _ms(lap[fast], "cpu_seconds")
                for lap in both
            ]
        ),
    }


def tell(line: str) -> None:
    """Progress goes to standard error: standard output is for the JSON."""
    print(line, file=sys.stderr, flush=True)


def _start(racer: Racer, log_dir: Path) -> _Worker:
    log = log_dir / f"{racer.name}.log"
    # A racer must not see the other's libraries by accident, nor a GPU.
    env = dict(os.environ)
    if racer.python != sys.executable:
        env.pop("PYTHONPATH", None)
    if racer.tree is not None:
        env["PYTHONPATH"] = str(racer.tree)
    env |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    # Laps are of compiled kernels, also if this machine has not compiled them yet.
    env.setdefault("ESTIMAX_NATIVE", "wait")
    with log.open("w") as errors:
        process = subprocess.Popen(
            [racer.python, str(HERE / racer.script), racer.argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            text=True,
        )
    return _Worker(racer, process, log)


def _lap(worker: _Worker, steps: int, settle: int) -> dict[str, Any]:
    assert worker.process.stdin is not None
    worker.process.send_signal(signal.SIGCONT)
    worker.process.stdin.write(json.dumps({"steps": steps, "settle": settle}) + "\n")
    worker.process.stdin.flush()
    told = _reply(worker)
    worker.process.send_signal(signal.SIGSTOP)
    return {**told, "load": os.getloadavg()[0]}


def _reply(worker: _Worker) -> dict[str, Any]:
    assert worker.process.stdout is not None
    line = worker.process.stdout.readline()
    if not line:
        code = worker.process.wait()
        end = worker.log.read_text()[-3000:]
        raise RuntimeError(f"{worker.racer.name} ended with {code}:\n{end}")
    reply: dict[str, Any] = json.loads(line)
    return reply


def _summary_of(laps: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    wall = [_ms(lap) for lap in laps]
    cpu = [_ms(lap, "cpu_seconds") for lap in laps]
    return {
        "laps": len(laps),
        "ms_per_step": {"best": min(wall), "median": statistics.median(wall)},
        "cpu_ms_per_step": {"best": min(cpu), "median": statistics.median(cpu)},
        "examples_per_second": {
            "best": 1000 * batch_size / min(wall),
            "median": 1000 * batch_size / statistics.median(wall),
        },
        "last_loss": laps[-1].get("loss"),
        "peak_mb": max(lap["peak_mb"] for lap in laps),
    }


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "rounds": [round(value, 3) for value in values],
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }


def _ms(lap: dict[str, Any], what: str = "seconds") -> float:
    return 1000 * float(lap[what]) / int(lap["steps"])


def _line(lap: dict[str, dict[str, Any]]) -> str:
    shown = (
        f"{name} {_ms(one):.3f} ms ({_ms(one, 'cpu_seconds'):.3f} CPU)"
        for name, one in lap.items()
    )
    return f"{', '.join(shown)}; load {os.getloadavg()[0]:.1f}"
