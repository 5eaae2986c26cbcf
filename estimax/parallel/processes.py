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
others (`watching.py`): if one is lost or reports an error, or all wait for each other,
the thread says so and ends this process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from estimax.core.errors import ClusterError
from estimax.parallel.aborts import end_now, report_to, say_why
from estimax.parallel.cluster import Cluster
from estimax.parallel.meeting import Member
from estimax.parallel.starting import join
from estimax.parallel.watching import PREFIX as _PREFIX
from estimax.parallel.watching import Place, Store, Watcher

_log = logging.getLogger("estimax")

DEFAULT_LOST_AFTER_SECS = 30.0
BATCH = "batch"  # the topic of the input thread, with which all agree on a batch
# A wait in the store cannot be interrupted by a signal, so it is made of short ones.
_WAIT_MS = 2_000
# The watcher ends a wait for a process that is lost, or that waits itself. Another
# wait, such as the one for an evaluation of the chief, may take long, but not for ever.
_WAIT_LIMIT_SECS = 24 * 3600.0
_REMIND_SECS = 600.0
_SIGTERM_STATUS = 128 + signal.SIGTERM


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
        self._waits: dict[int, tuple[str, int]] = {}  # topic and number, by thread
        self._thread: int | None = None  # the thread that trains with the others
        self._step = 0
        self._awaits_input = False
        self._where: dict[str, str] = {}
        self._watcher: Watcher | None = None
        self._has_ended = True
        self._has_failed = False  # by an error of its own, of which it told the others

    @property
    def is_chief(self) -> bool:
        """Whether this is process 0, which writes what all have in common."""
        return self.index == 0

    def name_of(self, index: int) -> str:
        """Return the role of a process and where it runs."""
        with contextlib.suppress(RuntimeError):  # the store is gone with the chief
            self._where |= dict(self._store.key_value_dir_get(f"{_PREFIX}/where/"))
        return self._known_name_of(index)

    def _known_name_of(self, index: int) -> str:
        where = self._where.get(f"{_PREFIX}/where/{index}", "")
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
        thread = threading.get_ident()
        self._waits[thread] = (topic, number)
        try:
            return self._gather(topic, number, value, is_given_up or (lambda: False))
        finally:
            del self._waits[thread]

    def _gather(
        self, topic: str, number: int, value: Any, is_given_up: Callable[[], bool]
    ) -> list[Any]:
        key = f"{_PREFIX}/{topic}/{number}"
        text = json.dumps(value)
        if not self.is_chief:
            self._store.key_value_set(f"{key}/{self.index}", text)
            together = self._wait_for(f"{key}/all", topic, 0, is_given_up)
        else:
            texts = [text]
            for other in range(1, self.count):
                texts.append(
                    self._wait_for(f"{key}/{other}", topic, other, is_given_up)
                )
            together = f"[{', '.join(texts)}]"
            self._store.key_value_set(f"{key}/all", together)
            if number:
                # All have sent this round, so all have received the one before it.
                self._store.key_value_delete(f"{_PREFIX}/{topic}/{number - 1}/")
        values: list[Any] = json.loads(together)
        return values

    def broadcast(self, topic: str, value: Any) -> Any:
        """Return the value of process 0; the values of the others are ignored."""
        return self.gather(topic, value if self.is_chief else None)[0]

    def wait(self, topic: str) -> None:
        """Wait until all processes have called this."""
        self.gather(topic, None)

    def _wait_for(
        self, key: str, topic: str, whom: int, is_given_up: Callable[[], bool]
    ) -> str:
        began = reminded = time.monotonic()
        while True:
            if is_given_up():
                raise ClusterError("this process no longer waits for the others.")
            try:
                return self._store.blocking_key_value_get(key, _WAIT_MS)
            except RuntimeError as error:  # the base of JAX's errors
                if "DEADLINE_EXCEEDED" not in str(error):
                    self._await_loss()
                    raise ClusterError(
                        f"the chief cannot be reached in {topic!r}: {error}"
                    ) from error
            now = time.monotonic()
            if now - began > _WAIT_LIMIT_SECS:
                raise ClusterError(
                    f"{self.name_of(whom)} did not take part in {topic!r} within "
                    f"{_WAIT_LIMIT_SECS / 3600:g} hours, although it is running."
                )
            if now - reminded > _REMIND_SECS:
                reminded = now
                _log.info(
                    "waiting for %s in %r for %.0f minutes",
                    self.name_of(whom),
                    topic,
                    (now - began) / 60,
                )

    def begin_step(self, step: int) -> None:
        """Note for the watchers that this process begins a step with the others."""
        self._step = step

    @contextmanager
    def awaiting_input(self, is_awaited: bool = True) -> Iterator[None]:
        """Note for the watchers that the training thread waits for its next batch.

        With False: that it does not, for a part of such a block.
        """
        before, self._awaits_input = self._awaits_input, is_awaited
        try:
            yield
        finally:
            self._awaits_input = before

    def place(self) -> Place | None:
        """Return where this process is; None if it does not train with the others."""
        thread, waits = self._thread, dict(self._waits)
        if thread is None:
            return None
        if thread in waits:
            return Place(self._step, *waits[thread])
        if self._awaits_input:
            for topic, number in waits.values():
                if topic == BATCH:
                    return Place(self._step, topic, number)
        return Place(self._step)

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
        self._step = 0
        self._thread = threading.get_ident()
        self.tell()
        self.name_of(0)  # which is not known any more when the chief is lost
        try:
            with _exiting_on_sigterm():
                yield
                self.end_together()
        except BaseException as error:
            if not self._has_ended:
                self._fail(error)
            raise
        finally:
            self._thread = None

    def end_together(self) -> None:
        """Wait until all processes have reached the end of their training."""
        if self._has_ended:
            return
        self.wait("end")
        self._has_ended = True
        self._thread = None
        self.tell(done="")

    def _fail(self, error: BaseException) -> None:
        if self._has_failed:  # in a block within this one
            return
        kind, text = type(error).__name__, str(error)
        if isinstance(error, SystemExit) and error.code == _SIGTERM_STATUS:
            kind, text = "it was stopped by SIGTERM", ""
        try:
            if _is_of_collective(error):
                # The watcher finds out which, and ends this process with a message.
                _log.error(
                    "a step failed, most likely because another process was lost. "
                    "Waiting to see which. The error is %s: %s",
                    kind,
                    text,
                )
                self._await_loss()
        finally:  # also if a signal ends the wait
            self._has_failed = True
            with contextlib.suppress(RuntimeError):  # the chief is gone
                self.tell(failed=f"{kind}: {text}" if text else kind)
            if self._watcher is not None:
                self._watcher.stop()  # this process ends by its own error
            _leave()

    def _await_loss(self) -> None:
        """Give the watcher time to end this process, with the name of a lost one."""
        if self._watcher is not None and not self._has_failed:
            self._watcher.wait_for_loss()

    def lose_service(self) -> None:
        """End this process: the service of `jax.distributed`, in the chief, is gone.

        The thread that calls this holds a lock of JAX's client, so the store cannot be
        used here.
        """
        while self._has_failed:
            # The others end because of the error of this process, which is about to
            # print it and to exit.
            time.sleep(60)
        say_why(
            "JAX reports that a process was lost."
            if self.is_chief
            else f"{self._known_name_of(0)} was lost: it has ended or cannot be "
            "reached. Was it killed? Its own output may say more."
        )
        end_now()

    def abort(self, exception: str) -> None:
        """Tell the others that an exception of C++ ends this process."""
        if self._has_failed or self._watcher is None:
            return
        is_mismatch = "gloo" in exception and "Enforce" in exception
        if not is_mismatch:  # perhaps a connection broke because a process was lost
            self._await_loss()
        problem = f"{self.name_of(self.index)} ended by an exception of C++, see there."
        if is_mismatch:
            problem = (
                f"{self.name_of(self.index)} ended inside a collective (Gloo), which "
                "does not fit the one of another process. The processes run different "
                "programs: compare their settings, hooks, data and versions."
            )
        with contextlib.suppress(RuntimeError):
            self.tell(ends=problem)
        say_why(problem)
        if self.is_chief:
            self._watcher.wait_for_others()

    def _end(self, problem: str) -> None:
        """Print why this process ends, tell the others, and end it."""
        say_why(problem)
        with contextlib.suppress(RuntimeError):
            self.tell(ends=problem)
        if self.is_chief and self._watcher is not None:
            # They must read it before the store ends with this process.
            self._watcher.wait_for_others()
        end_now()

    def watch(self, lost_after_secs: float) -> None:
        """Start the thread that ends this process if another is lost."""
        where = f"pid {os.getpid()} on {socket.gethostname()}"
        self._store.key_value_set(f"{_PREFIX}/where/{self.index}", where)
        self._watcher = Watcher(self._store, self, lost_after_secs, self._end)
        self._watcher.start()

    def leave(self) -> None:
        """Tell the others that this process exits, and stop watching them."""
        if self._has_failed:
            if self.is_chief and self._watcher is not None:
                # The others must see it before the store ends with this process.
                self._watcher.wait_for_others()
            return
        if self._has_ended:
            with contextlib.suppress(RuntimeError):  # the chief is gone
                self.tell(failed="it has exited", done="")
        if self._watcher is not None:
            self._watcher.stop()


def _is_of_collective(error: BaseException) -> bool:
    """Return whether a step failed, most likely because a connection broke.

    JAX raises a ValueError if the step fails while it is dispatched.

    >>> _is_of_collective(ValueError("UNKNOWN: Gloo all-reduce failed: …"))
    True
    """
    is_dispatched = isinstance(error, ValueError) and "Gloo " in str(error)
    return is_dispatched or isinstance(error, jax.errors.JaxRuntimeError)


@contextmanager
def _exiting_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that the other processes are told of it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit_by_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_by_signal(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


_connected: Processes | None = None  # as `jax.distributed`, once in a process


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
        process, count = cluster.process_id, cluster.num_worker_replicas
        me = Member(str(cluster.coordinator), process, count, cluster.name_of)
        _log.info(
            "%s: waiting for the processes of the cluster at %s",
            cluster.name_of(process),
            me.address,
        )
        join(me, start_timeout_secs, lost_after_secs=lost_after_secs)
    index, count = jax.process_index(), jax.process_count()
    if (index, count) != (cluster.process_id, cluster.num_worker_replicas):
        raise ClusterError(
            f"the cluster makes this process number {cluster.process_id} of "
            f"{cluster.num_worker_replicas}, but jax.distributed was initialized as "
            f"{index} of {count}. Leave the initialization to estimax."
        )
    _handle_sigterm_in_python()
    peers = Processes(_store(), index, count, cluster.name_of)
    report_to(peers)
    peers.watch(lost_after_secs)
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


def _handle_sigterm_in_python() -> None:
    """Set the handler of SIGTERM again: JAX has replaced it, and swallows the signal.

    JAX's handler only notes the signal, for programs that ask JAX for it.
    """
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)


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
