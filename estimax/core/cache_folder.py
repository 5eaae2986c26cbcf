"""The folder of the user for files that can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache_folder() -> Path:
    """Return the folder of this user's caches, as the system names it."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
