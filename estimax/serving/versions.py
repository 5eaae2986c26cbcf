"""A version of a model: loaded, compiled, and ready to answer requests.

version = load_version(path, BatchingConfig(), scheduler)
version.submit("predict", raw_batch, deliver)
version.close()
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from estimax import export
from estimax.export import Bundle
from estimax.export.signature import origins_of
from estimax.serving.batching import (
    Answers,
    Features,
    Scheduler,
    Task,
    answer_in_pieces,
    joined_answers,
    pieces_of,
    row_count,
)
from estimax.serving.config import BatchingConfig
from estimax.serving.json_rows import FeatureReader
from estimax.serving.loading import StopSignal
from estimax.serving.programs import Programs
from estimax.serving.status import invalid
from estimax.serving.warm_up import run_warm_up

_log = logging.getLogger("estimax.serving")


class LoadedVersion:
    """The bundle of a version with its compiled programs and its queue of requests.

    Args:
      bundle: The bundle.
      programs: Its compiled programs.
      scheduler: Whose threads run its batches.
      batching: How requests are joined.
    """

    def __init__(
        self,
        bundle: Bundle,
        programs: Programs,
        scheduler: Scheduler,
        batching: BatchingConfig,
    ) -> None:
        self.bundle = bundle
        self.programs = programs
        first = next(iter(bundle.signatures.values()))
        csv_name = None if bundle.csv is None else bundle.csv.name
        self.reader = FeatureReader(first.inputs, origins_of(bundle.plan), csv_name)
        self._scheduler = scheduler
        self._most = batching.max_batch_size
        self.warm_up_seconds: float | None = None  # of its warm-up requests
        self.queue = scheduler.queue(programs.run, batching)

    def submit(
        self,
        signature: str,
        batch: Features,
        deliver: Callable[[Answers | Exception], None],
        deadline: float | None = None,
    ) -> None:
        """Compute the answers for a batch of any size; call `deliver` with them once.

        Raises:
          ServingError: The queue is full.
        """
        rows = row_count(batch)
        if rows <= self._most:
            self.queue.submit(Task(batch, rows, signature, deliver, deadline))
            return
        parts = pieces_of(batch, self._most)
        pieces = _Pieces(len(parts), deliver)
        self.queue.submit(
            *(
                Task(
                    part,
                    row_count(part),
                    signature,
                    pieces.receiver(index),
                    deadline,
                )
                for index, part in enumerate(parts)
            )
        )

    def close(self) -> None:
        """Free the programs and the queue. No request may be under way."""
        self._scheduler.remove(self.queue)


class _Pieces:
    """The answers to the pieces of a request that is larger than a batch."""

    def __init__(
        self, count: int, deliver: Callable[[Answers | Exception], None]
    ) -> None:
        self._found: list[Any] = [None] * count
        self._missing = count
        self._deliver = deliver
        self._lock = threading.Lock()

    def receiver(self, index: int) -> Callable[[Answers | Exception], None]:
        """Return the function that takes the answers of one piece."""

        def receive(answers: Answers | Exception) -> None:
            with self._lock:
                self._found[index] = answers
                self._missing -= 1
                is_last = not self._missing
            if is_last:
                self._deliver(self._whole())

        return receive

    def _whole(self) -> Answers | Exception:
        for answers in self._found:
            if isinstance(answers, Exception):
                return answers
        return joined_answers(self._found)


def load_version(
    path: Path,
    batching: BatchingConfig,
    scheduler: Scheduler,
    check: Callable[[], None] = lambda: None,
    *,
    runs_warm_up: bool = True,
    maps_weights: bool = False,
) -> LoadedVersion:
    """Load a bundle, run its self-test, compile it, and send its warm-up requests.

    Args:
      path: The folder of the bundle.
      batching: Which batch sizes to compile, and how requests are joined.
      scheduler: Whose threads will run its batches.
      check: Called between the parts of the work; raises if the load is to stop.
      runs_warm_up: Whether to send the warm-up requests.
      maps_weights: Whether processes that load the bundle share the memory of its
        weights.

    Raises:
      EstimaxError: The bundle is damaged, or fails its self-test or a request.
    """
    bundle = export.load(path, memory_map=maps_weights)
    check()
    if not all(signature.is_by_row for signature in bundle.signatures.values()):
        raise invalid(
            f"{path}: the bundle evaluates whole batches, so requests cannot share "
            "them. Serve the folder of the version, which predicts."
        )
    programs = Programs(bundle, batching)
    programs.compile(check)
    # With these programs: the bundle would compile its own for one more batch size.
    bundle.self_test(
        lambda name, batch: answer_in_pieces(
            programs.run, name, batch, batching.max_batch_size
        )
    )
    check()
    start = time.perf_counter()
    if runs_warm_up:
        run_warm_up(bundle, programs, batching.max_batch_size, check)
    seconds = time.perf_counter() - start
    programs.late_compiles = 0  # nobody waited for those of warm-up requests
    loaded = LoadedVersion(bundle, programs, scheduler, batching)
    loaded.warm_up_seconds = seconds if runs_warm_up else None
    return loaded


def compile_in_child(path: Path, batching: BatchingConfig, signal: StopSignal) -> None:
    """Compile a bundle in a process of low priority, into the shared cache.

    Compiling in the serving process would delay its requests: their 99th percentile
    was 10 to 26 ms, and 3 to 9 ms with a child. Without a compilation cache there is
    nothing to share, and the child only costs time.

    Raises:
      LoadStoppedError: The load was told to stop; the child has been killed.
    """
    sizes = ",".join(map(str, batching.batch_sizes))
    command = [sys.executable, "-m", "estimax.serving.precompile", str(path), sizes]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        # The child ends when its input does, so that it never outlives this process.
        child = subprocess.Popen(
            ["nice", "-n", "19", *command, str(batching.list_length)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
        try:
            while child.poll() is None:
                signal.wait(0.05)
        finally:
            child.kill()
            child.communicate()
        if child.returncode:
            # The serving process compiles it again, and reports what is wrong with it.
            output.seek(0)
            told = output.read().strip()[-500:]
            _log.info("compiling %s in a child failed: %s", path, told)
