"""Threads that wait for new configurations, apart from those that answer requests.

    reloads = ReloadThreads(manager.reload)
    await reloads.run(configs, 600.0)

A reload holds a thread until its versions are loaded, or until the reload before it is
done, for minutes. In the threads that the event loop has for everything, a few of them
would keep out all other work. So they have threads of their own, and no more of them
are taken than there are threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from estimax.serving.config import ModelConfig
from estimax.serving.status import Code, ServingError

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
