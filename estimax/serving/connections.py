"""The connections of REST clients: at most so many, and none that is never used.

    connections = Connections(most=1000, read_seconds=60.0, count=print)
    uvicorn.Config(app, http=connections.protocol())
    await connections.watch()

A client that sends half a request, or nothing, would keep its connection for ever. So
would one that does not read its answer. At the limit, the connection that has been idle
longest makes way for a new one; if all are busy, the new one is refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_log = logging.getLogger("estimax.serving")
_WATCH_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 60.0  # a line for each reason at most this often
_REFUSED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)
_TOO_SLOW: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class Connections:
    """Counts the connections, and closes those that hold a place for nothing.

    Args:
      most: The most connections at one time.
      read_seconds: How long a request may take to arrive as a whole, from its first
        bytes on, the first one may take to begin, and an answer may be left unread.
      count: Called with the reason of every connection that is closed: "idle",
        "refused", "half_sent", "unread" or "malformed".
      clock: Returns seconds.
    """

    def __init__(
        self,
        most: int,
        read_seconds: float,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._read_seconds = read_seconds
        self._count = count
        self._clock = clock
        self._open: set[Any] = set()
        self._logged: dict[str, tuple[float, int]] = {}  # when, and how many since

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the class of a connection, for `uvicorn.Config(http=...)`."""
        connections = self
        base: Any = AutoHTTPProtocol  # of httptools, or of h11 if that is missing

        class Connection(base):
            """A connection that knows since when it waits for its client."""

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                self.waits_since = connections._clock()
                self.unread = 0, self.waits_since
                self.has_begun = False  # to receive a request
                self.has_answered = False
                connections._admit(self)

            def connection_lost(self, exc: Exception | None) -> None:
                connections._open.discard(self)
                super().connection_lost(exc)

            def data_received(self, data: bytes) -> None:
                if not self.has_begun:
                    self.has_begun = True
                    self.waits_since = connections._clock()
                super().data_received(data)

            def on_response_complete(self) -> None:
                super().on_response_complete()
                self.waits_since = connections._clock()
                self.has_answered = True
                # The next request may have come before the answer to this one.
                self.has_begun = not _is_idle(self)

            def send_400_response(self, msg: str) -> None:
                connections._note("malformed", "that did not send HTTP")
                super().send_400_response(msg)

        return Connection

    async def watch(self) -> None:
        """Close connections that have waited too long, until cancelled."""
        while True:
            await asyncio.sleep(min(_WATCH_SECONDS, self._read_seconds))
            self.sweep()

    def sweep(self) -> None:
        """Close the connections that have waited too long by now."""
        now = self._clock()
        for connection in list(self._open):
            size = connection.transport.get_write_buffer_size()
            if not size or size != connection.unread[0]:
                connection.unread = size, now
            elif now - connection.unread[1] > self._read_seconds:
                self._note("unread", "whose client did not read its answer")
                connection.transport.abort()
                continue
            is_late = now - connection.waits_since > self._read_seconds
            # After an answer, and before the next request, keep-alive has its own time.
            is_kept = connection.has_answered and not connection.has_begun
            if is_late and not is_kept and _awaits_client(connection) and not size:
                self._note(
                    "half_sent",
                    f"without a whole request after {self._read_seconds:g} s",
                )
                _close(connection, _TOO_SLOW)

    def _admit(self, connection: Any) -> None:
        if len(self._open) >= self._most:
            idle = [c for c in self._open if _is_idle(c)]
            if not idle:
                self._note("refused", f"beyond the limit of {self._most}, all busy")
                _close(connection, _REFUSED)
                return
            oldest = min(idle, key=lambda c: c.waits_since)
            self._open.discard(oldest)
            self._note("idle", f"that were idle, at the limit of {self._most}")
            if oldest.transport.get_write_buffer_size():
                oldest.transport.abort()  # it would wait for its client to read
            else:
                oldest.transport.close()
        self._open.add(connection)

    def _note(self, reason: str, about: str) -> None:
        self._count(reason)
        at, count = self._logged.get(reason, (-_LOG_SECONDS, 0))
        now = self._clock()
        if now - at < _LOG_SECONDS:
            self._logged[reason] = at, count + 1
            return
        self._logged[reason] = now, 0
        _log.warning("REST: closed %d connections %s", count + 1, about)


def _awaits_client(connection: Any) -> bool:
    """Return whether the rest of a request, or the next one, has to come."""
    cycle = connection.cycle
    return cycle is None or cycle.response_complete or cycle.more_body


def _is_idle(connection: Any) -> bool:
    cycle = connection.cycle
    return cycle is None or cycle.response_complete


def _close(connection: Any, answer: bytes) -> None:
    connection.transport.write(answer)
    connection.transport.close()
