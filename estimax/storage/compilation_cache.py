"""The persistent compilation cache: a start finds what earlier starts have compiled.

    keep_compiled_programs("auto")       # before a program is compiled

The cache is JAX's own: a program is found by a hash of its code, of the compiler's
options and version, and of the devices. JAX leaves out programs that call back into
Python. Programs that call our kernels are kept: they name a kernel, and JAX finds it by
its name in the new process, which has registered it while it traced the model.

This module chooses the folder, turns the cache on, and keeps its size bounded. JAX can
do the latter only with another package, `filelock`. A cache that cannot be used never
fails training: it is left off.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from estimax.core.machine import processor, user_cache_folder

AUTO = "auto"  # the cache folder of the user
MAX_BYTES = 512 * 1024 * 1024

_MAX_BYTES_AFTER = MAX_BYTES * 3 // 4  # what is left when old programs were removed
_WRITING_SECONDS = 60.0  # an empty file that is older was left by a killed process
_log = logging.getLogger("estimax")
# The setting is JAX's and belongs to the process, so this is global as well: the folder
# that was last set here, and not by the program or the environment.
_set_here: str | None = None


def keep_compiled_programs(folder: str | None) -> str | None:
    """Make JAX keep every program that it compiles in a folder, from now on.

    "auto" uses the cache folder of the user, unless the program or the environment has
    set JAX's own option; None turns off what an earlier call has turned on. The setting
    belongs to the process: the last one is used for all models in it. Small programs
    are kept too, which JAX does not do by default: a start compiles dozens of them.

    Returns:
      The folder that is used from now on; None if programs are not kept.
    """
    current: str | None = jax.config.values["jax_compilation_cache_dir"]
    is_ours = current is None or current == _set_here
    if not is_ours and folder in (AUTO, None):
        return current
    wanted = str(default_folder()) if folder == AUTO else folder
    if wanted == current:
        return current
    usable = wanted if wanted is None or _is_usable(Path(wanted)) else None
    _set(usable)
    return usable


def default_folder() -> Path:
    """Return the folder of this user's compiled programs, for this kind of processor.

    A home directory may be shared by machines with different processors, and JAX does
    not compare the instructions that a program was compiled for.
    """
    return user_cache_folder() / "estimax" / "compiled" / processor()


def prune(folder: Path, *, now: float, max_bytes: int, max_bytes_after: int) -> None:
    """Remove the programs that were used the longest ago, if there are too many bytes.

    Another process may read or remove the files meanwhile. A program that is missing is
    compiled again.
    """
    files = []
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):
            found = path.stat()
            if found.st_size == 0 and now - found.st_mtime > _WRITING_SECONDS:
                path.unlink()
            else:
                # The time of access is exact to a day on most systems, which suffices.
                used = max(found.st_atime, found.st_mtime)
                files.append((used, found.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= max_bytes:
        return
    for _, size, path in sorted(files):
        if total <= max_bytes_after:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _set(folder: str | None) -> None:
    global _set_here
    _set_here = folder
    settings: dict[str, Any] = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        # There is no other way: JAX reads the folder from its config only.
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    # JAX opens the folder once, at the first program that it compiles.
    jax_cache.reset_cache()


def _is_usable(folder: Path) -> bool:
    """Make the folder and bring it to its size; return whether files can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} is not writable")
        prune(
            folder,
            now=time.time(),
            max_bytes=MAX_BYTES,
            max_bytes_after=_MAX_BYTES_AFTER,
        )
    except OSError as error:
        _log.info("compiled programs are not kept for the next start: %s", error)
        return False
    return True
