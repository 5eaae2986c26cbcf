"""The processes of a cluster: connect them, exchange values, notice a lost one.

    peers = connect(config.cluster, start_timeout_secs=300, lost_after_secs=30)
    peers.gather("batch", {"rows": 32})       # the values of all processes, in order
    peers.broadcast("seed", seed)             # the value of process 0, in every process

Values are JSON, and go through the key-value store that `jax.distributed` keeps in
process 0. Unlike a collective of the devices, an exchange may take place in any thread
while steps are running. Exchanges of one topic must happen in the same order in every
process, so a topic belongs to one thread.

A process that waits for another inside a collective cannot be interrupted by Python.
Every process therefore shows in the store that it is alive, and a thread watches the
others: if one is lost or reports an error, the thread says so and ends this process.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import jax

from estimax.core.errors import ClusterError
from estimax.parallel.cluster import Cluster, jax_timeouts

_log = logging.getLogger("estimax")

LOST_STATUS = 75  # exit status of a process that ends because another was lost
DEFAULT_LOST_AFTER_SECS = 30.0
_PREFIX = "estimax"
# A wait in the store cannot be interrupted by a signal, so it is made of short ones.
_WAIT_MS = 2_000
_LOOPBACK = ("localhost", "127.", "[::1]")


class Store(Protocol):
    """The key-value store of `jax.distributed`."""

    def key_value_set(
        self, key: str, value: str, allow_overwrite: bool = False
    ) -> None:
        """Set a key; an existing key is an error unless `allow_overwrite`."""

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Wait for a key; raise an error that holds DEADLINE_EXCEEDED after a time."""

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Return the keys that begin with `key`, and their values."""

    def key_value_delete(self, key: str) -> None:
        """Delete a key, or all keys that begin with `key` if it ends with a slash."""


class Processes:
    """The processes that train together, seen from one of them.

    Args:
      store: The key-value store that all of them share.
      index: The number of this process; 0 is the chief.
      count: How many there are.
      describe: Returns the role of a process by its number, such as "worker 0".
    """

    def __init__(
        self, store: Store, index: int, count: int, describe: Callable[[int], str]
    ) -> None:
        self._store = store
        self.index = index
        self.count = count
        self._describe = describe
        self._rounds: Counter[str] = Counter()
        self._watcher: Watcher | None = None
        self._has_ended = True

    @property
    def is_chief(self) -> bool:
        """Whether this is process 0, which writes what all have in common."""
        return self.index == 0

    def name_of(self, index: int) -> str:
        """Return the role of a process and where it runs."""
        found = dict(self._store.key_value_dir_get(f"{_PREFIX}/where/"))
        where = found.get(f"{_PREFIX}/where/{index}", "")
        role = f"{self._describe(index)} (process {index} of {self.count}"
        return f"{role}, {where})" if where else f"{role})"

    def gather(
        self, topic: str, value: Any, is_given_up: Callable[[], bool] | None = None
    ) -> list[Any]:
        """Return the values of all processes; each waits until all have called it.

        The wait ends with a ClusterError if `is_given_up` returns True, which is called
        every few seconds.
        """
        number = self._rounds[topic]
        self._rounds[topic] += 1
        key = f"{_PREFIX}/{topic}/{number}"
        text = json.dumps(value)
        if not self.is_chief:
            self._store.key_value_set(f"{key}/{self.index}", text)
            values: list[Any] = json.loads(self._wait_for(f"{key}/all", is_given_up))
            return values
        texts = [text]
        for other in range(1, self.count):
            texts.append(self._wait_for(f"{key}/{other}", is_given_up))
        together = f"[{', '.join(texts)}]"
        self._store.key_value_set(f"{key}/all", together)
        if number:
            # All have sent this round, so all have received the one before it.
            self._store.key_value_delete(f"{_PREFIX}/{topic}/{number - 1}/")
        values = json.loads(together)
        return values

    def broadcast(self, topic: str, value: Any) -> Any:
        """Return the value of process 0; the values of the others are ignored."""
        return self.gather(topic, value if self.is_chief else None)[0]

    def wait(self, topic: str) -> None:
        """Wait until all processes have called this."""
        self.gather(topic, None)

    def _wait_for(self, key: str, is_given_up: Callable[[], bool] | None) -> str:
        while True:
            if is_given_up is not None and is_given_up():
                raise ClusterError("this process no longer waits for the others.")
            try:
                return self._store.blocking_key_value_get(key, _WAIT_MS)
            except RuntimeError as error:  # the base of JAX's errors
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise ClusterError(
                        f"the chief cannot be reached: {error}"
                    ) from error

    def tell(self, **note: str) -> None:
        """Tell the watchers of the other processes that this one failed or is done."""
        self._store.key_value_set(
            f"{_PREFIX}/notes/{self.index}", json.dumps(note), allow_overwrite=True
        )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Train together: if one process raises in the block, the others end as well.

        At its end all wait for each other. `end_together` does so earlier, after which
        a process may leave the block as it likes.
        """
        self._has_ended = False
        self.tell()
        try:
            yield
            self.end_together()
        except BaseException as error:
            if not self._has_ended:
                self._fail(error)
            raise

    def end_together(self) -> None:
        """Wait until all processes have reached the end of their training."""
        if self._has_ended:
            return
        self.wait("end")
        self._has_ended = True
        self.tell(done="")

    def _fail(self, error: BaseException) -> None:
        kind, text = type(error).__name__, str(error)
        if isinstance(error, jax.errors.JaxRuntimeError) and self._watcher is not None:
            # Most likely a connection broke because another process was killed. The
            # watcher will find out which, and end this process with a message.
            _log.error("%s: %s", kind, text)
            self._watcher.wait_for_loss()
        self.tell(failed=f"{kind}: {text}" if text else kind)
        if self._watcher is not None:
            self._watcher.stop()  # this process ends by its own error
            # The others must see it before the store of the chief ends with it.
            time.sleep(3 * self._watcher.interval)
        _leave()

    def watch(self, lost_after_secs: float, end: Callable[[str], None]) -> None:
        """Start the thread that calls `end` with a message if a process is lost."""
        where = f"pid {os.getpid()} on {socket.gethostname()}"
        self._store.key_value_set(f"{_PREFIX}/where/{self.index}", where)
        self._watcher = Watcher(self._store, self, lost_after_secs, end)
        self._watcher.start()

    def leave(self) -> None:
        """Tell the others that this process exits, and stop watching them."""
        if self._has_ended:
            self.tell(failed="it has exited", done="")
        if self._watcher is not None:
            self._watcher.stop()


class Watcher:
    """Show that this process is alive, and look for the others."""

    def __init__(
        self,
        store: Store,
        processes: Processes,
        lost_after_secs: float,
        end: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._processes = processes
        self._lost_after = lost_after_secs
        self.interval = min(1.0, lost_after_secs / 10)
        self._end = end
        self._clock = clock
        self._beats = 0
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="estimax-watcher", daemon=True
        )
        # For each other process, its last sign of life and when it changed.
        now = clock()
        self._seen: dict[int, tuple[str, float]] = {
            other: ("", now)
            for other in range(processes.count)
            if other != processes.index
        }

    def start(self) -> None:
        """Start the thread that watches the other processes."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Python must not exit while it calls the store."""
        self._is_stopped.set()
        self._thread.join()

    def wait_for_loss(self) -> None:
        """Wait as long as it may take to notice that a process was lost."""
        time.sleep(self._lost_after + 3 * self.interval)

    def _run(self) -> None:
        while not self._is_stopped.wait(self.interval):
            try:
                problem = self.look()
            except RuntimeError as error:
                # JAX ends this process as well, but does not say which one was lost.
                problem = f"the chief (process 0) was lost: {error}"
            if problem is not None:
                self._end(problem)
                return

    def look(self) -> str | None:
        """Look once; return a message if a process was lost or has failed."""
        me = self._processes.index
        self._beats += 1
        self._store.key_value_set(
            f"{_PREFIX}/beats/{me}", str(self._beats), allow_overwrite=True
        )
        now = self._clock()
        beats = self._numbered("beats")
        notes = {i: json.loads(text) for i, text in self._numbered("notes").items()}
        for other, (last, since) in self._seen.items():
            beat, note = beats.get(other, ""), notes.get(other, {})
            if "failed" in note and "done" not in notes.get(me, {}):
                return f"{self._processes.name_of(other)} ended: {note['failed']}"
            if beat != last or "done" in note:
                self._seen[other] = (beat, now)
            elif now - since > self._lost_after:
                return (
                    f"{self._processes.name_of(other)} was lost: no sign of life for "
                    f"{now - since:.0f} seconds. Was it killed, or is its machine or "
                    "the network down?"
                )
        return None

    def _numbered(self, kind: str) -> dict[int, str]:
        found = self._store.key_value_dir_get(f"{_PREFIX}/{kind}/")
        return {int(key.rpartition("/")[2]): value for key, value in found}


_connected: Processes | None = None  # as `jax.distributed`, once in a process


def connected() -> Processes | None:
    """Return the processes of the cluster; None before `connect`, or without one."""
    return _connected


def connect(
    cluster: Cluster,
    *,
    start_timeout_secs: float,
    lost_after_secs: float = DEFAULT_LOST_AFTER_SECS,
) -> Processes | None:
    """Connect the processes of a cluster; return None if this one trains alone.

    Process 0 listens on the port of its address in the cluster. Only the first call in
    a process connects.

    Args:
      cluster: The cluster, with the role of this process.
      start_timeout_secs: How long to wait for the other processes.
      lost_after_secs: Seconds without a sign of life after which a process is lost.

    Raises:
      ClusterError: The other processes cannot be reached, or JAX was used before.
    """
    global _connected
    if _connected is not None or cluster.num_worker_replicas <= 1:
        return _connected
    if not jax.distributed.is_initialized():
        _initialize(cluster, start_timeout_secs, lost_after_secs)
    index, count = jax.process_index(), jax.process_count()
    if (index, count) != (cluster.process_id, cluster.num_worker_replicas):
        raise ClusterError(
            f"the cluster makes this process number {cluster.process_id} of "
            f"{cluster.num_worker_replicas}, but jax.distributed was initialized as "
            f"{index} of {count}. Leave the initialization to estimax."
        )
    peers = Processes(_store(), index, count, cluster.name_of)
    peers.watch(lost_after_secs, _end_process)
    # Runs before JAX's own function, which waits for the other processes.
    atexit.register(peers.leave)
    _connected = peers
    _log.info(
        "%s: connected with %d other processes, %d devices in all",
        peers.name_of(index),
        count - 1,
        jax.device_count(),
    )
    return peers


def _initialize(
    cluster: Cluster, start_timeout_secs: float, lost_after_secs: float
) -> None:
    address = str(cluster.coordinator)
    bind = None
    if address.startswith(_LOOPBACK):  # otherwise JAX listens on all interfaces
        bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", address)
    _log.info(
        "%s: waiting for the processes of the cluster at %s",
        cluster.name_of(cluster.process_id),
        address,
    )
    try:
        jax.distributed.initialize(
            address,
            cluster.num_worker_replicas,
            cluster.process_id,
            cluster_detection_method="deactivate",
            coordinator_bind_address=bind,
            **jax_timeouts(start_timeout_secs, lost_after_secs),
        )
    except RuntimeError as error:
        raise ClusterError(_reason(error, cluster, address)) from error


def _reason(error: RuntimeError, cluster: Cluster, address: str) -> str:
    if "before any JAX calls" in str(error):
        return (
            "the processes of a cluster must be connected before JAX is used, and this "
            "process has used it already (any computation, jax.devices(), or evaluate "
            "before train). Call config.connect() first, on the RunConfig."
        )
    return (
        f"{cluster.name_of(cluster.process_id)} could not connect with the other "
        f"{cluster.num_worker_replicas - 1} processes: {error} Process 0 must be "
        f"reachable at {address}, and all processes must be started."
    )


def _store() -> Store:
    # Not public, but there is no other way to it; Orbax uses it in the same way.
    from jax._src import distributed

    store: Any = distributed.global_state.client
    return store  # type: ignore[no-any-return]


def _leave() -> None:
    """Let this process exit without waiting for the others, which end as well."""
    from jax._src import distributed

    state = distributed.global_state
    for name in ("preemption_sync_manager", "client", "service"):
        # Their destructors would wait too, so they are kept until the process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(getattr(state, name)))
        setattr(state, name, None)


def _end_process(problem: str) -> None:
    """Print why this process ends, and end it.

    Not an exception: the main thread may wait in a collective for ever.
    """
    print(
        f"estimax.core.errors.ClusterError: {problem} This process ends too. Start all "
        "processes again: training continues at the latest checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    logging.shutdown()
    os._exit(LOST_STATUS)
