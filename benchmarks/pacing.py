"""The worker's side of a race: train a while when asked, sleep while the others do.

    pacer = Pacer(warmup=20)
    while ...:
        step += 1
        if step == pacer.stop_at and not pacer.visit(step):
            break

A worker is one process inside one long `train` call. It is paused at a step by
waiting for an order on its standard input, so that start-up, compilation and saving
fall outside of what is timed, and so that the racers can take turns. Imports nothing
that takes time to import: it is used from TensorFlow's environment as well.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from typing import Any, Self


@dataclasses.dataclass(frozen=True)
class JsonSetup:
    """The settings of a task, which travel to a worker as its one argument."""

    def to_json(self) -> str:
        """For a worker's command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The way back."""
        values = json.loads(text).items()
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in values})


class Pacer:
    """Tells a training loop at which step to come by, and times what lies between."""

    def __init__(self, warmup: int, **about: Any) -> None:
        # Replies own the real standard output; whatever a library prints goes to the
        # log, or it would be taken for a reply.
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.stop_at = warmup
        self._about = about
        self._timed_steps = 0
        self._began_at = 0
        self._started: tuple[float, float] | None = None
        self._is_ready = False

    def visit(self, step: int, loss: float | None = None) -> bool:
        """Come by at `stop_at`, with the device idle; False: the race is over."""
        now = (time.perf_counter(), time.process_time())
        if self._timed_steps and self._started is None:
            self._begin_lap(step)
            return True
        if not self._is_ready:
            self._reply({"ready": True, **self._about})
            self._is_ready = True
        elif self._started is not None:
            self._reply(
                {
                    # Not those ordered: a racer may come by only every so many.
                    "steps": step - self._began_at,
                    "seconds": now[0] - self._started[0],
                    "cpu_seconds": now[1] - self._started[1],
                    "step": step,
                    "loss": loss,
                    "peak_mb": _peak_mb(),
                }
            )
        return self._wait_for_order(step)

    def _wait_for_order(self, step: int) -> bool:
        order = json.loads(sys.stdin.readline() or '{"steps": 0}')
        self._started = None
        self._timed_steps = order["steps"]
        if not self._timed_steps:
            return False
        if order["settle"]:
            self.stop_at = step + order["settle"]
        else:
            self._begin_lap(step)
        return True

    def _begin_lap(self, step: int) -> None:
        self.stop_at = step + self._timed_steps
        self._began_at = step
        self._started = (time.perf_counter(), time.process_time())

    def _reply(self, message: dict[str, Any]) -> None:
        self._replies.write(json.dumps(message) + "\n")
        self._replies.flush()


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
