"""`estimax serve --workers N`: processes that share the ports, and who keeps them.

The keeper starts the workers, passes signals on, starts a worker again that has died,
and tells all of them what one is told: a new configuration goes to every worker, and
metrics are those of all. It loads no model, so it needs no jax.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from estimax.cli.tf_serving_flags import WORKER
from estimax.serving.metric_families import (
    Family,
    Sample,
    families_from_json,
    families_to_json,
    lasting,
    merge,
)
from estimax.serving.workers import Channel, ChannelError

_log = logging.getLogger("estimax.serving")
_METRICS_SECONDS: Final = 5.0  # a worker that is busy for longer is left out
_RELOAD_SECONDS: Final = 660.0  # longer than a reload may take in a worker
_BACK_SECONDS: Final = 600.0  # to load the models before, whatever a client allowed
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0


def run_workers(count: int) -> int:
    """Run the command of this process in several workers; return the exit status."""
    command = [*sys.orig_argv[:1], *sys.argv, "--workers", "1"]
    return asyncio.run(Keeper(command, count).run())


@dataclass(eq=False)
class _Worker:
    """A process that serves."""

    index: int
    process: asyncio.subprocess.Process
    channel: Channel | None = None
    has_begun: bool = False  # whether it can be asked
    is_ready: bool = False  # whether it answers requests


class Keeper:
    """Keeps workers running until a signal.

    Args:
      command: The command line of a worker.
      count: How many workers to run.
    """

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._command = command
        self._count = count
        self._workers: dict[int, _Worker] = {}
        self._models: Any = None  # the last configuration that all workers have taken
        self._reloading = asyncio.Lock()
        self._stop = asyncio.Event()
        self._seen: dict[int, list[Family]] = {}  # the last metrics of each worker
        self._ended: list[Family] = []  # those of workers that have ended
        self._restarts = 0
        self._was_ready = False  # whether a worker was, once

    async def run(self) -> int:
        """Run the workers; return the highest exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._pass_on, number)
        statuses = await asyncio.gather(*(self._keep(i) for i in range(self._count)))
        # A worker may get the signal before it has begun to listen for it.
        told = (-signal.SIGTERM, -signal.SIGINT)
        return max(0 if status in told else abs(status) for status in statuses)

    def _pass_on(self, number: int) -> None:
        self._stop.set()
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(number)

    async def _keep(self, index: int) -> int:
        """Run one worker after the other; return the status of the last."""
        delay = _FIRST_DELAY
        while True:
            worker = await self._start(index)
            status = await worker.process.wait()
            self._forget(worker)
            if self._stop.is_set():
                return status
            if status > 0 and not self._was_ready:
                # A mistake in the command or the models: another try would fail, too.
                self._pass_on(signal.SIGTERM)
                return status
            _log.error(
                "worker %d ended with status %d; starting it again", index, status
            )
            self._restarts += 1
            delay = _FIRST_DELAY if worker.is_ready else min(2 * delay, _LONGEST_DELAY)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay)
                return 0

    async def _start(self, index: int) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, WORKER: f"{index}:{theirs.fileno()}"},
                pass_fds=[theirs.fileno()],
                # A session of its own: Ctrl-C reaches a worker once, through this one.
                start_new_session=True,
            )
        worker = self._workers[index] = _Worker(index, process)
        if self._stop.is_set():  # a signal came while the process was started
            process.send_signal(signal.SIGTERM)

        async def begin(_: Any) -> Any:
            # Under the lock, so that no reload passes by a worker that begins.
            async with self._reloading:
                worker.has_begun = True
                return self._models

        async def set_ready(_: Any) -> None:
            worker.is_ready = self._was_ready = True

        handlers = {
            "begin": begin,
            "ready": set_ready,
            "metrics": self._metrics,
            "reload": self._reload,
        }
        worker.channel = await Channel.open(ours, handlers)
        return worker

    def _forget(self, worker: _Worker) -> None:
        del self._workers[worker.index]
        self._ended = merge([self._ended, self._seen.pop(worker.index, [])])
        if worker.channel is not None:
            worker.channel.close()

    def _channels(self) -> dict[int, Channel]:
        return {
            worker.index: worker.channel
            for worker in self._workers.values()
            if worker.channel is not None and worker.has_begun
        }

    async def _reload(self, request: Any) -> None:
        """Give all workers a configuration; if one refuses it, none keeps it."""
        async with self._reloading:
            channels = self._channels()
            answers = dict(
                zip(channels, await _ask(channels, "reload", request), strict=True)
            )
            # A worker that has ended meanwhile gets the models when it begins again.
            failed = [
                answer
                for answer in answers.values()
                if isinstance(answer, TimeoutError)
                or (isinstance(answer, ChannelError) and answer.code is not None)
            ]
            if not failed:
                self._models = request["models"]
                return
            taken = {
                index: before
                for index, before in answers.items()
                if not isinstance(before, BaseException)
            }
            await asyncio.gather(
                *(self._go_back(i, channels[i], taken[i]) for i in taken)
            )
            raise failed[0]

    async def _go_back(self, index: int, channel: Channel, models: Any) -> None:
        """Give a worker the models that it had; if it cannot, start it again."""
        back = {"models": models, "seconds": _BACK_SECONDS}
        (answer,) = await _ask({index: channel}, "reload", back)
        worker = self._workers.get(index)
        if not isinstance(answer, BaseException) or worker is None:
            return
        if worker.channel is channel:  # it has not been started again meanwhile
            _log.error("worker %d does not go back, and is ended: %s", index, answer)
            with contextlib.suppress(ProcessLookupError):
                worker.process.terminate()

    async def _metrics(self, _: Any) -> Any:
        """Return the metrics of all workers as those of one server."""
        channels = self._channels()
        answers = await _ask(channels, "metrics", None, timeout=_METRICS_SECONDS)
        for index, answer in zip(channels, answers, strict=True):
            if not isinstance(answer, BaseException) and index in self._workers:
                self._seen[index] = families_from_json(answer)
        live = list(self._seen.values())
        # Samples of ended workers that are dropped once are dropped for ever: a
        # counter that came back would look as if it had been reset.
        self._ended = lasting(self._ended, live)
        return families_to_json(merge([*live, self._ended, self._own()]))

    def _own(self) -> list[Family]:
        restarts = Sample("estimax_worker_restarts_total", {}, self._restarts)
        workers = Sample("estimax_workers", {}, len(self._workers))
        return [
            Family(
                "estimax_worker_restarts",
                "Workers that died and were started again.",
                "counter",
                [restarts],
            ),
            Family("estimax_workers", "Workers that are running.", "gauge", [workers]),
        ]


async def _ask(
    channels: dict[int, Channel],
    name: str,
    value: Any,
    timeout: float = _RELOAD_SECONDS,
) -> list[Any]:
    """Return the answer of each worker, or why there is none."""
    return await asyncio.gather(
        *(channel.call(name, value, timeout=timeout) for channel in channels.values()),
        return_exceptions=True,
    )
