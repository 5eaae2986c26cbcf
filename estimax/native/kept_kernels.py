"""Compiled kernels outside of the package, so that a new installation finds them.

    fetch(source, shared)     # before a module of kernels is imported
    keep(source, shared)      # after it was compiled

Numba keeps compiled code beside the source, in `__pycache__`, which `pip install`
removes. A copy in the cache folder of the user is named by the content of the source,
so that other environments and versions find it as well. Numba compares the content and
its own version before it uses a file, and the processor too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from estimax.core.cache_folder import user_cache_folder


def fetch(source: Path, shared: Iterable[Path]) -> None:
    """Copy what was compiled from this source to where Numba looks for it."""
    with contextlib.suppress(OSError, RuntimeError):  # a cache that cannot be used
        _copy(_folder(source, shared), _beside(source), source.stem)


def keep(source: Path, shared: Iterable[Path]) -> None:
    """Copy what Numba has compiled from this source to the cache folder."""
    with contextlib.suppress(OSError, RuntimeError):
        _copy(_beside(source), _folder(source, shared), source.stem)


def _beside(source: Path) -> Path:
    return source.parent / "__pycache__"


def _folder(source: Path, shared: Iterable[Path]) -> Path:
    digest = hashlib.sha256()
    for path in (source, *shared):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    with contextlib.suppress(PackageNotFoundError):
        digest.update(version("numba").encode())
    name = f"{source.stem}-{digest.hexdigest()[:16]}"
    return user_cache_folder() / "estimax" / "kernels" / name


def _copy(here: Path, there: Path, stem: str) -> None:
    # Data first: an index without its data would be compiled again.
    files = [*here.glob(f"{stem}.*.nbc"), *here.glob(f"{stem}.*.nbi")]
    if not files:
        return
    there.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in files:
        # Renamed when it is complete: other processes read the folder meanwhile.
        handle, made = tempfile.mkstemp(dir=there)
        os.close(handle)
        shutil.copyfile(file, made)
        os.replace(made, there / file.name)
