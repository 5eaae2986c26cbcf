"""Where compiled kernels are kept, and whether a module of them is complete.

    kernel_cache.is_complete(source)       # before the module is imported
    kernel_cache.complete(source)          # after it was

Numba keeps compiled code beside the source, in `__pycache__`, which `pip install`
removes. A copy in the cache folder of the user is named by the content of the source,
so that other environments and versions find it as well. Numba compares the content and
its own version before it uses a file, and the processor too.

Numba writes a file for each function. A process that ends while it compiles leaves some
of them, so a complete module has a mark: a file that lists the others.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from estimax.core.machine import processor, user_cache_folder

KERNELS = Path(__file__).parent / "kernels"
# Modules whose functions and constants are compiled into several modules of kernels.
_SHARED = (
    *(KERNELS / name for name in ("call_frames.py", "memory.py", "protos.py")),
    *(KERNELS.parent / "reference" / name for name in ("hashing.py", "records.py")),
)


def source_of(name: str) -> Path:
    """Return the source file of a module of kernels."""
    return KERNELS / f"{name}.py"


def folder_for_all() -> Path:
    """Return the folder with the copies of all modules, in the user's cache folder."""
    return user_cache_folder() / "estimax" / "kernels"


def is_complete(source: Path, shared: Sequence[Path] = _SHARED) -> bool:
    """Return whether all functions of a module are compiled in its present form.

    Look in the user's cache folder as well, for what an earlier installation compiled.
    Cache indices that are older than a shared module are removed: Numba itself only
    compares the file that a kernel is in.
    """
    try:
        numba_folder(source)
    except RuntimeError:  # a user without a home has no cache
        return False
    if _is_marked(source, shared):
        return True
    newest = max(file.stat().st_mtime for file in (source, *shared))
    for file in numba_folder(source).glob(f"{source.stem}.*.nbi"):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < newest:
                file.unlink()
    with contextlib.suppress(OSError, RuntimeError):  # a cache that cannot be used
        _copy(_kept_folder(source, shared), numba_folder(source), source, shared)
    return _is_marked(source, shared)


def complete(source: Path, shared: Sequence[Path] = _SHARED) -> None:
    """Mark a module, all of whose functions were compiled, and keep a copy of it."""
    # Without a cache that can be written to, the next process compiles again.
    with contextlib.suppress(OSError, RuntimeError):
        here = numba_folder(source)
        names = sorted(file.name for file in here.glob(f"{source.stem}.*.nb?"))
        if names:
            _write(here / _mark_of(source, shared), "\n".join(names).encode())
            _copy(here, _kept_folder(source, shared), source, shared)


def numba_folder(source: Path) -> Path:
    """Return where Numba keeps what it compiles from a source file.

    Computed as Numba does, because importing Numba takes half a second. If a version of
    Numba has another rule, a new installation compiles again.
    """
    beside = source.parent / "__pycache__"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if not given and os.access(beside if beside.exists() else source.parent, os.W_OK):
        return beside
    everywhere = user_cache_folder() / "numba"
    if sys.platform == "win32":
        everywhere /= "Cache"
    digest = hashlib.sha1(str(source.parent).encode()).hexdigest()
    return Path(given or everywhere) / f"{source.parent.name}_{digest}"


def _is_marked(source: Path, shared: Sequence[Path]) -> bool:
    here = numba_folder(source)
    try:
        names = (here / _mark_of(source, shared)).read_text().splitlines()
    except OSError:
        return False
    return all((here / name).exists() for name in names)


def _mark_of(source: Path, shared: Sequence[Path]) -> str:
    # Code for another processor or Python is compiled anew, although its files are in
    # the same folder.
    return f"{source.stem}-{_digest(source, *shared)}-{processor()}.{_python()}.done"


def _kept_folder(source: Path, shared: Sequence[Path]) -> Path:
    return folder_for_all() / f"{source.stem}-{_digest(source, *shared)}"


def _python() -> str:
    return str(sys.implementation.cache_tag)


def _digest(*paths: Path) -> str:
    """Return 16 hex digits for the content of the files and the version of Numba."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(_content_digest(path, path.stat().st_mtime))
    with contextlib.suppress(PackageNotFoundError):
        digest.update(version("numba").encode())
    return digest.hexdigest()[:16]


@functools.cache
def _content_digest(path: Path, mtime: float) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _copy(here: Path, there: Path, source: Path, shared: Sequence[Path]) -> None:
    """Copy a complete module; do nothing if it is not complete `here`."""
    mark = here / _mark_of(source, shared)
    if not mark.exists():
        return
    there.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Data (.nbc) before indices (.nbi), and the mark last: whoever finds a file finds
    # what it refers to.
    for name in [*sorted(mark.read_text().splitlines()), mark.name]:
        _write(there / name, (here / name).read_bytes())


def _write(path: Path, content: bytes) -> None:
    # Renamed when it is complete: other processes read the folder meanwhile.
    handle, made = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
