"""The way to compiled kernels: imported when first needed, and announced."""

import contextlib
import functools
import importlib
import logging
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

# Used by several modules of kernels.
_KERNELS = Path(__file__).parent / "kernels"
_SHARED = [
    _KERNELS / "call_frames.py",
    _KERNELS / "memory.py",
    _KERNELS / "protos.py",
]
_log = logging.getLogger("estimax")


@functools.cache
def load(name: str) -> ModuleType:
    """Import a module of kernels; its first import on a machine compiles it."""
    # Numba alone takes half a second to import: not at `import estimax`.
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    if not is_cached(Path(spec.origin)):
        _log.info("compiling %s (once per machine, about 10 seconds)", name)
    return importlib.import_module(name)


def is_cached(source: Path) -> bool:
    """Whether a Numba index newer than the source exists beside it.

    Indices older than the functions that all kernels share are removed: Numba looks
    only at the file a kernel is in.
    """
    # Numba writes elsewhere when this folder is read-only; then the line is logged
    # once per process, which is a line too many but never one too few.
    indices = list((source.parent / "__pycache__").glob(f"{source.stem}.*.nbi"))
    newest = max(file.stat().st_mtime for file in (source, *_SHARED))
    stale = [file for file in indices if file.stat().st_mtime < newest]
    for file in stale:
        with contextlib.suppress(OSError):
            file.unlink()
    return len(stale) < len(indices)
