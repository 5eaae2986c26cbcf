"""What the workers of `estimax serve --workers` share, and the socket for it.

    link = WorkerLink.from_environment("0:7")       # worker 0, socket 7
    await link.open(reload=..., metrics=...)
    await link.reload(models, seconds)              # in all workers
    await link.families()                           # of all workers

A worker has one socket to the process that keeps the workers, which is
`estimax/cli/serve_workers.py`. A message on it is four bytes of length and JSON. Either
side may ask at any time; an error of the function that answers is raised by `call` on
the other side.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from estimax.serving.config import ModelConfig, models_from_json, models_to_json
from estimax.serving.metric_families import Family, families_from_json, families_to_json
from estimax.serving.status import Code, ServingError

_LENGTH: Final = 4

ChannelHandler = Callable[[Any], Awaitable[Any]]


class ChannelError(RuntimeError):
    """The other process could not answer.

    Args:
      message: What it said.
      code: The number of its error, if it has one.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Channel:
    """One end of a socket between two processes; see the module.

    Args:
      reader: Where messages come from.
      writer: Where they go.
      handlers: Functions that the other process may call, by name.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[str, ChannelHandler],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._handlers = handlers
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.closed = asyncio.create_task(self._read())  # ends with the connection

    @classmethod
    async def open(
        cls, sock: socket.socket, handlers: Mapping[str, ChannelHandler]
    ) -> Channel:
        """Return the channel of a connected socket."""
        return cls(*await asyncio.open_connection(sock=sock), handlers)

    async def call(self, name: str, value: Any = None, *, timeout: float | None) -> Any:
        """Return what a function of the other process returns for a JSON value.

        Raises:
          ChannelError: The function failed, or the connection ended.
          TimeoutError: There was no answer in time.
        """
        if self.closed.done():
            raise ChannelError("the other process has ended.")
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"call": name, "number": number, "value": value})
            return await asyncio.wait_for(waiting, timeout)
        finally:
            del self._waiting[number]
            waiting.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _send(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode()
        self._writer.write(len(data).to_bytes(_LENGTH) + data)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise ChannelError("the other process has ended.") from None

    async def _read(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(_LENGTH))
                self._receive(json.loads(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other process has ended
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ChannelError("the other process has ended."))

    def _receive(self, message: Mapping[str, Any]) -> None:
        if "call" in message:
            # Kept in a set: the event loop has only weak references to tasks.
            task = asyncio.create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        waiting = self._waiting.get(message["number"])
        if waiting is None or waiting.done():
            return  # its time is up
        if "error" in message:
            waiting.set_exception(ChannelError(message["error"], message["code"]))
        else:
            waiting.set_result(message["value"])

    async def _answer(self, message: Mapping[str, Any]) -> None:
        number = message["number"]
        try:
            found = await self._handlers[message["call"]](message["value"])
            answer = {"number": number, "value": found}
        except Exception as error:  # told to the process that asked
            code = getattr(error, "code", None)
            answer = {
                "number": number,
                "error": str(error),
                "code": code if code is None else int(code),
            }
        with contextlib.suppress(ChannelError):  # nobody waits for it any more
            await self._send(answer)


_ANSWER_SECONDS: Final = 10.0  # more than the keeper waits for other workers

# models, seconds -> the models before
ReloadWorker = Callable[
    [Sequence[ModelConfig], float], Awaitable[Sequence[ModelConfig]]
]


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
        self, reload: ReloadWorker, metrics: Callable[[], list[Family]]
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
            # No timeout: if the keeper ends, so does the connection, and the call with
            # it.
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
