"""The threads of a server beside those that run batches, and how a load is stopped.

    decode = DecodeThreads()
    body = await decode.run(len(data), parse, data)    # in a thread if it is large

    signal = StopSignal()
    run_in_thread(lambda: load(path, signal), "load")
    signal.check()          # in the load, between its parts: raises if stopped
    signal.stop()           # nobody wants the version any more

    reloads = ReloadThreads(manager.reload)
    await reloads.run(configs, 600.0)

Who may wait for what: the event loop reads every request and answers health checks, so
it waits for nothing. Decoding has two threads, whose number bounds its memory. A load
has a thread of its own, which cannot be ended from outside: it may wait for a disk. It
is therefore only told to stop, and whatever it returns later is freed. A reload holds a
thread until its versions are loaded, for minutes; in the threads that the event loop
has for everything, a few reloads would keep out all other work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from estimax.serving.config import ModelConfig
from estimax.serving.status import Code, ServingError


class LoadStoppedError(Exception):
    """A load was told to stop. Nobody waits for its result."""


class StopSignal:
    """Tells a load in another thread to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether the load was told to stop."""
        return self._event.is_set()

    def stop(self) -> None:
        """Tell the load to stop."""
        self._event.set()

    def check(self) -> None:
        """Raise `LoadStoppedError` if the load was told to stop."""
        if self._event.is_set():
            raise LoadStoppedError

    def wait(self, seconds: float) -> None:
        """Wait for some time, and raise `LoadStoppedError` as soon as told to stop."""
        self._event.wait(seconds)
        self.check()


def run_in_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Start `work` in a thread that does not keep the process from ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


T = TypeVar("T")
SMALL: Final = 32 * 1024  # bytes
LARGE: Final = SMALL + 1  # for work whose size is not known


class DecodeThreads:
    """Threads for work that would hold up the event loop.

    Args:
      threads: How many pieces of work run at the same time.
    """

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    async def run(self, size: int, work: Callable[..., T], *arguments: Any) -> T:
        """Return `work(*arguments)`, from a thread if `size` bytes are too many.

        >>> asyncio.run(DecodeThreads().run(10**6, len, "abc"))
        3
        """
        if size <= SMALL:
            return work(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)


_MOST: Final = 4  # reloads: one under way, and some that wait for it


class ReloadThreads:
    """Applies configurations in threads.

    Args:
      reload: Applies models within some seconds, or raises.
    """

    def __init__(self, reload: Callable[[Sequence[ModelConfig], float], None]) -> None:
        self._reload = reload
        self._threads = ThreadPoolExecutor(_MOST, thread_name_prefix="reload")
        self._free = threading.Semaphore(_MOST)

    async def run(self, configs: Sequence[ModelConfig], seconds: float) -> None:
        """Apply models.

        Raises:
          ServingError: Too many reloads wait, or what `reload` raises.
        """
        if not self._free.acquire(blocking=False):
            raise ServingError(
                Code.ABORTED,
                f"{_MOST} other configurations are being loaded; try again later.",
            )
        future = self._threads.submit(self._reload, configs, seconds)
        # Not at the end of this call: a client may go while its reload goes on.
        future.add_done_callback(lambda _: self._free.release())
        await asyncio.wrap_future(future)
