"""The meeting of the processes of a cluster, before JAX connects them.

    with meeting(Member("10.0.0.1:4000", 0, 3, name_of), limit_secs=300):
        jax.distributed.initialize(…)

Process 0 listens at its address until every other process has said which one it is, and
then lets all of them go on at once. Meanwhile the others keep their connection open, so
that they notice at once if process 0 ends. JAX itself waits inside C++, where neither
signals nor the end of process 0 are noticed, and does not say who is missing.

Messages are lines of JSON. The port is the one on which JAX listens afterwards.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import ClusterError

_log = logging.getLogger("estimax")
_LOOPBACK = ("localhost", "127.", "[::1]")
_SLICE_SECS = 1.0  # a longer wait would delay signals
_HELLO_SECS = 5.0  # how long a process may take to say which one it is
_START_SECS = 60.0  # how long JAX's service may take to start
_CONNECT_SECS = 5.0
_PAUSE_SECS = 0.1
_REMIND_SECS = 60.0
_LONGEST_LINE = 4096


@dataclass(frozen=True)
class Member:
    """One process that comes to the meeting.

    Attributes:
      address: Where process 0 listens, "host:port".
      process: The number of this process.
      count: How many processes there are.
      name_of: Returns the role of a process by its number, such as "worker 0".
    """

    address: str
    process: int
    count: int
    name_of: Callable[[int], str]

    @property
    def bind_address(self) -> str | None:
        """Where process 0 listens if that is not every interface, "host:port"."""
        given = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
        if given is None and self.address.startswith(_LOOPBACK):
            return self.address
        return given

    def label(self, process: int) -> str:
        """Return the role and number of a process, such as "worker 0 (process 1 of 2)".

        >>> Member("a:1", 0, 2, lambda number: "worker 0").label(1)
        'worker 0 (process 1 of 2)'
        """
        return f"{self.name_of(process)} (process {process} of {self.count})"


@contextmanager
def meeting(me: Member, limit_secs: float) -> Iterator[None]:
    """Wait until all processes are here; run the block while JAX connects them.

    Raises:
      ClusterError: A process did not come within `limit_secs`, process 0 ended, or two
        processes have the same number or count the processes differently.
    """
    deadline = time.monotonic() + limit_secs
    if me.process != 0:
        with _attend(me, deadline, limit_secs):
            yield
        return
    connections = _host(me, deadline, limit_secs)
    try:
        # Only when all are here: a process that is told to go starts JAX, which ends
        # the process if another one is missing.
        for connection in connections:
            _send(connection, {"go": True})
        yield
    finally:
        for connection in connections:
            connection.close()


def _host(me: Member, deadline: float, limit_secs: float) -> list[socket.socket]:
    """Return the connections of all other processes, as process 0."""
    here: dict[int, socket.socket] = {}
    remind = time.monotonic() + _REMIND_SECS
    try:
        with _listening(me) as server:
            while len(here) < me.count - 1:
                _forget_ended(here, me)
                if time.monotonic() > deadline:
                    raise ClusterError(_absence(me, here, limit_secs))
                if time.monotonic() > remind:
                    _log.info("%s", _waiting(me, here))
                    remind += _REMIND_SECS
                # `accept` waits for a slice of a second, so that the loop also notices
                # processes that have ended, the deadline, and Ctrl-C.
                with contextlib.suppress(TimeoutError):
                    connection, _ = server.accept()
                    _welcome(connection, here, me)
        return list(here.values())
    except BaseException as error:
        # All that came are told why: each would else wait for its own time-out, and
        # report that the chief does not answer.
        for connection in here.values():
            if isinstance(error, ClusterError):
                _send(connection, {"refused": str(error)})
            connection.close()
        raise


def _listening(me: Member) -> socket.socket:
    host, _, port = (me.bind_address or f":{me.address.rpartition(':')[2]}").rpartition(
        ":"
    )
    host = host.strip("[]")
    try:
        if ":" in host or (not host and socket.has_dualstack_ipv6()):
            server = socket.create_server(
                (host, int(port)),
                family=socket.AF_INET6,
                dualstack_ipv6=not host or host == "::",
            )
        else:
            server = socket.create_server((host, int(port)))
    except OSError as error:
        raise ClusterError(
            f"{me.label(0)} cannot listen at {me.address}: {error}. Does another "
            "process listen there, such as a second one that was started as the chief, "
            "or the chief of a job that has not ended?"
        ) from error
    server.settimeout(_SLICE_SECS)
    return server


def _welcome(
    connection: socket.socket, here: dict[int, socket.socket], me: Member
) -> None:
    """Let a process in; close the connection of whoever else has connected."""
    try:
        hello = _receive(connection, _HELLO_SECS)
        process, count = int(hello["process"]), int(hello["count"])
    except (KeyError, TimeoutError, TypeError, ValueError):
        connection.close()  # not a process of estimax
        return
    if count != me.count or not 0 < process < count or process in here:
        problem = _misfit(process, count, me)
        _send(connection, {"refused": problem})
        connection.close()
        raise ClusterError(problem)
    here[process] = connection
    _log.info("%s is here", me.label(process))


def _misfit(process: int, count: int, me: Member) -> str:
    if count != me.count:
        return (
            f"{me.label(0)} and process {process} count the processes of the cluster "
            f"differently: {me.count} and {count}. Give all of them the same cluster."
        )
    return (
        f"two processes say that they are {me.label(process)}. Give every process of "
        "the cluster its own task."
    )


def _forget_ended(here: dict[int, socket.socket], me: Member) -> None:
    """Remove the processes that have ended since; a restarted one may come again."""
    for process, connection in list(here.items()):
        # Peeked at, not read: a message that is there already must stay. An empty
        # result means that the other side has closed the connection.
        connection.setblocking(False)
        try:
            has_ended = connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            has_ended = False
        except OSError:
            has_ended = True
        connection.setblocking(True)
        if has_ended:
            connection.close()
            del here[process]
            _log.warning("%s has ended again", me.label(process))


def _absence(me: Member, here: dict[int, socket.socket], limit_secs: float) -> str:
    missing = ", ".join(me.label(n) for n in range(1, me.count) if n not in here)
    return (
        f"{missing} did not connect with {me.label(0)} at {me.address} within "
        f"{limit_secs:g} seconds (session_creation_timeout_secs). Was every process "
        "started, and can it reach this address?"
    )


def _waiting(me: Member, here: dict[int, socket.socket]) -> str:
    missing = ", ".join(me.label(n) for n in range(1, me.count) if n not in here)
    return f"{me.label(me.process)}: still waiting for {missing} at {me.address}"


@contextmanager
def _attend(me: Member, deadline: float, limit_secs: float) -> Iterator[None]:
    """Meet the others at process 0; keep the connection open for the block."""
    connection = _reach(me, deadline, limit_secs)
    with connection:
        _send(connection, {"process": me.process, "count": me.count})
        # Process 0 gives up first, and says who is missing.
        try:
            answer = _receive(connection, deadline - time.monotonic() + _HELLO_SECS)
        except TimeoutError as error:
            raise ClusterError(
                f"{me.label(0)} at {me.address} did not tell {me.label(me.process)} "
                f"within {limit_secs:g} seconds (session_creation_timeout_secs) that "
                "all processes are connected. It may wait longer for the others: give "
                "all processes the same limit, and see its own output for who is "
                "missing."
            ) from error
        if not isinstance(answer, dict):
            raise ClusterError(
                f"{me.label(0)} ended before all processes were connected, or trains "
                "with others already. Its own output says which. Start all processes "
                "again."
            )
        if "refused" in answer:
            raise ClusterError(str(answer["refused"]))
        # Process 0 starts JAX's service now. JAX would try again after a second only.
        _reach(me, time.monotonic() + _START_SECS, _START_SECS).close()
        yield


def _reach(me: Member, deadline: float, limit_secs: float) -> socket.socket:
    """Return a connection with process 0, which may start later than this process."""
    host, _, port = me.address.rpartition(":")
    remind = time.monotonic() + _REMIND_SECS
    while True:
        try:
            return socket.create_connection(
                (host.strip("[]"), int(port)), _CONNECT_SECS
            )
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the {me.label(0)} did not answer {me.label(me.process)} at "
                    f"{me.address} within {limit_secs:g} seconds "
                    f"(session_creation_timeout_secs): {error}. Was it started, and "
                    "is this its address?"
                ) from error
        if time.monotonic() > remind:
            _log.info(
                "%s: still waiting for %s at %s",
                me.label(me.process),
                me.label(0),
                me.address,
            )
            remind += _REMIND_SECS
        time.sleep(_PAUSE_SECS)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the receiver has ended, which shows elsewhere
        connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket, limit_secs: float) -> Any:
    """Return the next message; None if the other side has ended.

    Raises:
      TimeoutError: It says nothing within `limit_secs`.
    """
    deadline = time.monotonic() + limit_secs
    connection.settimeout(_SLICE_SECS)
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        try:
            # By byte: what follows the line belongs to the next message.
            part = connection.recv(1)
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
            continue
        except OSError:
            return None
        if not part:
            return None
        line += part
    try:
        return json.loads(line)
    except ValueError:
        return None
