"""End a process in estimax's words where C++ would end it with its own.

    start_jax("10.0.0.1:4000", num_processes=2, process_id=0)
    report_to(processes)

When the chief is gone, the client of `jax.distributed` ends its process with a stack of
C++. It takes a function to call instead. jaxlib 0.10 cannot convert the argument of
that function: it throws `std::bad_cast` in a thread of its own, and C++ then calls the
terminate handler. So both are set, the function and the handler, and do the same.
Collectives that do not fit together (Gloo) throw in a thread as well; the other
processes are told before C++ prints its message and ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
from functools import partial
from typing import Any, Protocol

import jax

LOST_STATUS = 75  # exit status of a process that ends because another was lost
_RUNTIME = "libstdc++.so.6"
_SET_TERMINATE = "_ZSt13set_terminatePFvvE"  # std::set_terminate
_BAD_CAST = "St8bad_cast"
_Handler = ctypes.CFUNCTYPE(None)
_ending = threading.Lock()
_kept: list[Any] = []  # C++ calls these functions for as long as the process lives
_receiver: Receiver | None = None


class Receiver(Protocol):
    """Who is told why C++ is about to end this process."""

    def lose_service(self) -> None:
        """End this process: the service of `jax.distributed` is gone."""

    def abort(self, exception: str) -> None:
        """Tell the other processes that an exception of C++ ends this process."""


def report_to(receiver: Receiver) -> None:
    """Tell `receiver` from now on why C++ ends this process."""
    global _receiver
    _receiver = receiver


def start_jax(*arguments: Any, **settings: Any) -> None:
    """Call `jax.distributed.initialize`, so that this process ends in our words.

    JAX's preemption service is left out: it takes SIGTERM from Python and keeps it for
    programs that ask JAX for it. Without the C++ runtime of Linux, JAX ends the process
    in its own words.
    """
    from jax._src import distributed

    native: Any = distributed._jax  # type: ignore[attr-defined]
    client = native.get_distributed_runtime_client
    with contextlib.ExitStack() as stack:
        service = getattr(distributed, "_ENABLE_PREEMPTION_SERVICE", None)
        if service is not None:
            stack.enter_context(service(False))
        if _set_terminate_handler():
            ours = partial(client, missed_heartbeat_callback=lambda _: _lose_service())
            native.get_distributed_runtime_client = ours
            stack.callback(setattr, native, "get_distributed_runtime_client", client)
        jax.distributed.initialize(*arguments, **settings)


def say_why(problem: str) -> None:
    """Print why this process ends. If another thread has done so, wait for the end."""
    if not _ending.acquire(blocking=False):
        while True:
            time.sleep(60)
    print(
        f"estimax.core.errors.ClusterError: {problem} This process ends. Start all "
        "processes again: training continues at the latest checkpoint.",
        file=sys.stderr,
        flush=True,
    )


def end_now() -> None:
    """End this process.

    Not by an exception: the main thread may wait in a collective for ever.
    """
    logging.shutdown()
    with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or closed
        sys.stdout.flush()
    os._exit(LOST_STATUS)


def _lose_service() -> None:
    if _receiver is not None:
        _receiver.lose_service()
    say_why("the processes could not be connected: JAX's service cannot be reached.")
    end_now()


def _set_terminate_handler() -> bool:
    if _kept:
        return True
    try:
        runtime = ctypes.CDLL(_RUNTIME)
        set_terminate = runtime[_SET_TERMINATE]
        exception_type = runtime["__cxa_current_exception_type"]
    except (OSError, AttributeError):
        return False
    exception_type.restype = ctypes.c_void_p
    set_terminate.restype = ctypes.c_void_p
    set_terminate.argtypes = [ctypes.c_void_p]
    before: list[Any] = []

    def handle() -> None:
        name = _name_of(exception_type())
        if name == _BAD_CAST:
            _lose_service()
        elif _receiver is not None:
            _receiver.abort(name)
        before[0]()  # prints the exception and ends the process

    handler = _Handler(handle)
    _kept.append(handler)
    before.append(_Handler(set_terminate(ctypes.cast(handler, ctypes.c_void_p))))
    return True


def _name_of(exception_type: int | None) -> str:
    """Return the name in a `std::type_info`, whose second field it is."""
    if not exception_type:
        return ""
    at = exception_type + ctypes.sizeof(ctypes.c_void_p)
    return (ctypes.c_char_p.from_address(at).value or b"").decode(errors="replace")
