"""A version of a model: loaded, compiled, and ready to answer requests.

    version = load_version(path, BatchingConfig(), scheduler)
    version.submit("predict", raw_batch, deliver)
    version.close()

    for path in prepare(config): ...    # fill the compilation cache, e.g. of an image

A version is compiled before it answers: first in a child process of low priority, into
the compilation cache that both share, and then again here, from the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from estimax import export
from estimax.core.errors import ConfigError
from estimax.core.sparse import Sparse
from estimax.export import Bundle
from estimax.export.signature import input_name, origins_of
from estimax.native import loading
from estimax.serving.batching import (
    Answers,
    BatchTask,
    RequestFeatures,
    Scheduler,
    answer_in_pieces,
    row_count,
)
from estimax.serving.config import BatchingConfig, ModelConfig, ServerConfig
from estimax.serving.config_files import batching_of, read_model_configs
from estimax.serving.examples import compile_parser
from estimax.serving.programs import NamedShapes, Programs, too_long
from estimax.serving.requests import FeatureReader, IdCheck, PendingRows
from estimax.serving.status import invalid
from estimax.serving.tensors import TensorReader
from estimax.serving.threads import StopSignal, run_in_thread
from estimax.serving.version_folders import VersionFolder, list_versions
from estimax.serving.warm_up import run_warm_up
from estimax.storage import files

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
        self.tensor_reader = TensorReader(first.inputs, origins_of(bundle.plan))
        self._check_ids = IdCheck(bundle.plan)
        self._scheduler = scheduler
        self._batching = batching
        self.warm_up_seconds: float | None = None  # of its warm-up requests
        self.example = bundle.example()  # kept: its folder may be removed
        self.queue = scheduler.queue(programs.run, batching)

    def submit(
        self,
        signature: str,
        batch: RequestFeatures,
        deliver: Callable[[Answers | Exception], None],
        deadline: float | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Compute the answers for a batch of any size; call `deliver` with them once.

        Args:
          signature: The name of the signature.
          batch: The rows.
          deliver: Called with the answers, or an error.
          deadline: When the answer is no longer wanted, by `time.monotonic`.
          is_wanted: Returns whether anyone still waits for the answer.

        Raises:
          ServingError: The queue is full, or a list is too long.
          FeatureError: An id is out of range.
        """
        rows = row_count(batch)
        # Now, before the rows are queued: a batch must not fail for one of its
        # requests.
        self._check_lists(batch)
        if rows <= self._batching.max_batch_size:  # a larger one shares no batch
            self._check_ids(batch)
        self.queue.submit(
            BatchTask(batch, rows, signature, deliver, deadline, is_wanted)
        )

    def _check_lists(self, batch: RequestFeatures) -> None:
        """Refuse lists that no program takes, before others share their batch."""
        others = batch.others if isinstance(batch, PendingRows) else batch
        most = self._batching.max_list_length
        for origin, value in others.items():
            if (
                isinstance(value, Sparse)
                and max(value.dense_shape[1:], default=0) > most
            ):
                longest = int(value.indices[:, 1:].max(initial=-1)) + 1
                if longest > most:
                    raise too_long(longest, most, input_name(origin))

    def close(self) -> None:
        """Free the programs and the queue. No request may be under way."""
        self._scheduler.remove(self.queue)


def load_version(
    path: Path,
    batching: BatchingConfig,
    scheduler: Scheduler,
    check: Callable[[], None] = lambda: None,
    shapes: Sequence[NamedShapes] = (),
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
      shapes: What `Programs.learned` of the version before it returned.
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
    # From the cache, if a child has compiled it; the order is compile, self-test, warm-
    # up, and only then a queue: no request can see a version that fails.
    programs.compile(shapes, check)
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
    programs.late_compiles = 0  # nobody waited while warm-up requests compiled
    loaded = LoadedVersion(bundle, programs, scheduler, batching)
    loaded.warm_up_seconds = seconds if runs_warm_up else None
    return loaded


def compile_in_child(
    path: Path,
    batching: BatchingConfig,
    signal: StopSignal,
    shapes: Sequence[NamedShapes] = (),
) -> None:
    """Compile a bundle in a process of low priority, into the shared cache.

    Compiling in the serving process would delay its requests: their 99th percentile
    was 10 to 26 ms, and 3 to 9 ms with a child. Without a compilation cache there is
    nothing to share, and the child only costs time. A child that cannot be started is
    logged: the load compiles in this process.

    Raises:
      LoadStoppedError: The load was told to stop; the child has been killed.
    """
    settings = json.dumps(dataclasses.asdict(batching))
    command = [sys.executable, "-m", "estimax.serving.precompile", str(path), settings]
    with contextlib.ExitStack() as stack:
        try:
            output = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            # The child ends when its input does, so that it never outlives this one.
            child = subprocess.Popen(
                ["nice", "-n", "19", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        except OSError as error:  # e.g. no `nice`, or no folder for temporary files
            _log.warning("%s is not compiled in a child: %s", path, error)
            return
        try:
            # They may be more than an argument of a command can have.
            run_in_thread(partial(_send_line, child.stdin, list(shapes)), "shapes")
            # Polled, to notice the signal of the load within 50 ms.
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


def _send_line(pipe: IO[bytes] | None, value: Any) -> None:
    """Write JSON to a child, which may take a while until it reads."""
    assert pipe is not None
    with contextlib.suppress(OSError, ValueError):  # the child, or the load, has ended
        pipe.write(json.dumps(value).encode() + b"\n")
        pipe.flush()


def prepare(config: ServerConfig) -> Iterator[Path]:
    """Compile the models of a server into the compilation cache.

    Use it when an image is built, so that a server in it starts from a full cache. It
    loads every version that a server would, and the parser of Examples.

    Args:
      config: The settings of the server.

    Yields:
      The folder of each version, after it has been compiled.

    Raises:
      EstimaxError: A version cannot be loaded, or a model has none.
    """
    loading.wait_for_compiler()
    scheduler = Scheduler(1)
    try:
        models = config.models or read_model_configs(
            Path(config.model_config_file or "")
        )
        for model in models:
            for folder in _versions_to_serve(model):
                folder.fetch()
                path = folder.path
                batching = batching_of(
                    path, config.batching, reads_file=config.reads_batching_params
                )
                loaded = load_version(path, batching, scheduler)
                compile_parser(loaded.bundle)
                loaded.close()
                yield path
    finally:
        scheduler.close()


def _versions_to_serve(config: ModelConfig) -> list[VersionFolder]:
    """Return the folders of the versions of a model that its policy chooses.

    Raises:
      ConfigError: There is none.
    """
    base = config.base_path
    try:
        found = list_versions(base)
    except Exception as error:  # of any kind: each file system has its own
        raise ConfigError(f"{base}: cannot be read: {files.reason(error)}.") from None
    chosen = config.version_policy.choose(list(found))
    if not chosen:
        raise ConfigError(f"model {config.name!r}: {base} has no version to serve.")
    return [found[number] for number in chosen]
