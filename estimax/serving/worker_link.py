"""The side of a worker of `estimax serve --workers`: what it shares with the others.

    link = WorkerLink.from_environment("0:7")       # worker 0, socket 7
    await link.open(reload=..., metrics=...)
    await link.reload(models, seconds)              # in all workers
    await link.families()                           # of all workers

The process that keeps the workers is `estimax/cli/serve_workers.py`.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from estimax.serving.channel import Channel, ChannelError
from estimax.serving.config import ModelConfig, models_from_json, models_to_json
from estimax.serving.metric_families import Family, families_from_json, families_to_json
from estimax.serving.status import Code, ServingError

_ANSWER_SECONDS: Final = 10.0  # more than the keeper waits for other workers

# models, seconds -> the models before
Reload = Callable[[Sequence[ModelConfig], float], Awaitable[Sequence[ModelConfig]]]


class WorkerLink:
    """The connection of a worker with the process that keeps the workers.

    Args:
      index: The number of the worker, from 0 on.
      sock: The socket to the keeper.
    """

    def __init__(self, index: int, sock: socket.socket) -> None:
        self.index = index
        self._sock = sock
        self._channel: Channel

    @classmethod
    def from_environment(cls, text: str | None) -> WorkerLink | None:
        """Return the link that the keeper has described, or None without a keeper."""
        if text is None:
            return None
        index, descriptor = text.split(":")
        sock = socket.socket(fileno=int(descriptor))
        sock.set_inheritable(False)  # not for the processes that compile
        return cls(int(index), sock)

    async def open(
        self, reload: Reload, metrics: Callable[[], list[Family]]
    ) -> tuple[ModelConfig, ...] | None:
        """Connect with the keeper.

        Args:
          reload: Applies models in this process, and returns those before.
          metrics: Returns the metrics of this process.

        Returns:
          The models of the other workers, if they have been changed since the start.
        """

        async def apply(request: Any) -> Any:
            models = models_from_json(request["models"])
            return models_to_json(await reload(models, request["seconds"]))

        async def collect(_: Any) -> Any:
            return families_to_json(metrics())

        handlers = {"reload": apply, "metrics": collect}
        self._channel = await Channel.open(self._sock, handlers)
        try:
            found = await self._channel.call("begin", timeout=None)
        except ChannelError as error:
            raise ServingError(Code.UNAVAILABLE, f"the keeper: {error}") from None
        return None if found is None else models_from_json(found)

    async def tell_ready(self) -> None:
        """Tell the keeper that this worker answers requests."""
        await self._channel.call("ready", timeout=_ANSWER_SECONDS)

    async def wait_closed(self) -> None:
        """Wait until the keeper has ended."""
        await self._channel.closed

    async def reload(self, models: Sequence[ModelConfig], seconds: float) -> None:
        """Replace the models of all workers.

        Raises:
          ServingError: A worker refused them; then all keep the models before.
        """
        request = {"models": models_to_json(models), "seconds": seconds}
        try:
            await self._channel.call("reload", request, timeout=None)
        except ChannelError as error:
            code = Code.UNAVAILABLE if error.code is None else Code(error.code)
            raise ServingError(code, str(error)) from None

    async def families(self) -> list[Family]:
        """Return the metrics of all workers."""
        try:
            found = await self._channel.call("metrics", timeout=_ANSWER_SECONDS)
        except (ChannelError, TimeoutError) as error:
            raise ServingError(
                Code.UNAVAILABLE, f"the metrics of the workers: {error or 'timeout'}."
            ) from None
        return families_from_json(found)
