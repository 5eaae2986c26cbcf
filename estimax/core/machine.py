"""What the system calls things: addresses of processes, the cache folder of the user.

>>> is_address("10.0.0.1:4000"), is_address("10.0.0.1"), is_address("a:99999")
(True, False, False)
"""

from __future__ import annotations

import os
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
