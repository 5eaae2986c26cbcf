"""Compile kernels in a child process, while the program uses the reference.

    background.request("hashing", then=use)      # returns at once
    use(None)                                    # later, in a thread: compiled

One thread of a program waits for its child process, one module after the other. On a
machine, one program of a user compiles at a time: the others wait for its result, which
they find in the same cache. When a program ends, its child is ended. What the child has
compiled until then stays in the cache.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
from collections.abc import Callable

from estimax.core.errors import InUseError
from estimax.native import kernel_cache
from estimax.storage import locks
from estimax.storage.worker_pool import WorkerEnd, WorkerPool

# Far longer than any module takes (10 s), also on a machine that is busy.
_MOST_SECONDS = 600.0
_IDLE_SECONDS = 5.0  # after which a child without work is ended
_POLL_SECONDS = 0.1
_COMPILING = locks.Activity(
    "compiling.lock", "compiling kernels", "Both would compile the same.", "wait"
)

Then = Callable[[str | None], None]


class _Compiler:
    """The requests of this process, and the thread that works on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What this process will use comes first; then in the order of the requests.
        self._requests: queue.PriorityQueue[tuple[bool, int, str, Then]]
        self._requests = queue.PriorityQueue()
        self._count = 0
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._pool: WorkerPool | None = None

    def request(self, name: str, then: Then, is_urgent: bool) -> None:
        with self._lock:
            self._count += 1
            self._requests.put((not is_urgent, self._count, name, then))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="estimax-kernels", daemon=True
                )
                self._thread.start()

    def end(self) -> None:
        """End the child, and wait until the lock is free."""
        self._ended.set()
        thread = self._thread
        if thread is not None:
            thread.join(10)

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                *_, name, then = self._requests.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._close()
                with self._lock:
                    if not self._requests.empty():
                        continue
                    self._thread = None
                    return
            problem: str | None
            try:
                problem = self._compile(name)
            except Exception as error:  # a full disk, no more processes, …
                problem = f"{type(error).__name__}: {error}"
            if not self._ended.is_set():
                then(problem)
        self._close()

    def _compile(self, name: str) -> str | None:
        """Wait until a module is compiled, here or by another program."""
        source = kernel_cache.source_of(name)
        until = time.monotonic() + _MOST_SECONDS
        while time.monotonic() < until:
            if self._ended.is_set() or kernel_cache.is_complete(source):
                return None
            try:
                with locks.hold(kernel_cache.folder_for_all(), name, _COMPILING):
                    return self._compile_here(name, until)
            except InUseError:
                self._ended.wait(5 * _POLL_SECONDS)
            # There is no lock in a folder that cannot be written to, or without home.
            except (OSError, RuntimeError):
                return self._compile_here(name, until)
        return f"not compiled by another process within {_MOST_SECONDS:.0f} s"

    def _compile_here(self, name: str, until: float) -> str | None:
        if kernel_cache.is_complete(kernel_cache.source_of(name)):
            return None  # by the program that had the lock before
        if self._pool is None:
            self._pool = WorkerPool("estimax.native.kernel_worker", 1)
        self._pool.send(0, {"compile": name})
        while not self._ended.is_set():
            try:
                _, answer = self._pool.receive(timeout=_POLL_SECONDS)
            except queue.Empty:
                if time.monotonic() < until:
                    continue
                self._close()
                return f"the compiler did not end within {_MOST_SECONDS:.0f} s"
            if isinstance(answer, WorkerEnd):
                return f"the compiler ended ({answer.signal or answer.status})"
            return answer["error"] if answer else None
        return None

    def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(at_once=True)

    def forget(self) -> None:
        """Forget the child, which is that of the process that was forked."""
        if self._pool is not None:
            self._pool.forget()


_compiler = _Compiler()


def can_compile() -> bool:
    """Return whether a child process can be started.

    In a program that was frozen into one file, `sys.executable` is that program.
    """
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def request(name: str, then: Then, *, is_urgent: bool = True) -> None:
    """Have a module compiled; `then` is called in a thread, with a problem or None.

    Urgent requests are served before others.
    """
    _compiler.request(name, then, is_urgent)


def _start_again() -> None:
    global _compiler
    _compiler.forget()
    _compiler = _Compiler()


# The program looks the compiler up at its end: a forked process has another one.
atexit.register(lambda: _compiler.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
