"""Ask another process, and be asked by it, over one socket.

    channel = await Channel.open(sock, {"double": double})
    await channel.call("double", 21, timeout=5)       # 42, from the other process

A message is four bytes of length and JSON. Either side may ask at any time; an error of
the function is raised by `call` on the other side.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

_LENGTH: Final = 4

Handler = Callable[[Any], Awaitable[Any]]


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
        handlers: Mapping[str, Handler],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._handlers = handlers
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.closed = asyncio.create_task(self._read())  # ends with the connection

    @classmethod
    async def open(
        cls, sock: socket.socket, handlers: Mapping[str, Handler]
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
