"""Run large work in threads, so that the event loop answers others meanwhile.

    large = OffLoop()
    body = await large.run(len(data), json_values.parse, data)

The event loop reads every request and answers health checks. Work of a few hundred
microseconds runs there, because handing it to a thread takes 50 of them. Work on more
than 32 kB runs in one of a few threads; their number bounds the memory of decoding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")
SMALL: Final = 32 * 1024  # bytes
LARGE: Final = SMALL + 1  # for work whose size is not known


class OffLoop:
    """Threads for work that would hold up the event loop.

    Args:
      threads: How many pieces of work run at the same time.
    """

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    async def run(self, size: int, work: Callable[..., T], *arguments: Any) -> T:
        """Return `work(*arguments)`, from a thread if `size` bytes are too many.

        >>> asyncio.run(OffLoop().run(10**6, len, "abc"))
        3
        """
        if size <= SMALL:
            return work(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)
