"""What the system calls things: addresses, the user's cache folder, the processor.

>>> is_address("10.0.0.1:4000"), is_address("10.0.0.1"), is_address("a:99999")
(True, False, False)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
from pathlib import Path


def is_address(text: str) -> bool:
    """Return whether a text is host:port."""
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 2**16
    return bool(colon and host and is_port and not any(map(str.isspace, host)))


def user_cache_folder() -> Path:
    """Return the folder of this user's caches, as the system names it."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@functools.cache
def processor() -> str:
    """Return a name for processors with the same instructions, such as x86_64-1a2b3c4d.

    Only Linux lists the instructions; elsewhere home directories are rarely shared.
    """
    described = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described = next(
            (line for line in lines if line.startswith(("flags", "Features"))),
            described,
        )
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    return f"{platform.machine() or 'unknown'}-{digest}"
